"""Measures the whole operator on a real API server: `make bench-operator`."""
