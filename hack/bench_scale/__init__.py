"""Measures the operator in a cluster of a hundred thousand pods: `make bench-scale`."""
