"""`python -m hack.matrix kubectl|sdk`: clients of every age on a real API server with the manifests and the operator.

In: pinned releases of kubectl and of the Python SDKs, fetched once into the cache. Out: one line per client and check, and an
exit code. A known difference of a client or a server is listed in `differences` with its reason: it is printed, and the matrix
fails when the difference no longer exists.

Reading order: `__main__`, `report` and `differences` (pure), `cluster`; then `kubectl_matrix`, `releases`, `kubectl`,
`installing` and `jobs`; then `sdk_matrix`, `sdks` and `programs`.
"""
