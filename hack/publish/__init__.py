"""`make publish`: push the files of a release to an OCI registry.

Reading order: `artifacts` (what is pushed), `registry` (requests to the registry), `__main__`.
"""
