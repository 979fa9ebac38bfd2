"""Metrics for all packages, the HTTP pages for Prometheus and probes, and logging."""


class ListenError(Exception):
    """Listening on the address of the pages failed. Defined here for programs that do not import prometheus_client."""
