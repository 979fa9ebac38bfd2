"""The Kubernetes API as this project needs it: values (`meta`, `core`, `v1`), and the client that sends them (`client`)."""
