"""The node affinity of a pod: on which nodes it may run. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import field

from tfjob_operator.api.meta import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")


class NodeRequirement(Struct, frozen=True):
    """What a label or a field of a node must be."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeTerm(Struct, frozen=True):
    """Requirements that a node must meet together."""

    match_expressions: tuple[NodeRequirement, ...] | None = None
    match_fields: tuple[NodeRequirement, ...] | None = None


class NodeTerms(Struct, frozen=True):
    """Terms; a node must meet one of them."""

    node_selector_terms: tuple[NodeTerm, ...] | None = None


class NodeAffinity(Struct, frozen=True):
    """On which nodes a pod may run; preferences are left out."""

    required: NodeTerms | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Struct, frozen=True):
    """The node affinity of a pod; the affinity to other pods is left out."""

    node_affinity: NodeAffinity | None = None

    def admits(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod may run on a node with this name and these labels.

        As kubernetes does: component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
        """
        required = self.node_affinity.required if self.node_affinity is not None else None
        return required is None or any(_meets(term, name, labels) for term in required.node_selector_terms or ())


def _meets(term: NodeTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node meets a term; no node meets a term without requirements."""
    asked = [(each, labels.get(each.key)) for each in term.match_expressions or ()]
    asked += [(each, {"metadata.name": name}.get(each.key)) for each in term.match_fields or ()]
    return bool(asked) and all(_holds(each, value) for each, value in asked)


def _holds(asked: NodeRequirement, value: str | None) -> bool:
    """Return whether a label meets a requirement; True if its operator is not known here."""
    wanted = asked.values or ()
    if asked.operator in {"In", "NotIn"}:
        return (value in wanted) == (asked.operator == "In")
    if asked.operator in {"Exists", "DoesNotExist"}:
        return (value is not None) == (asked.operator == "Exists")
    if asked.operator in {"Gt", "Lt"}:
        if value is None or not (_WHOLE.fullmatch(value) and wanted and _WHOLE.fullmatch(wanted[0])):
            return False
        return int(value) > int(wanted[0]) if asked.operator == "Gt" else int(value) < int(wanted[0])
    return True
