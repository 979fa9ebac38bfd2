"""The operator's image without a registry: Debian's debootstrap, the wheel and its dependencies, as an OCI archive.

For machines that reach a Debian mirror and a package index but no image registry, such as those that run `make e2e`;
elsewhere the Dockerfile in the project's root makes the image.
"""
