"""Tests here that use a page run on a real loop, with sockets."""

from collections.abc import Iterator
from functools import partial

import pytest
from pytest_mock import MockerFixture

from hack.page_cluster import PageCluster
from tfjob_operator.cli.logs import follower
from tfjob_operator.cli.page import cluster as caches
from tfjob_operator.cli.page import logs
from tfjob_operator.informers import reflector
from tfjob_operator.workqueue.rate_limiters import Backoff


@pytest.fixture
def page_cluster(mocker: MockerFixture, request: pytest.FixtureRequest) -> Iterator[PageCluster]:
    """An API server with nothing in it. What the page does at intervals of seconds it does at short ones."""
    request.applymarker(pytest.mark.sockets)
    mocker.patch.object(logs, "BATCH_S", 0.02)
    mocker.patch.object(logs, "RETRY_S", 0.02)
    mocker.patch.object(follower, "RETRY_S", 0.02)
    mocker.patch.object(follower, "FIRST_DELAY_S", 0.02)
    mocker.patch.object(caches, "POLL_S", 0.02)
    mocker.patch.object(caches, "FIRST_RECHECK_S", 0.02)
    mocker.patch.object(reflector, "Backoff", partial(Backoff, 0.02, 0.1))
    with PageCluster().running() as cluster:
        yield cluster
