"""How a pod ends, why it does not start, and how long the write of a status waits for further changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import good_spec, job, observed, pod, template
from fakes.virtual_loop import EPOCH
from tfjob_operator.api import core
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.types import IndexRestarts
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import COUNTER_WINDOW_S, START_WINDOW_S, Window
from tfjob_operator.controller.jobs.pods import has_ended, is_disrupted, was_stopped
from tfjob_operator.controller.tfjob.plan.ending import should_restart
from tfjob_operator.controller.tfjob.plan.replicas import Outcome
from tfjob_operator.controller.tfjob.plan.status import account, in_place_restarts, merged


def with_status(found: Pod, **fields: Any) -> Pod:
    """The pod with another status."""
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, **fields))


def with_spec(found: Pod, **fields: Any) -> Pod:
    """The pod with another specification."""
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, **fields))


def ended(exit_code: int, policy: str = "Never", container: core.Container | None = None, **more: Any) -> Pod:
    """A running pod whose container `tensorflow` has terminated."""
    found = pod("Worker", 0, "Running", exit_code, policy=policy, **more)
    return found if container is None else with_spec(found, containers=(container,))


def container(policy: str = "", *rules: tuple[str, str, tuple[int, ...]]) -> core.Container:
    """The container `tensorflow` with a policy of its own, and rules of action, operator and exit codes."""
    made = tuple(
        core.ContainerRestartRule(action=a, exit_codes=core.ContainerExitCodes(operator=o, values=v))
        for a, o, v in rules
    )
    return core.Container(name="tensorflow", restart_policy=policy, restart_policy_rules=made or None)


def outcome(found: Pod, records: tuple[IndexRestarts, ...] = ()) -> Outcome:
    """What has become of a pod."""
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


def test_the_policy_of_another_container_does_not_count() -> None:
    """M3: each container has its own."""
    assert outcome(ended(42, "Never", core.Container(name="other", restart_policy="Always"))) is Outcome.FAILED


def test_a_pod_that_tells_of_fewer_containers_than_it_has_has_not_ended() -> None:
    """M1: a container without a status may be running."""
    containers = (container(), core.Container(name="other"))
    assert not has_ended(with_spec(ended(0), containers=containers))


def test_nothing_is_final_while_all_containers_are_restarted() -> None:
    """M3, KEP-5532: the kubelet says so by a condition, then by the containers' reason."""
    restarting = core.Condition("AllContainersRestarting", "True")
    assert outcome(with_status(ended(0), conditions=(restarting,))) is Outcome.ACTIVE
    killed = core.ContainerStateTerminated(exit_code=137, reason="RestartingAllContainers")
    statuses = (core.ContainerStatus(name="tensorflow", state=core.ContainerState(terminated=killed)),)
    assert outcome(with_status(ended(1), container_statuses=statuses)) is Outcome.ACTIVE
    over = core.Condition("AllContainersRestarting", "False")
    assert outcome(with_status(ended(0), conditions=(over,))) is Outcome.SUCCEEDED


def test_a_pod_has_ended_when_all_its_containers_have() -> None:
    """M1: the phase comes later; a sidecar that runs on still uses resources."""
    sidecar = core.ContainerStatus(name="sidecar")
    done = ended(0)
    assert has_ended(done)
    assert not has_ended(with_status(done, container_statuses=(*(done.status.container_statuses or ()), sidecar)))
    assert not has_ended(pod("Worker", 0, "Pending"))
    assert has_ended(pod("Worker", 0, "Failed", reason="Evicted"))


@pytest.mark.parametrize(
    ("grace_s", "ended_s", "stopped"), [(30, -1, False), (30, 0, True), (0, -1, True), (5, -1, True), (60, -1, True)]
)
def test_an_end_with_0_is_believed_only_where_the_moment_of_the_deletion_is_known(
    grace_s: int, ended_s: float, stopped: bool
) -> None:
    """M2: a delete with another grace than the pod's own moves `deletionTimestamp`, above all the kubelet's last one (0)."""
    found = pod("Worker", 0, "Succeeded", 0, terminating=True, grace_s=grace_s, ended_s=ended_s)
    assert outcome(found) is (Outcome.FAILED if stopped else Outcome.SUCCEEDED)


def test_a_pod_whose_own_grace_is_0_tells_nothing_of_its_deletion() -> None:
    """M2: the kubelet's last delete looks the same."""
    found = pod("Worker", 0, "Succeeded", 0, terminating=True, grace_s=0, ended_s=-1)
    assert outcome(with_spec(found, termination_grace_period_seconds=0)) is Outcome.FAILED


def test_an_end_whose_time_nobody_tells_is_no_success_of_a_pod_that_goes() -> None:
    """M2: where in doubt it runs again."""
    assert was_stopped(pod("Worker", 0, "Succeeded", terminating=True), None)


