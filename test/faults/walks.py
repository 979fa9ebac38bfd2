"""Random sequences of edits on running jobs. After each edit the job must be like a new one of that spec, or report why not."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from faults.cluster_view import State, View, view
from faults.edits import Grammar, Path, patch, schema
from faults.field import Field
from faults.like_new import Comparison, backoff_limit_of, network_of
from faults.processes import PATIENT, program, python, say
from hack.crd_schema.schema import Schema
from hack.hollow_node.script import RUN
from integration.cluster import replica, specs, tfjob
from tfjob_operator.api.client.errors import InvalidError, NotFoundError, StatusError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.v1.constants import LABEL_RESTART_POLICY, TFJOBS, ConditionType, RestartPolicy
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.api.v1.validation import read_spec

LANES: Final = 16
"""The number of concurrent walks."""
EDITS: Final = 5
JOB: Final = "walked"
QUIET_S: Final = 0.4
"""A job without changes for this time has reached its final state."""
LIMIT_S: Final = 90.0
"""How long a job may take to reach its final state on a busy machine."""
BUGGY_LIMIT_S: Final = 20.0
MOST_REPLICAS: Final = 7
TOO_MANY: Final = 10_000
TTL: Final = "ttlSecondsAfterFinished"
SHORT_S: Final = 30
"""A TTL that the walk waits for."""
MOST_DRAWS: Final = 300
MENDED: Final = 0.7
FAIL_IN: Final = 3
"""One in this many edits may be preceded by a pod failure."""
RETRYABLE: Final = 143
LIMIT: Final = "backoffLimit"
RULES: Final = "failurePolicy"
RACES: Final = "startDeadlineSeconds"
"""Reasons for which a new job may fail on a busy machine."""
WRONG_IN: Final = 10
"""One in this many edits may be invalid."""
POLICY: Final = {
    "maxRestarts": 2,
    "rules": [
        {"action": "RestartAll", "onExitCodes": {"operator": "In", "values": [42]}},
        {"name": "others", "action": "RestartReplica", "targetReplicaTypes": ["Worker"]},
    ],
}
SHAPES: Final[Sequence[Mapping[str, int]]] = (
    {"Worker": 1},
    {"Worker": 3},
    {"PS": 1, "Worker": 2},
    {"Chief": 1, "Worker": 2},
    {"Chief": 1, "PS": 1, "Worker": 1, "Evaluator": 1},
)


@dataclass
class Outcome:
    """The result of a walk: its edits, and what was wrong after the last one."""

    number: int
    edits: list[str] = field(default_factory=list)
    refused: int = 0
    held: int = 0
    stayed: int = 0
    failed: int = 0
    violation: str = ""

    def __str__(self) -> str:
        return f"walk {self.number}, after {' | '.join(self.edits)}: {self.violation or 'as a new job'}"


class Walk:
    def __init__(self, it: Field, seen: View, root: Schema, *, seed: int, number: int, limit_s: float) -> None:
        self.outcome = Outcome(number)
        self._field = it
        self._view = seen
        self._dice = Random(f"{seed} {number}")
        self._grammar = Grammar(root, self._dice)
        self._limit_s = limit_s
        self._namespace = self._network = ""
        self._good: dict[str, Any] = {}
        self._made_as: dict[str, str] = {}
        """The original manifest of each child, by UID."""

    async def play(self, edits: int = EDITS) -> Outcome:
        """Create a job, edit it this many times, and check it after each edit."""
        self._namespace = await self._field.new_namespace("walk")
        spec = self._first()
        self._network, self._good = network_of(spec), spec
        await self._create(JOB, spec)
        before = await self._judge(0, spec, None, None)
        for step in range(1, edits + 1):
            if before is None or before[0].end or self.outcome.violation:
                break
            if self._dice.randrange(FAIL_IN) == 0:
                restarted = await self._fail_a_pod(spec, before[0])
                if restarted is None:
                    break
                before = restarted, before[1]
            edited, path = await self._draw(spec)
            if edited == spec:
                continue
            told = f"{'.'.join(path)} {json.dumps(patch(spec, edited))[:300]}"
            self.outcome.edits.append(told)
            try:
                await self._field.client.patch(TFJOBS, self._namespace, JOB, {"spec": patch(spec, edited)})
            except InvalidError as error:
                self.outcome.refused += 1
                if "spec." not in str(error):
                    self.outcome.violation = f"refused without a path: {error}"
                continue
            except NotFoundError:
                break  # its TTL has expired
            before = await self._judge(step, edited, *before)
            spec = edited
            if isinstance(read_spec(JOB, json.dumps(spec).encode()), TFJobSpec):
                self._good = spec
        with suppress(NotFoundError):
            await self._field.client.delete(TFJOBS, self._namespace, JOB)
        return self.outcome

    async def _fail_a_pod(self, spec: Mapping[str, Any], job: State) -> State | None:
        """Fail a pod of a running job with a code for which it is recreated; return the new state of the job.

        None is a violation: the job differs by more than the new pod. Nothing fails if the job has a backoff limit, rules, or
        pods that are not recreated.
        """
        if ConditionType.HELD in job.true or ConditionType.RUNNING not in job.true or self._good is not spec:
            return job
        pods = sorted(key for key in job.children if key.startswith("pods/"))
        if not pods or not job.seen or any(field in json.dumps(spec) for field in (LIMIT, RULES)):
            return job
        key = self._dice.choice(pods)
        name = key.removeprefix("pods/").replace("JOB", JOB)
        pod = json.loads(await self._field.client.get(PODS, self._namespace, name))
        meta, statuses = pod["metadata"], pod["status"].get("containerStatuses") or ()
        running = bool(statuses) and all("running" in each["state"] for each in statuses)
        if not running or meta["labels"].get(LABEL_RESTART_POLICY) != RestartPolicy.EXIT_CODE:
            return job
        notes = {note: f"0s:{RETRYABLE}" for note in meta["annotations"] if note.startswith(RUN)}
        await self._field.client.patch(PODS, self._namespace, name, {"metadata": {"annotations": notes}})
        self.outcome.edits.append(f"{name} fails")
        self.outcome.failed += 1
        seen, deadline = job, time.monotonic() + self._limit_s
        while time.monotonic() < deadline:
            await asyncio.sleep(QUIET_S)
            now = self._view.state(self._namespace, JOB)
            if now is None:
                break
            child = now.children.get(key)
            again = child is not None and child.uid != job.children[key].uid
            if again and now == seen and ConditionType.RUNNING in now.true and _all_run(now):
                self._made_as |= {each.uid: each.made_as for each in now.children.values()}
                return now
            seen = now
        self.outcome.violation = f"{name} has failed and is not made again: {seen}"
        return None

    def _first(self) -> dict[str, Any]:
        policy = self._dice.choice(("Never", "ExitCode", "OnFailure"))
        shape = self._dice.choice(SHAPES)
        spec = specs(**{kind: replica(count, policy) for kind, count in shape.items()})
        if self._dice.random() < 0.3:
            spec["enableDynamicWorker"] = True
        network = {"network": "shared"} if self._dice.random() < 0.2 else {}
        rules = {RULES: POLICY} if self._dice.random() < 0.3 else {}
        return _without_an_end(spec | {"runPolicy": {"cleanPodPolicy": "Running"} | network | rules})

    def _in_force(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the spec with the network of the job's start, which cannot change, and without a TTL."""
        found = _without_time_to_live(spec)
        policy = spec.get("runPolicy")
        if isinstance(policy, dict):
            found["runPolicy"] = _without_time_to_live(policy)
        if network_of(spec) not in {self._network, ""}:
            found["runPolicy"] = found.get("runPolicy", {}) | {"network": self._network}
        return found

    async def _create(self, name: str, spec: Mapping[str, Any]) -> None:
        await self._field.client.create(TFJOBS, self._namespace, tfjob(name, spec))

    async def _draw(self, spec: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
        """Draw an edit, usually a valid one; an invalid one is usually reverted."""
        wrong = self._dice.randrange(WRONG_IN) == 0
        if self._good is not spec and self._dice.random() < MENDED:
            return self._good, ("taken back",)
        for _ in range(MOST_DRAWS):
            edited, path = self._grammar.edit(spec)
            edited = _without_an_end(edited)
            if edited == spec or MOST_REPLICAS < _size(edited) < TOO_MANY or RACES in json.dumps(edited):
                continue
            if await self._is_good(spec, edited, path):
                return edited, path
            if wrong:
                return edited, path
        return self._good, ("taken back",)

    async def _is_good(self, spec: Mapping[str, Any], edited: Mapping[str, Any], path: Path) -> bool:
        read = read_spec(JOB, json.dumps(edited).encode())
        if not isinstance(read, TFJobSpec):
            return False
        templates = [each["template"] for each in edited["tfReplicaSpecs"].values() if "template" in each]
        for template in templates if spec.get("tfReplicaSpecs") != edited["tfReplicaSpecs"] else ():
            meta = {name: (template.get("metadata") or {}).get(name) for name in ("labels", "annotations")}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try"} | meta, "spec": template["spec"]}
            policy = {"restartPolicy": "Never"} if template["spec"].get("restartPolicy") is None else {}
            try:
                body = pod | {"spec": template["spec"] | policy}
                await self._field.client.create(PODS, self._namespace, body, dry_run=True)
            except StatusError as error:
                self._learn(path, str(error))
                return False
        return True

    def _learn(self, path: Path, refusal: str) -> None:
        """Learn accepted values from an API server's error message."""
        _, found, rest = refusal.partition("supported values: ")
        if found:
            self._grammar.learned[path] = rest.split('"')[1::2]

    async def _judge(
        self, step: int, spec: Mapping[str, Any], before: State | None, new_before: State | None
    ) -> tuple[State, State | None] | None:
        """Wait until the job is as expected; return it and a new job with this spec. None: both are gone."""
        name, seen = f"fresh{step}", None
        await self._create(name, self._in_force(spec))
        deadline = time.monotonic() + self._limit_s
        try:
            while True:
                job, new = (self._view.state(self._namespace, each) for each in (JOB, name))
                if job is None or new is None:
                    # A restarted job may end at a limit that a new job has not reached.
                    ended = new is not None and (new.end or self.outcome.failed > backoff_limit_of(spec))
                    over = job is None and ended and _time_to_live(spec) is not None
                    wrong = "" if over else f"the {'edited' if job is None else 'new'} job is gone"
                elif job.end and (ttl_s := _time_to_live(spec)) is not None and 0 <= ttl_s < SHORT_S:
                    wrong = "its time to live is over"
                else:
                    compared = Comparison(
                        spec, job, new, before, new_before, self._made_as, self._network, self.outcome.failed
                    )
                    wrong = next(compared.wrong(), "")
                at_rest = seen == (seen := (job, new)) and (step or job is None or "Running" in job.true)
                if (at_rest and not wrong) or time.monotonic() > deadline:
                    break
                await asyncio.sleep(QUIET_S)
        finally:
            with suppress(NotFoundError):
                await self._field.client.delete(TFJOBS, self._namespace, name)
        self.outcome.violation = wrong
        if job is None or new is None:
            return None
        self.outcome.held += ConditionType.HELD in job.true
        self.outcome.stayed += bool(compared.older)
        self._made_as = {child.uid: child.made_as for child in job.children.values()} | self._made_as
        # A finished new job does not show the manifests of pods.
        return job, new_before if new.end else new


def _all_run(job: State) -> bool:
    pods = sum(key.startswith("pods/") for key in job.children)
    active: int = sum(each.get("active", 0) for each in job.counters.values())
    return active == pods


def _without_time_to_live(place: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec or run policy without its TTL, unless that is invalid and must be reported."""
    return {name: value for name, value in place.items() if name != TTL or (isinstance(value, int) and value < 0)}


def _time_to_live(spec: Mapping[str, Any]) -> int | None:
    policy = spec.get("runPolicy")
    places = (policy if isinstance(policy, dict) else {}, spec)
    return next((place[TTL] for place in places if place.get(TTL) is not None), None)


def _size(spec: Mapping[str, Any]) -> int:
    entries = spec.get("tfReplicaSpecs")
    counts = [each.get("replicas", 1) for each in (entries or {}).values() if isinstance(each, dict)]
    return sum(count for count in counts if isinstance(count, int))


def _without_an_end(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec whose containers run until they are stopped, can be scheduled, and leave nothing behind."""
    entries = spec.get("tfReplicaSpecs")
    if not isinstance(entries, dict):
        return spec
    return spec | {"tfReplicaSpecs": {name: _endless(entry) for name, entry in entries.items()}}


def _endless(entry: Any) -> Any:
    template = entry.get("template") if isinstance(entry, dict) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return entry
    pod = {name: value for name, value in template["spec"].items() if name != "nodeName"}
    meta = {name: value for name, value in (template.get("metadata") or {}).items() if name != "finalizers"}
    containers = pod.get("containers")
    names = [each.get("name") for each in containers if isinstance(each, dict)] if isinstance(containers, list) else []
    scripts = {RUN: "forever"} | {f"{RUN}.{name}": "forever" for name in names}
    notes = {name: value for name, value in (meta.get("annotations") or {}).items() if not name.startswith(RUN)}
    return entry | {"template": template | {"metadata": meta | {"annotations": notes | scripts}, "spec": pod}}


@asynccontextmanager
async def operator(it: Field, bug: str) -> AsyncIterator[None]:
    """Run one operator for all namespaces. It must not end before the block does."""
    log = it.folder / "operator.log"
    where = (f"--kubeconfig={it.kubeconfig}", "--monitoring-port=0")
    async with python(*program(bug), *where, *PATIENT, log=log) as process:
        yield
        assert process.returncode is None, log.read_text()[-4000:]
        assert "Traceback" not in log.read_text(errors="replace"), log


async def play(it: Field, numbers: Sequence[int], *, seed: int, bug: str = "") -> list[Outcome]:
    """Play walks, some of them concurrently; print each violation. With a bug, start no more after one."""
    root, left, outcomes = schema(), iter(numbers), list[Outcome]()
    limit_s = BUGGY_LIMIT_S if bug else LIMIT_S
    async with asyncio.TaskGroup() as tasks, view(str(it.plane.kubeconfig), tasks) as seen, operator(it, bug):

        async def lane() -> None:
            for number in left:
                if bug and any(outcome.violation for outcome in outcomes):
                    return
                outcome = await Walk(it, seen, root, seed=seed, number=number, limit_s=limit_s).play()
                outcomes.append(outcome)
                if outcome.violation:
                    say(f"  {outcome}")
                elif len(outcomes) % 50 == 0:
                    say(f"  {len(outcomes)} of {len(numbers)} walks")

        async with asyncio.TaskGroup() as lanes:
            for _ in range(LANES):
                lanes.create_task(lane())
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    edits = sum(len(each.edits) for each in outcomes)
    counts = {
        "refused by the API server": sum(each.refused for each in outcomes),
        "held": sum(each.held for each in outcomes),
        "left older pods behind": sum(each.stayed for each in outcomes),
        "came after a restart": sum(each.failed for each in outcomes),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items())
    wrong = sum(bool(each.violation) for each in outcomes)
    return f"{len(outcomes)} walks; {edits} edits, of which {told}; violations: {wrong}"
