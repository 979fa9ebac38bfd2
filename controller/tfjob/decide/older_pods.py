"""Pods that an edit does not reach, since a pod that exists cannot be changed. They stay, and the job says so. Pure.

What pods of a type are made of is part of `status.begun`, as a hash: nothing else shows, when an edit comes, what it has
changed. Neither pods nor their templates need be kept for that.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.build.labels import deciding_type
from tfjob_operator.controller.tfjob.build.tf_config import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfjob_operator.api.v1.types import TFJob, TFJobSpec
    from tfjob_operator.controller.tfjob.decide.replicas import Replica

SCHEME: Final = "1-"
"""What each hash begins with. Raise it whenever the same pods get another hash than in the release before: hashes of two
schemes cannot be compared, and would tell of a change where there is none."""


def made_of(job: TFJob, spec: TFJobSpec) -> dict[str, str]:
    """Return a hash of what pods and services of each type are made of, but for their number."""
    cluster = ClusterSpec(job.metadata, spec)
    return {
        kind: f"{SCHEME}{zlib.crc32(ascii(_parts_of_pods(cluster, spec, kind)).encode()):08x}" for kind in spec.replicas
    }


def is_ours(noted: Mapping[str, str]) -> bool:
    """Return whether these hashes are there, and of the present scheme. Another release may have noted those of another one."""
    return bool(noted) and all(each.startswith(SCHEME) for each in noted.values())


def stay(job: TFJob, spec: TFJobSpec, replicas: Iterable[Replica]) -> str:
    """Return in a sentence which pods stay as they were made though an edit has come; "" where there are none.

    `replicas` are those that run on. Where an operator of another release did not record what they are made of, or did it by
    another scheme, it is left unsaid.
    """
    status = job.status
    if (
        status.begun is None
        or not is_ours(status.begun.made_of)
        or status.observed_generation == job.metadata.generation
    ):
        return ""
    now, there = made_of(job, spec), {replica.type for replica in replicas}
    older = [kind for kind, each in now.items() if kind in there and status.begun.made_of.get(kind, each) != each]
    if not older:
        return ""
    return (
        f"{', '.join(older)}: pods and services that exist stay as they were made; the template, the restart policy and the "
        "TF_CONFIG of now are for those that are made from now on: suspend and resume the job to have all made again"
    )


def _parts_of_pods(cluster: ClusterSpec, spec: TFJobSpec, kind: str) -> tuple[object, ...]:
    replica = spec.replicas[kind]
    return replica.digest, str(replica.restart_policy), deciding_type(spec.replicas) == kind, _told(cluster, spec, kind)


def _told(cluster: ClusterSpec, spec: TFJobSpec, kind: str) -> tuple[object, ...]:
    """Return what TF_CONFIG of a type depends on, of all types that it names. The template's own is in the template."""
    if cluster.is_alone or c.TF_CONFIG in spec.replicas[kind].template.sets:
        return ()
    named = spec.replicas if cluster.is_told_to(kind) else {c.PS} if kind == c.WORKER else ()
    sizes = [
        (each, spec.replicas[each].replicas, spec.replicas[each].template.port)
        for each in sorted(named)
        if each in spec.replicas
    ]
    return (cluster.is_told_to(kind), *sizes)
