"""How a pod ends, why it does not start, and how long the write of a status waits for further changes."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import accounted, at, disrupted, good_spec, job, observed, pod, spec, with_condition
from fakes.objects import changed
from tfjob_operator.api import core
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.types import IndexRestarts
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S, START_WINDOW_S, Window
from tfjob_operator.controller.jobs.pods import has_ended, is_disrupted, was_stopped
from tfjob_operator.controller.tfjob.plan.ending import should_restart
from tfjob_operator.controller.tfjob.plan.replicas import Outcome
from tfjob_operator.controller.tfjob.plan.status import in_place_restarts, merged


def ended(exit_code: int, policy: str = "Never", *containers: core.Container) -> Pod:
    found = pod("Worker", 0, "Running", exit_code, policy=policy)
    return changed(found, spec__containers=containers) if containers else found


def gone(phase: str = "Succeeded", **more: Any) -> Pod:
    return pod("Worker", 0, phase, 0, terminating=True, **more)


failed = partial(pod, "Worker", 0, "Failed")


def container(policy: str = "", *rules: tuple[str, str, tuple[int, ...]]) -> core.Container:
    """The container `tensorflow` with a policy of its own, and rules of action, operator and exit codes."""
    made = tuple(
        core.ContainerRestartRule(action=a, exit_codes=core.ContainerExitCodes(operator=o, values=v))
        for a, o, v in rules
    )
    return core.Container(name="tensorflow", restart_policy=policy, restart_policy_rules=made or None)


def shut_down(found: Pod) -> Pod:
    return disrupted(found, "TerminationByKubelet")


def evicted(found: Pod) -> Pod:
    return disrupted(found, "EvictionByEvictionAPI")


def with_status(found: Pod, code: int = 137, reason: str = "", *, waiting: str = "", count: int = 0) -> Pod:
    """The pod with another status of its container, which has terminated unless it is `waiting`."""
    end = core.ContainerStateTerminated(exit_code=code, reason=reason)
    state = (
        core.ContainerState(waiting=core.ContainerStateWaiting(waiting))
        if waiting
        else core.ContainerState(terminated=end)
    )
    statuses = (core.ContainerStatus(name="tensorflow", state=state, restart_count=count),)
    return changed(found, status__container_statuses=statuses)


def outcome(found: Pod, records: tuple[IndexRestarts, ...] = ()) -> Outcome:
    (replica,) = observed([found], records)
    return replica.outcome


RESTART_42 = ("Restart", "In", (42,))
ALL_42 = ("RestartAllContainers", "In", (42, 43))
NOT_1 = ("Restart", "NotIn", (1,))


@pytest.mark.parametrize(
    ("exit_code", "policy", "own", "final"),
    [
        (0, "Never", container(), True),
        (1, "Never", container(), True),
        (1, "OnFailure", container(), False),
        (0, "OnFailure", container(), True),
        (0, "Always", container(), False),
        (0, "Always", container("Never"), True),
        (1, "Always", container("OnFailure"), False),
        (0, "Always", container("OnFailure"), True),
        (0, "Never", container("Always"), False),
        (42, "Never", container("Never", RESTART_42), False),
        (41, "Never", container("Never", RESTART_42), True),
        (43, "Never", container("Never", ALL_42), False),
        (1, "Never", container("Never", NOT_1), True),
        (0, "Never", container("Never", NOT_1), False),
        (42, "Never", container("Never", ("Later", "In", (42,)), RESTART_42), True),
        (42, "Never", container("Never", ("Restart", "Near", (42,)), RESTART_42), False),
        (42, "Never", container("", RESTART_42), True),
    ],
)
def test_what_the_kubelet_does_after_an_exit_is_read_from_the_pod(
    exit_code: int, policy: str, own: core.Container, final: bool
) -> None:
    """M3, upstream: TestContainerShouldRestart. By the first rule for the code, else the container's policy, else the pod's."""
    assert has_ended(ended(exit_code, policy, own)) is final


def behind(found: Pod) -> Pod:
    """The same pod on a node whose clock is an hour behind: it seems to have started before it was created."""
    return changed(found, metadata__creation_timestamp=at(-60), started=at(-60 - 3600))


OTHER = core.Container(name="other", restart_policy="Always")
OLD_KUBELET = changed(pod("Worker", 0, "Succeeded", 0), spec__containers=(container("Always"),))
OUTCOMES = {
    "the policy of another container does not count": (ended(42, "Never", OTHER), Outcome.FAILED),
    # KEP-5532: the kubelet says by a condition that it restarts all containers, then by their reason.
    "all containers are restarted": (with_condition(ended(0), "AllContainersRestarting"), Outcome.ACTIVE),
    "all were killed for a restart": (with_status(ended(1), reason="RestartingAllContainers"), Outcome.ACTIVE),
    "the restart is over": (with_condition(ended(0), "AllContainersRestarting", "False"), Outcome.SUCCEEDED),
    # The skew that Kubernetes allows: a kubelet of 1.34 ignores what a container says of restarts, and ends the pod.
    "the phase has the last word": (OLD_KUBELET, Outcome.SUCCEEDED),
    # The API server adds the grace to the time of the request. A delete with another grace than the pod's own moves
    # `deletionTimestamp`, above all the kubelet's last one (0): then the moment of the deletion is not known.
    "it ended before it was deleted": (gone(ended_s=-1), Outcome.SUCCEEDED),
    "it ended when it was deleted": (gone(ended_s=0), Outcome.FAILED),
    "it ended after it was deleted, on a node that is behind": (behind(gone(ended_s=5 - 3600)), Outcome.FAILED),
    "it ended before it was deleted, on a node that is behind": (behind(gone(ended_s=-5 - 3600)), Outcome.SUCCEEDED),
    "it was deleted with a grace of 0": (gone(grace_s=0, ended_s=-1), Outcome.FAILED),
    "it was deleted with a shorter grace": (gone(grace_s=5, ended_s=-1), Outcome.FAILED),
    "it was deleted with a longer grace": (gone(grace_s=60, ended_s=-1), Outcome.FAILED),
    "its own grace is 0": (
        changed(gone(grace_s=0, ended_s=-1), spec__termination_grace_period_seconds=0),
        Outcome.FAILED,
    ),
    # Since 1.27 its phase becomes Succeeded when the last run ended with 0, under Always as well.
    "it was deleted between two runs": (gone(policy="Always", ended_s=-5), Outcome.FAILED),
    # A kubelet of 1.36 says Succeeded, and DisruptionTarget; nobody deletes the pod.
    **{
        f"its node shuts down, {phase}": (shut_down(pod("Worker", 0, phase, 0)), Outcome.FAILED)
        for phase in ("Running", "Succeeded", "Failed")
    },
    # `tensorflow` exits with 0 at once, and the taint manager deletes the pod while its sidecar is still stopping.
    "its node shuts down, and it is deleted": (shut_down(gone(ended_s=-2)), Outcome.FAILED),
    "it ended before it was evicted": (evicted(gone(ended_s=-2)), Outcome.SUCCEEDED),
    "a disruption that did not come": (with_condition(ended(0), "DisruptionTarget", "False"), Outcome.SUCCEEDED),
    "its own deadline was over": (failed(0, reason="DeadlineExceeded"), Outcome.FAILED),
}


@pytest.mark.parametrize(("found", "becomes"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_became_of_a_pod_is_read_from_its_containers_its_deletion_and_its_disruption(
    found: Pod, becomes: Outcome
) -> None:
    """M1, M2, M3, M10, B38: an end with 0 is believed only where it was the process' own."""
    assert outcome(found) is becomes


