"""`python -m hack.demo`: shows the operator on a real control plane, line by line."""
