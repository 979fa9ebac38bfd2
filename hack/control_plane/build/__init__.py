"""Finds the programs of a control plane, or builds them from Debian's sources."""
