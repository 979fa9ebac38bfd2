"""Compares the requests of an account with the permissions in its roles.

Both are sets of (API group, resource with its subresource, verb), as in RBAC. The first comes from the server's audit log, the
second from manifests.
"""

from pathlib import Path
from typing import Any, NamedTuple

import hack.audit
from fakes.manifests import read_documents
from hack.control_plane import ControlPlane
from hack.kubernetes_versions import STREAMING_LISTS

ACCOUNT = "system:serviceaccount:kubeflow:tf-job-operator"


class Fact(NamedTuple):
    """Something that an account does or may do."""

    group: str
    resource: str
    verb: str


class AuditLog(hack.audit.AuditLog):
    """The audit log of an API server, with the requests of one account alone, each written before its answer."""

    def __init__(self, folder: Path, account: str = ACCOUNT) -> None:
        rules = [{"level": "Metadata", "users": [account]}, {"level": "None"}]
        super().__init__(folder, hack.audit.POLICY | {"omitStages": ["RequestReceived"], "rules": rules})
        self._events: list[dict[str, Any]] = []

    @property
    def flags(self) -> list[str]:
        return [flag.replace("=blocking", "=blocking-strict") for flag in super().flags]

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all complete lines so far."""
        self._events += self.news()
        return self._events

    def asked(self) -> set[Fact]:
        """Return what the account asked for, allowed or not."""
        return {fact_of(event["objectRef"], event["verb"]) for event in self.events() if "objectRef" in event}

    def refused(self) -> list[str]:
        """Return the requests that the server refused because the account has no right to them."""
        refused = [event for event in self.events() if event["responseStatus"]["code"] == 403]
        # A namespace that is being deleted refuses creations with the same code; that is nobody's missing right.
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in refused
            if event["annotations"]["authorization.k8s.io/decision"] == "forbid"
        ]


def fact_of(reference: dict[str, str], verb: str) -> Fact:
    """Return the fact that RBAC checks for a request about that object."""
    subresource = reference.get("subresource")
    resource = f"{reference['resource']}/{subresource}" if subresource else reference["resource"]
    return Fact(reference.get("apiGroup", ""), resource, verb)


def allowed(*files: Path) -> set[Fact]:
    roles = [
        document for file in files for document in read_documents(file) if document["kind"] in {"Role", "ClusterRole"}
    ]
    return {
        Fact(group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def lists_to_fall_back_on(plane: ControlPlane, may: set[Fact]) -> set[Fact]:
    """The rights to list, which need not be used where the server has streaming lists: only a fallback lists (RF-28)."""
    return {fact for fact in may if fact.verb == "list"} if plane.version.has(STREAMING_LISTS) else set()
