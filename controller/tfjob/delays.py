"""Growing delays for what others refuse or undo, one for each child, so that no child waits for another.

Beside the work queue, which delays whole jobs, nothing else in the controller keeps delays. Used for children that cannot
be created (`blocked.py`), orphans that cannot be adopted (`adoption.py`), and repairs of what users edit again
(`mender.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.workqueue.rate_limiters import ItemExponentialFailureRateLimiter

if TYPE_CHECKING:
    from tfjob_operator.api.owners import OwnerKey
    from tfjob_operator.workqueue import Clock
    from tfjob_operator.workqueue.rate_limiters import RateLimiter

FIRST_DELAY_S: Final = 1.0
LONGEST_DELAY_S: Final = 300.0
"""As long as a kubelet delays a crashing container, and as an expectation may stay unmet (EX-02). Anything longer would
look as if it had been forgotten."""
FORGIVEN_S: Final = LONGEST_DELAY_S
"""What has not been tried for so long, though it was due, starts with the first delay again."""


class Delays:
    """When something may be tried again, by job and by a key of its own. May be lost: then it is tried once too early."""

    def __init__(self, clock: Clock, limiter: RateLimiter[tuple[OwnerKey, str]] | None = None) -> None:
        """Start without delays; `limiter` decides how long each is."""
        self._clock = clock
        self._limiter = limiter or ItemExponentialFailureRateLimiter(FIRST_DELAY_S, LONGEST_DELAY_S)
        self._due: dict[OwnerKey, dict[str, float]] = {}

    def wait_s(self, owner: OwnerKey, what: str) -> float:
        """Return the seconds until this may be tried again; 0 if it may be tried now."""
        due = self._due.get(owner, {}).get(what)
        return 0.0 if due is None else max(0.0, due - self._clock.monotonic())

    def tried(self, owner: OwnerKey, what: str) -> float:
        """Record an attempt, whatever came of it. Return the seconds until the next one."""
        now = self._clock.monotonic()
        known = self._due.setdefault(owner, {})
        for each in [each for each, due in known.items() if now > due + FORGIVEN_S]:
            self._limiter.forget((owner, each))
            del known[each]
        wait_s = self._limiter.when((owner, what))
        known[what] = now + wait_s
        return wait_s

    def clear(self, owner: OwnerKey, what: str) -> None:
        """Let this be tried at once, and its delays start over: it has succeeded, or what stood in its way is gone."""
        known = self._due.get(owner)
        if known is not None and known.pop(what, None) is not None:
            self._limiter.forget((owner, what))
            if not known:
                del self._due[owner]

    def forget(self, owner: OwnerKey) -> None:
        """Drop the records of an owner that is gone."""
        for what in self._due.pop(owner, {}):
            self._limiter.forget((owner, what))