def test_a_pod_has_ended_when_all_its_containers_have() -> None:
    """M1: the phase comes later; a container without a status may run, and a sidecar that runs on still uses resources."""
    done = ended(0)
    assert has_ended(done)
    assert not has_ended(ended(0, "Never", container(), core.Container(name="other")))
    sidecar = core.ContainerStatus(name="sidecar")
    assert not has_ended(changed(done, status__container_statuses=(*(done.status.container_statuses or ()), sidecar)))
    assert not has_ended(pod("Worker", 0, "Pending"))
    assert has_ended(failed(reason="Evicted"))
    assert has_ended(OLD_KUBELET)


def test_an_end_whose_time_nobody_tells_is_no_success_of_a_pod_that_goes() -> None:
    """M2: where in doubt it runs again."""
    assert was_stopped(pod("Worker", 0, "Succeeded", terminating=True), None)


def test_a_pod_that_was_given_more_grace_than_its_own_is_remembered_as_stopped() -> None:
    """M2: if the grace is later shortened to its own, the deletion seems to begin only then. So the status records it."""
    asked = pod("Worker", 0, terminating=True, grace_s=60)
    records = accounted((), observed([asked]), ())
    assert [(record.pod, record.stopped, record.total) for record in records] == [(asked.metadata.uid, True, 0)]
    shortened = pod("Worker", 0, "Succeeded", 0, terminating=True, ended_s=-1)
    assert outcome(shortened) is Outcome.SUCCEEDED
    assert outcome(shortened, records) is Outcome.FAILED
    assert accounted(records, observed([shortened], records), ()) == records


