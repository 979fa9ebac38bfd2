"""The programs of a control plane: found, or built from Debian's sources. Knows nothing of running them."""
