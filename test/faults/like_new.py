"""The judge of an edit: it compares an edited job with a new job of the same spec.

A running pod cannot be changed: it may stay outdated if the job reports that. An edit never ends a started job: where a new one
would fail, it is on hold, and its condition says so.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from faults.cluster_view import State
from tfjob_operator.api.v1.constants import MANAGED_BY_US, ConditionReason, ConditionType, EventReason, Network

BOARDS: Final = frozenset({EventReason.INVALID_TENSOR_BOARD, EventReason.FAILED_TENSOR_BOARD})


def _is_of_the_training(key: str) -> bool:
    """Whether a child does not belong to the TensorBoard, which follows its field even while the job is on hold."""
    return not key.endswith("JOB-tensorboard")


def network_of(spec: Mapping[str, Any]) -> str:
    """Return the network in a spec; "" if it is invalid."""
    policy = spec.get("runPolicy")
    asked = (policy.get("network") if isinstance(policy, dict) else None) or Network.PER_REPLICA
    return asked if asked in set(Network) else ""


def backoff_limit_of(spec: Mapping[str, Any]) -> float:
    """Return the number of restarts that a spec allows; infinity without a limit."""
    policy = spec.get("runPolicy")
    places = (policy if isinstance(policy, dict) else {}, spec)
    limits = [place["backoffLimit"] for place in places if isinstance(place.get("backoffLimit"), int)]
    return min(limits, default=math.inf)


@dataclass(frozen=True)
class Comparison:
    """A job after an edit, a new job with the edited spec, and the state of both before the edit.

    `made_as`: the original manifests of the earlier children, by UID; `network`: the network at the job's start; `restarted`:
    how many of its pods failed and were recreated.
    """

    spec: Mapping[str, Any]
    job: State
    new: State
    before: State | None
    new_before: State | None
    made_as: Mapping[str, str]
    network: str
    restarted: int = 0

    def wrong(self) -> Iterator[str]:
        if self.job.end.endswith(ConditionReason.LIMIT) and self.restarted > backoff_limit_of(self.spec):
            return  # a new job has no restarts yet
        if not (self.job.seen and self.new.seen):
            yield from self._wrong_unseen()
        elif self.before is not None and self._fails_at_once:
            yield from self._wrong_when_held(self.before)
        else:
            yield from self._wrong_children()
            yield from self._wrong_status()

    @cached_property
    def older(self) -> frozenset[str]:
        """The children that keep their manifest, while a new job has another one or none."""
        ours, theirs = self.job.children, self.new.children
        refused = any(reason == EventReason.FAILED_CREATE_POD for reason, _ in self.new.told)
        return frozenset(
            key
            for key, child in ours.items()
            if child.uid in self.made_as
            and (child.made_as != theirs[key].made_as if key in theirs else refused and key.startswith("pods/"))
        )

    @cached_property
    def _news(self) -> list[tuple[str, str]]:
        """Return reasons and messages of the Warnings since the edit."""
        old = self.before.told if self.before is not None else {}
        return [warning for warning, count in self.job.told.items() if count > old.get(warning, 0)]

    @property
    def _fails_at_once(self) -> bool:
        return self.new.true.get(ConditionType.FAILED) == ConditionReason.INVALID and self.job.end != self.new.end

    def _is_told_to_stay(self, child: str) -> bool:
        kind = child.rpartition("-")[0].rpartition("-")[2]
        return any(
            reason == EventReason.POD_TEMPLATE_NOT_APPLIED and kind in words.lower() for reason, words in self._news
        )

    def _wrong_unseen(self) -> Iterator[str]:
        policy = self.spec.get("runPolicy")
        if not isinstance(policy, dict) or (policy.get("managedBy") or "") in MANAGED_BY_US:
            yield "the operator has not seen the edit"
            return
        was, now = self.before, self.job
        if was is not None and was.seen and was.children != now.children:
            yield f"it is another's now, and has become {now} from {was}"

    def _wrong_when_held(self, before: State) -> Iterator[str]:
        """A new job fails at once, so this one is on hold, or the API server has not seen the error and all pods remain."""
        job, held = self.job, self.job.true.get(ConditionType.HELD)
        if job.end.endswith(ConditionReason.LIMIT):
            return  # deadlines apply even on hold
        if not (held or any(reason == EventReason.POD_TEMPLATE_NOT_APPLIED for reason, _ in job.told)):
            yield f"a new job fails, and nobody says why this one does not: {dict(job.true)}"
        if ConditionType.SUSPENDED in job.true:
            if job.children:
                yield f"it is suspended, and has {sorted(job.children)}"
            return
        more = sorted(filter(_is_of_the_training, job.children.keys() - before.children.keys()))
        if held and more and held != ConditionReason.REFUSED:
            yield f"it is held, and has got {more}"
        # A job that is too large is on hold only for growth: it may become smaller.
        kept = (
            before.children.keys() & job.children.keys()
            if held == ConditionReason.TOO_LARGE
            else before.children.keys()
        )
        for key in sorted(filter(_is_of_the_training, kept)):
            child = before.children[key]
            if job.children.get(key) != child and ConditionType.SUSPENDED not in before.true:
                yield f"it is held, and {key} is {job.children.get(key)}"

    def _wrong_children(self) -> Iterator[str]:
        job, new = self.job, self.new
        for key, child in sorted(job.children.items()):
            if key in self.older:
                if child.made_as != self.made_as[child.uid]:
                    yield f"{key} was changed to {child.made_as}, from {self.made_as[child.uid]}"
            elif key in new.children and child.made_as != new.children[key].made_as:
                yield f"{key} was not made as a new job's: {self._difference(key)}"
        for key in sorted(self.older):
            if self._changed_by_the_edit(key) and not self._is_told_to_stay(key):
                yield f"{key} stays as it was, and nobody says so: {self._difference(key)}"
        if self._runs_on:
            if not any(map(self._is_told_to_stay, job.children)):
                yield f"a new job has ended ({new.end}), and nobody says why this one runs on"
        elif self._without_those_told_of(job) != self._without_those_told_of(new):
            yield f"its children are {sorted(job.children)}, and not {sorted(new.children)}"

    def _without_those_told_of(self, state: State) -> set[str]:
        """Return the children except older ones, and except a TensorBoard that cannot be created according to the job."""
        board = any(reason in BOARDS for reason, _ in self.job.told)
        return {key for key in state.children if key not in self.older and not (board and not _is_of_the_training(key))}

    def _changed_by_the_edit(self, key: str) -> bool:
        was, now = (each.children.get(key) if each is not None else None for each in (self.new_before, self.new))
        return was is not None and (now is None or was.made_as != now.made_as)

    @property
    def _runs_on(self) -> bool:
        """Whether a new job has ended because of its pods, while this one still has earlier pods."""
        stay = any(child.uid in self.made_as for child in self.job.children.values())
        return bool(self.new.end and stay and self.job.end != self.new.end)

    def _wrong_status(self) -> Iterator[str]:
        job, new = self.job, self.new
        if network_of(self.spec) != self.network and not any(
            reason == EventReason.NETWORK_NOT_UPDATED for reason, _ in self._news
        ):
            yield "its network stays, and nobody says so"
        if ConditionType.HELD in job.true:
            yield "it is held, and a new job is not"
        if self.older or self._runs_on:
            return  # older pods follow their own manifest
        empty = any(reason == EventReason.NO_REPLICAS for reason, _ in self.job.told)  # it reports that nothing runs
        if job.true != new.true and not empty:
            yield f"its conditions are {dict(job.true)}, and not {dict(new.true)}"
        if job.counters != new.counters:
            yield f"its counters are {job.counters}, and not {new.counters}"

    def _difference(self, key: str) -> str:
        one, other = (each.children[key].made_as if key in each.children else "" for each in (self.job, self.new))
        same = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
        here = slice(max(same - 60, 0), same + 60)
        return f"...{one[here]}..., not ...{other[here]}..."
