"""The plan for a job of the alpha dialect: tables of how its chief ended, and what holds for every plan."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from fakes.alpha import UID, batch_job, child_meta, children, entry, good, job, pod_of, read, spec, template
from fakes.objects import after, changed, edited
from kit.virtual_loop import EPOCH
from support.cases import for_each
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.types import InvalidSpec, ReplicaStatus
from tfjob_operator.api.v1alpha1.constants import DIALECTS, KUBEFLOW, TENSORFLOW, AlphaState, Dialect, Phase
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus, SetStatus
from tfjob_operator.controller.alpha.alpha_plan import AlphaPlan, effective_spec, plan, refused
from tfjob_operator.controller.alpha.batch_jobs import BatchJob, Children
from tfjob_operator.controller.alpha.observe import derived_runtime_id, next_runtime_id
from tfjob_operator.controller.jobs.children import Pod, Service

THREE = spec(entry("MASTER"), entry("WORKER", 2), entry("PS", 2), RuntimeId="76no")
"""The document's example, with one more worker."""
NONE = Children()


def planned(found: AlphaJob, there: Children = NONE, dialect: Dialect = KUBEFLOW, **given: Any) -> AlphaPlan:
    return plan(
        dialect, found, effective_spec(found, read(msgspec.json.decode(found.spec), dialect)), there, EPOCH, **given
    )


def begun(given: Any = THREE, dialect: Dialect = KUBEFLOW, **fields: Any) -> tuple[AlphaJob, AlphaSpec, Children]:
    """A job whose children are all there, with their pods running."""
    found, read_as = job(given), good(given, dialect)
    first = after(found, planned(found, dialect=dialect))
    without_jobs = children(read_as, first.status.runtime_id, jobs=[], pods=[])
    second = after(first, planned(first, without_jobs, dialect))
    there = children(read_as, first.status.runtime_id, **fields)
    return after(second, planned(second, there, dialect)), read_as, there


def names(keys: Any) -> list[str]:
    """The names of replicas, or of children."""
    return [each.name if hasattr(each, "name") else each.metadata.name for each in keys]


def status_of(decided: AlphaPlan) -> AlphaStatus:
    assert decided.status is not None
    return decided.status


def status_after(there: Children, running: AlphaJob) -> AlphaStatus:
    return after(running, planned(running, there)).status


ALL = ["master-76no-0", "worker-76no-0", "worker-76no-1", "ps-76no-0", "ps-76no-1"]


def test_services_come_before_jobs_and_the_runtime_id_before_both() -> None:
    """So it is noticed that another job has the RuntimeId while nothing runs under its names yet.

    After that, and for a job that is being deleted or that another controller manages, nothing is left to do.
    """
    found = job(THREE)
    first = planned(found)
    assert (status_of(first).phase, status_of(first).state) == (Phase.CREATING, AlphaState.UNKNOWN)
    assert (status_of(first).runtime_id, status_of(first).begun) == ("76no", None)
    assert names(first.create_services) == ALL
    assert first.create_config_map
    assert first.create_jobs == ()
    second = planned(after(found, first), children(good(THREE), "76no", jobs=[], pods=[]))
    assert (status_of(second).phase, status_of(second).state) == (Phase.RUNNING, AlphaState.RUNNING)
    assert status_of(second).begun is not None
    assert names(second.create_jobs) == ALL
    assert (second.create_services, second.create_config_map, second.delete) == ((), False, ())
    whole = children(good(THREE), "76no", jobs=[], pods=[])
    for there in (
        Children(services=whole.services[:-1], config_maps=whole.config_maps),
        Children(services=whole.services),
    ):
        decided = planned(after(found, first), there)
        assert (decided.create_jobs, decided.status) == ((), None), "a service or the program is missing"
    running, _, there = begun()
    assert planned(running, there) == AlphaPlan(runtime_id="76no")
    assert planned(job(THREE, deletion_timestamp=EPOCH)) == AlphaPlan()
    for edit in (THREE, {}):
        assert planned(job(edit | {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})) == AlphaPlan()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.label)
