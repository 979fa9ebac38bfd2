"""The Kubernetes API as used by this project: types (`meta`, `core`, `v1`), and a client (`client`)."""
