"""The operator's image without a registry: Debian's debootstrap, the wheel and its dependencies, as an OCI archive.

For machines with access to a Debian mirror and a package index but no image registry, such as those that run `make e2e`.
Elsewhere use the Dockerfile in the project's root.
"""
