"""The Job controller of the model cluster: one pod for each Job, and a new one with a delay after a failure.

It supports the part of batch/v1 that this project uses: one completion, one pod at a time. Old versions count existing pods;
newer ones give each pod a finalizer, count ended pods in steps, and keep the count when pods are deleted. Both replace a
terminating pod at once. The controller reads the storage without a cache, and acts with a delay.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from hack.kubernetes_versions import JOB_PODS_ARE_TRACKED, Kubernetes
from kit.model.rules import timestamp
from kit.model.server import ModelServer
from kit.model.storage import Body, Feed, Key
from kit.virtual_loop import NETWORK
from tfjob_operator.api.core import JOBS, PODS
from tfjob_operator.api.meta import Resource

TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods that are not yet counted."""
BACK_OFF_S: Final = 10.0
LONGEST_BACK_OFF_S: Final = 360.0
"""DefaultJobBackOff and MaxJobBackOff of Kubernetes 1.20; the newest versions go up to ten minutes."""


def is_over(job: Body) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in {"Complete", "Failed"} and each["status"] == "True" for each in conditions)


def has_succeeded(job: Body) -> bool:
    """Whether the Job controller has reported success."""
    return bool((job.get("status") or {}).get("succeeded"))


@dataclass(frozen=True, slots=True)
class _Pod:
    """The part of a Job's pod that matters for counting."""

    key: Key
    uid: str
    phase: str
    deleted: bool
    tracked: bool

    @property
    def is_active(self) -> bool:
        return self.phase not in {"Succeeded", "Failed"} and not self.deleted

    @property
    def has_failed(self) -> bool:
        """Whether it failed by the rule of newer controllers: a pod that is being deleted has failed unless it succeeded."""
        return self.phase == "Failed" or (self.deleted and self.phase != "Succeeded")


