"""How an Ending job will end, and which pods it waits for; pods that are kept for a sidecar after their training. Pure.

The rules are those of controller/tfjob/plan/cleanup.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import (
    CHIEF_TYPES,
    CONTAINER_NAME,
    LABEL_PREFIX,
    LABEL_REPLICA_TYPE,
    LIMITS,
    WORKER,
    CleanPodPolicy,
    ConditionType,
    SuccessPolicy,
)
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.cli.diagnosis.attempts import attempt_of
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, info, warning
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rows import of_job, of_pod
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import ContainerStatusDetails, PodDetails
from tfjob_operator.cli.model.pods import condition_of, is_up, statuses
from tfjob_operator.cli.model.words import join_some, safe_name

ENDING: Final = info(
    "ending",
    "Ending: will be {outcome} {until}",
    "The end of a queued job is decided, and pods still hold its quota",
    "kubectl -n {namespace} get pods --selector=training.kubeflow.org/job-name={job}",
    "Kueue gives the job's quota to others as soon as the job has this condition. So the operator writes it when the "
    "pods have ended. No edit changes how the job ends",
)
WORKERS: Final = warning(
    "completion-waits-for-workers",
    "{decider} has succeeded; the job waits up to {left} for {who} before it succeeds",
    "The job has completionGracePeriodSeconds, its end is decided by another replica, and workers still run",
    "kubectl -n {namespace} logs {pod} --container=tensorflow --tail=50",
    ManifestChange(
        "lower spec.runPolicy.completionGracePeriodSeconds if the workers need no more time", recreate=False
    ),
    rank=822,
)
SIDECAR: Final = info(
    "sidecar-after-training",
    "A sidecar still works after the training has ended ({who}): the pod is deleted after {grace}",
    "The training of a pod has ended or failed for good, and another ordinary container still works",
    "For a sidecar that needs longer, such as a metrics collector, set spec.runPolicy.completionGracePeriodSeconds "
    "in the manifest",
)

GIVE_UP_S: Final = 60.0
"""How long after its grace period a pod is waited for."""
DEFAULT_GRACE_S: Final = 30
"""The operator's default of `--completion-grace-period`."""
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


def find(facts: Facts) -> Iterator[Finding]:
    """Yield what an Ending job waits for, and pods that are kept for a sidecar."""
    if facts.shape.is_alpha:
        return
    grace_s = _grace_s(facts)
    default = f" ({duration(grace_s)} by default)" if _has_default(facts) else f" of {duration(grace_s)}"
    values = {"grace": f"its grace period{default}"}
    for pod in () if facts.suspended else _to_delete(facts):
        left_s, final = _sidecar_left_s(facts, pod), _final(pod)
        if left_s is not None:
            working = [container.name for container in pod.spec.containers or () if container.name not in final]
            seen = f"{CONTAINER_NAME} has ended, still working: {join_some(working)}; {_deleted(left_s)}"
            yield of_pod(SIDECAR, pod, seen, **values)
    if facts.ending is not None:
        yield from _ending(facts, facts.ending.type)
    elif not (facts.finished or facts.suspended):
        yield from _workers(facts)


def _workers(facts: Facts) -> Iterator[Finding]:
    """Yield the workers for which a success waits: see `wait_for_workers_s` of the operator."""
    spec, status = facts.spec, facts.job.status
    if not isinstance(spec, TFJobSpec) or spec.completion_grace_s is None:
        return
    chief = next((kind for kind in (*CHIEF_TYPES, WORKER) if spec.sizes.get(kind)), "")
    done = parse_indices(status.finished_indices.get(chief, ""), spec.sizes.get(chief, 0))
    pods = {pod.metadata.name: pod for pod in facts.pods}
    decider = facts.shape.child(facts.name, chief, 0)
    ends = (
        [container.state.terminated for container in statuses(pods[decider]) if container.state is not None]
        if decider in pods
        else []
    )
    ages = [
        age_s
        for terminated in ends
        if terminated is not None and (age_s := facts.age_s(terminated.finished_at)) is not None
    ]
    if 0 not in done or (chief == WORKER and spec.success_policy == SuccessPolicy.ALL_WORKERS) or not ages:
        return
    left = duration(max(spec.completion_grace_s - min(ages), 0.0))
    for pod in facts.live_pods:
        if facts.wanted.get(facts.shape.replica_of(pod)) == WORKER and is_up(pod):
            seen = f"running, {duration(min(ages))} after {safe_name(decider)} has succeeded"
            yield of_pod(WORKERS, pod, seen, decider=decider, left=left)


def _ending(facts: Facts, outcome: str) -> Iterator[Finding]:
    waited = [pod for pod in _to_delete(facts) if pod.status.phase not in _TERMINAL]
    if not waited:
        seen, until = f"status.begun.ending has the type {outcome}", "as soon as the operator writes it"
        yield of_job(facts, ENDING, seen, outcome=outcome, until=until)
        return
    known = [(pod, *_wait(facts, pod)) for pod in waited]
    count = f"{len(waited)} pods have" if len(waited) > 1 else f"pod {safe_name(waited[0].metadata.name)} has"
    until = f"when {count} ended, within {duration(max(left_s for _, left_s, _ in known))}"
    for pod, _, how in known:
        yield of_pod(ENDING, pod, how, outcome=outcome, until=until)


