"""A hostile tenant with `edit` in one namespace tries all known attacks; another tenant's jobs are not affected.

All attacks are on one operator with its own account. During each, the victim's running job does not change, by its versions and
the audit log; a new job of the victim gets its pod within seconds; nothing crashes, and memory is bounded.
"""

import asyncio
import functools
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

import pytest

from hack.control_plane import ControlPlane
from integration.audit import AuditLog
from integration.cluster import specs, tfjob
from integration.operator_process import ROOT, OperatorProcess
from integration.tenants import (
    EDIT,
    HOSTILE,
    STEADY,
    VICTIM,
    Tenants,
    child_labels,
    hostile_client,
    pod,
    running,
    service,
    workers,
)
from support.waiting import eventually
from tfjob_operator.api.client.options import JSON_PATCH, MERGE_PATCH
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS

pytestmark = pytest.mark.nightly
FIRST_POD_S: Final = 15.0
"""Seconds that the victim's new job may wait for its pod, on two cores that the API server and the attacker share."""
MEMORY_MB: Final = 256.0
"""Half of the limit in the manifests; an idle operator has about 60."""
EVENTS: Final = Resource("", "v1", "events", "Event")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")

LOG = logging.getLogger(__name__)

numbers = itertools.count()


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    """The audit log of this module's API server: the requests of the operator's account."""
    return AuditLog(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def plane(audit: AuditLog) -> Iterator[ControlPlane]:
    """A cluster of two tenants, with the operator's roles as people apply them."""
    with ControlPlane.start("tenants", extra_apiserver_args=audit.flags) as plane:
        plane.run_kubectl("apply", "--server-side", "-k", str(ROOT / "manifests" / "overlays" / "standalone"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        plane.restart_controller_manager()  # its garbage collector knows TFJobs now
        for namespace in (VICTIM, HOSTILE):
            plane.create_namespace(namespace)
        for role in EDIT:
            name = role.replace(":", "-")
            plane.run_kubectl(
                "create", "rolebinding", name, f"--clusterrole={role}", "--user=mallory", f"--namespace={HOSTILE}"
            )
        yield plane


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """One operator for all attacks, and the victim's steady job under its care."""
    with running(plane, tmp_path_factory.mktemp("operator")) as operator:
        plane.run_kubectl("create", "-n", VICTIM, "-f", "-", input=json.dumps(tfjob(STEADY, specs(Worker=workers(2)))))
        path = "--output=jsonpath={.status.replicaStatuses.Worker.active}"
        active = functools.partial(plane.run_kubectl, "get", "-n", VICTIM, "tfjob", STEADY, path)
        eventually(lambda: active().stdout == "2", "the steady job runs, and its status has no more to say")
        yield operator


async def foreign_owners(it: Tenants) -> None:
    """Objects in another namespace that name the victim's job as their owner, by its UID, and that nobody can delete."""
    owner = {"apiVersion": TFJOBS.api_version, "kind": TFJOBS.kind, "name": STEADY, "uid": it.uid, "controller": True}
    meta = {"ownerReferences": [owner], "finalizers": ["example.com/never"], "labels": child_labels(STEADY)}
    await it.create(*(pod(f"{STEADY}-worker-{index}", **meta) for index in range(50)))
    await it.create(*(service(f"{STEADY}-worker-{index}", **meta) for index in range(50)))
    await it.create(pod("owned-by-a-stranger", **meta | {"ownerReferences": [owner | {"kind": "ReplicaSet"}]}))


async def labels_by_the_thousand(it: Tenants) -> None:
    """Orphans with our labels, of jobs that exist and of jobs that do not."""
    await it.create(tfjob("adopts", specs(Worker=workers(1))))
    names = itertools.cycle((STEADY, "adopts", "nobody", "x" * 63))
    orphans = [pod(f"orphan-{index}", labels=child_labels(next(names), str(index))) for index in range(2000)]
    odd = ("", "-1", "abc", "99999999999999999999", "0.5")
    orphans += [pod(f"odd-{place}", labels=child_labels("adopts", index)) for place, index in enumerate(odd)]
    await it.create(*orphans)


async def monstrous_specifications(it: Tenants) -> None:
    """Specifications as large as the API server accepts, with as many mistakes as fit in."""
    broken = {"replicas": 1, "template": {"spec": {"containers": [{}] * 15_000}}}
    for index in range(6):
        await it.create(tfjob(f"broken-{index}", specs(Worker=broken)))
    filler = "x" * 1_000_000
    await it.create(tfjob("large-command", specs(Worker=workers(1, args=[filler]))))
    await it.create(tfjob("large-key", specs(**{filler[:500_000]: workers(1)})))
    await it.create(tfjob("many-types", specs(**{f"Type{index}": workers(1) for index in range(2000)})))
    nested: Any = "deep"
    for _ in range(900):
        nested = [nested]
    await it.create(tfjob("nested", specs(Worker=workers(1, env=nested))))


async def texts_that_hurt(it: Tenants) -> None:
    """Control characters and long values, where they get into conditions, events and logs."""
    nasty = 'a\x00b\x1b[2J\r\n{"event": "forged"}\u202e'
    await it.create(tfjob("nasty-type", specs(**{nasty: workers(1)})))
    await it.create(tfjob("nasty-env", specs(Worker=workers(1, env=[{"name": nasty, "value": 3}]))))
    await it.create(tfjob("nasty-image", specs(Worker=workers(1, image=nasty))))
    long = tfjob("long-label", specs(Worker=workers(1)))
    template = long["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["labels"] = {"example.com/a": "x" * 800_000}
    await it.create(long)
    await it.create(tfjob("wrong-types", specs(Worker=workers(1, args=[5], ports=[{"containerPort": "x" * 10_000}]))))


async def taken_names(it: Tenants) -> None:
    """Services and pods that take the names of a job's replicas before the job is created."""
    await it.create(*(service(f"taken-worker-{index}") for index in range(0, 200, 2)))
    await it.create(*(pod(f"taken-worker-{index}") for index in range(0, 200, 3)))
    await it.create(tfjob("taken", specs(Worker=workers(200))))


async def children_edited(it: Tenants) -> None:
    """Children that are relabelled, disowned or given a finalizer, and a service that selects something else."""
    await it.create(tfjob("edited", specs(Worker=workers(20))))
    get = ("get", "pods", "-n", HOSTILE, "-l", "job-name=edited", "-o", "name")
    await it.eventually(lambda: len(it.kubectl(*get).split()) == 20, "the job has its pods")
    edits: list[dict[str, Any]] = [
        {"labels": {"replica-index": "abc", "training.kubeflow.org/replica-index": "abc"}},
        {"labels": {"training.kubeflow.org/operator-name": None}},
        {"labels": {"job-name": STEADY, "training.kubeflow.org/job-name": STEADY}},
        {"labels": {"replica-index": "0", "training.kubeflow.org/replica-index": "0"}},
        {"ownerReferences": None},
        {"finalizers": ["example.com/never"]},
    ]
    for index, edit in enumerate(edits):
        await it.patch(PODS, f"edited-worker-{index}", {"metadata": edit}, MERGE_PATCH)
        await it.patch(SERVICES, f"edited-worker-{index + 6}", {"metadata": edit}, MERGE_PATCH)
    await it.patch(SERVICES, "edited-worker-15", {"spec": {"selector": {"app": "mine"}}}, MERGE_PATCH)
    await it.send(it.client.delete(PODS, HOSTILE, f"edited-worker-{index}") for index in range(20))


async def huge_counts(it: Tenants) -> None:
    """More replicas than anybody can have, at once and by scaling."""
    for index, count in enumerate((500, 10_000, 10_001, 2**31 - 1, 2**63, -1)):
        await it.create(tfjob(f"huge-{index}", specs(Worker=workers(count))))
    await it.create(tfjob("l" * 50, specs(Worker=workers(9_999))))
    scaled = {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2**31 - 1}}}}
    await it.create(tfjob("scaled", specs(Worker=workers(1))))
    await it.patch(TFJOBS, "scaled", scaled, MERGE_PATCH)


async def edits_without_end(it: Tenants) -> None:
    """Fifty edits a second of one job, and another one that is deleted and made again all the time."""
    await it.create(tfjob("restless", specs(Worker=workers(1))))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(400):
        change = {"spec": {"runPolicy": {"suspend": number % 2 == 0, "backoffLimit": number % 5 - 1}}}
        await it.patch(TFJOBS, "restless", change, MERGE_PATCH)
        if number % 10 == 0:
            await it.create(tfjob("reborn", specs(Worker=workers(1))))
            await it.send([it.client.delete(TFJOBS, HOSTILE, "reborn", propagation="Orphan")])
        await asyncio.sleep(max(0.0, began + number / 50 - loop.time()))


async def objects_of_our_names(it: Tenants) -> None:
    """A lease like the operator's, ConfigMaps as a job may have, and our own account's name."""
    await it.create(tfjob("configured", specs(Worker=workers(60))))
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"cluster": "x" * 100_000}}
        for name in ("configured", "configured-cluster", "configured-tf-config", "tf-operator", STEADY)
    ]
    await it.create(*maps)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "tf-operator"}}
    await it.send([it.client.create(LEASES, HOSTILE, lease), it.client.create(LEASES, "kubeflow", lease)])


