"""`python -m hack.demo`: the operator at work on a real control plane, told line by line."""
