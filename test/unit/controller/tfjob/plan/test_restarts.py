"""Counting restarts."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import pod
from tfjob_operator.api.core import ContainerStatus
from tfjob_operator.api.v1.types import IndexRestarts
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.plan.replicas import Outcome, Replica
from tfjob_operator.controller.tfjob.plan.status import account, in_place_restarts, merged, taken_over


def replica(uid: str, restarts: int = 0, index: int = 0) -> Replica:
    """A worker's pod that the kubelet has restarted so often."""
    return Replica(
        ReplicaKey.of("mnist", "Worker", index), pod("Worker", index, restarts=restarts, uid=uid), Outcome.ACTIVE
    )


def total(records: tuple[IndexRestarts, ...]) -> int:
    """What backoffLimit is compared with."""
    return sum(record.total for record in records)


def test_a_replica_that_was_never_restarted_has_no_record() -> None:
    """The status of a job of a thousand workers stays small."""
    assert account((), [replica("a"), replica("b", index=1)], ()) == ()


def test_all_containers_of_a_pod_count() -> None:
    """B37: init containers too, in whatever phase the pod is."""
    child = pod("Worker", 0, "Pending")
    status = msgspec.structs.replace(
        child.status,
        container_statuses=(
            ContainerStatus(name="tensorflow", restart_count=2),
            ContainerStatus(name="x", restart_count=1),
        ),
        init_container_statuses=(ContainerStatus(name="init", restart_count=4),),
    )
    assert in_place_restarts(msgspec.structs.replace(child, status=status)) == 7


def test_restarts_in_place_and_by_a_new_pod_add_up() -> None:
    """Twice in place, then made again, then once in place: four."""
    records = account((), [replica("a", 2)], ())
    records = account(records, [replica("a", 2)], {"a"})
    assert total(records) == 3
    records = account(records, [replica("b", 1)], ())
    assert total(records) == 4


def test_a_pod_that_fails_is_counted_once_however_often_it_is_seen() -> None:
    """Killed between the status write and the delete, the operator finds the same pod again, and its record."""
    records = account((), [replica("a")], {"a"})
    for _ in range(3):
        records = account(records, [replica("a")], {"a"})
    assert total(records) == 1
    assert total(account(records, [], ())) == 1


def test_a_pod_that_was_taken_away_carries_its_restarts_over_and_adds_none() -> None:
    """A disruption is not counted; what its containers did before is."""
    records = account((), [replica("a", 2)], ())
    assert total(account(records, [replica("b")], ())) == 2


def test_a_record_goes_over_to_another_pod_only_when_that_has_something_to_count() -> None:
    """B36: so an old view, which still has the recorded pod, changes nothing; `taken_over` lists the records to confirm."""
    first = account((), [replica("a")], {"a"})
    assert account(first, [replica("b")], ()) == first
    second = account(first, [replica("b")], {"b"})
    assert taken_over(first, second) == list(second)
    assert taken_over((), first) == taken_over(first, first) == []


def test_the_record_with_more_restarts_wins() -> None:
    """For each replica by itself."""
    one = account((), [replica("a", 2), replica("b", 1, index=1)], ())
    other = account((), [replica("a", 1), replica("b", 3, index=1), replica("c", 1, index=2)], ())
    assert (
        [record.total for record in merged(one, other)] == [2, 3, 1] == [record.total for record in merged(other, one)]
    )


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.booleans()), max_size=12))
def test_counts_never_fall_and_looking_twice_changes_nothing(history: list[tuple[str, int, bool]]) -> None:
    """B36: durable and idempotent, for any sequence of pods."""
    records: tuple[IndexRestarts, ...] = ()
    for uid, restarts, failed in history:
        before = total(records)
        seen, own_doing = [replica(uid, restarts)], ({uid} if failed else set())
        records = account(records, seen, own_doing)
        assert total(records) >= before
        assert account(records, seen, own_doing) == records


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=8), st.data())
def test_an_older_account_adds_nothing_to_a_newer_one(history: list[tuple[int, bool]], data: st.DataObject) -> None:
    """B36: what one process remembers may be older than what another has written, or the other way round."""
    records: tuple[IndexRestarts, ...] = ()
    accounts = [records]
    for number, (restarts, failed) in enumerate(history):
        uid = f"pod-{number}"
        records = account(records, [replica(uid, restarts)], {uid} if failed else set())
        accounts.append(records)
    older = data.draw(st.sampled_from(accounts))
    assert total(merged(older, accounts[-1])) == total(accounts[-1])
    assert total(merged(accounts[-1], older)) == total(accounts[-1])


def test_two_accounts_of_one_pod_make_a_whole() -> None:
    """One has seen its containers restart, the other has seen it fail."""
    restarted, failed = account((), [replica("a", 1)], ()), account((), [replica("a")], {"a"})
    assert total(merged(restarted, failed)) == 2
    assert merged(restarted, failed) == merged(failed, restarted)
