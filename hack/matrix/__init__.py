"""`python -m hack.matrix kubectl|sdk`: test old and new clients with a real API server, the manifests and the operator.

Pinned releases of kubectl and of the Python SDKs are downloaded once into the cache. Pytest runs `test_kubectl` and
`test_sdks`; the latter runs `programs` in the SDKs' own environments. A known difference is marked as an expected failure, with
the reason. If the difference disappears, the matrix fails.
"""
