"""The programs that run in an SDK's own virtual environment: of this project they import `steps` and nothing else."""
