"""Metrics behind the ports of the other packages, the pages for Prometheus and probes, and the log."""
