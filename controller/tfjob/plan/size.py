"""Keeps a job's status small enough for etcd. Pure.

etcd rejects requests of more than 1.5 MiB (`etcdserver: request is too large`), and the request that stores a status contains
the whole object: the spec, its copy that `kubectl apply` keeps in an annotation, and managedFields. The status gets the rest of
`MAX_OBJECT`. The fields that grow with the number of replicas are `restarts` and, much less, `finishedIndices`.

If a status does not fit, it is reduced in steps, each only as far as necessary and oldest failures first:

1. restart records of replicas that run again in another pod, or no longer restart: only the number of restarts is kept;
2. messages of attempts before the last one, and of conditions that are False;
3. records of running pods, which themselves show how often the kubelet restarted them;
4. UIDs of pods that are gone;
5. back-off and escalation of replicas whose pod is gone;
6. records of pods that this plan would delete, except a few: such a pod is neither counted nor deleted until there is room;
7. back-off and escalation of the other replicas;
8. whole records: first of pods that are gone, and last of stopped pods, whose exit code 0 could then count as a success.

Up to step 4 nothing is lost that a decision needs, except the last back-off of a replica that runs again; step 6 delays
restarts. No step counts a restart twice, provided that a pod missing from the cache is gone: `backoffLimit` may be reached
later, not earlier. The next plan for the same pods leads to the same status, so an unchanged job causes no further writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from tfjob_operator.api.v1.conditions import TRUE, is_over
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.types import AcceleratorPods, IndexRestarts, JobStatus, TFJob
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.tfjob.plan.replicas import Observed, Outcome
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion

MAX_OBJECT: Final = 1_400_000
"""The largest object, in bytes. The rest of etcd's 1.5 MiB is for labels and edits."""
OVERHEAD: Final = 10_000
"""What is not measured: names and other metadata, and what the write itself adds to managedFields."""
WITHHELD_RETRY_S: Final = 5.0
"""How long failed pods wait if their restarts did not fit: usually the deletion of other pods makes room, which is an event."""
_MIN_REPLACED: Final = 16
"""So many failed pods are replaced at a time even if older records must be dropped for that: a job never stops."""
_MAX_RECORD: Final = 400
"""An upper bound of the size of a restart record; the longest name of a rule has 128 characters."""
_MAX_REST: Final = 65_536
"""An upper bound of what `_bound` does not measure: 32 avoided nodes, names, times and counters."""
_MAX_START: Final = 20
_MAX_MARK: Final = 40
"""Upper bounds of the sizes of a start and of a counted pod in `acceleratorPods`."""
_ESCAPED: Final = 6
"""The most bytes per byte of text: Go writes `<`, `>` and `&` as `\\u003c`, which no other encoder does."""
_OLDEST: Final = datetime.min.replace(tzinfo=UTC)

_Reduce = Callable[[IndexRestarts], IndexRestarts | None]


def fit(plan: Plan, job: TFJob, seen: Observed) -> Plan:
    """Return the plan with a status that etcd can store, and without deleting pods whose restarts do not fit.

    A stored status is not written again because its own write has made managedFields larger.
    """
    status = job.status if plan.status is None else plan.status
    room = MAX_OBJECT - len(job.spec) - job.metadata.size - (OVERHEAD if plan.status is not None else 0)
    if _bound(status) <= room:
        return plan
    excess = stored_size(status) - room
    if excess <= 0:
        return plan
    reduction = _Reduction(job.status, status, excess, seen, plan.delete_pods)
    reduction.run()
    reduced: JobStatus | None = reduction.result()
    if reduced == msgspec.structs.replace(job.status, last_reconcile_time=status.last_reconcile_time):
        reduced = None
    plan = replace(plan, status=reduced)
    withheld = reduction.withheld
    if not withheld:
        return plan
    kept = tuple(pod for pod in plan.delete_pods if pod.pod.metadata.uid not in withheld)
    return replace(plan, delete_pods=kept, delete_services=()).requeued_within(WITHHELD_RETRY_S)


