"""`kubectl tfjob` and the modules that it is made of. It reads and writes only through the API server, as its user."""
