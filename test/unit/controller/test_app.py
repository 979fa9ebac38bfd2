"""The whole operator on virtual time, against the model API server: when processes start and stop, and which may write."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pytest_mock import MockerFixture
from structlog.testing import capture_logs

from fakes.cluster import HOME, ModelCluster, ModelProcess, UnreliableTransport
from fakes.jobs import replica, template
from fakes.metrics import FakeMetrics
from kit.model.server import ModelServer
from kit.model.versions import OLDEST
from kit.virtual_loop import EPOCH, VirtualClock
from simulation.kinds import KINDS_WITH_TFJOBS
from tfjob_operator.api.core import PODS
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.controller.composition import build
from tfjob_operator.controller.jobs.job_metrics import BY_NAMESPACE, FRAMEWORK, JOBS, START, WAITING_SINCE
from tfjob_operator.controller.leaderelection import Election, Fence, LeadershipLostError
from tfjob_operator.controller.manager.controller import RECONCILES
from tfjob_operator.controller.manager.manager import DRAIN_S, FLUSH_S, RELEASE_S
from tfjob_operator.controller.manager.parts import Transports
from tfjob_operator.controller.options import ALPHA_APIS, LEASE_NAME, V1, Options
from tfjob_operator.workqueue import LeaseClock

LEASE_S = 15.0
RETRY_S = 2.0 * 2.2
"""The longest pause of a candidate."""


class Process(ModelProcess):
    def __init__(self, server: ModelServer, name: str, **options: Any) -> None:
        self.watches, self.writes = UnreliableTransport(server, name), UnreliableTransport(server, name)
        self.lease = UnreliableTransport(server, f"lease of {name}")
        self.metrics = FakeMetrics()
        stop = asyncio.Event()
        given: dict[str, Any] = {"namespace": HOME, "threadiness": 2, "election": Election(HOME, LEASE_NAME)}
        manager = build(
            Options(**(given | options)),
            Transports(self.watches, self.writes, self.lease),
            stop,
            identity=name,
            metrics=self.metrics,
            clock=VirtualClock(),
            random=lambda: 1.0,
        )
        super().__init__(manager, stop)

    def counted(self) -> dict[str, int]:
        """Return its counters of jobs in its namespace that are not zero, by name."""
        found = {name: self.metrics.counted(metric) for name, metric in BY_NAMESPACE.items()}
        assert all(set(by_labels) <= {(HOME, FRAMEWORK)} for by_labels in found.values())
        return {name: sum(by_labels.values()) for name, by_labels in found.items() if by_labels}

    def results(self) -> Counter[str]:
        """Return how many of its syncs ended with each result."""
        return Counter({result: count for (_, result), count in self.metrics.counted(RECONCILES).items()})


class Cluster(ModelCluster[Process]):
    """A cluster with processes of the whole operator."""

    def start(self, name: str, **options: Any) -> Process:
        process = Process(self.server, name, **options)
        self.processes.append(process)
        return process

    def holder(self) -> str:
        return str(self.body("leases", "tf-operator")["spec"]["holderIdentity"])


@asynccontextmanager
async def a_cluster(*names: str) -> AsyncIterator[Cluster]:
    """A cluster with these processes, a second apart."""
    async with Cluster().begun() as cluster:
        for name in names:
            cluster.start(name)
            await asyncio.sleep(1.0)
        yield cluster


async def test_a_process_works_when_its_caches_are_filled_and_the_lease_is_its_own() -> None:
    """A12: the election comes after the caches, the workers after the election."""
    async with a_cluster() as cluster:
        process = cluster.start("a")
        assert (process.manager.why_not_ready() or "").startswith(
            "caches not synced: tfjobs.kubeflow.org/team, pods/team?"
        )
        process.watches.silent_for = "/services"
        await asyncio.sleep(5.0)
        assert not process.lease.requests
        process.watches.silent_for = None
        await asyncio.sleep(120.0)
        assert process.manager.why_not_ready() is None
        assert process.manager.is_leading
        assert cluster.holder() == "a"
        await cluster.create_job("mnist", wait_s=1.0)
        assert cluster.names("pods") == ["mnist-worker-0"]


async def test_a_replica_that_waits_is_ready_and_writes_nothing() -> None:
    """LE-10, D6: a rolling update goes on when the new pod is ready, which must not need the old one's lease.

    No worker takes keys from its queue, so the key of every job that ever existed would stay there.
    """
    async with a_cluster("a", "b") as cluster:
        _, b = cluster.processes
        await cluster.create_job("mnist", wait_s=30.0)
        assert b.manager.why_not_ready() is None
        assert not b.manager.is_leading
        assert not b.writes.requests
        assert cluster.names("pods") == ["mnist-worker-0"]
        await cluster.client.delete(TFJOBS, HOME, "mnist")
        await asyncio.sleep(60.0)
        assert len(b.manager._controllers[0].queue) == 0
        assert await b.end() < 0.1, (
            "manager_test.go: should prevent leader election when shutting down a non-elected manager"
        )
        assert cluster.holder() == "a"


async def test_a_process_that_is_told_to_stop_hands_over_at_once() -> None:
    """A12, LE-11: the work ends, the events are written, and then the lease is given back."""
    async with a_cluster("a", "b") as cluster:
        a, b = cluster.processes
        await cluster.create_job("first", wait_s=0.01)
        assert await a.end() < 1.0
        assert cluster.names("events")
        last = max(number for number, write in enumerate(cluster.server.writes) if write.client == "a")
        given_back = max(number for number, write in enumerate(cluster.server.writes) if write.client == "lease of a")
        assert last < given_back
        await asyncio.sleep(RETRY_S)
        assert b.manager.is_leading
        await cluster.create_job("second", wait_s=1.0)
        assert "second-worker-0" in cluster.names("pods")


async def test_a_process_that_is_told_to_stop_in_a_burst_hands_over_too() -> None:
    """D24: no write begins and none is cut off, so the lease can be given back; the next leader does what is left.

    A create that is not sent any more is no failure of its job.
    """
    async with a_cluster("a", "b") as cluster:
        a, b = cluster.processes
        a.writes.delay_s = 0.1
        for number in range(100):
            await cluster.create_job(f"job-{number}")
        await asyncio.sleep(0.95)  # in the middle of a write
        begun = len(cluster.written("a"))
        with capture_logs() as lines:
            assert await a.end() < 0.2 + FLUSH_S
        assert a.writes.cut_off == []
        told = [line["event"] for line in lines]
        assert "lease_released" in told
        assert not {"lease_kept", "sync_failed", "sync_crashed", "write_interrupted"} & set(told)
        assert set(cluster.written("a")[begun:]) == {"events"}, "what began before had reached the server by then"
        events = cluster.server.storage.collections["events"].objects.values()
        assert {event.body["type"] for event in events} == {"Normal"}
        await asyncio.sleep(0.2)
        assert b.manager.is_leading, "it saw the lease become free, and did not wait for its next try"
        await asyncio.sleep(30.0)
        assert len(cluster.names("pods")) == 100


async def test_a_write_that_gets_no_response_keeps_the_lease() -> None:
    """D24, LE-11: it may take effect yet, so nobody else may lead before the lease has run out."""
    async with a_cluster("a") as cluster:
        (a,) = cluster.processes
        a.writes.delay_s = 60.0
        await cluster.create_job("mnist", wait_s=0.1)
        with capture_logs() as lines:
            assert DRAIN_S <= await a.end() < 10.0
        assert {"write_interrupted", "lease_kept"} <= {line["event"] for line in lines}
        assert cluster.holder() == "a"


async def test_a_process_that_loses_the_lease_writes_no_more_and_ends_with_an_error() -> None:
    """LE-14, D6: what it knows may be out of date; the kubelet starts it anew.

    The replica that wins the lease looks at every job in its cache, whether or not it saw events of it while it waited.
    """
    async with a_cluster("a", "b") as cluster:
        a, b = cluster.processes
        a.lease.cut = a.writes.cut = True
        await cluster.create_job("before", wait_s=1.0)
        with pytest.raises(LeadershipLostError):
            await a.running
        assert not a.manager.is_leading
        a.writes.cut = False
        before = len(a.writes.requests)
        await cluster.create_job("mnist", wait_s=LEASE_S + RETRY_S)
        assert b.manager.is_leading
        assert cluster.names("pods") == ["before-worker-0", "mnist-worker-0"]
        assert len(a.writes.requests) == before


async def test_no_write_passes_when_the_lease_is_over(mocker: MockerFixture) -> None:
    """The fence: a sync that is running when the lease ends can send no further write; suspensions of the machine count."""
    fences = mocker.patch("tfjob_operator.controller.manager.parts.Fence", wraps=Fence)
    line = UnreliableTransport(ModelServer(kinds=KINDS_WITH_TFJOBS, kubernetes=OLDEST), "a")
    build(Options(), Transports(line, line, line), asyncio.Event(), identity="a")
    assert [type(call.args[0]) for call in fences.call_args_list] == [LeaseClock]
    async with a_cluster("a") as cluster:
        (a,) = cluster.processes
        a.writes.silent_for = "/tfjobs"
        await cluster.create_job("mnist")
        a.lease.cut = True
        with pytest.raises(LeadershipLostError):
            await a.running
        assert "pods" not in cluster.written("a")


async def test_a_process_stops_in_time_when_nobody_responds() -> None:
    """A12: syncs, events and the lease each have their share of ten seconds."""
    async with a_cluster("a") as cluster:
        (a,) = cluster.processes
        await cluster.create_job("mnist", wait_s=1.0)
        for line in (a.watches, a.writes, a.lease):
            line.silent_for = "/"
        await cluster.create_job("other", wait_s=0.5)
        assert await a.end() <= DRAIN_S + FLUSH_S + RELEASE_S + 0.1 < 10.0


async def test_while_the_api_server_is_away_a_process_waits_and_stops_when_told() -> None:
    """B71: it does not ask for the lease, and works once the server responds."""
    async with a_cluster() as cluster:
        a, b = cluster.start("a"), cluster.start("b")
        for line in (a.watches, b.watches):
            line.cut = True
        await cluster.create_job("mnist", wait_s=600.0)
        assert a.manager.why_not_ready() is not None
        assert await a.end() < 1.0
        assert a.manager.why_not_ready() == "stopping"
        assert not a.lease.requests
        b.watches.cut = False
        await asyncio.sleep(60.0)
        assert cluster.names("pods") == ["mnist-worker-0"]


async def test_without_an_election_a_process_works_at_once() -> None:
    """B75: for an operator with a single replica; no lease is asked for. Jobs of other controllers are not counted."""
    async with a_cluster() as cluster:
        a = cluster.start("a", election=None)
        await cluster.create_job("theirs", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}, wait_s=1.0)
        await cluster.client.delete(TFJOBS, HOME, "theirs")
        await asyncio.sleep(1.0)
        assert (a.counted(), a.writes.requests) == ({}, [])
        await cluster.create_job("mnist", wait_s=1.0)
        assert a.manager.is_leading
        assert cluster.names("pods") == ["mnist-worker-0"]
        assert not cluster.names("leases")
        assert await a.end() < 1.0
        assert not a.manager.is_leading


async def test_the_rate_limit_holds_for_all_requests_but_the_leases_and_a_resync_writes_nothing() -> None:
    """SI-09, WR-05: a job that needs many calls must not cost the lease. All jobs are looked at again; nothing is written."""
    async with a_cluster() as cluster:
        a = cluster.start("a", qps=0.5, burst=5, resync_s=60.0)
        for number in range(10):
            await cluster.create_job(f"job-{number}")
        await asyncio.sleep(21.0)
        watches = 4 + 4  # opening one is not rate limited, nor are the streaming lists, which a server of 1.20 refuses
        assert len(a.watches.requests) + len(a.writes.requests) - watches == 5 + 10
        assert len(a.lease.requests) >= 11
        await asyncio.sleep(459.0)  # past the sync that would find expectations that were never met (EX-02)
        a.writes.requests.clear()
        before = a.results()
        await asyncio.sleep(300.0)
        assert a.results() - before == Counter(success=50)
        assert a.writes.requests == []


async def test_a_job_is_counted_once_among_all_replicas_and_lives() -> None:
    """A replica that waits sees deletions too, and every job looks new to a process that has just started."""
    async with a_cluster("a", "b") as cluster:
        a, b = cluster.processes
        await cluster.create_job("first")
        await cluster.create_job("second", wait_s=5.0)
        await cluster.client.delete(TFJOBS, HOME, "first")
        await asyncio.sleep(1.0)
        assert a.counted() == {"created": 2, "deleted": 1}
        await a.end()
        await asyncio.sleep(RETRY_S)
        assert b.counted() == {}
        await cluster.client.delete(TFJOBS, HOME, "second")
        await asyncio.sleep(1.0)
        assert b.counted() == {"deleted": 1}


async def test_the_leader_alone_exports_jobs_by_state_and_observes_starts() -> None:
    """The next leader exports the same at once, and observes a start from the creation of the job, before its own term.

    Its series of a namespace exist, at zero, before its term: an alert needs the zero before the first failure.
    """
    async with a_cluster() as cluster:
        a = cluster.start("a", namespace="")
        await asyncio.sleep(1.0)
        b = cluster.start("b", namespace="")
        await asyncio.sleep(1.0)
        await cluster.create_job("mnist")
        await cluster.create_job("later", runPolicy={"suspend": True}, wait_s=10.0)
        expected = {(HOME, "Created"): 1, (HOME, "Suspended"): 1}
        assert (a.metrics.families[JOBS](), b.metrics.families[JOBS]()) == (expected, {})
        waits = {(HOME, "Created"): EPOCH.timestamp()}
        assert (a.metrics.families[WAITING_SINCE](), b.metrics.families[WAITING_SINCE]()) == (waits, {})
        assert b.metrics[START].observed == []
        await a.end()
        await asyncio.sleep(10.0)
        assert b.metrics.families[JOBS]() == expected
        running = {"phase": "Running", "containerStatuses": [{"name": "tensorflow", "state": {"running": {}}}]}
        await cluster.client.patch(PODS, HOME, "mnist-worker-0", {"status": running}, subresource="status")
        await asyncio.sleep(10.0)
        assert b.metrics.families[JOBS]() == {(HOME, "Running"): 1, (HOME, "Suspended"): 1}
        assert b.metrics.families[WAITING_SINCE]() == {}
        assert (a.metrics[START].observed, b.metrics[START].observed) == ([], [20.0])
        for name in ("mnist", "later"):
            await cluster.client.delete(TFJOBS, HOME, name)
        await asyncio.sleep(1.0)
        assert b.metrics.families[JOBS]() == {}


@pytest.mark.parametrize(
    ("apis", "states"), [((V1, ALPHA_APIS[0]), ["Created", "Failed"]), ((ALPHA_APIS[0],), ["Created"])]
)
async def test_a_job_that_two_caches_hold_is_counted_once(apis: tuple[str, ...], states: list[str]) -> None:
    """Both dialects of kubeflow.org have one collection. An operator of the alpha dialect alone counts its jobs alone."""
    async with a_cluster() as cluster:
        a = cluster.start("a", apis=apis)
        body = {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "metadata": {"name": "invalid"}, "spec": {}}
        await cluster.client.create(TFJOBS, HOME, body)
        spec = {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": template()}]}
        await cluster.client.create(TFJOBS, HOME, body | {"metadata": {"name": "old"}, "spec": spec})
        await asyncio.sleep(5.0)
        assert a.metrics.families[JOBS]() == {(HOME, state): 1 for state in states}


async def test_a_crash_of_a_part_ends_the_process_and_gives_the_lease_back(mocker: MockerFixture) -> None:
    """A bug must be seen; another replica need not wait for the lease to run out."""
    async with a_cluster() as cluster:
        a = cluster.start("a")

        async def broken() -> None:
            raise ZeroDivisionError

        mocker.patch.object(a.manager._recorder, "run", broken)
        with pytest.raises(ExceptionGroup) as caught:
            await a.running
        assert caught.group_contains(ZeroDivisionError)
        assert cluster.holder() == ""


async def test_what_the_alpha_apis_lack_keeps_no_other_job_waiting() -> None:
    """This server knows neither tensorflow.org nor Jobs: jobs of v1 run, and one of v1alpha1 waits untouched.

    An operator that serves another API alone touches no job of v1, and does not wait for their CRD.
    """
    async with Cluster(kinds=[kind for kind in KINDS_WITH_TFJOBS if kind.resource.kind != "Job"]).begun() as cluster:
        other = cluster.start("other", apis=("tensorflow.org/v1alpha1",), election=None)
        await cluster.create_job("mnist", wait_s=10.0)
        problem = other.manager.why_not_ready() or ""
        assert "not served by the API server (is the CRD installed?): tfjobs.tensorflow.org/team" in problem
        assert "not synced" not in problem
        assert cluster.names("pods") == []
        cluster.start("a", apis=("kubeflow.org/v1", "kubeflow.org/v1alpha1", "tensorflow.org/v1alpha1"))
        spec = {"replicaSpecs": [{"template": replica()["template"]}]}
        body = {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "metadata": {"name": "alpha"}, "spec": spec}
        await cluster.client.create(TFJOBS, HOME, body)
        await asyncio.sleep(10.0)
        assert cluster.names("pods") == ["mnist-worker-0"]
        assert "status" not in cluster.body("tfjobs", "alpha")