def test_the_status_has_both_forms(dialect: Dialect) -> None:
    """kubeflow.org keeps v1's map, which typed readers of v1 decode, with the array beside it; tensorflow.org has the array."""
    running, _, _ = begun(dialect=dialect)
    sets = (
        SetStatus(tf_replica_type="MASTER", state="Running", replicas_states={"Running": 1}),
        SetStatus(tf_replica_type="WORKER", state="Running", replicas_states={"Running": 2}),
        SetStatus(tf_replica_type="PS", state="Running", replicas_states={"Running": 2}),
    )
    counts = {"Master": 1, "Worker": 2, "PS": 2}
    if dialect is TENSORFLOW:
        assert (running.status.replica_statuses, running.status.alpha_replica_statuses) == (sets, None)
    else:
        assert running.status.alpha_replica_statuses == sets
        assert running.status.replica_statuses == {name: ReplicaStatus(active=n) for name, n in counts.items()}
    assert conditions.find(running.status.conditions or (), ConditionType.RUNNING) is not None


RESTARTS, FAILS, SUCCEEDS = "restarts", "fails", "succeeds"


def fate(code: int, reason: str = "") -> str:
    """What an exit code of the chief means according to the document, as one of three constants."""
    if code == 0:
        return SUCCEEDS
    return RESTARTS if code in {130, 134, 137, 138, 143} and reason != "OOMKilled" else FAILS


@pytest.mark.parametrize("in_place", [False, True], ids=["pod ended", "restarted in place"])
@for_each("code", range(256))
def test_the_exit_code_of_the_chief_decides_by_the_table(code: int, in_place: bool) -> None:
    """Under OnFailure the kubelet restarts it before the operator looks: then its last state has the exit code."""
    running, _, there = begun()
    chief, *others = there.jobs
    if in_place and code != 0:
        ended = pod_of(chief, "Running", last=code)
    else:
        ended = pod_of(chief, "Failed" if code else "Succeeded", code, policy="Never")
    decided = planned(running, Children(there.jobs, there.services, there.config_maps, [ended, *map(pod_of, others)]))
    if fate(code) == RESTARTS:
        assert not decided.acts
        assert decided.status is None or decided.status.state == AlphaState.RUNNING
        return
    ends = {SUCCEEDS: (AlphaState.SUCCEEDED, ConditionType.SUCCEEDED), FAILS: (AlphaState.FAILED, ConditionType.FAILED)}
    state, condition = ends[fate(code)]
    assert not decided.acts  # the end first, clean-up once it is written
    assert status_of(decided).state == state
    assert conditions.find(status_of(decided).conditions or (), condition) is not None
    assert status_of(decided).completion_time is not None


@pytest.mark.parametrize("code", [0, 1])
def test_a_job_starts_with_its_jobs_and_is_complete_when_its_chief_ended(code: int) -> None:
    """Not when its services were created, and not when the operator saw the end."""
    given = spec(RuntimeId="76no")
    running, read_as, there = begun(given)
    assert status_of(planned(job(given))).start_time is None
    assert running.status.start_time == EPOCH
    running = changed(running, status__start_time=EPOCH - timedelta(seconds=60))
    ended = [pod_of(there.jobs[0], "Failed" if code else "Succeeded", code, policy="Never")]
    found = Children(there.jobs, there.services, (), ended)
    late = plan(KUBEFLOW, running, read_as, found, EPOCH + timedelta(seconds=90))
    assert status_of(late).completion_time == EPOCH
    late = plan(KUBEFLOW, changed(running, status__start_time=None), read_as, found, EPOCH + timedelta(seconds=90))
    assert (status_of(late).start_time, status_of(late).completion_time) == (EPOCH, EPOCH)


