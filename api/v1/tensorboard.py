"""Reads `spec.tensorBoard`: the TensorBoard that runs beside a job. Pure.

It is read separately from `api.v1.validation`: errors in it are reported on the job, but do not make the job invalid.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from tfjob_operator.api.meta import JSON, MAX_NAME_LENGTH
from tfjob_operator.api.text import quoted
from tfjob_operator.api.v1.reader import Kind, Path, Reader, applicable, check
from tfjob_operator.api.v1.templates import VOLUME_MOUNTS, VOLUMES, decode_spec
from tfjob_operator.api.v1.types import format_errors
from tfjob_operator.api.v1.validation import DNS_1035

_PATH: Final = "spec.tensorBoard"
TENSOR_BOARD_FIELDS: Final = frozenset({"logDir", "image", "serviceType", "volumes", "volumeMounts"})


class ServiceType(StrEnum):
    """How the Service of a TensorBoard is exposed: in the cluster, on a port of every node, or by a load balancer."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


@dataclass(frozen=True, slots=True)
class TensorBoard:
    """What a TensorBoard shows, and how it runs.

    Without an `image` the image of the operator's settings is used. `volumes` and `volume_mounts` are as the user wrote
    them, without the ignored fields. `unknown_fields` has a message for each field that is ignored.
    """

    log_dir: str
    image: str = ""
    service_type: ServiceType = ServiceType.CLUSTER_IP
    volumes: tuple[JSON, ...] = ()
    volume_mounts: tuple[JSON, ...] = ()
    unknown_fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InvalidTensorBoard:
    """An invalid `tensorBoard`, with all errors in one line."""

    text: str


class Reading(NamedTuple):
    """The TensorBoard that a specification requests (or None), and who manages the job."""

    managed_by: str
    board: TensorBoard | InvalidTensorBoard | None


def tensor_board_name(job: str) -> str:
    """Return the name of the Deployment and the Service of a job's TensorBoard.

    Names of replicas end with a number, so they cannot collide with it. The headless Service of another job can collide with it
    if that job is called `{job}-tensorboard`: then the Service that comes second is not created, and its job gets a Warning.
    """
    return f"{job}-tensorboard"


def read_tensor_board(job: str, raw: bytes | msgspec.Raw) -> Reading:
    """Read the TensorBoard of the job called `job` from its specification. Never raises on user data."""
    spec = decode_spec(Reader(), raw)  # errors in the spec as a whole are reported when the job itself is read
    policy = spec.get("runPolicy")
    manager = policy.get("managedBy") if isinstance(policy, dict) else None
    given = spec.get("tensorBoard")
    return Reading(manager if isinstance(manager, str) else "", None if given is None else _read(job, given))


def _read(job: str, given: object) -> TensorBoard | InvalidTensorBoard:
    reader = Reader()
    _check_name(reader, job)
    fields = reader.mapping(given, _PATH)
    reader.known(fields, TENSOR_BOARD_FIELDS, _PATH)
    board = read_fields(reader, fields, _PATH)
    return InvalidTensorBoard(format_errors(reader.mistakes, reader.more)) if reader.mistakes else board


def _check_name(reader: Reader, job: str) -> None:
    name = tensor_board_name(job)
    if not DNS_1035.fullmatch(job):
        reader.error(
            "metadata.name", f'Invalid value: "{quoted(job)}": the Service of the TensorBoard cannot be named after it'
        )
    elif len(name) > MAX_NAME_LENGTH:
        reader.error(
            "metadata.name",
            f"must be no more than {MAX_NAME_LENGTH - len(name) + len(job)} characters for a job with a TensorBoard: "
            f"its Service is named {quoted(name)}",
        )


def read_fields(reader: Reader, fields: JSON, path: str) -> TensorBoard:
    """Read the fields of a TensorBoard; errors go to `reader`, with paths below `path`."""
    place = fields.get("logDir")
    log_dir = reader.text(place, f"{path}.logDir")
    if not log_dir and (place is None or place == ""):
        reader.error(f"{path}.logDir", "Required value: the directory or URL of the summaries")
    service_type = reader.choice(fields.get("serviceType"), f"{path}.serviceType", ServiceType)
    lists = {}
    for name, kind, key in (("volumes", VOLUMES, "name"), ("volumeMounts", VOLUME_MOUNTS, "mountPath")):
        check(reader, fields.get(name), kind, f"{path}.{name}")
        lists[name] = _objects(fields.get(name), kind)
        _check_keys(reader, lists[name], key, f"{path}.{name}")
    _check_mounts(reader, lists["volumes"], fields.get("volumeMounts"), path)
    return TensorBoard(
        log_dir=log_dir,
        image=reader.text(fields.get("image"), f"{path}.image"),
        service_type=service_type or ServiceType.CLUSTER_IP,
        volumes=lists["volumes"],
        volume_mounts=lists["volumeMounts"],
        unknown_fields=reader.unknown_fields,
    )


def _check_mounts(reader: Reader, volumes: tuple[JSON, ...], mounts: object, path: str) -> None:
    """Check that each mount names one of the volumes. The volumes of the replicas are not available to TensorBoard."""
    names = {volume.get("name") for volume in volumes if isinstance(volume.get("name"), str)}
    for index, mount in enumerate(mounts if isinstance(mounts, list) else ()):
        if isinstance(mount, dict) and not (isinstance(mount.get("name"), str) and mount["name"] in names):
            place = Path(Path(f"{path}.volumeMounts", index), "name")
            reader.error(place, f"Not found: must be the name of a volume in {path}.volumes")


def _check_keys(reader: Reader, items: tuple[JSON, ...], key: str, path: str) -> None:
    """Check that no two items have the same key: server-side apply could not tell them apart."""
    found = set[str]()
    for index, item in enumerate(items):
        if isinstance(value := item.get(key), str):
            if value in found:
                reader.error(Path(Path(path, index), key), "Duplicate value")
            found.add(value)


def _objects(value: object, kind: Kind) -> tuple[JSON, ...]:
    """Return the objects of a list as they can be applied; items of other types are reported by the type check."""
    found = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return tuple(applicable(Reader(), found, kind))
