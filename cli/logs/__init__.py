"""The logs of a job's replicas: lines, streams that continue after restarts, and their output."""
