"""Metrics for all packages, the pages for Prometheus and probes, and the log."""
