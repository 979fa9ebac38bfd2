"""Derives the older versions of TFJob from v1. Pure.

An API server stores one object for all versions and, with the conversion `None`, changes only its `apiVersion`. Therefore every
version must accept each object that any version accepted. For example, the update that removes an object's finalizer uses the
preferred version, and must not be rejected. All versions have the same types and subresources, and differ only in descriptions
and columns.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hack.crd_schema.schema import Schema, written

BEGIN: Final = "# made of v1 by `make renew`\n"
_WIDTH: Final = 2000
"""Fields are described only in v1."""


class Version(NamedTuple):
    """A version: its name, the descriptions of its object and spec for `kubectl explain`, and its columns.

    `own` are the columns that only this version has. After them come the columns of v1 named in `columns`. Without columns
    kubectl shows only the age. An old kubectl shows the description of the spec for every field.
    """

    name: str
    about: str
    spec: str
    columns: tuple[str, ...] = ()
    own: tuple[Mapping[str, str], ...] = ()


_REPLICAS: Final = (
    "tfReplicaSpecs: the replicas by type (Chief, Master, Worker, PS, Evaluator), each with replicas (their number, 1 by "
    "default), restartPolicy (Always, OnFailure, Never, ExitCode) and template (the pod template, with a container named "
    "tensorflow)."
)
_POLICIES: Final = (
    "cleanPodPolicy: which pods are deleted when the job finishes (Running, All or None). "
    "ttlSecondsAfterFinished: the time until a finished job is deleted."
)
_LIMITS: Final = (
    "activeDeadlineSeconds: the time from its start until the job fails. backoffLimit: restarts before it fails."
)
_YOUNGER: Final = "All fields of v1 are supported."
_NOW: Final = "Use v1 for new jobs: the fields are the same."

OLDER: Final = (
    Version(
        "v1beta2",
        f"TFJob of tf-operator 0.5 to 1.0. {_NOW}",
        f"The desired state of the job. {_REPLICAS} {_POLICIES} {_LIMITS} {_YOUNGER}",
        ("State", "Age"),
    ),
    Version(
        "v1beta1",
        f"TFJob of tf-operator 0.4 and 0.5. {_NOW}",
        f"The desired state of the job. {_REPLICAS} {_POLICIES} {_YOUNGER}",
        ("State", "Age"),
    ),
    Version(
        "v1alpha2",
        f"TFJob of tf-operator 0.2 and 0.3. {_NOW}",
        f"The desired state of the job. {_REPLICAS} {_POLICIES} {_YOUNGER}",
    ),
    Version(
        "v1alpha1",
        "TFJob of tf-operator 0.1, for operators that are configured to run it. Use v1 for new jobs.",
        "The desired state of the job. replicaSpecs: a list of entries with tfReplicaType (MASTER, WORKER, PS), replicas "
        "(their number, 1 by default), tfPort (2222 by default) and template (the pod template, with a container named "
        "tensorflow; optional for a PS). terminationPolicy.chief: replicaName and replicaIndex of the replica that decides "
        "the outcome, MASTER 0 by default. tfImage: the image of a PS without a template. RuntimeId: a part of all names, "
        "chosen by the operator by default. "
        "cleanupPodPolicy (Running, All or None), schedulerName, tensorboard.",
        ("Age",),
        (
            {"name": "Kind", "type": "string", "jsonPath": ".kind"},
            {"name": "State", "type": "string", "jsonPath": ".status.state"},
        ),
    ),
)
"""From the newest to the oldest, for readers of the file; kubectl orders versions by their names."""


def made(v1: dict[str, Any], version: Version) -> dict[str, Any]:
    """Return the entry of an older version in the CRD's `versions`; `v1` is the entry of v1."""
    columns = {column["name"]: column for column in v1["additionalPrinterColumns"]}
    schema: Schema = v1["schema"]["openAPIV3Schema"]
    spec = {**schema["properties"]["spec"], "description": version.spec}
    found = {
        "name": version.name,
        "served": True,
        "storage": False,
        "subresources": v1["subresources"],
        "additionalPrinterColumns": [*version.own, *(columns[name] for name in version.columns)],
        "schema": {
            "openAPIV3Schema": {
                **schema,
                "description": version.about,
                "properties": {**schema["properties"], "spec": spec},
            }
        },
    }
    return {key: value for key, value in found.items() if value != []}


def older(v1: dict[str, Any], indent: int) -> str:
    """Return the lines of the older versions; `v1` is the entry of v1."""
    entries = (written(made(v1, version), indent + 2, _WIDTH) for version in OLDER)
    return "".join(f"{' ' * indent}- {entry[indent + 2 :]}" for entry in entries)
