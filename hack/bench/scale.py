"""Creates a large cluster quickly: real jobs are cloned, and the clones are written into etcd.

With the operator and a hollow node, the creation of a hundred thousand pods would take most of an hour. The clones differ only
in names and UIDs, so an operator that starts on them has nothing to do.
"""

import json
import os
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from statistics import median
from subprocess import Popen
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from hack.bench.field import Field, available_memory, cpu_s, memory
from hack.bench.load import MeasureError, ps_and_workers
from hack.bench.measuring import Bench, Result
from hack.bench.operator import first_pod
from hack.matrix.cluster import hollow_node
from tfjob_operator.api import core
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

KINDS: Final = (("configmaps", "configmaps"), ("services", "services/specs"), ("pods", "pods"))
"""The resources of children, and their prefixes in etcd."""
_UID: Final = "uid-of-this-object"


class Sample(NamedTuple):
    """A stable job and its children as the API server returns them: the JSON text of each, with its etcd key."""

    namespace: str
    name: str
    uid: str
    objects: tuple[tuple[str, str, str], ...]
    """Key without namespace and name, name, and the text in which the object's UID is `_UID`."""

    def clones(self, number: int, namespaces: list[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the objects of the clones, spread over these namespaces. All names are as long as those in the sample."""
        for job in range(1, number + 1):
            name, namespace = named(self.name, job), namespaces[job % len(namespaces)]
            uids = (str(uuid5(NAMESPACE_URL, f"{name}/{child}")) for child in count())
            uid = next(uids)  # the job is the first of the objects
            own = uid
            for place, own_name, text in self.objects:
                clone = text.replace(self.name, name).replace(self.namespace, namespace).replace(self.uid, uid)
                yield f"{place}/{namespace}/{own_name.replace(self.name, name)}", clone.replace(_UID, own).encode()
                own = next(uids)


def named(name: str, number: int) -> str:
    """Return a clone's name: the number replaces the last five digits of the sample's name."""
    return f"{name[:-5]}{number:05}"


def sample(field: Field, namespace: str, name: str) -> Sample:
    """Read a job and its children from the API server."""
    job = field.get(f"{c.TFJOBS.path(namespace)}/{name}")
    uid: str = job["metadata"]["uid"]
    objects = [_stored(f"{c.TFJOBS.group}/{c.TFJOBS.plural}", job)]
    for resource, place in KINDS:
        listed = field.get(f"/api/v1/namespaces/{namespace}/{resource}")
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        objects += [
            _stored(place, head | item)
            for item in listed["items"]
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ()))
        ]
    return Sample(namespace, name, uid, tuple(objects))


def _stored(place: str, item: dict[str, Any]) -> tuple[str, str, str]:
    """Return an object as stored in etcd: without resourceVersion, because etcd's revision serves as that."""
    name = item["metadata"]["name"]
    item["metadata"].pop("resourceVersion")
    item["metadata"].pop("selfLink", None)
    item["metadata"]["uid"] = _UID
    return place, name, json.dumps(item)


# A thousand running jobs of a hundred pods, and ten thousand finished ones, with a service for each replica.
#
# The operator runs with the account and the settings of its pod. The cost of a change of one pod is compared with that in a
# cluster of ten such jobs, so only the size of the cluster differs.


JOBS: Final = 1_000
PODS: Final = 100
FINISHED: Final = 10_000
FEW: Final = 10
CHANGES: Final = 2_000
NAMESPACES: Final = [f"team-{number}" for number in range(10)]
RUNNING: Final = "imagenet-resnet50-00000"
"""Long enough that the cluster specification of a hundred replicas is in a ConfigMap."""
DONE: Final = "mnist-00000"
SETTLE_S: Final = 8.0
"""Longer than the delay of merged status writes."""
IDLE_S: Final = 60.0
GARBAGE_PERCENT: Final = "100"
"""Go's default, as in production. The watch cache has 6.3 GB here, and each garbage collection takes 5s of CPU."""
MEMORY_LIMIT: Final = "14GiB"
"""Of the API server. Without a limit, its heap grew to 18 GB while the operator listed everything again after a timeout: with
etcd and its files in memory that is all that a machine of 24 GB has, and nothing responded any more."""
NEEDED_MB: Final = 20_500
"""Measured: 14 GB for the API server, 3 for etcd, 2 for its files, 0.5 for two operators."""
RESTARTS: Final = 3
PAUSE_S: Final = 0.005
KB: Final = 1024.0
MS: Final = 1e3


def measure(bench: Bench) -> list[Result]:
    """Measure a start, the memory at rest, new jobs, changes of single pods, and a standby replica."""
    running, done = ps_and_workers(PODS - 1, run="forever"), ps_and_workers(1, servers=0, run="0.1s:0")
    done["runPolicy"] |= {"cleanPodPolicy": "All"}
    if (free := available_memory()) < NEEDED_MB:
        raise MeasureError(
            f"{free:,.0f} MB of memory are available; this bench needs {NEEDED_MB:,}: stop other programs"
        )
    os.environ.setdefault("GOGC", GARBAGE_PERCENT)  # of the API server and etcd
    os.environ.setdefault("GOMEMLIMIT", MEMORY_LIMIT)
    with Field(NAMESPACES) as field:
        home = NAMESPACES[0]
        bench.say("one job of each kind comes to rest")
        with field.operator(), hollow_node(field.plane):
            field.send(field.target.jobs(home, [RUNNING], running))
            field.send(field.target.jobs(home, [DONE], done))
            for job, condition in ((RUNNING, ConditionType.RUNNING), (DONE, ConditionType.SUCCEEDED)):
                field.until(partial(field.has_had, home, job, condition), f"job {job} is {condition}")
            time.sleep(SETTLE_S)
            alive, ended = sample(field, home, RUNNING), sample(field, home, DONE)
        field.store(alive.clones(FEW, NAMESPACES))
        with field.operator() as operator:
            time.sleep(SETTLE_S)
            few_memory, few_cost = memory(operator.pid)["rss"], _cost_of_changes(field, operator, FEW)
        bench.say(f"{JOBS} running jobs of {PODS} pods and {FINISHED} finished ones are written")
        for resource, last in (
            (core.PODS, field.store(alive.clones(JOBS, NAMESPACES))),
            (c.TFJOBS, field.store(ended.clones(FINISHED, NAMESPACES))),
        ):
            field.until(partial(_is_cached, field, resource, last), f"the API server has seen {last}", tick_s=0.5)
        bench.say(f"the operator starts {RESTARTS} times")
        starts = [_start(field) for _ in range(RESTARTS - 1)]
        first = ps_and_workers(1, servers=0, run="forever")
        pods = field.count("pods")
        field.send(field.target.jobs(home, ["first"], first))
        began = time.perf_counter()
        with field.operator() as operator:
            starts.append(time.perf_counter() - began)
            made = field.until(lambda: field.count("pods") > pods, "the first pod", tick_s=0.02) - began
            _wait_for_rest(field, operator)
            start_peak = memory(operator.pid)["peak"]
            bench.say("a minute of idleness")
            leader = _idle(operator)
            waits = [first_pod(field, home, f"new-{number}") for number in range(5)]
            bench.say(f"{CHANGES} pods change")
            cost = _cost_of_changes(field, operator, JOBS)
            peak = memory(operator.pid)["peak"]
            bench.say("a standby joins")
            with field.operator(ready="lease_awaited") as process:
                time.sleep(3 * SETTLE_S)
                standby = _idle(process)
    return [
        Result("scale_ready_after_restart", median(starts), "s", "<= 15"),
        Result("scale_ready_after_restart_at_most", max(starts), "s"),
        Result("scale_first_pod_after_restart", made, "s"),
        Result("scale_first_pod_of_a_new_job", median(waits), "s", "<= 0.2"),
        Result("scale_peak_at_start", start_peak, "MB VmHWM"),
        Result("scale_peak", peak, "MB VmHWM", "<= 350"),
        Result("scale_memory_at_rest", leader.memory, "MB VmRSS"),
        Result("scale_memory_a_pod", (leader.memory - few_memory) * KB / (JOBS * PODS), "KB", "<= 2.5"),
        Result("scale_standby_memory", standby.memory, "MB VmRSS", f"<= {leader.memory:.4g}"),
        Result("scale_idle_cpu", leader.cpu * 100, "% of a core", "<= 1"),
        Result("scale_standby_cpu", standby.cpu * 100, "% of a core", "<= 1"),
        Result("scale_cpu_of_a_change", cost * MS, "ms"),
        Result("scale_cpu_of_a_change_growth", cost / few_cost, "x that among ten jobs", "<= 1.2"),
    ]


class _Rest(NamedTuple):
    """An idle process: its share of a core, and its memory in MB."""

    cpu: float
    memory: float


def _start(field: Field) -> float:
    """Start and stop an operator; return the seconds until it is ready."""
    began = time.perf_counter()
    with field.operator():
        return time.perf_counter() - began


def _wait_for_rest(field: Field, operator: Popen[bytes]) -> None:
    """Wait until an operator has synced all jobs of its first lists, and uses little CPU."""
    used = [cpu_s(operator.pid)]

    def is_idle() -> bool:
        time.sleep(SETTLE_S)
        used.append(cpu_s(operator.pid))
        return used[-1] - used[-2] < SETTLE_S / 50

    field.until(is_idle, "the operator has synced all jobs")


def _idle(process: Popen[bytes]) -> _Rest:
    before = cpu_s(process.pid)
    time.sleep(IDLE_S)
    return _Rest((cpu_s(process.pid) - before) / IDLE_S, memory(process.pid)["rss"])


def _is_cached(field: Field, resource: Resource, key: str) -> bool:
    """Whether the API server's watch cache has the object with this etcd key."""
    namespace, name = key.split("/")[-2:]
    return bool(field.get(f"{resource.path(namespace)}/{name}?resourceVersion=0").get("kind") == resource.kind)


def _cost_of_changes(field: Field, operator: Popen[bytes], jobs: int) -> float:
    """Make pods of these jobs unready, then ready again, one at a time; return the operator's CPU seconds per change.

    The changes are far enough apart that a sync never sees two changes of the same job.
    """
    before = cpu_s(operator.pid)
    for number in range(CHANGES):
        turn, job = divmod(number, jobs)
        ready = {"type": "Ready", "status": "False" if turn % 2 == 0 else "True"}
        namespace = NAMESPACES[(job + 1) % len(NAMESPACES)]
        pod = f"{named(RUNNING, job + 1)}-worker-{turn // 2 % (PODS - 1)}"
        path, body = f"/api/v1/namespaces/{namespace}/pods/{pod}/status", {"status": {"conditions": [ready]}}
        status, answer = field.plane.request("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)
        if status != 200:
            raise MeasureError(f"a pod could not be changed: {answer}")
        time.sleep(PAUSE_S)
    time.sleep(SETTLE_S)
    return (cpu_s(operator.pid) - before) / CHANGES
