"""The API server's audit log: which client sent it which requests."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


class AuditLog:
    """An audit log in a folder; `flags` make kube-apiserver write it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "audit.log"
        self._policy = folder / "audit-policy.json"
        self._policy.write_text(json.dumps(POLICY))

    @property
    def flags(self) -> list[str]:
        """Flags of kube-apiserver. Without batching, a request is in the log by the time it is answered."""
        return [
            f"--audit-policy-file={self._policy}",
            f"--audit-log-path={self._log}",
            "--audit-log-mode=blocking",
        ]

    def calls(self, user_agent: str, namespace: str = "") -> Counter[tuple[str, str]]:
        """Count this client's requests by (verb, resource); with a namespace, only those for objects in it."""
        found: Counter[tuple[str, str]] = Counter()
        for line in self._log.read_text().splitlines():
            entry = json.loads(line)
            target = entry.get("objectRef") or {}
            if entry.get("userAgent") != user_agent or (namespace and target.get("namespace") != namespace):
                continue
            resource = "/".join(filter(None, (target.get("resource", ""), target.get("subresource", ""))))
            found[entry["verb"], resource] += 1
        return found
