"""What the displays know of a job: its objects as values, and the rules for its state and reasons. Pure."""