CHIEF = batch_job("MASTER", 0, runtime_id="76no")
COUNTED = batch_job("MASTER", 0, runtime_id="76no", succeeded=1)
MORE = [pod_of(CHIEF, "Failed", 1, policy="Never"), pod_of(CHIEF, "Running", number=1, policy="Never")]
NOT_ITS_OWN_END = (
    pod_of(CHIEF, "Failed", 1, pod_reason="Evicted"),
    pod_of(CHIEF, "Failed", 1, terminating=True),
    pod_of(CHIEF, "Succeeded", 0, terminating=True, policy="Never"),
)
CHIEFS: dict[str, tuple[BatchJob, list[Pod], AlphaState]] = {
    # The exit code after that says nothing about the process; the Job controller makes another.
    **{f"taken or told to go, {n}": (CHIEF, [pod], AlphaState.RUNNING) for n, pod in enumerate(NOT_ITS_OWN_END)},
    # The Job controller will make no other pod, so nothing else could ever end the job.
    "a success that the Job counts": (
        COUNTED,
        [pod_of(COUNTED, "Succeeded", 0, terminating=True)],
        AlphaState.SUCCEEDED,
    ),
    "a pod has failed, and the Job has another": (CHIEF, MORE, AlphaState.FAILED),
    "137 for want of memory": (CHIEF, [pod_of(CHIEF, "Running", last=137, reason="OOMKilled")], AlphaState.FAILED),
    "an earlier run exited with 0": (CHIEF, [pod_of(CHIEF, "Running", last=0)], AlphaState.RUNNING),
    # Its pod is kept though its Job does not know yet: its logs would be deleted before anybody could read them.
    "it has just exited": (CHIEF, [pod_of(CHIEF, "Running", 0)], AlphaState.SUCCEEDED),
}


@pytest.mark.parametrize(("chief", "pods", "state"), CHIEFS.values(), ids=CHIEFS)
def test_only_the_chiefs_own_end_ends_the_job(chief: BatchJob, pods: list[Pod], state: AlphaState) -> None:
    running, _, there = begun(
        spec(entry(template=template(restartPolicy=pods[0].spec.restart_policy)), RuntimeId="76no")
    )
    now = Children([chief], there.services, (), pods)
    status = status_after(now, running)
    assert status.state == state
    words = "container tensorflow exited with code 137 (OOMKilled)"
    assert (words in status.reason) == ("OOMKilled" in str(pods))
    if state == AlphaState.SUCCEEDED:
        assert (status.phase, planned(changed(running, status=status), now).delete) == (Phase.DONE, ())


@pytest.mark.parametrize("code", [1, 2, 126, 127, 128, 139, 137, 255])
@pytest.mark.parametrize("kind", ["WORKER", "PS"])
def test_no_other_replica_fails_the_job(kind: str, code: int) -> None:
    running, _, there = begun()
    pods = [
        pod_of(each, "Running", last=code if each.metadata.name.startswith(kind.lower()) else None)
        for each in there.jobs
    ]
    decided = planned(running, Children(there.jobs, there.services, there.config_maps, pods))
    assert not decided.acts
    if decided.status is not None:
        assert decided.status.state == AlphaState.RUNNING
        sets = {each.tf_replica_type: each for each in decided.status.alpha_replica_statuses or ()}
        assert sets[kind].state == AlphaState.FAILED


@pytest.mark.parametrize(
    ("policy", "code", "active"), [("Never", 138, 0), ("Never", 1, 0), ("OnFailure", 138, 1), ("Never", None, 1)]
)
def test_a_replica_is_active_while_its_training_runs_and_not_while_only_a_sidecar_does(
    policy: str, code: int | None, active: int
) -> None:
    running, _, there = begun()
    ps, *others = reversed(there.jobs)
    pods = [pod_of(ps, "Running", code, policy=policy), *map(pod_of, others)]
    counts = status_after(Children(there.jobs, there.services, there.config_maps, pods), running).replica_statuses
    assert isinstance(counts, dict)
    assert counts["PS"].active == active + 1