async def what_no_tenant_may(it: Tenants) -> None:
    """Writes of statuses and of other tenants' objects: all of them are refused. Newer versions let `edit` create events."""
    await it.create(tfjob("own", specs(Worker=workers(1))))
    done = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "TFJob", "name": "own", "namespace": HOSTILE}}
    await it.send([it.client.create(EVENTS, HOSTILE, event)])
    before = len(it.refused)
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: it.client.patch(TFJOBS, HOSTILE, "own", done, content_type=MERGE_PATCH, subresource="status"),
        lambda: it.client.patch(TFJOBS, VICTIM, STEADY, done, content_type=MERGE_PATCH),
        lambda: it.client.delete(TFJOBS, VICTIM, STEADY),
        lambda: it.client.create(PODS, VICTIM, pod(f"{STEADY}-worker-5", labels=child_labels(STEADY))),
        lambda: it.client.patch(LEASES, "kubeflow", "tf-operator", {"spec": {}}, content_type=MERGE_PATCH),
    ]
    await it.send(attempt() for attempt in attempts)
    assert len(it.refused) - before == len(attempts), it.refused[before:]
    await it.patch(TFJOBS, "own", done, MERGE_PATCH)  # to the main resource: the API server ignores the status
    shown = json.loads(await it.client.get(TFJOBS, HOSTILE, "own"))
    assert "Succeeded" not in {each["type"] for each in shown.get("status", {}).get("conditions", [])}