class JobController:
    """Processes a Job some time after it or its pods changed. Network faults do not affect it."""

    def __init__(self, server: ModelServer, random: Random, *, slowest_s: float = 1.0) -> None:
        self._server = server
        self._random = random
        self._slowest_s = slowest_s
        self._jobs = server.storage.collections[JOBS.plural]
        self._pods = server.storage.collections[PODS.plural]
        self._news = (Feed(server.storage, JOBS), Feed(server.storage, PODS))
        self._tracks = Kubernetes(server.kubernetes).has(JOB_PODS_ARE_TRACKED)
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: Counter[str] = Counter()
        self._not_before: dict[str, float] = {}
        server.on_change.append(self._look)

    @property
    def is_at_rest(self) -> bool:
        return not self._timers

    def _look(self) -> None:
        jobs, pods = (feed.news() for feed in self._news)
        for change in jobs:
            self._wake(change.new.key)
        for change in pods:
            owner = (change.new.body["metadata"].get("ownerReferences") or [{}])[0]
            if owner.get("kind") == JOBS.kind:
                self._wake((change.new.key[0], owner["name"]))

    def _wake(self, key: Key, at_least_s: float = 0.0) -> None:
        """Schedule a sync of a Job, soon or after `at_least_s`; the earlier of two times wins."""
        loop = asyncio.get_running_loop()
        due = loop.time() + at_least_s + self._random.uniform(0.01, self._slowest_s)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._sync, key, context=NETWORK)

    def _sync(self, key: Key) -> None:
        del self._timers[key]
        found = self._jobs.objects.get(key)
        uid = found.body["metadata"]["uid"] if found is not None else ""
        mine, orphans = self._pods_of(key, uid)
        for pod in orphans:
            self._release(pod)
        if found is None or found.body["spec"].get("suspend"):
            return
        job = found.body
        if is_over(job):
            for pod in mine:
                self._release(pod)
            return
        before: dict[str, Any] = job.get("status") or {}
        status = self._counted(uid, before, mine)
        active = [pod for pod in mine if pod.is_active]
        uncounted = status.get("uncountedTerminatedPods") or {}
        done = status["succeeded"] + len(uncounted.get("succeeded", ())) > 0
        for pod in active[0 if done else 1 :]:
            self._send("DELETE", PODS, pod.key, {"preconditions": {"uid": pod.uid}})
        if not (active or done or "deletionTimestamp" in job["metadata"]):
            self._make(job)
        if status["succeeded"] and not any(uncounted.values()):
            now = timestamp(self._server.now())
            status["conditions"] = [{"type": "Complete", "status": "True", "lastTransitionTime": now}]
            status["completionTime"] = now
        self._tell(key, before, status)
        self._let_go(key, mine, before)

    def _counted(self, uid: str, before: Body, pods: list[_Pod]) -> Body:
        status = before | {"startTime": before.get("startTime") or timestamp(self._server.now())}
        status["active"] = sum(pod.is_active for pod in pods)
        failed = before.get("failed", 0)
        if not self._tracks:
            status["succeeded"] = sum(pod.phase == "Succeeded" for pod in pods)
            status["failed"] = sum(pod.phase == "Failed" for pod in pods)
            self._note_failures(uid, status["failed"] - failed)
            return status
        listed = before.get("uncountedTerminatedPods") or {}
        tracked = {pod.uid for pod in pods if pod.tracked}
        known = {each for uids in listed.values() for each in uids}
        ended = {
            "succeeded": [pod.uid for pod in pods if pod.tracked and pod.phase == "Succeeded"],
            "failed": [pod.uid for pod in pods if pod.tracked and pod.has_failed],
        }
        uncounted = {}
        for name, uids in ended.items():
            counted = [each for each in listed.get(name, ()) if each not in tracked]
            status[name] = before.get(name, 0) + len(counted)
            kept = [each for each in listed.get(name, ()) if each in tracked]
            uncounted[name] = kept + [each for each in uids if each not in known]
        status["uncountedTerminatedPods"] = {name: uids for name, uids in uncounted.items() if uids}
        self._note_failures(uid, len([each for each in uncounted["failed"] if each not in known]))
        return status

    def _note_failures(self, uid: str, new: int) -> None:
        """Delay the next pod after a failure; old versions do so only if nothing else happens to the Job."""
        if new <= 0:
            return
        self._failures[uid] += new
        back_off_s = min(BACK_OFF_S * 2 ** (self._failures[uid] - 1), LONGEST_BACK_OFF_S)
        if self._tracks or self._random.random() < 0.5:
            self._not_before[uid] = asyncio.get_running_loop().time() + back_off_s

    def _make(self, job: Body) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        key = meta["namespace"], meta["name"]
        left_s = self._not_before.get(meta["uid"], 0.0) - asyncio.get_running_loop().time()
        if left_s > 0:
            self._wake(key, left_s)
            return
        own = template.get("metadata") or {}
        finalizers = [*own.get("finalizers", ()), *([TRACKING] if self._tracks else ())]
        owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": meta["name"], "uid": meta["uid"]}
        metadata = {
            "generateName": f"{meta['name']}-",
            "labels": (own.get("labels") or {}) | {"job-name": meta["name"], "controller-uid": meta["uid"]},
            "annotations": own.get("annotations") or {},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            "finalizers": finalizers,
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._send("POST", PODS, (key[0], ""), pod)

    def _tell(self, key: Key, before: Body, status: Body) -> None:
        if status != before:
            gone = dict.fromkeys(before.keys() - status.keys())
            patch = status | gone
            if self._tracks:
                nobody = {"succeeded": None, "failed": None}
                patch["uncountedTerminatedPods"] = nobody | status["uncountedTerminatedPods"]
            self._send("PATCH", JOBS, key, {"status": patch}, "status")

    def _let_go(self, key: Key, pods: list[_Pod], before: Body) -> None:
        """Remove the finalizers of pods that the status lists as uncounted; they are counted afterwards."""
        listed = {each for uids in (before.get("uncountedTerminatedPods") or {}).values() for each in uids}
        for pod in pods:
            if pod.uid in listed:
                self._release(pod)
        if listed or (self._tracks and any(pod.tracked and not pod.is_active for pod in pods)):
            self._wake(key)

    def _release(self, pod: _Pod) -> None:
        if pod.tracked:
            left = [each for each in self._pods.objects[pod.key].body["metadata"]["finalizers"] if each != TRACKING]
            self._send("PATCH", PODS, pod.key, {"metadata": {"uid": pod.uid, "finalizers": left}})

    def _pods_of(self, key: Key, uid: str) -> tuple[list[_Pod], list[_Pod]]:
        """Return the pods of this Job, and those of deleted Jobs with the same name."""
        mine: list[_Pod] = []
        orphans: list[_Pod] = []
        for version in [*self._pods.objects.values()]:
            meta = version.body["metadata"]
            owner = (meta.get("ownerReferences") or [{}])[0]
            if version.key[0] != key[0] or owner.get("kind") != JOBS.kind or owner["name"] != key[1]:
                continue
            tracked = TRACKING in meta.get("finalizers", ())
            phase = version.body["status"]["phase"]
            pod = _Pod(version.key, meta["uid"], phase, "deletionTimestamp" in meta, tracked)
            (mine if owner["uid"] == uid else orphans).append(pod)
        return mine, orphans

    def _send(self, method: str, resource: Resource, key: Key, body: Body, subresource: str = "") -> None:
        namespace, name = key
        self._server.ask("job-controller", method, resource.path(namespace, name or None, subresource or None), body)
