"""Tests here that use a page run on a real loop, with sockets."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from pytest_mock import MockerFixture

from hack.objects import CREATED_S
from hack.page_cluster import PageCluster
from tfjob_operator.cli.logs import follower
from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.model.snapshot import JobSnapshot
from tfjob_operator.cli.page import cluster as caches
from tfjob_operator.cli.page import log_streams, views
from tfjob_operator.cli.page.objects import PageJob
from tfjob_operator.informers import reflector
from tfjob_operator.workqueue.rate_limiters import Backoff

NOW_S = CREATED_S + 30


@pytest.fixture
def page_cluster(mocker: MockerFixture, request: pytest.FixtureRequest) -> Iterator[PageCluster]:
    """An API server with nothing in it. What the page does at intervals of seconds it does at short ones."""
    request.applymarker(pytest.mark.sockets)
    mocker.patch.object(log_streams, "BATCH_S", 0.02)
    mocker.patch.object(log_streams, "RETRY_S", 0.02)
    mocker.patch.object(follower, "RETRY_S", 0.02)
    mocker.patch.object(follower, "FIRST_DELAY_S", 0.02)
    mocker.patch.object(caches, "POLL_S", 0.02)
    mocker.patch.object(caches, "FIRST_RECHECK_S", 0.02)
    mocker.patch.object(reflector, "Backoff", partial(Backoff, 0.02, 0.1))
    with PageCluster().running() as cluster:
        yield cluster


def row_of_page(job: PageJob, pods: Sequence[PodDetails] = (), events: Sequence[EventDetails] = ()) -> dict[str, Any]:
    """The row of a job at `NOW_S`."""
    summary = views.spec_summary_of(job)
    return views.row_of(job, summary, seen_of(job, pods, events))


def view_of_page(job: PageJob, pods: Sequence[PodDetails] = (), events: Sequence[EventDetails] = ()) -> dict[str, Any]:
    """The view of a job at `NOW_S`."""
    summary = views.spec_summary_of(job)
    return views.job_view(job, summary, pods, events, seen_of(job, pods, events))


def seen_of(
    job: PageJob, pods: Sequence[PodDetails], events: Sequence[EventDetails], now: float = NOW_S
) -> JobSnapshot:
    summary = views.spec_summary_of(job)
    return views.snapshot_of(summary, [views.pod_facts_of(summary, pod) for pod in pods], events, now)
