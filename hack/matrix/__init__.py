"""`python -m hack.matrix kubectl|sdk`: clients of every age on a real API server with the manifests and the operator.

In: pinned releases of kubectl and of the Python SDKs, fetched once into the cache. Out: one line per client and check, and an
exit code. A known difference of a client or a server is listed in `report` with its reason: it is printed, and the matrix
fails when the difference no longer exists.

Reading order: `__main__`, `report` (pure), `cluster`; then `kubectl`, `releases`, `installing` and `jobs`; then `sdks` and
`programs`.
"""
