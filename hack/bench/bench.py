"""What a subject gets to work with: a way to print progress, a server if it needs one, a folder for temporary files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from hack.bench.cluster import PodServer
from hack.bench.result import Result

PODS: Final = 10_000
"""As many as a large training cluster has."""


class Bench:
    """One run. Use as a context manager."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.cluster = PodServer(self.say)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    def say(self, text: str) -> None:
        """Print a line with the seconds since the run began."""
        print(f"{time.monotonic() - self._began:6.1f}s  {text}", flush=True)


Subject = Callable[[Bench], list[Result]]
"""Measures one hot path. Raises MeasureError when it cannot."""