def test_the_next_pod_of_a_slot_is_not_stopped() -> None:
    """M2: it takes over the count of the record, and nothing else."""
    records = accounted((), observed([pod("Worker", 0, restarts=2, terminating=True, grace_s=60, uid="a")]), ())
    (record,) = accounted(records, observed([pod("Worker", 0, restarts=1, uid="b")], records), ())
    assert (record.pod, record.stopped, record.total) == ("b", False, 3)


def test_a_success_that_was_seen_before_needs_no_record() -> None:
    """M2: with the pod's own grace, `deletionTimestamp` shows when the deletion was requested."""
    found = pod("Worker", 0, "Succeeded", 0, terminating=True, ended_s=-1)
    assert accounted((), observed([found]), ()) == ()


def test_neither_of_two_accounts_loses_that_a_pod_was_stopped() -> None:
    """M2, B36: of two records with the same count the one that is not written yet names the later pod."""
    first, second = (
        accounted((), observed([pod("Worker", 0, terminating=True, grace_s=60, uid=uid)]), ()) for uid in ("a", "b")
    )
    (kept,) = merged(first, second)
    assert (kept.pod, kept.stopped) == ("b", True)
    (known,) = accounted((), observed([pod("Worker", 0, restarts=1, uid="b")]), ())
    (both,) = merged((known,), second)
    assert (both.pod, both.stopped, both.total) == ("b", True, 1)


FATAL = ended(1, "Always", container("Never", RESTART_42))
KILLED = ended(137, "Always", container("Never", RESTART_42))


@pytest.mark.parametrize(
    ("found", "policy", "again"),
    [
        # In doubt it runs again. Under Never, what has failed stays failed.
        (shut_down(pod("Worker", 0, "Succeeded", 0)), RestartPolicy.NEVER, True),
        (shut_down(pod("Worker", 0, "Running", 0)), RestartPolicy.NEVER, True),
        (shut_down(failed(0)), RestartPolicy.NEVER, False),
        (shut_down(failed(143)), RestartPolicy.NEVER, False),
        # A container's own policy: a new pod would fail again, without the kubelet's back-off.
        (FATAL, RestartPolicy.ALWAYS, False),
        (FATAL, RestartPolicy.ON_FAILURE, False),
        (KILLED, RestartPolicy.EXIT_CODE, True),
        # How a process reacts to SIGTERM is no failure of its own, whatever its container's policy makes of it.
        (evicted(FATAL), RestartPolicy.ALWAYS, True),
        (evicted(FATAL), RestartPolicy.ON_FAILURE, True),
        (evicted(FATAL), RestartPolicy.EXIT_CODE, True),
    ],
)
def test_the_cluster_may_take_a_pod_and_the_policies_of_replica_and_container_decide_otherwise(
    found: Pod, policy: str, again: bool
) -> None:
    """M3, M10, B38, B41."""
    (replica,) = observed([found])
    assert should_restart(replica, good_spec(job(spec(policy, Worker=1)))) is again


