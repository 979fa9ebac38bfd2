"""What a TFJob decodes into."""

from __future__ import annotations

import msgspec

from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob, tfjob_with_unreadable_status


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
