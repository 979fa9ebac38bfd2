"""Pod templates of the alpha dialect: decoded from a job's specification when something is created. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tfjob_operator.api.v1alpha1.constants import ReplicaType
from tfjob_operator.api.v1alpha1.validation import canonical_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.api.meta import JSON
    from tfjob_operator.api.v1alpha1.constants import Dialect


def templates_of(dialect: Dialect, raw: bytes | msgspec.Raw) -> Mapping[ReplicaType, JSON]:
    """Return the templates of a checked specification by replica type; they must not be changed. One left out is empty."""
    spec: Any = canonical_spec(dialect, msgspec.json.decode(raw))
    return {
        ReplicaType(entry.get("tfReplicaType") or ReplicaType.MASTER): entry.get("template") or {}
        for entry in spec["replicaSpecs"]
    }
