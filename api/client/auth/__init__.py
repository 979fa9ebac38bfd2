"""The address of the API server and the client's credentials: settings from a pod or a kubeconfig, and their renewal."""
