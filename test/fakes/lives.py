"""Lives of jobs: the operator's plans are executed on pods that a script ends, and all that clients can read is kept."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from fakes.jobs import at, decide, job, pod, spec, with_sidecar
from fakes.objects import after, changed, edited, labelled
from tfjob_operator.api.core import TERMINAL, Container, ContainerStatus
from tfjob_operator.api.v1.constants import LABEL_QUEUE, RestartPolicy
from tfjob_operator.api.v1.types import TFJob, child_name
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan.types import Plan

SETTLES: Final = 10
"""Plans until nothing is left to do; more is a loop."""


@dataclass(frozen=True)
class Moment:
    """What the API server has at one time: the job as its clients read it, and its pods."""

    at_s: float
    body: dict[str, Any]
    pods: tuple[Pod, ...]


class Life:
    """A job whose plans are executed at once. Its pods start and end as the script says; deleted ones wait for `stop`."""

    def __init__(self, given: dict[str, Any], *, queued: bool = False, policy: str = "Never") -> None:
        self.job: TFJob = job(given, labels={LABEL_QUEUE: "team"} if queued else None)
        self.policy = policy
        self.pods: dict[str, Pod] = {}
        self.at_s = 0.0
        self.created = 0
        self.deleted = False
        self.moments: list[Moment] = []
        self._sync()

    def run(self, *missing: str) -> None:
        """All pods but these start to run."""
        for name in [name for name in self.pods if name not in missing]:
            self._set(name, "Running")
        self._sync()

    def turn(self, kind: str, index: int, phase: str, exit_code: int | None = None, *, beside: str = "") -> None:
        """The kubelet reports this status; `beside` is a sidecar that still runs, `ordinary` or `native`."""
        name = child_name(self.job.metadata.name, kind, index)
        self._set(name, phase, exit_code)
        if beside == "ordinary":
            self.pods[name] = with_sidecar(self.pods[name])
        elif beside:
            native = (Container(name="log", restart_policy="Always"),)
            running = (ContainerStatus(name="log"),)
            self.pods[name] = changed(
                self.pods[name], spec__init_containers=native, status__init_container_statuses=running
            )
        self._sync()

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.at_s += seconds
        self._sync()

    def stop(self) -> None:
        """The containers of all deleted pods end after 5 s; then the pods are gone."""
        self.at_s += 5
        going = [name for name, each in self.pods.items() if each.metadata.deletion_timestamp is not None]
        for name in going:
            if self.pods[name].status.phase not in TERMINAL:
                self._set(name, "Failed", 143)
        self._sync()
        for name in going:
            del self.pods[name]
        self._sync()

    def edit(self, **policy: Any) -> None:
        """A user or Kueue edits `spec.runPolicy`."""
        given = msgspec.json.decode(self.job.spec)
        self.job = edited(self.job, given | {"runPolicy": given.get("runPolicy", {}) | policy})
        self._sync()

    def _set(self, name: str, phase: str, exit_code: int | None = None) -> None:
        status = pod("Worker", 0, phase, exit_code, ended_s=self.at_s).status
        self.pods[name] = changed(self.pods[name], status=status)

    def _sync(self) -> None:
        self._observe()
        for _ in range(SETTLES):
            decided = decide(self.job, *self.pods.values(), at_s=self.at_s)
            if self.deleted or not (decided.status or decided.create_pods or decided.delete_pods or decided.delete_job):
                return
            self._execute(decided)
        raise AssertionError(decided)

    def _execute(self, decided: Plan) -> None:
        """The status is written first; a deleted pod that has ended is gone at once, and those of a deleted job follow it."""
        if decided.status is not None:
            self.job = after(self.job, decided)
            self._observe()
        for key in decided.create_pods:
            self.created += 1
            made = pod(key.type, key.index, "Pending", policy=self.policy, uid=f"uid-{self.created}")
            attempt = str(self.job.status.attempt) if self.job.status.attempt else ""
            self.pods[key.name] = labelled(made, attempt=attempt)
        self.deleted = decided.delete_job
        for found in [*self.pods.values()] if self.deleted else [each.pod for each in decided.delete_pods]:
            self._delete(found)
        if decided.create_pods or decided.delete_pods:
            self._observe()

    def _delete(self, found: Pod) -> None:
        name, grace_s = found.metadata.name, found.spec.termination_grace_period_seconds
        if found.status.phase in TERMINAL:
            del self.pods[name]
        elif found.metadata.deletion_timestamp is None:
            self.pods[name] = changed(
                found,
                metadata__deletion_timestamp=at(self.at_s + grace_s),
                metadata__deletion_grace_period_seconds=grace_s,
            )

    def _observe(self) -> None:
        body = msgspec.json.decode(msgspec.json.encode(self.job))
        self.moments.append(Moment(self.at_s, body, tuple(self.pods.values())))


never = partial(spec, RestartPolicy.NEVER, PS=1, Worker=2)
RULES = [{"name": "any", "action": "RestartAll"}]
"""Every failure restarts the whole job."""


@dataclass(frozen=True, eq=False)
class Plot:
    """A job and what happens to it. `0 Succeeded 0`: worker 0 has this phase, and this exit code."""

    given: dict[str, Any]
    steps: str

    def __call__(self, queued: bool) -> Life:
        """Live through it."""
        life = Life(self.given, queued=queued)
        for step in filter(None, self.steps.split("; ")):
            self._take(life, *step.split())
        return life

    def _take(self, life: Life, step: str, *more: str) -> None:
        match step:
            case "run":
                life.run(*more)
            case "stop":
                life.stop()
            case "pass":
                life.pass_s(float(more[0]))
            case "suspend" | "resume":
                life.edit(suspend=step == "suspend")
            case "break":
                life.edit(cleanPodPolicy="Nonsense")
            case _:
                phase, code, *beside = more
                life.turn("Worker", int(step), phase, int(code), beside="".join(beside))


RESTARTED_KUBELET: Final = "0 Failed 0"
LIVES: Final = {
    "success beside active": Plot(never(), "run; 0 Succeeded 0; pass 31; stop"),
    "success of all workers": Plot(
        spec(PS=1, Worker=2, successPolicy="AllWorkers"),
        f"run; 0 Succeeded 0; 1 Succeeded 0; {RESTARTED_KUBELET}; stop",
    ),
    "success beside pending": Plot(never(), "run mnist-worker-1; 0 Succeeded 0; pass 31; stop"),
    "success with a collector": Plot(never(), "run; 0 Running 0 ordinary; pass 5; 0 Succeeded 0; pass 26; stop"),
    "success of the only worker": Plot(spec(Worker=1), "run; 0 Running 0 ordinary; pass 5; 0 Succeeded 0"),
    "success with a proxy that never ends": Plot(never(), "run; 0 Running 0 ordinary; pass 31; stop"),
    "success of the only worker with native sidecars": Plot(
        spec(Worker=1), "run; 0 Running 0 native; pass 2; 0 Succeeded 0"
    ),
    "success that leaves pods running": Plot(
        never(runPolicy={"cleanPodPolicy": "None"}),
        "run; 0 Succeeded 0; 1 Failed 1",
    ),
    "success after a restart": Plot(
        spec(RestartPolicy.EXIT_CODE, PS=1, Worker=2), "run; 1 Failed 137; run; 0 Succeeded 0; pass 31; stop"
    ),
    "success after a whole restart": Plot(
        never(runPolicy={"failurePolicy": {"maxRestarts": 1, "rules": RULES}}),
        "run; 1 Running 1 ordinary; stop; pass 31; stop; run; 0 Succeeded 0; pass 31; stop",
    ),
    "success after a suspension": Plot(
        never(runPolicy={"suspend": True}),
        "resume; run; suspend; stop; resume; run; 0 Succeeded 0; pass 31; stop",
    ),
    "success while preempted": Plot(never(), "run; 0 Running 0 ordinary; suspend; stop"),
    "failure beside active": Plot(never(), "run; 1 Failed 1; stop"),
    "failure with a collector": Plot(never(), "run; 1 Running 1 ordinary; stop; pass 5; 1 Failed 1"),
    "failure by a deadline": Plot(never(runPolicy={"activeDeadlineSeconds": 30}), "run; pass 31; stop"),
    "failure beyond max restarts": Plot(
        never(runPolicy={"failurePolicy": {"maxRestarts": 0, "rules": RULES}}),
        "run; 1 Failed 1; stop",
    ),
    "failure of an invalid job": Plot(spec(Worker=-1), ""),
    "failure on hold": Plot(never(runPolicy={"activeDeadlineSeconds": 30}), "run; break; pass 31; stop"),
}
"""The name of each begins with how it ends."""
