"""Where the API server is, and how we authenticate: settings from a pod or a kubeconfig, and credentials that stay valid."""
