"""A context manager for anything that runs until it is stopped."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Stoppable(ABC):
    """A running service; leaving the `with` block stops it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def stop(self) -> None:
        """Stop it; idempotent."""
