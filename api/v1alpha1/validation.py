"""Reads a specification of the alpha dialect: checks used fields, fills in defaults, reports errors by alpha names.

As in v1, all errors are reported at once and without values, and nothing here raises on user data. Templates are
decoded from a job's spec when children are created.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.meta import JSON, MAX_NAME_LENGTH
from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1.constants import CleanPodPolicy
from tfjob_operator.api.v1.reader import FLAG, TEXT, WHOLE, Fields, Kind, ListOf, Path, Reader
from tfjob_operator.api.v1.templates import POD_TEMPLATE, VOLUME_MOUNTS, VOLUMES, decode_spec, facts_of, read_template
from tfjob_operator.api.v1.types import InvalidSpec, SpecWarning
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.api.v1alpha1.constants import Dialect, ReplicaType
from tfjob_operator.api.v1alpha1.types import AlphaReplicas, AlphaSpec, Chief

TENSORBOARD: Final = Fields({"logDir": TEXT, "serviceType": TEXT, "volumes": VOLUMES, "volumeMounts": VOLUME_MOUNTS})
REPLICA: Final = Fields(
    # Operators of 2017 wrote the last field into the stored jobs.
    {"tfReplicaType": TEXT, "replicas": WHOLE, "template": POD_TEMPLATE, "tfPort": WHOLE, "IsDefaultPS": FLAG}
)
CHIEF: Final = Fields({"replicaName": TEXT, "replicaIndex": WHOLE})
TERMINATION_POLICY: Final = Fields({"chief": CHIEF})
RUN_POLICY: Final = Fields({"managedBy": TEXT})
"""Not a field of the alpha API, but read by managers of this API group: the only field of v1's run policy with a meaning
here."""
SPEC: Final = Fields(
    {
        "replicaSpecs": ListOf(REPLICA),
        "RuntimeId": TEXT,
        "tfImage": TEXT,
        "terminationPolicy": TERMINATION_POLICY,
        "schedulerName": TEXT,
        "cleanupPodPolicy": TEXT,
        "tensorboard": TENSORBOARD,
        "runPolicy": RUN_POLICY,
    }
)


def canonical(value: object, kind: Kind) -> object:
    """Return the value with keys spelled as in `kind`, like Go's encoding/json: the last duplicate wins, unknown keys stay."""
    if isinstance(kind, ListOf) and isinstance(value, list):
        return [canonical(each, kind.item) for each in value]
    if not (isinstance(kind, Fields) and isinstance(value, dict)):
        return value
    folded = {name.casefold(): name for name in kind.known}
    found: dict[str, object] = {}
    given: dict[str, object] = value
    for key, each in given.items():
        name = key if key in kind.known else folded.get(key.casefold(), key)
        found[name] = canonical(each, kind.known[name]) if name in kind.known else each
    return found


_NAME_PART: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LONGEST_ELSE: Final = len("tensorboard-")
"""The longest prefix of a RuntimeId in the names of children that are not replicas."""
_LARGEST_PORT: Final = 65_535


def read_spec(dialect: Dialect, name: str, raw: bytes | msgspec.Raw) -> AlphaSpec | InvalidSpec:
    """Read the specification of the job called `name`: return it with defaults, or as invalid with its errors."""
    reader = Reader()
    spec = canonical_spec(dialect, decode_spec(reader, raw))
    if reader.mistakes:
        return InvalidSpec(tuple(reader.mistakes), reader.more)
    reader.known(spec, SPEC.known, "spec")
    _check_name(reader, name)
    run_policy = reader.mapping(spec.get("runPolicy"), "spec.runPolicy")
    reader.known(run_policy, RUN_POLICY.known, "spec.runPolicy")
    managed_by = reader.text(run_policy.get("managedBy"), "spec.runPolicy.managedBy")
    cleanup_policy = _read_cleanup_policy(reader, spec)
    replicas = _read_replicas(reader, spec)
    chief = _read_chief(reader, spec, replicas)
    image = _read_image(reader, spec, replicas)
    runtime_id = _read_runtime_id(reader, spec, replicas)
    scheduler_name = reader.text(spec.get("schedulerName"), "spec.schedulerName")
    if reader.mistakes:
        return InvalidSpec(tuple(reader.mistakes), reader.more, managed_by=managed_by, clean_pod_policy=cleanup_policy)
    tensorboard = spec.get("tensorboard")
    return AlphaSpec(
        replicas=tuple(replicas.values()),
        chief=chief,
        runtime_id=runtime_id,
        image=image,
        scheduler_name=scheduler_name,
        cleanup_policy=cleanup_policy,
        managed_by=managed_by,
        tensorboard=tensorboard if isinstance(tensorboard, dict) else None,
        warnings=_warnings(reader, spec),
    )


