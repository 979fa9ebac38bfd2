"""The history of a job and its replicas, as values for different displays. Pure."""
