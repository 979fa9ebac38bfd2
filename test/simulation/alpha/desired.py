"""The spec of an alpha job, decoded without the code under test: only the fields that simulated users write."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from judge.jobs import FOREIGN, INVALID, RETRYABLE
from judge.slots import Slot
from kit.model.storage import Body
from simulation.lives import Exit

TYPES: Final = {"MASTER": "Master", "WORKER": "Worker", "PS": "PS"}
"""The name of each type in the v1 status."""
NEVER_BEGAN: Final = "InvalidTFJobSpec"
"""The reason in the Failed condition of a job whose spec was invalid from the start."""


@dataclass(frozen=True, slots=True)
class DesiredAlphaJob:
    """A spec. `replicas`: their number by type. `program`: some parameter servers run the operator's own."""

    replicas: Mapping[str, int]
    chief: Slot
    clean_up: str
    runtime_id: str
    program: bool
    foreign: bool
    invalid: bool

    @property
    def slots(self) -> set[Slot]:
        return {(name, index) for name, count in self.replicas.items() for index in range(count)}


def desired_job(job: Body) -> DesiredAlphaJob:
    """Read a job. Of an invalid spec, only the owner is read."""
    meta, spec = job["metadata"], job["spec"]
    foreign = (spec.get("runPolicy") or {}).get("managedBy") == FOREIGN
    if INVALID in (meta.get("annotations") or {}):
        return DesiredAlphaJob({}, ("", 0), "", "", program=False, foreign=foreign, invalid=True)
    entries: list[dict[str, Any]] = spec["replicaSpecs"]
    chief = (spec.get("terminationPolicy") or {}).get("chief") or {}
    return DesiredAlphaJob(
        replicas={TYPES[each.get("tfReplicaType", "MASTER")]: each.get("replicas", 1) for each in entries},
        chief=(TYPES[chief.get("replicaName", "MASTER")], chief.get("replicaIndex", 0)),
        clean_up=spec.get("cleanupPodPolicy", "Running"),
        runtime_id=spec.get("RuntimeId", ""),
        program=any(not _has_container(each) and each.get("replicas", 1) for each in entries),
        foreign=foreign,
        invalid=False,
    )


def _has_container(entry: dict[str, Any]) -> bool:
    return bool(((entry.get("template") or {}).get("spec") or {}).get("containers"))


def runtime_id_of(job: Body) -> str:
    return str((job.get("status") or {}).get("runtimeId", ""))


def fails_for_good(end: Exit) -> bool:
    """Whether a chief with this end has failed permanently, by tf-operator 0.x's table of exit codes."""
    return end.own and end.code != 0 and (end.reason == "OOMKilled" or end.code not in RETRYABLE)
