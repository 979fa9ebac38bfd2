"""Names that users may rely on. Pure."""

from __future__ import annotations


def child_name(job: str, replica_type: str, index: int) -> str:
    """Return the name of a replica's pod and of its service."""
    return f"{job}-{replica_type.lower()}-{index}"
