"""Metrics for all packages, the HTTP pages for Prometheus and probes, and logging."""