REASONS = (
    "VolumeAttachmentLimitExceeded",
    "TaintToleration",
    "PodFeatureUnsupported",
    "SMTAlignmentError",
    "OutOfTomorrow",
)
REJECTED = "Pod was rejected: Node didn't have enough resource: cpu"
TURNED_AWAY = failed(reason="OutOfcpu")
DISRUPTED = {
    **{f"turned away: {reason}": (failed(reason=reason), True) for reason in REASONS},
    # Recording 28g: after a restart of the kubelet there is an exit code of 137, of a container that never ran.
    "turned away, and its kubelet adds statuses": (
        changed(failed(137, reason="OutOfcpu"), status__message=REJECTED),
        True,
    ),
    "turned away before 1.26, with a status": (with_status(TURNED_AWAY, reason="ContainerStatusUnknown"), True),
    "waits for its first start": (with_status(TURNED_AWAY, waiting="ContainerCreating"), True),
    "waits for its second start": (with_status(TURNED_AWAY, waiting="ContainerCreating", count=1), False),
    "its node shuts down": (shut_down(pod("Worker", 0, "Succeeded", 0)), True),
    "failed by itself": (failed(), False),
    "failed by its own deadline": (failed(reason="DeadlineExceeded"), False),
    "failed by its own deadline with 0": (failed(0, reason="DeadlineExceeded"), False),
    "has not failed": (pod("Worker", 0, "Pending", reason="OutOfcpu"), False),
}


@pytest.mark.parametrize(("found", "disrupted"), DISRUPTED.values(), ids=DISRUPTED)
def test_what_a_kubelet_turns_away_is_no_exit_and_what_failed_otherwise_is_one(found: Pod, disrupted: bool) -> None:
    """M4, M10: whatever reason a later version has for it."""
    assert is_disrupted(found) is disrupted


@pytest.mark.parametrize(
    ("policy", "counted"), [(RestartPolicy.NEVER, 3), (RestartPolicy.ON_FAILURE, 7), (RestartPolicy.ALWAYS, 7)]
)
def test_restarts_of_native_sidecars_count_but_not_under_never(policy: str, counted: int) -> None:
    """M7: under Never the kubelet restarts them all the same, though the user asked for no restarts."""
    sidecar = core.Container(name="log", restart_policy="Always")
    found = changed(pod("Worker", 0, policy=policy), spec__init_containers=(sidecar,))
    statuses = tuple(core.ContainerStatus(name=name, restart_count=n) for name, n in (("log", 4), ("init", 1)))
    mine = (core.ContainerStatus(name="tensorflow", restart_count=2),)
    found = changed(found, status__container_statuses=mine, status__init_container_statuses=statuses)
    assert in_place_restarts(found) == counted


def test_what_starts_waits_for_five_seconds_while_others_wait_and_for_one_else() -> None:
    """U12: a burst costs few writes, and a user who looks at one job sees the truth."""
    window = Window()
    assert window.left_s(100.0, starts=True, busy=True) == START_WINDOW_S
    assert window.left_s(100.5, starts=True, busy=False) == pytest.approx(COUNTER_WINDOW_S - 0.5)
    assert window.left_s(102.0, starts=True, busy=True) == pytest.approx(START_WINDOW_S - 2.0)
    assert window.left_s(103.0, starts=True, busy=False) <= 0


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_no_wait_outlasts_its_window(steps: list[tuple[float, bool, bool]]) -> None:
    """What has ended is said within a second of the first such change, what has started within five."""
    window, now, opened, ended = Window(), 0.0, None, None
    for wait, starts, busy in steps:
        now += wait
        opened = now if opened is None else opened
        ended = now if ended is None and not starts else ended
        due = now + window.left_s(now, starts=starts, busy=busy)
        assert due <= max(now, opened + START_WINDOW_S) + COUNTER_WINDOW_S
        if ended is not None:
            assert due <= ended + COUNTER_WINDOW_S + 1e-6