def canonical_spec(dialect: Dialect, spec: JSON) -> JSON:
    """Return a decoded specification with the keys of its objects as `SPEC` spells them."""
    if not dialect.any_case:
        return spec
    found = canonical(spec, SPEC)
    return found if isinstance(found, dict) else {}


def _warnings(reader: Reader, spec: JSON) -> tuple[SpecWarning, ...]:
    """Return warnings about valid but probably unintended settings."""
    found = [SpecWarning(v1.EventReason.UNKNOWN_FIELD, unknown) for unknown in reader.unknown_fields]
    entries = spec.get("replicaSpecs")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        pod = ((entry or {}).get("template") or {}).get("spec") or {}
        if pod.get("restartPolicy") == PodRestartPolicy.ALWAYS:
            text = f"spec.replicaSpecs[{index}]: a Job does not support restartPolicy Always; OnFailure is used"
            found.append(SpecWarning(v1.EventReason.RESTART_POLICY_OVERWRITTEN, text))
    return tuple(found)


def _check_name(reader: Reader, job: str) -> None:
    if len(job) > MAX_NAME_LENGTH:
        reader.error("metadata.name", f"must be no more than {MAX_NAME_LENGTH} characters: it is the value of a label")


def _read_replicas(reader: Reader, spec: JSON) -> dict[ReplicaType, AlphaReplicas]:
    """Read `replicaSpecs`, which has one entry per type."""
    path = "spec.replicaSpecs"
    entries = spec.get("replicaSpecs")
    if "tfReplicaSpecs" in spec:
        reader.error("spec.tfReplicaSpecs", "Forbidden: v1 format; this job uses replicaSpecs, the v1alpha1 format")
    if entries is None or entries == []:
        reader.error(path, "Required value: at least one entry, with tfReplicaType MASTER")
        return {}
    if not isinstance(entries, list):
        reader.wrong_type(path, "a list", entries)
        return {}
    found: dict[ReplicaType, AlphaReplicas] = {}
    for index, entry in enumerate(entries):
        here = Path(path, index)
        replicas = _read_entry(reader, entry, here)
        if replicas is None:
            continue
        if replicas.type in found:
            reader.error(here, f"Duplicate value: {replicas.type}; keep one entry for each tfReplicaType")
        found.setdefault(replicas.type, replicas)
    total = sum(each.replicas for each in found.values())
    if total > c.MAX_REPLICAS:
        reader.error(path, f"requests {total} replicas; the maximum in v1alpha1 is {c.MAX_REPLICAS}, and higher in v1")
    return found


def _is_left_out(value: object) -> bool:
    return value is None or value == ""


def _read_entry(reader: Reader, entry: object, path: Path) -> AlphaReplicas | None:
    """Read an entry; None if its type is invalid."""
    if not isinstance(entry, dict):
        reader.wrong_type(path, "an object", entry)
        return None
    reader.known(entry, REPLICA.known, path)
    given = entry.get("tfReplicaType")
    kind = reader.choice(given, Path(path, "tfReplicaType"), ReplicaType)
    if kind is None and not _is_left_out(given):
        return None
    kind = kind or ReplicaType.MASTER
    count = reader.integer(entry.get("replicas"), Path(path, "replicas"), 1)
    if kind is ReplicaType.MASTER and count != 1:
        reader.error(Path(path, "replicas"), "The MASTER must have Replicas = 1")
    reader.boolean(entry.get("IsDefaultPS"), Path(path, "IsDefaultPS"))
    bare = AlphaReplicas(kind, count or 0, _read_port(reader, entry, path))
    return _read_pods(reader, bare, entry.get("template"), Path(path, "template"))


def _read_port(reader: Reader, entry: JSON, path: Path) -> int:
    port = reader.integer(entry.get("tfPort"), Path(path, "tfPort"), c.DEFAULT_PORT) or 0
    if not 1 <= port <= _LARGEST_PORT:
        reader.error(Path(path, "tfPort"), f"must be between 1 and {_LARGEST_PORT}")
    return port


def _read_pods(reader: Reader, bare: AlphaReplicas, given: object, path: Path) -> AlphaReplicas:
    """Read the template of one type; parameter servers without a container `tensorflow` get the operator's container."""
    may_lack = bare.type is ReplicaType.PS
    if given is None and not may_lack:
        reader.error(path, f"Replica type {bare.type} is missing Template")
        return bare
    template = reader.mapping(given, path)
    read = read_template(reader, template, path, may_be_empty=may_lack)
    lacks = read.containers is not None and v1.CONTAINER_NAME not in read.containers
    if lacks and not may_lack:
        reader.error(path, f"Replica type {bare.type} is missing a container named {v1.CONTAINER_NAME}")
    if reader.mistakes:
        return replace(bare, gets_server=lacks)
    lacks = lacks or (may_lack and bool(split_server(template)[1]))
    return replace(
        bare,
        # Jobs accept only these two; a template without a policy would mean Always.
        restart_policy=read.policy if read.policy is PodRestartPolicy.NEVER else PodRestartPolicy.ON_FAILURE,
        gets_server=lacks,
        sets_tf_config=not lacks and v1.TF_CONFIG in facts_of(template).sets,
    )


