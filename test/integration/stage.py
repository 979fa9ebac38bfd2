"""Problems on a real API server: the test acts as scheduler, kubelet and volume controller of a namespace.

A `Stage` writes what these would write (conditions, events, statuses of nodes and claims), with their messages; everything
else is real. Jobs are explained as by `kubectl tfjob explain`: with the plugin's session, from what it reads.
"""

import http.client
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import pytest
from msgspec import structs

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs, tfjob
from support.waiting import eventually
from tfjob_operator.api.access import Access
from tfjob_operator.cli.collecting import collect
from tfjob_operator.cli.diagnosis.causes import Diagnosis
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.diagnosis.facts import Evidence
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target

FOREVER: Final = "forever"
NEVER_STARTS: Final = "never-start"
TRAINING: Final = {"name": "tensorflow", "image": "train:1"}
POD: Final = "{}-worker-0"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
PATIENCE_S: Final = 45.0
"""How long a cause may take to get to line one. Most are there at once; this is for a busy machine."""


def one(
    run: str = FOREVER, policy: str = "Never", *, notes: dict[str, str] | None = None, **pod: Any
) -> dict[str, Any]:
    """The specification of a job of one worker; `notes` are annotations of its pod, `pod` further fields of the pod's spec."""
    worker = replica(1, policy, run, notes=notes)
    worker["template"]["spec"] |= pod
    return specs(Worker=worker)


def asks(**resources: str) -> dict[str, Any]:
    """The part of a pod's spec that asks for these resources."""
    named = {name.replace("_", "/").replace("example", "example.com"): text for name, text in resources.items()}
    return {"containers": [TRAINING | {"resources": {"requests": named, "limits": named}}]}


Then = Callable[["Stage", str], object]
"""What the test does once the job of this name is there."""


@dataclass(frozen=True)
class Problem:
    """One trouble: the cause that must stand on line one, the job, and what happens to it.

    `then` is called once the job is there, with the name of the job (by default the trouble's). `since` is the first minor
    version whose API server can have the trouble. The job is explained as if nothing had changed for `later_s` seconds.
    """

    id: str
    spec: dict[str, Any]
    then: Then = lambda _stage, _job: None
    name: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    later_s: float = 0.0
    since: int = 20

    @property
    def job(self) -> str:
        return self.name or self.id


class _Session(Session):
    """A user's session. No kubelet sends logs here, so they are taken from `logs`, by pod."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.logs: dict[str, str] = {}

    def read(self, path: str, **query: str | int | None) -> bytes:
        """Return what the server sends, or for a log what a kubelet would."""
        if path.endswith("/log"):
            return self.logs.get(path.split("/")[-2], "").encode()
        return super().read(path, **query)


class Stage:
    """A namespace of the API server in which jobs get into trouble."""

    def __init__(self, plane: ControlPlane, cluster: Cluster) -> None:
        self.cluster = cluster
        self.minor = plane.version.minor
        self._plane = plane
        self._session = _Session(Target(kubeconfig=str(plane.kubeconfig), namespace=cluster.namespace).access())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def logs(self) -> dict[str, str]:
        """The logs that the session returns, by pod. Tests fill it."""
        return self._session.logs

    def path(self, resource: str, name: str) -> str:
        """Return the path of an object of kubeflow.org/v1 in the namespace."""
        return f"/apis/kubeflow.org/v1/namespaces/{self.cluster.namespace}/{resource}/{name}"

    def api(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Send a request as the administrator; a `path` without a leading slash is one of the core API in the namespace."""
        if not path.startswith("/"):
            path = f"/api/v1/namespaces/{self.cluster.namespace}/{path}"
        status, found = self.answer(method, path, body, kind)
        assert status < 300, found
        return found

    def answer(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Send a request, and return the status of the response and what it holds."""
        return self._plane.request(method, path, body, content_type=kind)

    def refuses_pods(self) -> bool:
        """Whether no pod can be created; a new quota takes effect only a moment after its creation."""
        pod = {"metadata": {"generateName": "try-"}, "spec": {"containers": [TRAINING]}}
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods?dryRun=All"
        return self.answer("POST", path, pod)[0] == http.client.FORBIDDEN

    def jobs(self, problems: Iterable[Problem]) -> None:
        path = f"/apis/kubeflow.org/v1/namespaces/{self.cluster.namespace}/tfjobs"
        for each in problems:
            self.api("POST", path, tfjob(each.job, each.spec, **each.meta))

    def pod(self, name: str, *, bound: bool = False) -> dict[str, Any]:
        """Return a pod once it is there; with `bound`, once its kubelet has written the status of its containers."""

        def there() -> Any:
            pod = self.cluster.find("pods", name)
            return pod if pod and (not bound or pod["status"].get("containerStatuses")) else None

        found: dict[str, Any] = eventually(there, f"pod {name} is there")
        return found

    def tell(self, about: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """Write an event about an object, as a component of Kubernetes would."""
        meta, now = about["metadata"], f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        involved = {"apiVersion": "v1", "kind": kind, "namespace": self.cluster.namespace}
        involved |= {name: meta[name] for name in ("name", "uid")}
        times = {"firstTimestamp": now, "lastTimestamp": now, "count": 1}
        head = {"metadata": {"generateName": f"{meta['name']}."}, "involvedObject": involved, "type": "Warning"}
        self.api("POST", "events", {**head, **times, "reason": reason, "message": message})

    def explain(self, job: str, later_s: float = 0.0) -> Diagnosis:
        """Return what `explain` would find in `later_s` seconds if nothing changed but the lease of an operator that runs."""
        return diagnose(later(collect(self._session, job, datetime.now(UTC)), later_s))

    def first(self, problem: Problem) -> str:
        """The ID of the cause on line one, "" if none was found."""
        return next((cause.id for cause in self.explain(problem.job, problem.later_s).causes), "")

    def play(self, problems: Sequence[Problem]) -> list[str]:
        """Make the troubles that this server can have; return a line for each whose cause does not get to line one in time."""
        made = [each for each in problems if each.since <= self.minor]
        self.jobs(made)
        for each in made:
            each.then(self, each.job)
        waits, deadline = made, time.monotonic() + PATIENCE_S
        while (waits := [each for each in waits if self.first(each) != each.id]) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [f"{each.id}: {self.explain(each.job, each.later_s)}" for each in waits]


def later(evidence: Evidence, by_s: float) -> Evidence:
    """The same evidence after a while, in which the operator has renewed its lease."""
    lease, now = evidence.lease, evidence.now + timedelta(seconds=by_s)
    if by_s and lease is not None and lease.spec is not None:
        lease = structs.replace(lease, spec=structs.replace(lease.spec, renew_time=now))
    return replace(evidence, now=now, lease=lease)


def judge(capsys: pytest.CaptureFixture[str], stage: Stage, problems: list[Problem]) -> None:
    """Make the troubles, print for how many the cause is on line one, and fail unless it is for all."""
    wrong = stage.play(problems)
    made = sum(each.since <= stage.minor for each in problems)
    with capsys.disabled():
        sys.stdout.write(f" {made - len(wrong)} of {made} on line one ")
    assert not wrong, "\n".join(wrong)
