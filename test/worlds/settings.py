"""The small jobs whose worlds are exhausted, and what may happen to each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.v1 import constants as c
from fakes.jobs import replica

if TYPE_CHECKING:
    from collections.abc import Callable

    from worlds.world import World

FAILURES: Final = {"error": 1, "killed": 137}
"""Ways for a pod to fail by its own doing, with exit codes: for good, and such that ExitCode restarts it."""


@dataclass(frozen=True)
class Setting:
    """A job, and what may happen to it.

    `surprises` are how many of the moves listed in `may` may happen altogether, `deep` how many with --deep. `script` are the
    user's edits, in their order, each at any moment. Events of resources not in `lags` are heard of at once; calls whose verb
    and resource are not in `open` are answered at once when they were carried out.
    """

    name: str
    spec: dict[str, Any]
    may: tuple[str, ...]
    surprises: int = 1
    deep: int = 2
    script: tuple[Callable[[World], World], ...] = ()
    lags: frozenset[str] = frozenset({"tfjobs", "pods"})
    open: frozenset[tuple[str, str]] = frozenset({("patch", "tfjobs"), ("create", "pods"), ("delete", "pods")})
    runs_at_once: bool = False
    has_stranger: bool = False
    never_ends: frozenset[str] = field(default_factory=lambda: frozenset({"PS"}))

    @property
    def raw(self) -> bytes:
        """The specification as JSON."""
        return encoded(self.spec)


def encoded(spec: dict[str, Any]) -> bytes:
    """A specification as the server keeps it."""
    return msgspec.json.encode(spec)


def spec(**replicas: tuple[int, str]) -> dict[str, Any]:
    """A specification by replica type: how many, and which restart policy."""
    return {"tfReplicaSpecs": {name: replica(count, policy) for name, (count, policy) in replicas.items()}}


def with_policy(given: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """With another run policy."""
    return given | {"runPolicy": given.get("runPolicy", {}) | policy}


PLAIN: Final = spec(Worker=(1, c.EXIT_CODE))