def test_a_job_of_any_chief_ends_with_it_alone() -> None:
    given = spec(
        entry("MASTER"),
        entry("WORKER", 2),
        terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 1}},
        RuntimeId="76no",
    )
    running, _, there = begun(given)
    for index, name in enumerate(names(there.jobs)):
        jobs = [
            batch_job(kind, number, runtime_id="76no", succeeded=int(place == index))
            for place, (kind, number) in enumerate([("MASTER", 0), ("WORKER", 0), ("WORKER", 1)])
        ]
        decided = planned(running, Children(jobs, there.services, (), []))
        assert (status_of(decided).state == AlphaState.SUCCEEDED) == (name == "worker-76no-1")


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        ("None", []),
        (None, ["worker-76no-0", "ps-76no-0", "ps-76no-1"]),
        ("Running", ["worker-76no-0", "ps-76no-0", "ps-76no-1"]),
        ("All", ALL),
    ],
)
def test_the_clean_up_policy_says_what_stays_after_the_end(policy: str | None, gone: list[str]) -> None:
    """The logs of what has ended by itself stay readable, unless the policy is All. Here the chief and a worker have ended."""
    running, _, there = begun(THREE | ({"cleanupPodPolicy": policy} if policy else {}))
    jobs = [
        batch_job("MASTER", 0, runtime_id="76no", succeeded=1),
        there.jobs[1],
        batch_job("WORKER", 1, runtime_id="76no", succeeded=1),
        *there.jobs[3:],
    ]
    now = Children(jobs, there.services, there.config_maps, there.pods)
    ended = planned(running, now)
    assert status_of(ended).phase == (Phase.CLEAN_UP if gone else Phase.DONE)
    cleaning = planned(after(running, ended), now)
    programs = ["cm-ps-76no"] if gone else []
    assert names(cleaning.delete) == [*gone, *gone, *programs]
    done = planned(after(running, ended), Children([each for each in jobs if each.metadata.name not in gone]))
    assert (done.status or status_of(ended)).phase == Phase.DONE
    assert not done.acts


def test_how_replicas_stood_when_the_job_ended_is_what_its_status_says_for_ever() -> None:
    """The document shows a job that is Done with a worker Running."""
    running, _, there = begun()
    jobs = [batch_job("MASTER", 0, runtime_id="76no", succeeded=1), *there.jobs[1:]]
    ended = after(running, planned(running, Children(jobs, there.services, there.config_maps, there.pods)))
    done = after(ended, planned(ended, NONE))
    assert done.status.phase == Phase.DONE
    told = {each.tf_replica_type: each.replicas_states for each in done.status.alpha_replica_statuses or ()}
    assert told == {"MASTER": {"Succeeded": 1}, "WORKER": {"Running": 2}, "PS": {"Running": 2}}


def test_an_end_is_final() -> None:
    running, _, there = begun(spec(RuntimeId="76no"))
    done = [batch_job("MASTER", 0, runtime_id="76no", succeeded=1)]
    ended = after(running, planned(running, Children(done, there.services)))
    edits: list[Any] = [spec(RuntimeId="76no"), spec(entry(), entry("WORKER", 5)), {}, {"tfReplicaSpecs": {}}]
    for edit in edits:
        decided = planned(edited(ended, edit), NONE)
        assert (decided.create_jobs, decided.create_services, decided.create_config_map) == ((), (), False)
        assert (decided.status or ended.status).state == AlphaState.SUCCEEDED


@pytest.mark.parametrize("phase", ["Done", "Failed", "CleanUp"])
def test_a_job_that_an_operator_of_the_time_has_ended_is_not_run_again(phase: str) -> None:
    """Such an operator wrote no conditions."""
    old = job(THREE, status=AlphaStatus(phase=phase, state="Succeeded"))
    assert not planned(old).acts


def test_a_replica_that_has_succeeded_never_runs_again() -> None:
    running, _, there = begun()
    jobs = [*there.jobs[:1], batch_job("WORKER", 0, runtime_id="76no", succeeded=1), *there.jobs[2:]]
    told = after(running, planned(running, Children(jobs, there.services, there.config_maps, there.pods)))
    without = [each for each in jobs if each.metadata.name != "worker-76no-0"]
    assert planned(told, Children(without, there.services, there.config_maps, there.pods)).create_jobs == ()
    lost = [each for each in jobs if each.metadata.name != "worker-76no-1"]
    assert names(planned(told, Children(lost, there.services, there.config_maps)).create_jobs) == ["worker-76no-1"]


