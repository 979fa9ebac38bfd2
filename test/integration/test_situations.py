"""Situations of jobs as a real API server stores and returns them: every display shows the same as of the table's objects."""

import contextlib
import json
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from integration.cluster import Cluster
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob
from unit.cli import test_situations
from unit.cli.situation_objects import Situation
from unit.cli.situations import SITUATIONS
from unit.cli.test_situations import DISPLAYS

TAKEN: Final = 6
"""One row of so many is tried every day."""


def is_storable(case: Situation) -> bool:
    """Whether a server stores such objects: jobs of this CRD with their own pods, whose deletion nobody has requested."""
    with contextlib.suppress(msgspec.ValidationError, KeyError):
        uid, kind = test_situations.decoded(case.job, TFJob).metadata.uid, case.job["apiVersion"]
        owners = {each["uid"] for pod in case.pods for each in pod["metadata"]["ownerReferences"]}
        containers = all(pod["spec"]["containers"] for pod in case.pods)
        deleted = any("deletionTimestamp" in each["metadata"] for each in (case.job, *case.pods))
        return kind == TFJOBS.api_version and owners <= {uid} and containers and not deleted and case.workload is None
    return False


ROWS: Final = [case for case in SITUATIONS if is_storable(case)]


@pytest.mark.parametrize("rows", [ROWS[::TAKEN], pytest.param(ROWS, marks=pytest.mark.nightly)], ids=["some", "all"])
def test_every_display_shows_of_stored_objects_what_the_table_says(
    cluster: Cluster, crd: None, rows: list[Situation]
) -> None:
    """The server prunes, defaults and validates them; UIDs and times of creation, which it sets, are those of the table."""
    for case in rows:
        stored = store(cluster, case)
        for display in DISPLAYS:
            test_situations.test_every_display_shows_the_same_state_counts_and_reason(display, stored)


def store(cluster: Cluster, case: Situation) -> Situation:
    """Create the objects, read what the server has made of them, and delete them."""
    uids: dict[str, str] = {}
    job = create(cluster, "tfjobs", case.job, uids)
    pods = [create(cluster, "pods", each, uids) for each in case.pods]
    named = [
        each | {"metadata": each["metadata"] | {"name": f"{number}.{each['metadata']['name']}"}}
        for number, each in enumerate(case.events)
    ]
    events = [create(cluster, "events", each, uids) for each in named]
    for resource, found in (("events", events), ("pods", pods), ("tfjobs", [job])):  # else the pods go with it
        for each in found:
            cluster.api("DELETE", resource, each["metadata"]["name"], {"gracePeriodSeconds": 0})
    return replace(case, job=job, pods=tuple(pods), events=tuple(events))


def create(cluster: Cluster, resource: str, body: dict[str, Any], uids: dict[str, str]) -> dict[str, Any]:
    """Create an object with its status; return it as it is stored. `uids` are those that the server has set for the table's."""
    meta, text = body["metadata"], json.dumps(body).replace('"team"', f'"{cluster.namespace}"')
    for ours, theirs in uids.items():
        text = text.replace(f'"{ours}"', f'"{theirs}"')
    sent = json.loads(text)
    made = cluster.api("POST", resource, body=sent)
    uids[meta["uid"]] = made["metadata"]["uid"]
    if sent.get("status"):
        cluster.patch(resource, f"{meta['name']}/status", {"status": sent["status"]})
        made = cluster.api("GET", resource, meta["name"])
    text = json.dumps(made).replace(f'"{cluster.namespace}"', '"team"')
    for ours, theirs in uids.items():
        text = text.replace(f'"{theirs}"', f'"{ours}"')
    stored: dict[str, Any] = json.loads(text)
    stored["metadata"] |= {key: meta[key] for key in ("creationTimestamp",) if key in meta}
    return stored
