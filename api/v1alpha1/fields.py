"""The fields of a specification in the alpha dialect, and how keys of any letter case become these. Pure."""

from __future__ import annotations

from typing import Final

from tfjob_operator.api.v1.reader import FLAG, TEXT, WHOLE, Fields, Kind, ListOf
from tfjob_operator.api.v1.templates import POD_TEMPLATE, VOLUME_MOUNTS, VOLUMES

TENSORBOARD: Final = Fields(
    {"logDir": TEXT, "serviceType": TEXT, "volumes": VOLUMES, "volumeMounts": VOLUME_MOUNTS},
)
REPLICA: Final = Fields(
    # The last was written by operators of 2017 into what they stored.
    {"tfReplicaType": TEXT, "replicas": WHOLE, "template": POD_TEMPLATE, "tfPort": WHOLE, "IsDefaultPS": FLAG},
)
CHIEF: Final = Fields({"replicaName": TEXT, "replicaIndex": WHOLE})
TERMINATION_POLICY: Final = Fields({"chief": CHIEF})
RUN_POLICY: Final = Fields({"managedBy": TEXT})
"""Not of the time, but of whoever manages jobs of the group: no other field of v1's run policy means anything here."""
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
    """Return the value with the keys of its objects spelt as `kind` has them, as Go's encoding/json reads any letter case.

    Of two keys that name one field the later counts. What `kind` does not know stays as it is.
    """
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
