"""What logs tell about trainings: steps, losses, metrics. Pure."""