def split_server(template: JSON) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a checked template's containers except the standard server, and the fields of that server to keep.

    Earlier operators wrote a standard server into the stored job: a container `tensorflow` that mounts a volume which the
    template does not have. The returned fields omit that mount; they are empty without a server.
    """
    spec: Any = template.get("spec") or {}
    containers = list(spec.get("containers") or [])
    if any((volume or {}).get("name") == c.SERVER_VOLUME for volume in spec.get("volumes") or ()):
        return containers, {}
    for container in containers:
        mounts = container.get("volumeMounts") or []
        others = [mount for mount in mounts if (mount or {}).get("name") != c.SERVER_VOLUME]
        if container["name"] == v1.CONTAINER_NAME and others != mounts:
            return [each for each in containers if each is not container], container | {"volumeMounts": others}
    return containers, {}


def _read_chief(reader: Reader, spec: JSON, replicas: Mapping[ReplicaType, AlphaReplicas]) -> Chief:
    path = "spec.terminationPolicy"
    policy = reader.mapping(spec.get("terminationPolicy"), path)
    reader.known(policy, TERMINATION_POLICY.known, path)
    given = policy.get("chief")
    if given is None and spec.get("terminationPolicy") is not None:
        reader.error(f"{path}.chief", "Required value")
    chief = reader.mapping(given, f"{path}.chief")
    reader.known(chief, CHIEF.known, f"{path}.chief")
    before = len(reader.mistakes)
    name = reader.choice(chief.get("replicaName"), f"{path}.chief.replicaName", ReplicaType)
    index = reader.integer(chief.get("replicaIndex"), f"{path}.chief.replicaIndex", 0) or 0
    found = Chief(name or ReplicaType.MASTER, index)
    if len(reader.mistakes) > before:
        return found
    if found.type not in replicas:
        reader.error(path, f"Missing ReplicaSpec for chief: {found.type}")
    elif index >= replicas[found.type].replicas:
        reader.error(f"{path}.chief.replicaIndex", f"must be less than the number of {found.type} replicas")
    return found


def _read_image(reader: Reader, spec: JSON, replicas: Mapping[ReplicaType, AlphaReplicas]) -> str:
    image = reader.text(spec.get("tfImage"), "spec.tfImage", c.DEFAULT_IMAGE)
    servers = replicas.get(ReplicaType.PS)
    if not image and servers is not None and servers.gets_server:
        reader.error("spec.tfImage", "Required value: the image of parameter servers without a container")
    return image


def _read_cleanup_policy(reader: Reader, spec: JSON) -> CleanPodPolicy:
    given = spec.get("cleanupPodPolicy")
    found = reader.choice(given, "spec.cleanupPodPolicy", CleanPodPolicy)
    # An invalid policy deletes nothing.
    return found or (c.DEFAULT_CLEANUP if _is_left_out(given) else CleanPodPolicy.NONE)


def _read_runtime_id(reader: Reader, spec: JSON, replicas: Mapping[ReplicaType, AlphaReplicas]) -> str:
    path = "spec.RuntimeId"
    found = reader.text(spec.get("RuntimeId"), path)
    if not found:
        return ""
    beside = [len(f"{replica.type}--{max(replica.replicas - 1, 0)}") for replica in replicas.values()]
    longest = MAX_NAME_LENGTH - max([_LONGEST_ELSE, *beside])
    if len(found) > longest:
        reader.error(path, f"must be no more than {longest} characters: it is part of the names of Jobs and Services")
    elif not _NAME_PART.fullmatch(found):
        reader.error(
            path, "must consist of lowercase letters, digits and '-': it is part of the names of Jobs and Services"
        )
    return found


def templates_of(dialect: Dialect, raw: bytes | msgspec.Raw) -> Mapping[ReplicaType, JSON]:
    """Return the templates of a checked specification by replica type; empty if not set. Do not modify them."""
    spec: Any = canonical_spec(dialect, msgspec.json.decode(raw))
    return {
        ReplicaType(entry.get("tfReplicaType") or ReplicaType.MASTER): entry.get("template") or {}
        for entry in spec["replicaSpecs"]
    }
