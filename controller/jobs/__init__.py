"""What the controllers of jobs, of both dialects, have in common: children, expectations, how a pod ends, counters."""
