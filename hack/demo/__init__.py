"""`python -m hack.demo`: the operator at work on a real control plane, reported line by line."""