def test_what_is_scaled_down_goes_and_what_is_scaled_up_comes() -> None:
    running, _, there = begun()
    decided = planned(edited(running, spec(entry(), entry("WORKER", 1), entry("PS", 3), RuntimeId="76no")), there)
    assert names(decided.delete) == ["worker-76no-1", "worker-76no-1"]
    assert names(decided.create_services) == ["ps-76no-2"]


@pytest.mark.parametrize(
    "given", [{}, {"tfReplicaSpecs": {}}, spec(entry(), entry()), spec(entry("MASTER", 2))], ids=str
)
def test_a_wrong_specification_fails_a_job_that_has_not_begun_and_holds_one_that_has(given: dict[str, Any]) -> None:
    """The phase and state of the alpha dialect show it, and so does a condition."""
    failed = planned(job(given))
    assert (status_of(failed).phase, status_of(failed).state) == (Phase.FAILED, AlphaState.FAILED)
    assert status_of(failed).reason.startswith("invalid job spec: ")
    assert [event.reason for event in failed.events] == [ConditionReason.INVALID]
    running, _, there = begun()
    wrong = edited(running, given)
    held = planned(wrong, there)
    assert not held.acts
    assert (status_of(held).phase, status_of(held).state) == (Phase.RUNNING, AlphaState.RUNNING)
    assert conditions.find(status_of(held).conditions or (), ConditionType.HELD) is not None
    assert planned(after(wrong, held), there).status is None
    goes_on = planned(edited(after(wrong, held), running.spec), there)
    assert [event.reason for event in goes_on.events] == [ConditionReason.MENDED]
    held_no_more = conditions.find(status_of(goes_on).conditions or (), ConditionType.HELD)
    assert held_no_more is not None
    assert held_no_more.status == conditions.FALSE


@pytest.mark.parametrize("edit", [{}, THREE, THREE | {"RuntimeId": "zzzz"}], ids=["invalid", "valid", "renamed"])
def test_jobs_of_a_job_whose_record_was_lost_stay(edit: dict[str, Any]) -> None:
    """It has begun, as its Jobs show: it neither fails nor gets other names, and it is held if it is refused later."""
    running, read_as, there = begun()
    lost = edited(changed(running, status__begun=None), edit)
    decided = planned(lost, there)
    assert not decided.acts
    assert status_of(decided).phase == Phase.RUNNING
    held = plan(KUBEFLOW, after(lost, decided), refused(read_as, "Job was rejected"), there, EPOCH)
    assert status_of(held).phase == Phase.RUNNING


def test_a_job_that_is_refused_fails_unless_it_ran_before_it_was_edited() -> None:
    running, read_as, there = begun()
    words = refused(read_as, "Job master-76no-0 was rejected: spec.template: no")
    assert status_of(plan(KUBEFLOW, running, words, NONE, EPOCH)).phase == Phase.FAILED
    second = edited(running)
    held = plan(KUBEFLOW, second, words, there, EPOCH)
    assert status_of(held).phase == Phase.RUNNING
    assert isinstance(effective_spec(after(second, held), read_as), InvalidSpec)  # not tried again before the next edit
    assert effective_spec(edited(after(second, held)), read_as) is read_as


def test_a_runtime_id_is_four_characters_of_the_uid_and_another_one_when_its_names_are_taken() -> None:
    given = spec(entry(), entry("WORKER", 1))
    found = job(given)
    first = planned(found)
    own = derived_runtime_id(UID)
    assert len(own) == 4
    assert set(own) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
    assert status_of(first).runtime_id == own
    tried = after(found, first)
    second = planned(
        tried, Children(services=[Service(metadata=child_meta(f"master-{own}-0"))]), taken={f"worker-{own}-0"}
    )
    other = next_runtime_id(UID, own)
    assert status_of(second).runtime_id == other != own
    assert names(second.create_services) == [f"master-{other}-0", f"worker-{other}-0"]
    assert names(second.delete) == [f"master-{own}-0"]
    assert "worker-" in second.events[0].message


