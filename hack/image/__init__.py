"""The operator's image without a registry: Debian's debootstrap, the wheel and its dependencies, as an OCI archive.

Use it on machines that can reach a Debian mirror and a package index but no image registry, such as those that run `make e2e`.
Elsewhere use the Dockerfile in the project's root.
"""
