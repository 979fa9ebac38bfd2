"""Pods that an edit does not reach: they stay as they were made, and the job says so, once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.jobs import good_spec, job, pod, replica
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.v1.types import Begun, JobStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.status import SCHEME, made_of, with_memory_of

SPEC: dict[str, Any] = {"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(2)}}
ELASTIC = SPEC | {"enableDynamicWorker": True}
PODS = (pod("PS", 0), pod("Worker", 0), pod("Worker", 1))


def decide(tfjob: TFJob, *pods: Pod) -> Plan:
    """The plan of the moment."""
    return plan(tfjob, good_spec(tfjob), pods, [], EPOCH)


def after(tfjob: TFJob, decided: Plan) -> TFJob:
    """The job with the status that a plan has written."""
    return msgspec.structs.replace(tfjob, status=decided.status or tfjob.status)


def running(spec: dict[str, Any]) -> TFJob:
    """A job whose pods all run."""
    begun = after(job(spec), decide(job(spec)))
    return after(begun, decide(begun, *PODS))


def edited(tfjob: TFJob, spec: dict[str, Any]) -> TFJob:
    """The job with another specification."""
    meta = msgspec.structs.replace(tfjob.metadata, generation=tfjob.metadata.generation + 1)
    return msgspec.structs.replace(tfjob, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec)))


def told(decided: Plan) -> list[str]:
    """The types of which it is said that their pods stay."""
    said = [event.message for event in decided.events if event.reason == "PodTemplateNotApplied"]
    return [kind for message in said for kind in message.partition(":")[0].split(", ")]


def with_workers(**fields: Any) -> dict[str, Any]:
    """The specification with these fields of its workers."""
    replicas = SPEC["tfReplicaSpecs"]
    return {"tfReplicaSpecs": replicas | {"Worker": replicas["Worker"] | fields}}


def image(name: str) -> dict[str, Any]:
    """A template with this image."""
    return {"spec": {"containers": [{"name": "tensorflow", "image": name}]}}


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        (with_workers(template=image("other")), ["Worker"]),
        (with_workers(restartPolicy="ExitCode"), ["Worker"]),
        (with_workers(replicas=3), ["PS", "Worker"]),
        (SPEC | {"enableDynamicWorker": True}, ["PS", "Worker"]),
        ({"tfReplicaSpecs": SPEC["tfReplicaSpecs"] | {"Chief": replica(1)}}, ["PS", "Worker"]),
        (SPEC | {"runPolicy": {"backoffLimit": 3, "cleanPodPolicy": "All"}}, []),
        (SPEC | {"successPolicy": "AllWorkers"}, []),
    ],
)
def test_an_edit_says_which_pods_it_does_not_reach(spec: dict[str, Any], types: list[str]) -> None:
    """U18: those whose template, restart policy or TF_CONFIG would be another one now."""
    assert told(decide(edited(running(SPEC), spec), *PODS)) == types


def test_it_is_said_once() -> None:
    """Not again when the same specification is planned for again."""
    changed = edited(running(SPEC), with_workers(template=image("other")))
    decided = decide(changed, *PODS)
    assert told(decided) == ["Worker"]
    assert told(decide(after(changed, decided), *PODS)) == []


def test_an_elastic_job_is_scaled_without_a_word() -> None:
    """B60: its workers and parameter servers are told of nobody who comes or goes."""
    larger = {**ELASTIC, "tfReplicaSpecs": with_workers(replicas=4)["tfReplicaSpecs"]}
    assert told(decide(edited(running(ELASTIC), larger), *PODS)) == []


def test_the_chief_of_an_elastic_job_that_is_scaled_stays_and_that_is_no_warning() -> None:
    """B60, U18: its TF_CONFIG names all workers, those of the time at which it was made."""
    led = {**ELASTIC, "tfReplicaSpecs": SPEC["tfReplicaSpecs"] | {"Chief": replica(1)}}
    larger = {**led, "tfReplicaSpecs": led["tfReplicaSpecs"] | {"Worker": replica(4)}}
    chief = pod("Chief", 0)
    begun = after(job(led), decide(job(led)))
    decided = decide(edited(after(begun, decide(begun, chief, *PODS)), larger), chief, *PODS)
    assert told(decided) == ["Chief"]
    assert [event.type for event in decided.events if event.reason == "PodTemplateNotApplied"] == ["Normal"]


def test_of_pods_that_do_not_run_on_nothing_is_said() -> None:
    """They have ended, are on their way out, or are made again anyway."""
    policy = with_workers(restartPolicy="ExitCode", template=image("other"))
    gone = (pod("PS", 0), pod("Worker", 0, "Failed", 137), pod("Worker", 1, terminating=True))
    assert told(decide(edited(running(with_workers(restartPolicy="ExitCode")), policy), *gone)) == []


def test_of_a_suspended_job_all_pods_are_made_anew() -> None:
    """So there is nothing to say, neither when it is suspended nor when it is resumed."""
    policy = {"runPolicy": {"suspend": True}}
    suspended = edited(running(SPEC), with_workers(template=image("other")) | policy)
    decided = decide(suspended, *PODS)
    assert told(decided) == []
    assert told(decide(edited(after(suspended, decided), with_workers(template=image("other"))))) == []


def test_what_an_older_operator_did_not_record_is_not_guessed() -> None:
    """It is recorded with the next status, for the next edit."""
    tfjob = running(SPEC)
    old = msgspec.structs.replace(tfjob, status=msgspec.structs.replace(tfjob.status, begun=Begun(1, {"PS": 1})))
    changed = edited(old, with_workers(template=image("other")))
    decided = decide(changed, *PODS)
    assert told(decided) == []
    assert told(decide(edited(after(changed, decided), SPEC), *PODS)) == ["Worker"]


def test_what_another_release_recorded_by_another_scheme_is_not_compared() -> None:
    """An edit of something else would seem to have changed all pods. It is noted anew at once, by our scheme."""
    tfjob = running(SPEC)
    begun = Begun(1, {"PS": 1, "Worker": 2}, made_of={"PS": "2-00000000", "Worker": "2-00000000"})
    foreign = msgspec.structs.replace(tfjob, status=msgspec.structs.replace(tfjob.status, begun=begun))
    changed = edited(foreign, SPEC | {"runPolicy": {"backoffLimit": 3}})
    assert told(decide(changed, *PODS)) == []
    noted = after(foreign, decide(foreign, *PODS))
    assert noted.status.begun == tfjob.status.begun
    assert told(decide(edited(noted, with_workers(template=image("other"))), *PODS)) == ["Worker"]


def test_the_same_pods_have_the_same_hash_in_all_releases_of_a_scheme() -> None:
    """If this fails, what is hashed has changed since the last release: raise SCHEME, and write the new hashes here."""
    odd = image("i\u0378\U0001fae9") | {"metadata": {"annotations": {"share": "0.1"}}}
    tfjob = job({"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(2, template=odd)}})
    noted = made_of(tfjob, good_spec(tfjob))
    assert (SCHEME, noted) == ("1-", {"PS": "1-a7b201b2", "Worker": "1-28ed2a0f"})


def test_it_is_said_though_the_status_that_says_so_waits() -> None:
    """A status that is not written yet is remembered, but for this: events go with the write, so nobody was told."""
    old = JobStatus(begun=Begun(1, {"Worker": 1}, made_of={"Worker": "a"}), observed_generation=1)
    new = JobStatus(begun=Begun(1, {"Worker": 1}, made_of={"Worker": "b"}), observed_generation=2)
    merged = with_memory_of(old, new).begun
    assert merged is not None
    assert merged.made_of == {"Worker": "a"}


def test_what_pods_are_made_of_has_their_template_in_it_and_not_their_number_where_nobody_is_told_of_it() -> None:
    """One replica alone has no TF_CONFIG (B59), nor has one whose template brings its own."""
    own = {
        "spec": {"containers": [{"name": "tensorflow", "image": "i", "env": [{"name": "TF_CONFIG", "value": "{}"}]}]}
    }

    def of(count: int, template: dict[str, Any]) -> dict[str, str]:
        tfjob = job({"tfReplicaSpecs": {"Worker": replica(count, template=template)}})
        return made_of(tfjob, good_spec(tfjob))

    assert of(2, own) == of(5, own)
    assert of(2, image("i")) != of(5, image("i"))
    assert of(2, image("i")) != of(2, image("j"))
