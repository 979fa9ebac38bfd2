"""The results of the checks: a verdict on each, lines for people, and the exit code.

Values and decisions; `Report` alone prints.
"""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hack.kubernetes_versions import Kubernetes

TAIL_LINES: Final = 40
"""How much of a failed check's output is shown: an error of kubectl, and what was asked before it."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check with one client. `problem` is empty when all was as it should be."""

    client: str
    check: str
    problem: str = ""
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A check that is known to fail with some clients or servers. None means: with all of them.

    `says` must appear in the problem, so that another failure of the same check is not taken for the known one. Servers are
    minor versions of Kubernetes, clients are named as in the results.
    """

    check: str
    says: str
    reason: str
    clients: frozenset[str] | None = None
    servers: range | None = None

    def concerns(self, result: Result, server: Kubernetes) -> bool:
        """Whether this is about the result's client, check and server, whatever the result."""
        return (
            self.check == result.check
            and (self.clients is None or result.client in self.clients)
            and (self.servers is None or server.minor in self.servers)
        )


# What is known to differ, by check: something that an old client or server lacks, or that we have not fixed yet.
#
# A row that is no longer true fails the matrix. docs/compatibility.md says the same to users.


KNOWN_OF_KUBECTL: Final = (
    Difference(
        "explain, single fields",
        "missing in the output",
        "this API server's OpenAPI v2 leaves out fields of what keeps unknown ones, and v3 is served from 1.24 on",
        servers=range(24),
    ),
    Difference(
        "explain, single fields",
        "missing in the output",
        "kubectl reads OpenAPI v3 from 1.27 on",
        clients=frozenset({"kubectl 1.22", "kubectl 1.26"}),
    ),
    Difference(
        "wait --for=jsonpath",
        "unrecognized condition",
        "kubectl has it from 1.23 on",
        clients=frozenset({"kubectl 1.22"}),
    ),
    *(
        Difference(
            f"apply -k addons/flow-control-{version}",
            "no matches for kind",
            f"this API server does not serve flowcontrol.apiserver.k8s.io/{version} (docs/install.md: which addon for which)",
            servers=servers,
        )
        for version, servers in (
            ("v1beta1", range(26, 100)),
            ("v1beta2", range(23)),
            ("v1beta2", range(29, 100)),
            ("v1", range(29)),
        )
    ),
)

KNOWN_OF_SDKS: Final = (
    Difference(
        "create from a function",
        "has no attribute 'V1RunPolicy'",
        "the SDK's own mistake: it names a model that it does not have, before anything is sent; 1.8 mended it",
        clients=frozenset({"kubeflow-training 1.7.0"}),
    ),
)


class Kind(enum.Enum):
    """What a result means."""

    OK = "ok"
    KNOWN = "known"
    FAILED = "FAILED"
    GONE = "GONE"
    """A known difference no longer exists: its row has to be deleted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A kind, and why it is that one; the reason is empty where all is as it should be."""

    kind: Kind
    reason: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether it makes the matrix fail."""
        return self.kind in {Kind.FAILED, Kind.GONE}


def judge(result: Result, server: Kubernetes | None, differences: Sequence[Difference]) -> Verdict:
    """Return what a result means, given the known differences; if no server has come up (None), no difference is known."""
    known = None if server is None else next((row for row in differences if row.concerns(result, server)), None)
    if known is None:
        return Verdict(Kind.FAILED, result.problem) if result.problem else Verdict(Kind.OK)
    if not result.problem:
        return Verdict(Kind.GONE, f"works now, so its row in hack/matrix/report.py has to go: {known.reason}")
    if known.says not in result.problem:
        return Verdict(Kind.FAILED, f"{result.problem} (known is another failure: {known.reason})")
    return Verdict(Kind.KNOWN, known.reason)


def line_of(result: Result, verdict: Verdict) -> str:
    """Return the line that reports a result."""
    reason = " ".join(verdict.reason.split())
    shown = f": {reason if len(reason) <= 240 else f'{reason[:237]}...'}" if reason else ""
    return f"{verdict.kind.value:6} {result.client:24} {result.check}{shown} ({result.seconds:.1f} s)"


def tail_of(text: str, lines: int = TAIL_LINES) -> str:
    """Return the end of a check's output, indented."""
    return "\n".join(f"    {line[:400]}" for line in text.splitlines()[-lines:])


@dataclass(slots=True)
class Report:
    """The lines of one run, for any number of threads. Invariant: each result is printed once, as soon as it is known."""

    differences: Sequence[Difference]
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    bad: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, result: Result, server: Kubernetes | None) -> None:
        """Judge a result and print its line, with the output when it is bad."""
        verdict = judge(result, server, self.differences)
        line = line_of(result, verdict)
        with self._lock:
            self.counts[verdict.kind] += 1
            print(line, flush=True)
            if verdict.is_bad:
                self.bad.append(line)
                print(tail_of(result.output), file=sys.stderr, flush=True)

    def leave_out(self, client: str, reason: str) -> None:
        """Print why nothing is tried with a client; that is neither good nor bad."""
        with self._lock:
            print(f"{'-':6} {client:24} left out: {reason}", flush=True)

    def close(self) -> int:
        """Print the counts, and what is bad once more; return the exit code: 1 if anything is bad or nothing ran, else 0."""
        ran = sum(self.counts.values())
        print(f"\n{ran} checks: {', '.join(f'{count} {kind.value}' for kind, count in self.counts.items() if count)}")
        for line in self.bad:
            print(line, file=sys.stderr)
        return 1 if self.bad or not ran else 0
