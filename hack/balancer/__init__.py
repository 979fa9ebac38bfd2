"""A TCP balancer before several API servers: `python -m hack.balancer --port PORT --backend PORT --backend PORT`."""
