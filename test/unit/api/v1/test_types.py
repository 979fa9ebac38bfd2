"""Values of TFJobs: names of replicas as messages list them, and sets of indices."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.cases import for_each
from tfjob_operator.api.v1.constants import MAX_ATTEMPT, attempt_in
from tfjob_operator.api.v1.indices import format_indices, parse_indices
from tfjob_operator.api.v1.name_ranges import is_named, names_in, ranges_of
from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob, child_name, tfjob_with_unreadable_status


def test_a_cached_job_does_not_keep_the_page_it_came_in() -> None:
    """The specification is a copy of the job's bytes, not a view into a page of many jobs."""
    page = b'{"items":[{"metadata":{"name":"a"},"spec":{"x": [1]}}]}'
    (item,) = msgspec.json.decode(page, type=_Page).items
    assert bytes(item.spec) == b'{"x": [1]}'
    assert memoryview(item.spec).obj != page


class _Page(msgspec.Struct):
    items: list[TFJob]


def test_a_status_that_does_not_decode_leaves_the_job_readable() -> None:
    """B01: the status is computed again; this job and all others go on."""
    raw = b'{"metadata":{"name":"a","uid":"u"},"spec":{"x":1},"status":{"conditions":"many"}}'
    found = tfjob_with_unreadable_status(raw, ValueError("Expected `array`"))
    assert (found.metadata.uid, bytes(found.spec), found.status) == ("u", b'{"x":1}', JobStatus())


def test_counters_of_zero_are_written() -> None:
    """`kubectl get -o yaml` shows active: 0, for which queueing systems wait."""
    assert msgspec.json.encode(ReplicaStatus()) == b'{"active":0,"succeeded":0,"failed":0}'


@pytest.mark.parametrize(
    ("indices", "text"), [(set(), ""), ({0}, "0"), ({0, 1, 2}, "0-2"), ({0, 2, 3, 4, 9}, "0,2-4,9")]
)
def test_neighbouring_indices_are_written_as_ranges(indices: set[int], text: str) -> None:
    assert format_indices(indices) == text
    assert parse_indices(text, 10) == indices


@pytest.mark.parametrize("text", ["x", "1-", "-1", "5-2", "1--3", "0-999999999999", ",,", "1.5"])
def test_what_somebody_else_wrote_does_no_harm(text: str) -> None:
    assert parse_indices(text, 4) <= {0, 1, 2, 3}


def named(*indices: int) -> str:
    return ranges_of(child_name("j", "Worker", index) for index in indices)


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([], ""),
        ([3], "j-worker-3"),
        ([0, 1], "j-worker-0 .. j-worker-1"),
        ([0, 1, 2, 3, 7, 9, 10], "j-worker-0 .. j-worker-3, j-worker-7, j-worker-9 .. j-worker-10"),
    ],
)
def test_neighbours_are_written_as_ranges(indices: list[int], text: str) -> None:
    assert named(*indices) == text


@pytest.mark.parametrize(
    "text", ["", ", ", " .. ", "j-worker-0 .. ", "j-worker-0 .. x", "j-ps-0 .. j-ps-9", "j-worker-1 .. j-worker-2"]
)
def test_a_text_that_does_not_have_the_name_may_be_anything(text: str) -> None:
    """Events may come from anybody."""
    assert not is_named("j-worker-5", text)


def test_huge_numbers_cost_nothing() -> None:
    assert is_named("j-worker-5", "j-worker-0 .. j-worker-999999999")
    assert not is_named("j-worker-5", f"j-worker-0 .. j-worker-{'9' * 5000}")


@given(st.sets(st.integers(0, 40)), st.integers(0, 40))
def test_names_are_found_where_they_were_written_and_nowhere_else(indices: set[int], index: int) -> None:
    """Each name once, in order; a forged range has an end. Sets of indices survive too."""
    assert parse_indices(format_indices(indices), 1000) == indices
    written = [child_name("j", "Worker", each) for each in sorted(indices)]
    assert is_named(child_name("j", "Worker", index), named(*sorted(indices))) == (index in indices)
    assert [name for name in names_in(named(*sorted(indices)), 100) if name] == written
    assert len([*names_in("j-worker-0 .. j-worker-999999999", 100)]) == 100
    assert [*names_in("j-worker-5 .. x", 100)] == ["j-worker-5"]


@for_each("label", ["", "-1", "+1", "1.0", "x", "\u0663", "9" * 10, str(MAX_ATTEMPT)])
def test_the_attempt_in_a_label_that_users_wrote_is_that_of_a_first_pod(label: str) -> None:
    """A lower one would be an earlier attempt, whose pods are deleted."""
    assert attempt_in(label, current=2) == 0