def _wait(facts: Facts, pod: PodDetails) -> tuple[float, str]:
    """Return for how many seconds at most the end waits for a pod, and why."""
    own_s = pod.spec.termination_grace_period_seconds
    over_s = facts.age_s(pod.metadata.deletion_timestamp)
    if over_s is not None:
        passed = f"ended {duration(over_s)} ago" if over_s > 0 else f"ends in {duration(-over_s)}"
        return GIVE_UP_S - over_s, f"is being deleted; its grace period {passed}"
    if _final(pod) == {container.name for container in pod.spec.containers or ()}:
        return own_s + GIVE_UP_S - (facts.age_s(_decided_at(facts)) or 0.0), "only its native sidecars run"
    left_s, how = _sidecar_left_s(facts, pod), "its sidecar works"
    succeeds = facts.ending is not None and facts.ending.type == ConditionType.SUCCEEDED and _has_default(facts)
    kind = (pod.metadata.labels or {}).get(LABEL_PREFIX + LABEL_REPLICA_TYPE, "")
    if left_s is None and succeeds and kind == WORKER.lower():
        left_s, how = _grace_s(facts) - (facts.age_s(_decided_at(facts)) or 0.0), "still trains"
    kept_s = max(left_s or 0.0, 0.0)
    return kept_s + own_s + GIVE_UP_S, f"{'runs' if left_s is None else how}; {_deleted(kept_s)}"


def _deleted(left_s: float) -> str:
    return f"deleted in {duration(left_s)}" if left_s > 0 else "deleted now"


def _has_default(facts: Facts) -> bool:
    return not isinstance(facts.spec, TFJobSpec) or facts.spec.completion_grace_s is None


def _grace_s(facts: Facts) -> int:
    """Return the grace period. Only the operator knows its default: this is that of its flag."""
    if facts.ending is not None and facts.suspended:
        return 0
    spec = facts.spec
    return spec.completion_grace_s or 0 if isinstance(spec, TFJobSpec) and not _has_default(facts) else DEFAULT_GRACE_S


def _to_delete(facts: Facts) -> Iterator[PodDetails]:
    """Yield the pods that an end or a restart deletes: under cleanPodPolicy None, an end deletes only surplus pods."""
    record, status = conditions.end_record(facts.job.status), facts.job.status
    if facts.finished and facts.ending is None and record is None and not status.observed_generation:
        return  # another operator finished the job
    limit = record is not None and record.event in LIMITS
    keeps = facts.finished and not limit and facts.spec.clean_pod_policy == CleanPodPolicy.NONE
    own = {facts.shape.child(facts.name, kind, index) for kind, size in facts.sizes.items() for index in range(size)}
    for pod in facts.evidence.pods:
        if not (keeps and pod.metadata.name in own and attempt_of(pod, status.attempt) >= status.attempt):
            yield pod


def _sidecar_left_s(facts: Facts, pod: PodDetails) -> float | None:
    """Return for how many seconds a pod is still kept for its sidecar; None if it is not kept for one."""
    target = condition_of(pod.status.conditions, "DisruptionTarget")
    taken = pod.metadata.deletion_timestamp is not None or (target is not None and target.status == "True")
    final, every = _final(pod), {container.name for container in pod.spec.containers or ()}
    if taken or pod.status.phase in _TERMINAL or CONTAINER_NAME not in final or final == every:
        return None
    ages = [age_s for moment in _recorded_ends(facts, pod) if (age_s := facts.age_s(moment)) is not None]
    return _grace_s(facts) - max(ages) if ages else None


def _recorded_ends(facts: Facts, pod: PodDetails) -> Iterator[datetime | None]:
    status = facts.job.status
    if facts.finished:
        yield _decided_at(facts)
    yield from (restart.failed_at for restart in status.restarts if restart.pod == pod.metadata.uid)
    yield from (
        attempt.end_time for attempt in status.attempt_history if attempt.number == attempt_of(pod, status.attempt)
    )


def _decided_at(facts: Facts) -> datetime | None:
    """Return when the end was decided or, if that is not recorded, written."""
    record = conditions.end_record(facts.job.status)
    ends = (facts.condition(each) for each in (ConditionType.SUCCEEDED, ConditionType.FAILED))
    written = next((condition.last_transition_time for condition in ends if condition is not None), None)
    return record.time if record is not None else written


def _final(pod: PodDetails) -> set[str]:
    """Return the ordinary containers that have terminated and will not be restarted."""
    own = {
        container.name: container.restart_policy or pod.spec.restart_policy for container in pod.spec.containers or ()
    }
    return {
        status.name for status in pod.status.container_statuses or () if _is_final(status, own.get(status.name, ""))
    }


def _is_final(container: ContainerStatusDetails, policy: str) -> bool:
    ended = container.state.terminated if container.state is not None else None
    return ended is not None and (policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0))
