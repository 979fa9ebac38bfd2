"""The spec of a job, decoded without the code under test: only the fields that simulated users write.

The simulated users mark an invalid spec by an annotation and a foreign job by a field, so this module does not validate.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from judge.slots import REPLICA_TYPES, Slot
from kit.model.storage import Body
from tfjob_operator.api.v1.constants import limit_of

INVALID: Final = "simulation/invalid"
"""The annotation of a job with an invalid spec."""
FOREIGN: Final = "kueue.x-k8s.io/multikueue"
"""The `managedBy` of jobs that belong to another controller."""
QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""The label of a queued job."""
REQUEST: Final = "training.kubeflow.org/restart-requested-at"
"""The annotation that requests a restart of a whole job."""
RETRYABLE: Final = frozenset({130, 134, 137, 138, 143})


@dataclass(frozen=True, slots=True)
class DesiredJob:
    """A spec. `replicas`: count and restart policy by type. `shares`: all replicas have one service, which has no type."""

    replicas: Mapping[str, tuple[int, str]]
    all_workers: bool
    shares: bool
    clean_pod_policy: str
    backoff_limit: int | None
    deadline_s: int | None
    ttl_s: int | None
    suspend: bool
    foreign: bool
    invalid: bool

    @property
    def slots(self) -> set[Slot]:
        return {(name, index) for name, (count, _) in self.replicas.items() for index in range(count)}

    def services(self, slots: Collection[Slot]) -> set[Slot]:
        """Return the services that these replicas need."""
        return {("", 0)} if slots and self.shares else {*slots}

    def is_done(self, finished: Collection[Slot]) -> bool:
        """Whether a job has succeeded when these replicas have: by its chief if it has one, else by its workers."""
        for decider in ("Chief", "Master", "Worker"):
            count, _ = self.replicas.get(decider, (0, ""))
            if count:
                if decider == "Worker" and not self.all_workers and ("Worker", 0) in finished:
                    return True
                return all((decider, index) in finished for index in range(count))
        return bool(self.slots) and self.slots <= set(finished)


def desired_job(job: Body) -> DesiredJob:
    meta, spec = job["metadata"], job["spec"]
    run_policy: dict[str, Any] = spec.get("runPolicy") or {}

    def policy(name: str) -> Any:
        return run_policy.get(name, spec.get(name))

    invalid = INVALID in (meta.get("annotations") or {})
    return DesiredJob(
        replicas={} if invalid else _replicas(spec["tfReplicaSpecs"]),
        shares=run_policy.get("network") == "shared",
        all_workers=spec.get("successPolicy") == "AllWorkers",
        clean_pod_policy=_clean_pod_policy(policy("cleanPodPolicy")),
        backoff_limit=policy("backoffLimit"),
        deadline_s=policy("activeDeadlineSeconds"),
        ttl_s=policy("ttlSecondsAfterFinished"),
        suspend=bool(run_policy.get("suspend")),
        foreign=run_policy.get("managedBy") == FOREIGN,
        invalid=invalid,
    )


def _clean_pod_policy(written: object) -> str:
    """Return the clean-up policy, "" if it is unreadable."""
    return str(written) if written in {"All", "Running", "None"} else "Running" if written is None else ""


def _replicas(entries: dict[str, Any]) -> dict[str, tuple[int, str]]:
    """Return the replicas. An entry with only `replicas` is the scale subresource's number of workers, however spelled (U3)."""
    found = {
        REPLICA_TYPES[name.lower()]: (each.get("replicas", 1), each.get("restartPolicy", "Never"))
        for name, each in entries.items()
        if "template" in each
    }
    for each in entries.values():
        if "template" not in each:
            found["Worker"] = (each["replicas"], found["Worker"][1])
    return found


def has_begun(job: Body) -> bool:
    return "begun" in (job.get("status") or {})


def ending_of(job: Body) -> dict[str, Any] | None:
    """Return the condition of the end, if the job has ended."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return next(
        (each for each in conditions if each["type"] in {"Succeeded", "Failed"} and each["status"] == "True"), None
    )


def record_of(job: Body) -> dict[str, Any] | None:
    """Return the record of a decided end."""
    found: dict[str, Any] | None = ((job.get("status") or {}).get("begun") or {}).get("ending")
    return found


def decision_of(job: Body) -> dict[str, Any] | None:
    """Return the end, like a condition, if it is decided: it need not be written yet."""
    record = record_of(job)
    return ending_of(job) if record is None else record | {"lastTransitionTime": record["time"]}


def is_ending(job: Body) -> bool:
    """Whether the end is decided and not written yet."""
    return record_of(job) is not None and ending_of(job) is None


def is_queued(job: Body) -> bool:
    return QUEUE in (job["metadata"].get("labels") or {})


def clean_up_of(job: Body) -> str:
    """Return the clean-up policy of a job whose end is decided.

    A limit leaves nothing running (B47). An unreadable policy leaves nothing that an end waits for, and changes nothing later.
    """
    decided, record, policy = decision_of(job), record_of(job), desired_job(job).clean_pod_policy
    assert decided is not None
    if not policy:
        policy = record["cleanPodPolicy"] if record is not None and ending_of(job) is not None else "Running"
    by_limit = limit_of(decided["reason"], decided["message"]) is not None
    never_good = decided["reason"] == "InvalidTFJobSpec"
    return "Running" if never_good or (by_limit and policy == "None") else policy


def active_of(job: Body) -> int:
    """Return how many pods the counters call active. Kueue takes the quota of a suspended job at 0."""
    return sum(each.get("active", 0) for each in ((job.get("status") or {}).get("replicaStatuses") or {}).values())


def attempt_of(job: Body) -> int:
    return int((job.get("status") or {}).get("attempt", 0))


def execution_of(job: Body) -> int:
    """Return the number of the execution; a status from before it was counted has only attempts."""
    return max(int((job.get("status") or {}).get("executionAttempt", 0)), attempt_of(job))


def request_of(job: Body) -> str:
    return str((job["metadata"].get("annotations") or {}).get(REQUEST, ""))


def finished_of(job: Body) -> set[Slot]:
    texts: dict[str, str] = (job.get("status") or {}).get("finishedIndices") or {}
    return {(name, index) for name, text in texts.items() for index in indices_of(text)}


def indices_of(text: str) -> Iterator[int]:
    """Yield the indices of a list such as `0-3,7`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def restarts_of(job: Body) -> dict[Slot, int]:
    return {
        (each["type"], each["index"]): each.get("carried", 0) + each.get("inPlace", 0) + bool(each.get("replaced"))
        for each in (job.get("status") or {}).get("restarts") or ()
    }
