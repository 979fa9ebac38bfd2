"""What real kubelets did, replayed through decode, observe and plan: the job must be where a person would say it is (M1-M10).

Each history is that of a job's only worker; its container `main` stands for `tensorflow`. The tables here say
what really became of the pod, and hindsight says when it ended: nothing ran afterwards.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from fakes.jobs import good_spec, job, names, planned, spec
from fakes.objects import after, changed
from fakes.recordings import History, Step, histories
from support.cases import noted
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import LABEL_QUEUE, ConditionReason, ConditionType, RestartPolicy
from tfjob_operator.api.v1.types import ReplicaStatus, TFJob, TFJobSpec
from tfjob_operator.controller.jobs.children import ChildLabels, Pod
from tfjob_operator.controller.tfjob.plan.status import StatusDraft
from tfjob_operator.controller.tfjob.plan.types import Plan, PlanInput

LATER: Final = datetime(2026, 12, 1, tzinfo=UTC)

DONE: Final = "done"
"""It finished its work by itself."""
STOPPED: Final = "stopped"
"""It was deleted or evicted before it was done; whatever it exits with does not end the replica."""
TAKEN: Final = "taken"
"""The cluster ended it or turned it away, and it remains until somebody deletes it."""
ORDERLY: Final = "orderly"
"""As `TAKEN`, but it exited with 0: it has not failed either."""
FATAL: Final = "fatal"
"""It failed, and its container's own policy leaves it so."""
DEADLINE: Final = "deadline"
"""Its own activeDeadlineSeconds are over."""

Verdict = str | int | None

EXITS: Final = {
    "02-exit-1-never": 1,
    "03a-exit-137-never": 137,
    "03b-sigkill-from-the-node-never": 137,
    "04-oomkilled-never": 137,
    "08-native-sidecar-main-exit-1-never": 1,
    "19-init-fails-never": None,
    "21b-rule-restart-42-then-1": 1,
    "30b-env-expansion-140k": 1,
    "32a-no-such-program-never": 128,
    "33a-termination-message": 3,
    "33b-termination-message-from-log": 3,
}
"""Pods that failed by themselves, with the exit code of `main`, which has none where an init container failed."""
FINISHED: Final = (
    "01-", "02b-", "05-", "07-", "07b-", "08-native-sidecar-main-exit-0", "08b-", "15b-", "17-", "17b-", "17c-", "19b-", "19c-",
    "20-", "21-", "22-", "22b-", "23-", "24-only-node-c", "24c-", "24d-", "24h-", "24i-", "25c-", "25f-", "26e-", "27c-",
    "28f-", "28-other-node-ready-f", "30-", "30c-",
)  # fmt: skip
TOLD_TO_GO: Final = (
    "04b-", "06-", "06b-", "08c-", "09-", "09b-", "10-", "10b-", "11-", "11b-", "11c-", "12-", "12b-", "12c-", "13-", "13b-",
    "13c-", "14-", "15-", "15c-", "16a-", "16b-", "16c-", "24-only-node-a", "24-only-node-e", "24a-", "24b-", "24e-", "24f-",
    "24g-", "25a-", "25b-", "25d-", "25e-", "25g-", "25h-", "25i-", "25j-", "26d-", "27-", "27b-", "27d-", "29-", "29r-",
    "31-", "32b-", "34-",
)  # fmt: skip
"""Pods that were deleted, evicted or given up before they were done."""
SHUT_DOWN_OR_REJECTED: Final = (
    "26a-", "26b-", "26c-", "28a-", "28b-", "28c-", "28d-", "28e-", "28g-", "28-other-node-ready-",
)  # fmt: skip

BY_VERSION: Final[dict[str, Verdict]] = {
    # 1.20 drops the fields that it does not know: a native sidecar is an init container that never ends, or that fails ...
    "1.20.2/08-native-sidecar-main-exit-0-never": STOPPED,
    "1.20.2/08-native-sidecar-main-exit-0-onfailure": STOPPED,
    "1.20.2/08-native-sidecar-main-exit-1-never": STOPPED,
    "1.20.2/08b-native-sidecar-crashes": None,
    # ... and the policies of containers are dropped too: the pod's counts.
    "1.20.2/20-container-onfailure-under-never": 1,
    "1.20.2/21-rule-restart-42-then-0": 42,
    "1.20.2/21b-rule-restart-42-then-1": 42,
    "1.20.2/22-rule-restart-all-42-then-0": 42,
    "1.20.2/22b-rule-restart-all-with-init-and-side": 42,
    "1.20.2/23-pod-always-container-never": STOPPED,
    "1.20.2/23b-pod-always-container-never-exit-1-side": STOPPED,
    # 1.20 runs pods that come after the signal of a shutdown.
    "1.20.2/28g-created-after-the-signal": DONE,
    "1.20.2/28-other-node-ready-g-created-after-the-signal": DONE,
    # It ended in the second before the DELETE; the others of 29 ended in the same second, where the order is unknown.
    "1.36.3/29-08-ends-150ms-before-delete": DONE,
    "1.36.3/23b-pod-always-container-never-exit-1-side": FATAL,
    # This kubelet reports the real exit code of what ends at the shutdown of its node.
    "1.36.3/28a-never-exit-0": ORDERLY,
    "1.36.3/28d-always-exit-0": ORDERLY,
    "1.36.3/28-other-node-ready-a-never-exit-0": ORDERLY,
    "1.36.3/28-other-node-ready-d-always-exit-0": ORDERLY,
    # The taint manager deleted it before the shutdown had killed it.
    "1.36.3/28-other-node-ready-e-ignores": STOPPED,
}

