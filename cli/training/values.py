"""Points of curves, and how far a training is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

STEP_TIME: Final = "step_time"
"""The name of the seconds per step, however a log writes them."""
EVALUATION: Final = "val_"
"""The prefix of metrics that were measured on evaluation data, as Keras writes it."""
STEP: Final = "step"
EPOCH: Final = "epoch"


class Point(NamedTuple):
    """A number that a log tells. `value` may be nan or infinite; `time` is None where the log has no timestamps."""

    step: int
    name: str
    value: float
    time: datetime | None = None


class Progress(NamedTuple):
    """How far a training is: steps or epochs, as `unit` says. `total` is None where the log does not tell it."""

    step: int
    total: int | None
    unit: str = STEP

    @property
    def share(self) -> float | None:
        """The part that is done, 0 to 1, None where that is not known."""
        return min(self.step / self.total, 1.0) if self.total else None
