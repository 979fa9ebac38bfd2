"""The built-in resources of the model, and how the real API server handles each of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfjob_operator.api.core import DEPLOYMENTS, EVENTS, JOBS, LEASES, NODES, PODS, SERVICES
from tfjob_operator.api.meta import Resource

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource, and how the server treats it.

    status: it has a status subresource, and the main resource cannot change the status.
    custom: it is a custom resource: generations, no strategic merge, items of lists have `kind` and `apiVersion`.
    unconditional: a PUT without resourceVersion is accepted (SV-11).
    creates_on_update: a PUT of a missing object creates it.
    graceful: a DELETE of a pod on a node only sets its deletionTimestamp.
    list_keys: for a custom resource, the keys of its lists of type "map", by the name of the list.
    bookmark: a bookmark's fields besides its metadata: those that Go writes for an empty object.
    """

    resource: Resource
    status: bool = False
    custom: bool = False
    unconditional: bool = True
    creates_on_update: bool = False
    graceful: bool = False
    list_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bookmark: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """The path of the objects in etcd, below /registry."""
        plural = self.resource.plural
        if self.custom:
            return f"{self.resource.group}/{plural}"
        return "services/specs" if plural == "services" else plural

    @property
    def head(self) -> dict[str, str]:
        """`kind` and `apiVersion`, the first fields of each object on the wire."""
        return {"kind": self.resource.kind, "apiVersion": self.resource.api_version}


_TEMPLATE: Final = {"metadata": {"creationTimestamp": None}, "spec": {"containers": None}}
_DEPLOYMENT: Final = {"spec": {"selector": None, "template": _TEMPLATE, "strategy": {}}, "status": {}}
_STATEFUL_SET: Final = {
    "spec": {"selector": None, "template": _TEMPLATE, "serviceName": "", "updateStrategy": {}},
    "status": {"replicas": 0},
}
KINDS: Final = (
    Kind(PODS, status=True, graceful=True, bookmark={"spec": {"containers": None}, "status": {}}),
    Kind(SERVICES, status=True, creates_on_update=True, bookmark={"spec": {}, "status": {"loadBalancer": {}}}),
    Kind(CONFIG_MAPS),
    Kind(EVENTS, creates_on_update=True),
    Kind(LEASES, unconditional=False, creates_on_update=True, bookmark={"spec": {}}),
    Kind(DEPLOYMENTS, status=True, creates_on_update=True, bookmark=_DEPLOYMENT),
    Kind(STATEFUL_SETS, status=True, bookmark=_STATEFUL_SET),
    Kind(JOBS, status=True, bookmark={"spec": {"template": _TEMPLATE}, "status": {}}),
    Kind(SECRETS),
    Kind(CLAIMS, status=True, bookmark={"spec": {"resources": {}}, "status": {}}),
    Kind(NODES, status=True),
    Kind(NAMESPACES, status=True, bookmark={"spec": {}, "status": {}}),
)