def test_a_pod_that_was_given_more_grace_than_its_own_is_remembered_as_stopped() -> None:
    """M2: if the grace is later shortened to its own, the deletion seems to begin only then. So the status records it."""
    asked = pod("Worker", 0, terminating=True, grace_s=60)
    records = account((), observed([asked]), ())
    assert [(record.pod, record.stopped, record.total) for record in records] == [(asked.metadata.uid, True, 0)]
    shortened = pod("Worker", 0, "Succeeded", 0, terminating=True, ended_s=-1)
    assert outcome(shortened) is Outcome.SUCCEEDED
    assert outcome(shortened, records) is Outcome.FAILED
    assert account(records, observed([shortened], records), ()) == records


def test_the_next_pod_of_a_slot_is_not_stopped() -> None:
    """M2: it takes over the count of the record, and nothing else."""
    records = account((), observed([pod("Worker", 0, restarts=2, terminating=True, grace_s=60, uid="a")]), ())
    (record,) = account(records, observed([pod("Worker", 0, restarts=1, uid="b")], records), ())
    assert (record.pod, record.stopped, record.total) == ("b", False, 3)


def test_a_success_that_was_seen_before_needs_no_record() -> None:
    """M2: with the pod's own grace, `deletionTimestamp` shows when the deletion was requested."""
    found = pod("Worker", 0, "Succeeded", 0, terminating=True, ended_s=-1)
    assert account((), observed([found]), ()) == ()


def test_neither_of_two_accounts_loses_that_a_pod_was_stopped() -> None:
    """M2, B36: of two records with the same count the one that is not written yet names the later pod."""
    first, second = (
        account((), observed([pod("Worker", 0, terminating=True, grace_s=60, uid=uid)]), ()) for uid in ("a", "b")
    )
    (kept,) = merged(first, second)
    assert (kept.pod, kept.stopped) == ("b", True)
    (known,) = account((), observed([pod("Worker", 0, restarts=1, uid="b")]), ())
    (both,) = merged((known,), second)
    assert (both.pod, both.stopped, both.total) == ("b", True, 1)


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_an_end_with_0_at_the_shutdown_of_its_node_is_no_success(phase: str) -> None:
    """M10: a kubelet of 1.36 says Succeeded, and DisruptionTarget; nobody deletes the pod."""
    target = core.Condition("DisruptionTarget", "True", "TerminationByKubelet")
    (replica,) = observed([with_status(pod("Worker", 0, phase, 0), conditions=(target,))])
    assert replica.outcome is Outcome.FAILED
    assert replica.disrupted


def test_a_pod_of_a_node_that_shuts_down_is_not_done_if_it_is_deleted_later() -> None:
    """M10: `tensorflow` exits with 0 at once, and the taint manager deletes the pod while its sidecar is still stopping."""
    target = core.Condition("DisruptionTarget", "True", "TerminationByKubelet")
    found = with_status(pod("Worker", 0, "Succeeded", 0, terminating=True, ended_s=-2), conditions=(target,))
    assert outcome(found) is Outcome.FAILED
    evicted = core.Condition("DisruptionTarget", "True", "EvictionByEvictionAPI")
    assert outcome(with_status(found, conditions=(evicted,))) is Outcome.SUCCEEDED, "it had ended before it was evicted"


@pytest.mark.parametrize(
    ("phase", "exit_code", "again"),
    [("Succeeded", 0, True), ("Running", 0, True), ("Failed", 0, False), ("Failed", 143, False)],
)
def test_what_exits_in_order_when_it_is_taken_has_not_failed_under_never(
    phase: str, exit_code: int, again: bool
) -> None:
    """M10, B41: in doubt it runs again. Under Never, what has failed stays failed."""
    target = core.Condition("DisruptionTarget", "True", "TerminationByKubelet")
    (replica,) = observed([with_status(pod("Worker", 0, phase, exit_code), conditions=(target,))])
    assert should_restart(replica, good_spec(job())) is again


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [(RestartPolicy.ALWAYS, 1, False), (RestartPolicy.ON_FAILURE, 1, False), (RestartPolicy.EXIT_CODE, 137, True)],
)
def test_what_a_containers_own_policy_calls_fatal_is_fatal(policy: str, code: int, again: bool) -> None:
    """M3: a new pod would fail again, without the kubelet's back-off; under ExitCode the exit code still decides."""
    (replica,) = observed([ended(code, "Always", container("Never", RESTART_42))])
    spec = good_spec(job({"tfReplicaSpecs": {"Worker": {"restartPolicy": policy, "template": template()}}}))
    assert should_restart(replica, spec) is again


@pytest.mark.parametrize("policy", [RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE, RestartPolicy.EXIT_CODE])
def test_what_the_cluster_took_away_comes_again_though_its_exit_code_is_fatal(policy: str) -> None:
    """M3, B38: how a process reacts to SIGTERM is no failure of its own, whatever its container's policy makes of it."""
    target = core.Condition("DisruptionTarget", "True", "EvictionByEvictionAPI")
    (replica,) = observed([with_status(ended(1, "Always", container("Never", RESTART_42)), conditions=(target,))])
    spec = good_spec(job({"tfReplicaSpecs": {"Worker": {"restartPolicy": policy, "template": template()}}}))
    assert should_restart(replica, spec)


