"""`python -m hack.matrix kubectl|sdk`: clients of every age on a real API server with the manifests and the operator.

Pinned releases of kubectl and of the Python SDKs are fetched once into the cache, and tried by pytest: `test_kubectl` and
`test_sdks`, which runs `programs` in the SDKs' own environments. A known difference of a client or a server is an expected
failure with its reason; the matrix fails when the difference no longer exists.
"""