def fits(status: JobStatus, job: TFJob) -> bool:
    """Return True if etcd can store the job with this status."""
    room = MAX_OBJECT - len(job.spec) - job.metadata.size - OVERHEAD
    return _bound(status) <= room or stored_size(status) <= room


def stored_size(status: JobStatus) -> int:
    """Return the size of a status in etcd, in bytes."""
    return _go_size(msgspec.json.encode(status))


def _go_size(encoded: bytes) -> int:
    return len(encoded) + (_ESCAPED - 1) * sum(map(encoded.count, (b"<", b">", b"&")))


def _bound(status: JobStatus) -> int:
    """Return an upper bound of the size, in a fraction of the time: few jobs need the exact one."""
    ending = status.begun.ending if status.begun is not None else None
    texts = [status.observed_restart_request, *(condition.message for condition in status.conditions)]
    attempts = list(status.attempt_history)
    if ending is not None:
        texts.append(ending.message)
        attempts += [ending.failure] if ending.failure is not None else []
    texts += [text for attempt in attempts for text in (attempt.message, attempt.reason)]
    # A character has up to four bytes, and a control character is escaped in six.
    text = _ESCAPED * sum(map(len, texts))
    indices = sum(map(len, status.finished_indices.values())) + _bound_of_accelerators(status.accelerator_pods)
    return _MAX_REST + _MAX_RECORD * len(status.restarts) + text + indices


def _bound_of_accelerators(pods: AcceleratorPods | None) -> int:
    if pods is None:
        return 0
    groups = (_MAX_RECORD * (1 + len(running.resources)) + _MAX_START * len(running.since) for running in pods.running)
    indices = (len(text) for running in pods.running for text in running.since.values())
    return sum(groups) + sum(indices) + _MAX_MARK * len(pods.counted)


