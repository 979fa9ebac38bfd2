"""`kubectl tfjob` and its modules. It accesses the cluster only through the API server, with its user's permissions."""