def test_a_disruption_that_did_not_come_is_none() -> None:
    """M10: the condition is set to False after a while."""
    target = core.Condition("DisruptionTarget", "False")
    assert outcome(with_status(ended(0), conditions=(target,))) is Outcome.SUCCEEDED


def test_an_exit_with_0_at_the_end_of_the_pods_own_deadline_is_a_failure() -> None:
    """M10, B38: it was stopped, by a limit that its author has set."""
    (replica,) = observed([pod("Worker", 0, "Failed", 0, reason="DeadlineExceeded")])
    assert replica.outcome is Outcome.FAILED
    assert not replica.disrupted


def test_a_pod_deleted_between_two_runs_has_not_succeeded() -> None:
    """M2: since 1.27 its phase becomes Succeeded when the last run ended with 0, under Always as well."""
    found = pod("Worker", 0, "Succeeded", 0, policy="Always", terminating=True, ended_s=-5)
    assert outcome(found) is Outcome.FAILED


@pytest.mark.parametrize(
    "reason",
    [
        "VolumeAttachmentLimitExceeded",
        "TaintToleration",
        "PodFeatureUnsupported",
        "SMTAlignmentError",
        "OutOfcpu",
        "OfTomorrow",
    ],
)
def test_what_a_kubelet_turns_away_is_no_exit(reason: str) -> None:
    """M4: whatever reason a later version has for it."""
    assert is_disrupted(pod("Worker", 0, "Failed", reason=reason))


def test_a_pod_that_was_turned_away_stays_so_when_its_kubelet_adds_statuses() -> None:
    """M4, recording 28g: after a restart of the kubelet there is an exit code of 137, of a container that never ran."""
    message = "Pod was rejected: Node didn't have enough resource: cpu"
    found = with_status(pod("Worker", 0, "Failed", 137, reason="OutOfcpu"), message=message)
    assert is_disrupted(found)


def test_a_kubelet_of_old_adds_statuses_to_what_it_had_turned_away() -> None:
    """M4: before 1.26 the message does not mention it."""
    end = core.ContainerStateTerminated(exit_code=137, reason="ContainerStatusUnknown")
    statuses = (core.ContainerStatus(name="tensorflow", state=core.ContainerState(terminated=end)),)
    assert is_disrupted(with_status(pod("Worker", 0, "Failed", reason="OutOfcpu"), container_statuses=statuses))


def test_where_a_kubelet_is_older_than_its_server_the_phase_has_the_last_word() -> None:
    """M3, the skew that Kubernetes allows: a kubelet of 1.34 ignores what a container says of restarts, and ends the pod."""
    done = with_spec(pod("Worker", 0, "Succeeded", 0), containers=(container("Always"),))
    assert outcome(done) is Outcome.SUCCEEDED
    assert has_ended(done)


def test_a_container_that_waits_for_its_first_start_has_not_run() -> None:
    """M4: nor has its pod."""
    waits = core.ContainerState(waiting=core.ContainerStateWaiting("ContainerCreating"))
    for count, turned_away in ((0, True), (1, False)):
        statuses = (core.ContainerStatus(name="tensorflow", state=waits, restart_count=count),)
        found = with_status(pod("Worker", 0, "Failed", reason="OutOfcpu"), container_statuses=statuses)
        assert is_disrupted(found) is turned_away


@pytest.mark.parametrize(("phase", "reason"), [("Failed", ""), ("Failed", "DeadlineExceeded"), ("Pending", "OutOfcpu")])
def test_what_failed_otherwise_was_not_turned_away(phase: str, reason: str) -> None:
    """M4: a failure without a reason is the pod's own, and so is one by its activeDeadlineSeconds."""
    assert not is_disrupted(pod("Worker", 0, phase, reason=reason))


@pytest.mark.parametrize(
    ("policy", "counted"), [(RestartPolicy.NEVER, 3), (RestartPolicy.ON_FAILURE, 7), (RestartPolicy.ALWAYS, 7)]
)
def test_restarts_of_native_sidecars_count_but_not_under_never(policy: str, counted: int) -> None:
    """M7: under Never the kubelet restarts them all the same, though the user asked for no restarts."""
    found = with_spec(
        pod("Worker", 0, policy=policy), init_containers=(core.Container(name="log", restart_policy="Always"),)
    )
    statuses = tuple(core.ContainerStatus(name=name, restart_count=n) for name, n in (("log", 4), ("init", 1)))
    mine = (core.ContainerStatus(name="tensorflow", restart_count=2),)
    assert in_place_restarts(with_status(found, container_statuses=mine, init_container_statuses=statuses)) == counted


def test_the_moment_of_a_deletion_is_what_its_timestamp_says_less_the_grace() -> None:
    """M2: the API server adds the grace to the time of the request."""
    found = pod("Worker", 0, "Running", 0, terminating=True, ended_s=-1)
    assert found.metadata.deletion_timestamp == EPOCH + timedelta(seconds=30)
    assert outcome(found) is Outcome.SUCCEEDED


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
