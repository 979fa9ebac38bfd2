"""What is known to belong to this leadership term."""

from __future__ import annotations

import pytest

from fakes.api import FakeClient, status_error
from fakes.jobs import job
from tfjob_operator.api.client.errors import ConnectionLostError, ForbiddenError
from tfjob_operator.api.v1.types import JobCondition, JobStatus
from tfjob_operator.controller.tfjob.view import LeadershipTerm

LISTED = ("list", "tfjobs", "")
CREATED = JobStatus(conditions=(JobCondition(type="Created", status="True"),))


async def test_before_it_has_begun_nothing_is_of_our_time() -> None:
    """Workers may begin before the response has come.

    Invariant: "A resourceVersion from before the lease was ours is never taken for one of our term"
    """
    assert not LeadershipTerm(FakeClient(), "").is_untouched(job(resource_version="999999999999"))


@pytest.mark.parametrize(
    ("version", "status", "expected"),
    [
        ("41", None, True),
        ("100", None, True),  # as numbers: as texts it would come before 40
        ("40", None, False),
        ("9", None, False),
        ("", None, False),
        ("a41", None, False),
        ("41", CREATED, False),
    ],
)
async def test_a_job_is_untouched_when_its_version_is_newer_than_our_time_and_bears_no_status(
    version: str, status: JobStatus | None, expected: bool
) -> None:
    """Whoever works on a job writes its status first; an older version may have been worked on by another leader since."""
    client = FakeClient()
    client.list_version = "40"
    leadership_term = LeadershipTerm(client, "")
    await leadership_term.begin()
    assert leadership_term.is_untouched(job(resource_version=version, status=status)) is expected


@pytest.mark.parametrize("error", [ConnectionLostError("reset"), status_error(ForbiddenError, 403)])
async def test_without_a_response_every_view_is_confirmed(error: Exception) -> None:
    """The leadership term only saves calls, so its read is worth no retry."""
    client = FakeClient()
    client.fail[LISTED] = error
    leadership_term = LeadershipTerm(client, "")
    await leadership_term.begin()
    assert not leadership_term.is_untouched(job(resource_version="41"))


async def test_a_server_whose_versions_are_no_numbers_is_no_help() -> None:
    """KEP-5504 promises numbers; a server without them is treated like one from before it."""
    client = FakeClient()
    client.list_version = "v40"
    leadership_term = LeadershipTerm(client, "")
    await leadership_term.begin()
    assert not leadership_term.is_untouched(job(resource_version="41"))
