"""Failure policies, decoded without the code under test: which rule matches a pod, and when a delay ends.

A rule may match any state of a pod that the server had, because the operator's cache lags.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from judge.slots import Slot, moment
from kit.model.storage import Body
from simulation.ends import POLICY_LABEL
from simulation.lives import End, Fate
from simulation.scripts import TENSORFLOW

WHOLE: Final = frozenset({"FailJob", "RestartAll", "RestartAllAndIgnoreMaxRestarts"})
MATCHERS: Final = frozenset({"onExitCodes", "onPodConditions", "onFailureReasons"})
Rule = dict[str, Any]


def policy_of(job: Body) -> dict[str, Any]:
    return (job["spec"].get("runPolicy") or {}).get("failurePolicy") or {}


def rules_of(job: Body) -> list[Rule]:
    return policy_of(job).get("rules") or []


def rule_about(job: Body, kind: str, pod: Body) -> Rule | None:
    """Return the first rule of a job that matches a failed pod of this type."""
    return next((rule for rule in rules_of(job) if _is_about(rule, kind, pod)), None)


def _is_about(rule: Rule, kind: str, pod: Body) -> bool:
    if not _targets(rule, kind):
        return False
    if wanted := rule.get("onExitCodes"):
        codes = {end["exitCode"] for name, end in _ends(pod) if name == wanted.get("containerName", name)} - {0}
        return any((code in wanted["values"]) == (wanted["operator"] == "In") for code in codes)
    if entries := rule.get("onPodConditions"):
        there = {(each["type"], each["status"]) for each in pod["status"].get("conditions") or ()}
        return any((each["type"], each.get("status", "True")) in there for each in entries)
    return "onFailureReasons" not in rule or any(reason in rule["onFailureReasons"] for reason in _reasons(pod))


def _targets(rule: Rule, kind: str) -> bool:
    targets = rule.get("targetReplicaTypes")
    return kind != "Evaluator" if targets is None else kind.lower() in map(str.lower, targets)


def made_with_never(job: Body, kind: str, pod: Body) -> bool:
    """Whether a pod without the label of its restart policy uses its own, Never: no rule of its job is for its type."""
    labelled = POLICY_LABEL in pod["metadata"]["labels"]
    never = pod["spec"].get("restartPolicy") == "Never"
    return never and not labelled and not any(_targets(rule, kind) for rule in rules_of(job))


def _ends(pod: Body) -> list[tuple[str, Any]]:
    status = pod["status"]
    found = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return [(each["name"], each["state"]["terminated"]) for each in found if "terminated" in each["state"]]


def _reasons(pod: Body) -> Iterator[str]:
    named = {pod["status"].get("reason"), _disruption(pod)}
    if any(end.get("reason") == "OOMKilled" for _, end in _ends(pod)):
        yield "OOMKilled"
    if named & {"Evicted", "EvictionByEvictionAPI"}:
        yield "Evicted"
    if named & {"NodeLost", "DeletionByPodGC"}:
        yield "NodeLost"


def _disruption(pod: Body) -> str | None:
    """Return the reason of the pod's DisruptionTarget condition, or None."""
    conditions = pod["status"].get("conditions") or ()
    return next((each.get("reason", "") for each in conditions if (each["type"], each["status"]) == TAKEN), None)


TAKEN: Final = ("DisruptionTarget", "True")


def is_taken(pod: Body) -> bool:
    return bool(pod["status"].get("reason")) or _disruption(pod) is not None


def shows_failure(pod: Body, fate: Fate) -> bool:
    """Whether a state of a pod with this fate shows a failure to which rules may apply."""
    if "deletionTimestamp" in pod["metadata"]:
        return is_taken(pod)  # a deletion by someone else is not a failure
    if fate.end in {None, End.SUCCEEDED}:
        return False
    code = next((end["exitCode"] for name, end in _ends(pod) if name == TENSORFLOW), None)
    return code is not None or pod["status"].get("phase") == "Failed"


def is_restartable(pod: Body) -> bool:
    """Whether it has not failed but is restarted, because its policy is Always."""
    code = next((end["exitCode"] for name, end in _ends(pod) if name == TENSORFLOW), None)
    return code == 0 and not is_taken(pod)


def ended_at(states: list[tuple[float, Body]]) -> str:
    """Return when the last container of a pod ended, or "~" (later than all others) if its last state does not show it."""
    return max((end["finishedAt"] for _, end in _ends(states[-1][1]) if "finishedAt" in end), default="~")


def backoff_ends(job: Body, slot: Slot) -> datetime | None:
    """Return the time before which no pod of a replica may be created, according to the status."""
    status = job.get("status") or {}
    own = [each for each in status.get("restarts") or () if (each["type"], each["index"]) == slot]
    times = [moment(each["nextTime"]) for each in own if "nextTime" in each]
    if status.get("attemptHistory") and (delay_s := (status.get("begun") or {}).get("delaySeconds")):
        times.append(moment(status["attemptHistory"][-1]["endTime"]) + timedelta(seconds=delay_s))
    return max(times, default=None)


def next_delay(last_s: float) -> float:
    """Return the delay after a delay between restarts: ten seconds, doubled up to five minutes."""
    return min(2 * last_s, 300) if last_s else 10


def grace_of(job: Body) -> int | None:
    """Return for how many seconds a success waits for workers."""
    grace_s: int | None = (job["spec"].get("runPolicy") or {}).get("completionGracePeriodSeconds")
    return grace_s


def start_is_late(job: Body, now: datetime, waits: Iterable[datetime]) -> bool:
    """Whether a replica should have run by now, counted from the job's start, resumption or last attempt.

    `waits`: since when each replica has waited for its pod, or its pod has existed.
    """
    status = job.get("status") or {}
    limit_s = (job["spec"].get("runPolicy") or {}).get("startDeadlineSeconds")
    times = [job["metadata"]["creationTimestamp"]]
    times += [each["lastTransitionTime"] for each in status.get("conditions") or () if each["type"] == "Suspended"]
    times += [each["endTime"] for each in status.get("attemptHistory") or ()]
    if limit_s is None:
        return False
    since = max(map(moment, times))
    return any(max(since, each) + timedelta(seconds=limit_s) <= now for each in waits)


def is_about_late(rule: Rule) -> bool:
    """Whether a rule is for replicas that do not run in time."""
    return MATCHERS.isdisjoint(rule) or "StartDeadlineExceeded" in rule.get("onFailureReasons", ())


def restarted_by(job: Body, rule: Rule) -> list[dict[str, Any]]:
    """Return the records of the replicas that this rule restarted."""
    return [each for each in (job.get("status") or {}).get("restarts") or () if each.get("rule") == rule["name"]]


def is_overdue(record: dict[str, Any], rule: Rule, now: datetime, gone_at: datetime | None) -> bool:
    """Whether a replica's time to run again has expired for this rule, counted from its failure or its back-off.

    The time does not run while the failed pod exists; `gone_at` is when it was gone.
    """
    if "failedAt" not in record or gone_at is None:
        return False
    after_s: int = (rule.get("escalation") or {})["afterSeconds"]
    due = max(gone_at, moment(record.get("nextTime", record["failedAt"]))) + timedelta(seconds=after_s)
    return due <= now + timedelta(milliseconds=1)  # the world's clock is a float
