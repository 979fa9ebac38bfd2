"""The resources that the model serves, and how the real API server treats each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from api.core import EVENTS, LEASES, PODS, SERVICES
from api.meta import Resource
from api.v1.constants import TFJOBS

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource with its manners.

    status: it has a status subresource, and the main resource can not change the status.
    custom: it is a custom resource: generations, no strategic merge, items of lists say their kind.
    unconditional: a PUT without resourceVersion is taken (SV-11).
    creates_on_update: a PUT of what is not there creates it.
    graceful: a DELETE only announces the end while a kubelet has the pod.
    """

    resource: Resource
    status: bool = False
    custom: bool = False
    unconditional: bool = True
    creates_on_update: bool = False
    graceful: bool = False

    @property
    def head(self) -> dict[str, str]:
        """`kind` and `apiVersion`, which open every object on the wire."""
        return {"kind": self.resource.kind, "apiVersion": self.resource.api_version}


KINDS: Final = (
    Kind(PODS, status=True, graceful=True),
    Kind(SERVICES, status=True, creates_on_update=True),
    Kind(CONFIG_MAPS),
    Kind(EVENTS, creates_on_update=True),
    Kind(LEASES, unconditional=False, creates_on_update=True),
    Kind(TFJOBS, status=True, custom=True, unconditional=False),
    Kind(NAMESPACES, status=True),
)
