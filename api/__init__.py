"""The Kubernetes API as this project sees it: values (`meta`, `core`, `v1`) and the client that fetches them (`client`)."""
