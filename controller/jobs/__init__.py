"""Shared by the job controllers of both dialects: children, expectations, pod outcomes, metrics."""
