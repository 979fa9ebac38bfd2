"""Benchmarks: `python -m hack.bench`, or `make bench`."""
