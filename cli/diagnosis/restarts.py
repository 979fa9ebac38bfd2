"""Replicas that were restarted, in place or by new pods, and are running again. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tfjob_operator.api.v1.constants import CONTAINER_NAME, EventReason
from tfjob_operator.cli.diagnosis import crashing
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_JOB
from tfjob_operator.cli.diagnosis.causes import Change, Finding, Severity, Trouble, defined
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.objects import ContainerStatus, Pod
from tfjob_operator.cli.diagnosis.pods import exits_of, is_up, keeps_down, running_since, statuses
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.diagnosis.words import counted, named

_PREVIOUS: Final = "kubectl -n {namespace} logs {pod} --container={container} --previous --tail=50"
FOR_EVER: Final = Trouble(
    "restarts-for-ever",
    800,
    Severity.WARNING,
    "Restarted {times} times ({who}), {now}",
    (
        _PREVIOUS,
        DESCRIBE_JOB,
        Change("set spec.runPolicy.backoffLimit, so that the job fails after so many restarts", recreate=False),
    ),
    "One replica was restarted five times or more, and is running again",
)
RESTARTED: Final = Trouble(
    "was-restarted",
    960,
    Severity.INFO,
    "Restarted {times} ({who}), {now}",
    (_PREVIOUS, DESCRIBE_JOB),
    "A replica was restarted a few times",
)
AFTER_SUCCESS: Final = Trouble(
    "restarted-after-success",
    799,
    Severity.WARNING,
    "Restarted after exit code 0 ({who}, {times}): its restartPolicy is Always",
    (Change("set restartPolicy of the replica to OnFailure, so that exit code 0 means success"),),
    "A container exits with code 0, and its restart policy starts it again",
)
TROUBLES: Final = defined(globals())

_AGAIN: Final = 2
_STEADY_S: Final = 600.0
"""After two restarts for lack of memory the next is likely, until a pod has run for so long."""
_OFTEN: Final = 5
"""So many restarts are not chance: by then the kubelet's back-off has reached five minutes."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that were restarted, and are running again."""
    if facts.finished:
        return
    carried = {
        facts.shape.child(facts.name, record.type, record.index): record.total for record in facts.job.status.restarts
    }
    for pod in facts.live_pods:
        name = pod.metadata.name
        replica = facts.shape.replica_of(pod)
        in_place = max((each.restart_count for each in statuses(pod)), default=0)
        times = max(carried.get(replica, 0), facts.earlier[replica] + in_place)
        well = next((each for each in statuses(pod) if each.name == CONTAINER_NAME and _ended_well(each)), None)
        if well is not None and pod.spec.restart_policy in {"", "Always"}:  # "" is the default
            seen = f"pod {named(name)}: container {named(well.name)} exited with code 0, {counted(well.restart_count)}"
            often = "once" if well.restart_count == 1 else f"{well.restart_count} times"
            yield Finding(AFTER_SUCCESS, name, (seen,), {"times": often, "pod": name})
            continue
        if times == 0 or any(keeps_down(each, facts.now) for each in exits_of(pod)):
            continue
        now = "running now" if is_up(pod) else "not running now"
        proofs, values = [f"pod {named(name)}: {counted(times)}"], {"times": str(times), "now": now}
        for each in list(exits_of(pod))[:1]:
            reason = f" ({named(each.ended.reason)})" if each.ended.reason not in {"", "Error"} else ""
            values |= {"pod": name, "container": value(each.container)}
            how = f"exited with code {each.ended.exit_code}{reason} before the restart"
            proofs.append(f"pod {named(name)}: container {named(each.container)} {how}")
        events = [one for one in facts.job_events(EventReason.EXITED_WITH_CODE) if f".{name} " in one.message]
        proofs += [facts.line(event) for event in latest(events)]
        if times >= _AGAIN and events and events[-1].message.endswith("OOMKilled") and _is_young(facts, pod):
            values |= {
                "pod": name,
                "container": CONTAINER_NAME,
                "limit": crashing.memory_limit(pod, CONTAINER_NAME) or " ",
            }
            yield Finding(crashing.OUT_OF_MEMORY, name, tuple(proofs), values, also=(FOR_EVER,))
            continue
        trouble = FOR_EVER if times >= _OFTEN else RESTARTED
        if trouble is RESTARTED:
            values["times"] = "once" if times == 1 else f"{times} times"
        yield Finding(trouble, name, tuple(proofs), values)


def _is_young(facts: Facts, pod: Pod) -> bool:
    """Return True if the training has not yet run again for so long that the last exit is overcome."""
    age_s = facts.age_s(running_since(pod))
    return age_s is None or age_s < _STEADY_S


def _ended_well(status: ContainerStatus) -> bool:
    """Return True if a container that was restarted had exited with 0."""
    ended = status.last_state.terminated if status.last_state is not None else None
    return status.restart_count > 0 and ended is not None and ended.exit_code == 0
