"""The parts of the operator in a simulated cluster with random faults. See `conftest.py` for how to replay a seed."""

import pytest

from kit.faults import CALM
from simulation.conftest import Seeds
from simulation.scenarios.alpha import alpha_jobs_keep_their_promises
from simulation.scenarios.clocks import waits_have_their_length
from simulation.scenarios.informers import informers_converge
from simulation.scenarios.leaders import one_leader_writes
from simulation.scenarios.memory import ROUGH, nothing_is_remembered_of_the_dead
from simulation.scenarios.operators import (
    accelerators_are_counted_once,
    failure_policies_are_followed,
    failure_policies_are_followed_in_time,
    operators_are_in_time,
    operators_keep_their_promises,
    queues_keep_their_quota,
    queues_keep_their_quota_in_time,
)
from simulation.scenarios.upgrades import nothing_of_another_operator_runs_twice


def test_caches_indices_and_handlers_end_with_the_truth_of_the_server(seeds: Seeds) -> None:
    """RF-01 to RF-24, SI-01 to SI-11: no fault leaves a cache wrong, and no handler hears anything out of order."""
    seeds.play(informers_converge)


def test_writes_of_two_leaders_never_overlap_and_somebody_leads_in_the_end(seeds: Seeds) -> None:
    """LE-04 to LE-11: whatever stalls, dies or is lost, the server accepts no write of one while another holds the lease."""
    seeds.play(one_leader_writes, share=0.4, may_log={"lease_lost"})


def test_two_operators_keep_every_promise_whatever_stalls_dies_is_lost_or_edited(seeds: Seeds) -> None:
    """Level-triggered from end to end: each write was justified, each job ends as it must, and then there are no more writes.

    B11, B19, B32, B33, B36, B38, B39, B41, B42, B43, B47, B54, B55, B74, B75: in the jobs of a seed, all at once.
    """
    seeds.play(operators_keep_their_promises, share=1.2, may_log={"lease_lost"})


def test_failure_policies_are_followed_whatever_stalls_dies_is_lost_or_edited(seeds: Seeds) -> None:
    """Each restart of a whole job follows from a rule or a request, counts once, and no two attempts overlap."""
    seeds.play(failure_policies_are_followed, share=0.5, may_log={"lease_lost"})


def test_in_calm_weather_rules_decide_in_their_order_and_within_two_seconds(seeds: Seeds) -> None:
    """The first rule that is about any failure decides, and of its failures the earliest."""
    seeds.play(failure_policies_are_followed_in_time, share=0.3, faults=CALM)


def test_the_end_of_a_queued_job_waits_for_its_pods_whatever_stalls_dies_is_lost_or_edited(seeds: Seeds) -> None:
    """Its quota is not free while the server has a pod without a terminal phase, and nothing reverts how it ends."""
    seeds.play(queues_keep_their_quota, share=0.1, may_log={"lease_lost"})


def test_in_calm_weather_a_pod_is_kept_for_its_sidecars_and_no_longer(seeds: Seeds) -> None:
    """After success, failure, limits and restarts; an end waits for no pod, except that of a queued job."""
    seeds.play(queues_keep_their_quota_in_time, share=0.08, faults=CALM)


def test_each_pod_with_accelerators_is_counted_once_whatever_stalls_dies_is_lost_or_edited(seeds: Seeds) -> None:
    """To the second, over kills and changes of the leader; a metric loses what a killed process has not counted yet."""
    seeds.play(accelerators_are_counted_once, share=0.3, may_log={"lease_lost"})


def test_in_calm_weather_everything_everything_happens_within_two_seconds(seeds: Seeds) -> None:
    """B12, B29, B45, B46: pods are made, jobs end and are deleted on time, whatever users do."""
    seeds.play(operators_are_in_time, share=0.2, faults=CALM)


def test_waits_have_their_length_though_clocks_differ_by_an_hour_and_are_set(seeds: Seeds) -> None:
    """Those of operators and nodes; a wait is never shorter, and is longer only by the change of the leader."""
    seeds.play(waits_have_their_length, share=0.4, faults=CALM, may_log={"lease_lost", "clock_skew"})


def test_two_operators_run_jobs_of_the_alpha_dialect_whatever_stalls_dies_is_lost_or_edited(seeds: Seeds) -> None:
    """Each write was justified, and each job ends as its chief does, with the Job controller of old and new versions."""
    seeds.play(alpha_jobs_keep_their_promises, share=0.2, may_log={"lease_lost"})


def test_what_another_operator_began_goes_on_whatever_is_killed_or_lost_and_nothing_runs_twice(seeds: Seeds) -> None:
    """B13, B72: each of its pods keeps its UID, each missing one is created once, and jobs that it ended stay as they are."""
    seeds.play(nothing_of_another_operator_runs_twice, share=0.2, may_log={"lease_lost"})


@pytest.mark.parametrize("share", [0.06, pytest.param(0.5, marks=pytest.mark.nightly)])
def test_an_hour_after_the_last_job_is_gone_the_operator_remembers_none(seeds: Seeds, share: float) -> None:
    """EX-08: both dialects, TensorBoards, jobs deleted during their own sync, refused children, deleted namespaces."""
    may_log = {"lease_lost", "status_fields_pruned"}
    seeds.play(nothing_is_remembered_of_the_dead, share=share, faults=ROUGH, may_log=may_log)
