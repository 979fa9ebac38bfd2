"""The Kubernetes API: objects as types (`meta`, `core`), and a client (`client`)."""
