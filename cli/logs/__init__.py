"""The logs of a job's replicas: lines, streams that outlive restarts, and how they are shown."""