class _Reduction:
    """A status being reduced by `excess` bytes. `withheld` are the UIDs of pods that must not be deleted yet."""

    def __init__(
        self, before: JobStatus, status: JobStatus, excess: int, seen: Observed, deletions: Iterable[PodDeletion]
    ) -> None:
        """`before` is the status of the job, `status` the one to write, `deletions` what is deleted after that.

        Pods of earlier attempts, and those of a job whose end is recorded, are not counted again: their records need no UID.
        """
        self.withheld: set[str] = set()
        self._status = status
        self._excess = excess
        self._before = {_place(restart): restart for restart in before.restarts}
        self._records = {_place(restart): restart for restart in status.restarts}
        self._is_over = is_over(status)
        replicas = () if is_over(before) else (*seen.replicas, *seen.surplus)
        self._pods = {replica.uid: replica for replica in replicas if replica.attempt >= status.attempt}
        self._deleted = {deletion.pod.metadata.uid for deletion in deletions} & self._pods.keys()
        self._active = {(replica.type, replica.index) for replica in seen.replicas if replica.outcome is Outcome.ACTIVE}
        self._finished: dict[str, Collection[int]] = {
            kind: parse_indices(text, MAX_REPLICAS) for kind, text in status.finished_indices.items()
        }

    def result(self) -> JobStatus:
        """Return the reduced status."""
        return msgspec.structs.replace(self._status, restarts=tuple(self._records.values()))

    def run(self) -> None:
        """Reduce the status as far as necessary."""
        self._reduce(self._is_settled, _only_number)
        self._drop_messages()
        self._reduce(self._shows_its_restarts, _without_pod)
        self._reduce(self._is_gone, _without_uid)
        self._reduce(self._is_gone, _only_number)
        self._withhold()
        self._reduce(lambda record: True, _without_delay)
        self._reduce(self._is_gone, self._drop)
        self._reduce(lambda record: not record.stopped and record.pod not in self._deleted, self._drop)
        self._reduce(lambda record: True, self._drop)

    def _reduce(self, applies: Callable[[IndexRestarts], bool], reduce: _Reduce) -> None:
        if self._excess <= 0:
            return
        for record in sorted(filter(applies, self._records.values()), key=_age):
            self._put(record, reduce(record))
            if self._excess <= 0:
                return

    def _put(self, record: IndexRestarts, reduced: IndexRestarts | None) -> None:
        place = _place(record)
        self._excess -= _record_size(record) - _record_size(reduced)
        if reduced is None:
            del self._records[place]
        else:
            self._records[place] = reduced

    def _is_settled(self, record: IndexRestarts) -> bool:
        """Return True if the replica runs again or never will, so that only the number of its restarts is read."""
        if not self._is_gone(record):
            return False
        is_finished = self._is_over or record.index in self._finished.get(record.type, ())
        return is_finished or _place(record) in self._active

    def _is_gone(self, record: IndexRestarts) -> bool:
        return record.pod not in self._pods

    def _shows_its_restarts(self, record: IndexRestarts) -> bool:
        """Return True if the pod of this record stays, and shows all that the record adds to the earlier pods."""
        pod = self._pods.get(record.pod)
        if pod is None or pod.terminating or record.pod in self._deleted:
            return False
        return not (record.replaced or record.stopped or record.rule or record.on_node)

    def _drop_messages(self) -> None:
        history = list(self._status.attempt_history)
        for number, attempt in enumerate(history[:-1]):
            if self._excess > 0 and attempt.message:
                self._excess -= _text_size(attempt.message)
                history[number] = msgspec.structs.replace(attempt, message="")
        conditions = list(self._status.conditions)
        for number, condition in enumerate(conditions):
            if self._excess > 0 and condition.message and condition.status != TRUE:
                self._excess -= _text_size(condition.message)
                conditions[number] = msgspec.structs.replace(condition, message="")
        self._status = msgspec.structs.replace(
            self._status, attempt_history=tuple(history), conditions=tuple(conditions)
        )

    def _withhold(self) -> None:
        """Leave out failures whose pods would be deleted now: the pods stay, so a later plan counts them.

        A pod that is counted on its node is not withheld, since the counters of nodes cannot be taken back.
        """
        new = [
            record
            for record in sorted(self._records.values(), key=_age)
            if record.pod in self._deleted and not record.on_node and record != self._before.get(_place(record))
        ]
        for record in reversed(new[_MIN_REPLACED:]):
            if self._excess <= 0:
                return
            before = self._before.get(_place(record))
            self.withheld.add(record.pod)
            self._deleted.discard(record.pod)
            if before is not None and before.pod != record.pod:
                before = _only_number(before)
            elif before is not None and self._shows_its_restarts(before):
                before = _without_pod(before)
            self._put(record, before)

    def _drop(self, record: IndexRestarts) -> None:
        if record.pod in self._deleted:
            self.withheld.add(record.pod)


def _place(record: IndexRestarts) -> tuple[str, int]:
    return record.type, record.index


def _age(record: IndexRestarts) -> tuple[datetime, str, int]:
    return record.failed_at or _OLDEST, record.type, record.index


def _only_number(record: IndexRestarts) -> IndexRestarts | None:
    total = record.total
    return IndexRestarts(type=record.type, index=record.index, carried=total) if total else None


def _without_pod(record: IndexRestarts) -> IndexRestarts | None:
    return _only_number(msgspec.structs.replace(record, in_place=0))


def _without_uid(record: IndexRestarts) -> IndexRestarts:
    return IndexRestarts(
        type=record.type,
        index=record.index,
        carried=record.total,
        failed_at=record.failed_at,
        next_time=record.next_time,
        rule=record.rule,
    )


def _without_delay(record: IndexRestarts) -> IndexRestarts:
    return msgspec.structs.replace(record, failed_at=None, next_time=None, rule="")


def _record_size(record: IndexRestarts | None) -> int:
    return 0 if record is None else len(msgspec.json.encode(record)) + 1


def _text_size(text: str) -> int:
    return _go_size(msgspec.json.encode(text))
