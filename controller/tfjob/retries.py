"""When to try again what others refuse or undo. Delays grow, each thing by itself, so that none keeps another waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.workqueue.rate_limiters import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from tfjob_operator.controller.tfjob.ownership import OwnerKey
    from tfjob_operator.workqueue.clock import Clock

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""As long as an expectation may stay unmet (EX-02): what waits for longer than that looks forgotten."""
FORGIVEN_S: Final = LONGEST_DELAY_S
"""What has not been tried for so long, though it might have been, begins anew."""


class Retries:
    """Tries by owner and by what was tried. All of it can be lost: it paces, it decides nothing.

    Invariant: what is known of an owner goes with it (`forget`), and that of a thing when it is forgiven.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limiter = ItemExponentialFailureRateLimiter(FIRST_DELAY_S, LONGEST_DELAY_S)
        self._due: dict[OwnerKey, dict[str, float]] = {}

    def wait_s(self, owner: OwnerKey, what: str) -> float:
        """For how many seconds this must not be tried yet; 0 when it may be."""
        due = self._due.get(owner, {}).get(what)
        return 0.0 if due is None else max(0.0, due - self._clock.monotonic())

    def tried(self, owner: OwnerKey, what: str) -> float:
        """Note a try, however it ended. Answers in how many seconds the next may come."""
        now = self._clock.monotonic()
        known = self._due.setdefault(owner, {})
        for each in [each for each, due in known.items() if now > due + FORGIVEN_S]:
            self._limiter.forget((owner, each))
            del known[each]
        wait_s = self._limiter.when((owner, what))
        known[what] = now + wait_s
        return wait_s

    def forget(self, owner: OwnerKey) -> None:
        """The owner is gone."""
        for what in self._due.pop(owner, {}):
            self._limiter.forget((owner, what))
