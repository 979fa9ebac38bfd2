"""The pod template's part of the CRD's schema, made from the API server's own OpenAPI."""