BY_START: Final[tuple[tuple[tuple[str, ...], Verdict], ...]] = (
    (FINISHED, DONE),
    (SHUT_DOWN_OR_REJECTED, TAKEN),
    (TOLD_TO_GO, STOPPED),
    (("18-", "18b-"), DEADLINE),
)
"""The first that fits counts."""


def verdict_on(history: History) -> Verdict:
    """Return a person's verdict on the pod. Raises LookupError if there is none."""
    unusual = EXITS | BY_VERSION
    if history.name in unusual or history.scenario in unusual:
        return history.entry(unusual)
    for starts, verdict in BY_START:
        if history.scenario.startswith(starts):
            return verdict
    raise LookupError(f"nobody has judged {history.name}")


def meta_of(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = (step.object or {})["metadata"]
    return found


class RecordedLife(NamedTuple):
    """A recorded pod, what a person says of it, and the restart policy of its replica."""

    name: str
    chapter: str
    version: str
    verdict: Verdict
    events: tuple[Step, ...]
    policy: str


def lives() -> Iterator[RecordedLife]:
    """Yield every recorded pod for each restart policy of a replica that fits it. A later pod of the same name is another."""
    for history in histories():
        verdicts = [verdict_on(history)] if len(history.lives) == 1 else [STOPPED, DONE]
        for number, (life, verdict) in enumerate(zip(history.lives, verdicts, strict=True)):
            policy = life.manifest["spec"]["restartPolicy"]
            for fits in (RestartPolicy.NEVER, RestartPolicy.EXIT_CODE) if policy == RestartPolicy.NEVER else (policy,):
                name = f"{history.version}-{history.scenario}-{number}-{fits}"
                chapter = f"{history.version}-{history.scenario[:2]}"
                yield RecordedLife(name, chapter, history.version, verdict, life.events, fits)


def every_life(test: Callable[[RecordedLife], None]) -> Callable[[str], None]:
    """Run a test for every life, those of one chapter of the recordings together."""
    chapters: dict[str, list[RecordedLife]] = {}
    for life in lives():
        chapters.setdefault(life.chapter, []).append(life)

    @pytest.mark.parametrize("chapter", chapters)
    def of_a_chapter(chapter: str) -> None:
        for life in chapters[chapter]:
            with noted("life", life):
                test(life)

    of_a_chapter.__doc__ = test.__doc__
    return of_a_chapter


def pod_of(step: Step) -> list[Pod]:
    if step.type == "DELETED":
        return []
    text = msgspec.json.encode({"kind": "Pod", **(step.object or {})}).replace(b'"main"', b'"tensorflow"')
    found = msgspec.json.decode(text, type=Pod)
    labels = ChildLabels(replica_type="worker", replica_index="0")
    meta = msgspec.structs.replace(found.metadata, name="mnist-worker-0", namespace="ns", labels=labels)
    return [msgspec.structs.replace(found, metadata=meta)]


@cache
def spec_of(policy: str) -> TFJobSpec:
    """Return the job's specification, which does not depend on its status."""
    return good_spec(job(spec(policy, Worker=1)))


def decide(tfjob: TFJob, pods: list[Pod], policy: str) -> tuple[TFJob, Plan]:
    decided = planned(tfjob, spec_of(policy), pods, [], LATER)
    return (tfjob if decided.status is None else msgspec.structs.replace(tfjob, status=decided.status)), decided


def states(step: Step, kind: str = "containerStatuses") -> dict[str, dict[str, Any]]:
    return {each["name"]: each["state"] for each in (step.object or {}).get("status", {}).get(kind, ())}


def is_terminal(step: Step) -> bool:
    return (step.object or {}).get("status", {}).get("phase") in {"Succeeded", "Failed"}


def rests(step: Step, containers: set[str]) -> bool:
    found = states(step)
    return is_terminal(step) or all("terminated" in found.get(name, {}) for name in containers)


def end_of(events: tuple[Step, ...], containers: set[str]) -> int:
    """Return the index of the first event from which on these containers have ended for good, by hindsight."""
    last_unrest = max((number for number, step in enumerate(events) if not rests(step, containers)), default=-1)
    return last_unrest + 1


def is_final_for(verdict: Verdict, policy: str) -> bool:
    """Whether the job has failed when its worker has ended like this."""
    if verdict in {ORDERLY, FATAL}:
        return verdict == FATAL
    if policy == RestartPolicy.EXIT_CODE:
        return verdict not in {TAKEN, 130, 134, 137, 138, 143}
    return policy == RestartPolicy.NEVER


@every_life
def test_a_job_is_where_a_person_would_say(life: RecordedLife) -> None:
    """M1-M4, M10, B38, B39, B42: at each moment, from the creation of its pod until that is gone."""
    _, _, version, verdict, events, policy = life
    tfjob = job(spec(policy, Worker=1))
    end = end_of(events, {"main"})
    for number, step in enumerate(events):
        tfjob, decided = decide(tfjob, pod_of(step), policy)
        done, failed = (
            conditions.is_true(tfjob.status, each) for each in (ConditionType.SUCCEEDED, ConditionType.FAILED)
        )
        told = f"{version}, event {number} at {step.t} s"
        assert done is (verdict == DONE and number >= end), told
        over = number >= end and verdict not in {DONE, STOPPED}
        assert failed is (over and is_final_for(verdict, policy)), told
        going = "deletionTimestamp" in meta_of(step)
        assert bool(decided.delete_pods) is (over and not failed and not going), told
        assert bool(decided.create_pods) is (step.type == "DELETED" and not done and not failed), told
    counted = [record for record in tfjob.status.restarts if record.replaced]
    by_itself = verdict == DEADLINE or (verdict is not None and not isinstance(verdict, str))
    assert bool(counted) is (by_itself and not is_final_for(verdict, policy))


@every_life
def test_whatever_a_watch_leaves_out_nothing_wrong_is_said(life: RecordedLife) -> None:
    """M2, M10, B42: after a relist an operator knows the pod as it was once, and as it is; only a success may be missed.

    A success is missed when only the pod's last state is seen: by then the time of the deletion is no longer known.
    """
    _, _, version, verdict, events, policy = life
    tfjob = job(spec(policy, Worker=1))
    seen = [pod_of(step) for step in events]
    before = None
    for number in range(len(events)):
        # Most events do not change the job: then the check after the last event covers what can be missed after this one.
        for later in range(number + 1, len(events) if tfjob is not before else 0):
            after, _ = decide(tfjob, seen[later], policy)
            told = f"{version}, from event {number} to {events[later].t} s"
            if verdict != DONE:
                assert not conditions.is_true(after.status, ConditionType.SUCCEEDED), told
                assert after.status.finished_indices == {}, told
            if verdict in {DONE, STOPPED, ORDERLY}:
                assert not conditions.is_true(after.status, ConditionType.FAILED), told
        before = tfjob
        tfjob, _ = decide(tfjob, seen[number], policy)


@every_life
def test_what_has_ended_is_not_cleaned_up_and_what_runs_is(life: RecordedLife) -> None:
    """M1: under the clean-up policy Running, once the job has ended. Hindsight says which pods had ended.

    A pod that was stopped had not ended, even if it was deleted between two runs. The job ended a minute ago: workers get half.
    """
    _, _, version, verdict, events, policy = life
    tfjob = job(spec(policy, Worker=1))
    ended = PlanInput(job=tfjob, spec=spec_of(policy), pods=(), services=(), now=LATER - timedelta(minutes=1))
    draft = StatusDraft(ended)
    draft.set_true(ConditionType.SUCCEEDED, ConditionReason.SUCCEEDED, "")
    draft.complete(None)
    draft.replica_statuses = {"Worker": ReplicaStatus()}
    tfjob = msgspec.structs.replace(tfjob, status=draft.freeze())
    ordinary = {each["name"] for each in (events[0].object or {})["spec"]["containers"]}
    end = len(events) if verdict == STOPPED else end_of(events, ordinary)
    for number, step in enumerate(events):
        if step.type != "DELETED" and "deletionTimestamp" not in meta_of(step):
            _, decided = decide(tfjob, pod_of(step), policy)
            taken = names(decided)["delete pods"] != []
            assert taken is (number < end), f"{version}, event {number} at {step.t} s"


@every_life
def test_a_queued_job_has_not_ended_while_its_pod_holds_quota(life: RecordedLife) -> None:
    """Kueue frees the quota with the final condition. Kubelets report the terminal phase later than the containers' ends, and
    since 1.29 only when native sidecars have ended too.
    """
    before = datetime(2026, 1, 1, tzinfo=UTC)  # than all deletions: no pod is given up
    tfjob = changed(job(spec(life.policy, Worker=1)), metadata__labels={LABEL_QUEUE: "gpus"})
    for number, step in enumerate(life.events):
        decided = planned(tfjob, spec_of(life.policy), pod_of(step), [], before)
        tfjob = after(tfjob, decided)
        told = f"{life.version}, event {number} at {step.t} s"
        assert not conditions.is_finished(tfjob.status) or step.type == "DELETED" or is_terminal(step), told
        assert not (conditions.is_ending(tfjob.status) and decided.create_pods), told
    assert conditions.is_finished(tfjob.status) or not conditions.is_over(tfjob.status)
