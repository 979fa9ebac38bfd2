"""The history of a job and of its replicas, as values; those who show them decide how. Pure."""
