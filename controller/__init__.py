"""Controllers: components for any of them, and the operator that is built on these."""
