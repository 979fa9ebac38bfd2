"""The page as it runs in a cluster, in a real Chromium: somebody logs in, sees what is theirs, and logs out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser.conftest import Looking, browsing, reads_well
from browser.scene import fill
from hack.page_cluster import ADDON, PageCluster, page_of


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    """The address of a page whose viewer, of the namespace `nlp`, has the token `good`."""
    with PageCluster().running() as cluster:
        fill(cluster)
        cluster.tokens["good"] = ("ann", ("system:authenticated",))
        cluster.grant("ann", "nlp")
        cluster.grant("ann", "nlp", verbs="get", resources="pods/log")
        cluster.grant("ann", "nlp", resources="pods.metrics.k8s.io")
        with page_of(cluster.kubeconfig, *ADDON) as (_, address):
            # To a browser this name is as good as https, so it keeps the cookie.
            yield f"http://localhost:{address.rpartition(':')[2]}"


@pytest.fixture
def stranger(chromium: Any, home: str) -> Iterator[Looking]:
    """A tab of a browser that nobody has logged in with. Refused requests are the only errors that it may report."""
    with browsing(chromium, home) as looking:
        yield looking
    assert [each for each in looking.errors if "status of 401" not in each] == []


def test_somebody_logs_in_where_a_link_led_and_sees_what_is_theirs_until_they_log_out(stranger: Looking) -> None:
    """A wrong token is told of in the form. The list has no job of other namespaces, and their pages show nothing."""
    page = stranger.open("/nlp/bert-finetune-2")
    field = page.get_by_label("Token")
    field.fill("wrong")
    page.get_by_role("button", name="Log in").click()
    stranger.shows("#problem", "does not accept this token")
    assert reads_well(page)
    field.fill(" good\n")
    page.get_by_role("button", name="Log in").click()
    stranger.shows(".why h2", "Python module sentencepiece not found in the image")
    stranger.shows("#where", "ann")
    stranger.open("/")
    stranger.shows("tr[data-key='nlp/bert-finetune-2']")
    keys = page.locator("tr[data-key]").evaluate_all("rows => rows.map((row) => row.dataset.key)")
    assert {key.partition("/")[0] for key in keys} == {"nlp"}
    stranger.open("/vision/resnet50-imagenet")
    stranger.shows(".blank", "or you may not list the TFJobs of that namespace")
    page.get_by_role("button", name="Log out").click()
    stranger.shows("#login")
    assert page.context.cookies() == []