def test_the_names_of_a_job_that_has_begun_stay_and_so_do_those_that_the_author_chose() -> None:
    running, _, there = begun()
    decided = planned(edited(running, THREE | {"RuntimeId": "zzzz"}), there, taken={"master-76no-0"})
    assert not decided.acts
    assert status_of(decided).runtime_id == "76no"
    assert [event.reason for event in decided.events] == ["RuntimeIdConflict"]
    found = job(THREE)
    assert status_of(planned(found, taken=set(ALL))).runtime_id == "76no"


@settings(deadline=None)
@drawn(st.uuids())
@example(UUID("4780c519-76f1-5e28-86ae-9f3a9da50d73"))
def test_the_runtime_ids_of_a_job_are_many(uid: object) -> None:
    """So one of them is free, whatever other jobs have. For the UID of the example the eleventh equals the first one."""
    seen = [derived_runtime_id(str(uid))]
    for _ in range(20):
        seen.append(next_runtime_id(str(uid), seen[-1]))
    assert len(set(seen)) >= 20
    assert next_runtime_id(str(uid), "another") == derived_runtime_id(str(uid))


KINDS = ["MASTER", "WORKER", "PS"]
PODS = st.sampled_from([("Pending", None, None), ("Running", None, None), ("Running", None, 137), ("Running", None, 1),
                        ("Succeeded", 0, None), ("Failed", 1, None), ("Failed", 143, None)])  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Any], Children]:
    policy = draw(st.sampled_from(["All", "Running", "None"]))
    given = spec(entry("MASTER"), entry("WORKER", 2), entry("PS", 1), RuntimeId="76no", cleanupPodPolicy=policy)
    whole = children(good(given), "76no")
    jobs = [
        batch_job(kind, index, runtime_id="76no", succeeded=draw(st.integers(0, 1)), terminating=draw(st.booleans()))
        for kind, index in [("MASTER", 0), ("WORKER", 0), ("WORKER", 1), ("PS", 0), ("WORKER", 7)]
        if draw(st.booleans())
    ]
    pods = [
        pod_of(each, phase, code, last=last, number=number)
        for each in jobs
        for number, (phase, code, last) in enumerate(draw(st.lists(PODS, max_size=2)))
    ]
    services = [each for each in whole.services if draw(st.booleans())]
    return given, Children(jobs, services, whole.config_maps if draw(st.booleans()) else (), pods)


@settings(deadline=None)
@drawn(worlds(), st.sampled_from(DIALECTS))
def test_whatever_is_there_a_plan_keeps_its_promises(world: tuple[dict[str, Any], Children], dialect: Dialect) -> None:
    """Nothing is created that exists; an end is written alone; the same view gives the same plan; an end is final."""
    given, there = world
    found = job(given)
    decided = planned(found, there, dialect)
    jobs, services = set(names(there.jobs)), set(names(there.services))
    assert jobs.isdisjoint(names(decided.create_jobs))
    assert services.isdisjoint(names(decided.create_services))
    assert not (decided.create_jobs and (decided.create_services or decided.create_config_map))
    gone = {each.metadata.uid for each in decided.delete}
    assert len(gone) == len(decided.delete)
    assert all(each.metadata.deletion_timestamp is None for each in decided.delete)
    status = status_of(decided)
    ended = status.state in {AlphaState.SUCCEEDED, AlphaState.FAILED}
    if ended:
        assert not decided.acts
    if decided.create_jobs:
        assert status.begun is not None
    assert status.runtime_id == "76no"
    later = plan(dialect, after(found, decided), good(given, dialect), there, EPOCH + timedelta(seconds=9))
    if not ended:
        assert later.status is None
        assert later.acts == decided.acts
    else:
        assert (later.create_jobs, later.create_services) == ((), ())
    wire = msgspec.json.encode(status.to_wire())
    assert msgspec.json.decode(wire, type=AlphaStatus) == status