async def deletions_that_hang(it: Tenants) -> None:
    """Jobs whose deletion finalizers block, each with a pod whose deletion a finalizer blocks too."""
    held = [tfjob(f"held-{index}", specs(Worker=workers(3))) for index in range(20)]
    for each in held:
        each["metadata"]["finalizers"] = ["example.com/never"]
    await it.create(*held)
    pods = ("get", "pods", "-n", HOSTILE, "-l", "training.kubeflow.org/replica-index=0", "-o", "name")
    await it.eventually(lambda: it.kubectl(*pods).count("pod/held-") == len(held), "each has its first pod")
    stay = [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/never"]}]
    for index in range(20):
        await it.patch(PODS, f"held-{index}-worker-0", stay, JSON_PATCH)
        await it.send([it.client.delete(TFJOBS, HOSTILE, f"held-{index}", propagation="Foreground")])


ATTACKS: Final = (
    foreign_owners,
    labels_by_the_thousand,
    monstrous_specifications,
    texts_that_hurt,
    taken_names,
    children_edited,
    huge_counts,
    edits_without_end,
    objects_of_our_names,
    what_no_tenant_may,
    deletions_that_hang,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.replace("_", " "))
async def test_a_hostile_tenant_changes_nothing_for_another_one(
    plane: ControlPlane,
    audit: AuditLog,
    operator: OperatorProcess,
    attack: Callable[[Tenants], Coroutine[object, object, None]],
) -> None:
    """D1, D2, D5, U1, U2: the victim's jobs and statuses, and the operator's memory and response times, stay as they were."""
    uid = plane.run_kubectl("get", "tfjob", STEADY, "-n", VICTIM, "-o", "jsonpath={.metadata.uid}").stdout
    async with hostile_client(plane) as client:
        it = Tenants(plane, audit, operator, client, uid)
        before, logged, asked = it.steady(), len(operator.lines()), len(audit.events())
        fresh = f"fresh-{next(numbers)}"
        waits: list[float] = []

        async def attack_and_work() -> None:
            async with asyncio.TaskGroup() as group:
                attacking = group.create_task(attack(it))
                await asyncio.sleep(1)
                waits.append(await it.first_pod_s(fresh))
                await attacking
            waits.append(await it.first_pod_s(f"{fresh}-after"))

        try:
            most = await it.watched(attack_and_work())
            LOG.info("%s: %s", attack.__name__, f"first pods after {waits[0]:.1f} and {waits[1]:.1f} s, {most:.0f} MB")
            assert it.accepted  # else nobody was attacked
            assert it.steady() == before
            assert len(before) == 5  # the job, two pods, two services
            assert operator.process.poll() is None
            crashes = {"sync_crashed", "lease_lost", "event_write_crashed"}
            assert [line for line in operator.lines()[logged:] if line["event"] in crashes] == []
            assert [write for write in it.writes(VICTIM, asked) if "fresh" not in write] == []
            assert max(waits) < FIRST_POD_S
            assert most < MEMORY_MB
        finally:
            await asyncio.to_thread(_clean, it)


def _clean(it: Tenants) -> None:
    """Remove what an attack has left, so that the next one starts clean."""
    for kind in ("tfjobs", "pods", "services"):
        listed = json.loads(it.kubectl("get", kind, "-n", HOSTILE, "-o", "json"))["items"]
        for each in listed:
            if "finalizers" in each["metadata"]:
                name = each["metadata"]["name"]
                patch = '{"metadata":{"finalizers":null}}'
                it.kubectl("patch", kind, name, "-n", HOSTILE, "--type=merge", "-p", patch)
        it.kubectl("delete", kind, "--all", "-n", HOSTILE, "--wait=false", "--grace-period=0", "--force")
    it.kubectl("delete", "configmaps", "--all", "-n", HOSTILE)
