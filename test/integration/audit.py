"""What an account requested from an API server, and what its roles allow: two sets of facts, to be compared.

A fact is (API group, resource with its subresource, verb), as RBAC names them. The first set comes from the server's audit
log, the second from manifests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fakes.manifests import read_documents
from hack.control_plane import ControlPlane
from hack.kubernetes_versions import STREAMING_LISTS

ACCOUNT = "system:serviceaccount:kubeflow:tf-job-operator"


class Fact(NamedTuple):
    """Something that an account does or may do."""

    group: str
    resource: str
    verb: str


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The audit log of an API server. Invariant: its policy lets it contain only requests of one account."""

    policy: Path
    file: Path

    @classmethod
    def in_folder(cls, folder: Path, account: str = ACCOUNT) -> AuditLog:
        """Write the policy for a log in a folder, of the requests of an account."""
        policy = folder / "audit-policy.json"
        rules = [{"level": "Metadata", "users": [account]}, {"level": "None"}]
        stages = ["RequestReceived"]
        kind = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        policy.write_text(json.dumps({**kind, "omitStages": stages, "rules": rules}))
        return cls(policy, folder / "audit.log")

    def apiserver_arguments(self) -> tuple[str, ...]:
        """Return the flags with which an API server writes this log, each line before its answer."""
        policy, log = f"--audit-policy-file={self.policy}", f"--audit-log-path={self.file}"
        return (policy, log, "--audit-log-mode=blocking-strict")

    def events(self) -> list[dict[str, Any]]:
        """Return the events of all complete lines so far."""
        text = self.file.read_text() if self.file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

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
    """Return what the roles in manifests allow."""
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
