"""The generated parts of the CRD: the schema of pod templates, and all versions except v1."""
