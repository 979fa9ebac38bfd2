"""The generated parts of the CRD: the schema of a pod template, from an API server's own OpenAPI, and all versions but v1."""
