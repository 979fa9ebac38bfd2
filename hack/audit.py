"""The API server's audit log: which client sent which requests."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


class AuditLog:
    """An audit log in a folder. Pass `flags` to kube-apiserver; they refer to a file that contains `policy`."""

    def __init__(self, folder: Path, policy: Mapping[str, Any] = POLICY) -> None:
        self._log = folder / "audit.log"
        self._policy = folder / "audit-policy.json"
        self._policy.write_text(json.dumps(policy))
        self._read = 0

    @property
    def flags(self) -> list[str]:
        """Flags for kube-apiserver. Without batching, a request is logged before its response is sent."""
        return [
            f"--audit-policy-file={self._policy}",
            f"--audit-log-path={self._log}",
            "--audit-log-mode=blocking",
        ]

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield the entries added since the last call."""
        if not self._log.exists():
            return  # the log is still empty
        with self._log.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # a partial line
                self._read += len(line)
                yield json.loads(line)

    def calls(self, user_agent: str, namespace: str = "") -> Counter[tuple[str, str]]:
        """Count this client's requests by (verb, resource), optionally in one namespace only."""
        found: Counter[tuple[str, str]] = Counter()
        for line in self._log.read_text().splitlines():
            entry = json.loads(line)
            target = entry.get("objectRef") or {}
            if entry.get("userAgent") != user_agent or (namespace and target.get("namespace") != namespace):
                continue
            resource = "/".join(filter(None, (target.get("resource", ""), target.get("subresource", ""))))
            found[entry["verb"], resource] += 1
        return found
