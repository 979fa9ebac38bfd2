"""Jobs of tensorflow.org, the first API, on the page: where it is served, and where it is not."""

import json
from typing import Any

import msgspec

from hack.objects import (
    CREATED_S,
    a_job,
    a_pod,
    a_tensorflow_job,
    alpha_pod,
    an_alpha_pod,
    an_event,
    ended,
    event,
    running,
    tensorflow_job,
    waiting,
)
from hack.page_cluster import PageCluster
from support.waiting import until
from tfjob_operator.cli.page.objects import (
    TensorFlowV1Alpha1Job,
    by_job_of_pod,
    marks_of_event,
    read_key,
    with_unreadable_status,
)
from tfjob_operator.cli.page.views import spec_summary_of
from unit.cli.page.browser import a_cluster_page, a_page, jobs_in, rows_of, until_jobs, views
from unit.cli.page.conftest import row_of_page, view_of_page

FIRST = "tfjobs.tensorflow.org"
KEY = "team/tfjob.tensorflow.org/old"


def first_paths(cluster: PageCluster) -> list[str]:
    """What was asked of the first API."""
    return [path for path in cluster.paths if path.startswith("/apis/tensorflow.org")]


def test_a_row_counts_its_replicas_by_v1s_names() -> None:
    """From the status in the form of that API, and from pods; restarts are those in place and those by a new pod."""
    told = {"replicaStatuses": [{"tf_replica_type": "WORKER", "ReplicasStates": {"Succeeded": 1, "Running": 1}}]}
    job = tensorflow_job("old", "Created", "Running", status=told)
    failed = alpha_pod("old", index=1, suffix="aaaaa", status=ended(1))
    again = alpha_pod("old", index=1, creationTimestamp="2026-03-01T10:05:00Z", status=running(restarts=2))
    row = row_of_page(job, [again, failed, alpha_pod("old", "MASTER")])
    assert (row["key"], row["api"], row["state"], row["restarts"]) == (KEY, "tensorflow.org", "Running", 3)
    counts = {each["type"]: (each["ready"], each["wanted"], each["succeeded"]) for each in row["replicas"]}
    assert counts == {"Master": (1, 1, 0), "Worker": (1, 2, 1)}
    assert row["note"] == ""


def test_a_replica_is_its_newest_pod_and_one_without_a_pod_has_the_name_of_its_job() -> None:
    """The Job controller leaves pods that have failed beside the next one."""
    job = tensorflow_job("old", "Running")
    failed = alpha_pod("old", suffix="aaaaa", status=ended(1))
    again = alpha_pod("old", creationTimestamp="2026-03-01T10:05:00Z")
    shown = view_of_page(job, [again, failed])["replicas"]
    assert [(each["name"], each["state"], each["restarts"]) for each in shown] == [
        ("master-x7ab-0", "Missing", 0),
        ("worker-x7ab-0-abcde", "Running", 1),
        ("worker-x7ab-1", "Missing", 0),
    ]


def test_events_of_jobs_and_pods_of_an_alpha_job_belong_to_it_by_the_runtime_id() -> None:
    """In their names there is no name of a job, but that of 2017."""
    for kind, name in (
        ("Pod", "worker-x7ab-0-abcde"),
        ("Pod", "master-x7ab-0-24567"),
        ("Job", "ps-x7ab-10"),
        ("Pod", "old-worker-x7ab-0-abcde"),
    ):
        assert [*marks_of_event(event(name, kind))] == ["team/~x7ab/"], name
    assert [*marks_of_event(event("worker-my-own-1-0-abcde", "Pod"))] == ["team/~my-own-1/"]
    assert not marks_of_event(event("nightly-27", "Job"))
    assert by_job_of_pod(alpha_pod("old")) == (KEY,)
    assert read_key(KEY).full_name == "tfjob.tensorflow.org/old"


def test_pods_that_are_gone_have_a_lane_and_events_are_shown() -> None:
    """Those that the Job controller tells of, and those of which only the kubelet's events are left."""
    job = tensorflow_job("old", "Running")
    made = event("worker-x7ab-1", "Job", 1, reason="SuccessfulCreate", message="Created pod: worker-x7ab-1-aaaaa")
    gone = event("worker-x7ab-1", "Job", 9, reason="SuccessfulDelete", message="Deleted pod: worker-x7ab-1-aaaaa")
    about = {"kind": "Pod", "name": "worker-x7ab-0-bbbbb", "uid": "u"}
    events = [made, gone, event("w", "Pod", 5, reason="Killing", involvedObject=about)]
    view = view_of_page(job, [alpha_pod("old")], events)
    lanes = {(each["type"], each["index"]): each["lives"] for each in view["timeline"]["lanes"]}
    assert [life["pod"] for life in lanes["Worker", 0]] == ["worker-x7ab-0-abcde", "worker-x7ab-0-bbbbb"]
    [life] = lanes["Worker", 1]
    assert (life["pod"], life["start"], life["end"]) == ("worker-x7ab-1-aaaaa", CREATED_S + 1, CREATED_S + 9)
    assert [each["object"] for each in view["events"]] == ["worker-x7ab-1", "worker-x7ab-0-bbbbb", "worker-x7ab-1"]


def test_a_mistake_of_the_first_api_is_told_and_a_status_that_nobody_can_read_harms_nothing() -> None:
    """With the phase, which says whose job it is, and the RuntimeId."""
    broken = msgspec.structs.replace(tensorflow_job("old"), spec=msgspec.Raw(b'{"replicaSpecs": 7}'))
    assert "replicaSpecs" in spec_summary_of(broken).mistakes
    raw = msgspec.json.encode(a_tensorflow_job("old", "Running", status={"replicaStatuses": "none"}))
    found = with_unreadable_status(TensorFlowV1Alpha1Job)(raw, ValueError())
    assert (found.key, found.status.phase, found.status.runtime_id) == (KEY, "Running", "x7ab")
    assert row_of_page(found)["state"] == "Running"


async def test_jobs_of_both_apis_are_listed_and_each_has_what_is_its_own(page_cluster: PageCluster) -> None:
    """Though they have the same name: pods, events, manifest and diagnosis."""
    page_cluster.served.add(FIRST)
    page_cluster.put("tfjobs", a_job("old", "Running"))
    page_cluster.put("pods", a_pod("old"))
    page_cluster.put(FIRST, a_tensorflow_job("old", "Running"))
    stuck = waiting("InvalidImageName", 'couldn\'t parse image name "Train:1"')
    page_cluster.put("pods", an_alpha_pod("old", status=stuck))
    owner = {"kind": "TfJob", "name": "old", "uid": "uid-old", "controller": True}
    labels = {"tf_job_name": "old", "tensorflow.org": ""}
    meta = {"name": "worker-x7ab-0", "namespace": "team", "ownerReferences": [owner], "labels": labels}
    page_cluster.put("jobs", {"metadata": meta})
    page_cluster.put("events", an_event("worker-x7ab-1", "Job", reason="FailedCreate"))
    async with a_page(page_cluster) as browser:
        assert {key for key in await rows_of(browser) if key} == {"team/old", KEY}
        async with browser.stream(f"stream?job={KEY}") as events:
            async for view in views(events):
                if view is not None and view["events"]:
                    break
        assert [each["state"] for each in view["replicas"]] == ["Missing", "InvalidImageName", "Missing"]
        assert [each["reason"] for each in view["events"]] == ["FailedCreate"]
        async with browser.stream("stream?job=team/old") as events:
            view = await anext(views(events))
        assert [each["state"] for each in view["replicas"]] == ["Running", "Missing"]
        assert view["events"] == []
        manifests = [(await browser.get(f"/-/manifest/{key}"))[2] for key in (KEY, "team/old")]
        assert [b"kind: TfJob\n" in each for each in manifests] == [True, False]
        diagnosis = json.loads((await browser.get(f"/-/explain/{KEY}"))[2])
        assert "image-name-invalid" in {each["id"] for each in diagnosis["causes"]}


async def test_an_api_that_is_not_served_costs_no_request_and_its_jobs_come_with_its_crd(
    page_cluster: PageCluster,
) -> None:
    """And go with it. Meanwhile the page says nothing of it: most clusters never had it."""
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    async with a_page(page_cluster) as browser:
        known = await rows_of(browser)
        assert known[""]["troubles"] == []
        await until(lambda: page_cluster.paths.count("/apis") > 5, "the APIs are looked up often")
        assert first_paths(page_cluster) == []
        page_cluster.put(FIRST, a_tensorflow_job("old", "Running"))
        async with browser.stream() as events:
            page_cluster.served.add(FIRST)
            await until_jobs(events, known, {"team/mnist", KEY})
            page_cluster.served.discard(FIRST)
            page_cluster.stop()
            page_cluster.start()
            await until_jobs(events, known, {"team/mnist"})
        looked = page_cluster.paths.count("/apis")
        asked = len(first_paths(page_cluster))
        await until(lambda: page_cluster.paths.count("/apis") > looked + 5, "the APIs are looked up again")
        assert len(first_paths(page_cluster)) == asked
        assert (await rows_of(browser))[""]["troubles"] == []


async def test_jobs_stay_on_the_page_while_discovery_fails(page_cluster: PageCluster) -> None:
    """A request that is answered by 404 does not prove that the API is gone."""
    page_cluster.served.add(FIRST)
    page_cluster.put(FIRST, a_tensorflow_job("old", "Running"))
    async with a_page(page_cluster) as browser:
        assert KEY in await rows_of(browser)
        page_cluster.discovery_fails = True
        page_cluster.served.discard(FIRST)
        page_cluster.stop()
        page_cluster.start()
        looked = page_cluster.paths.count("/apis")
        await until(lambda: page_cluster.paths.count("/apis") > looked + 3, "the APIs are looked up again")
        assert KEY in await rows_of(browser)


async def test_jobs_of_the_first_api_that_may_not_be_read_are_left_out_without_a_word(
    page_cluster: PageCluster,
) -> None:
    """As `list` leaves them out: most users have no such right, and do not miss it."""
    page_cluster.served.add(FIRST)
    page_cluster.forbidden.add(FIRST)
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    page_cluster.put(FIRST, a_tensorflow_job("old", "Running"))
    async with a_page(page_cluster) as browser:
        found = await rows_of(browser)
        assert {*found} == {"", "team/mnist"}
        assert found[""]["troubles"] == []
        page_cluster.forbidden.clear()
        async with browser.stream() as events:
            await until_jobs(events, found, {"team/mnist", KEY})


async def test_a_cluster_with_the_first_api_alone_has_a_page(page_cluster: PageCluster) -> None:
    """An operator with `--apis=tensorflow.org/v1alpha1` needs no other CRD."""
    page_cluster.served = {FIRST}
    page_cluster.put(FIRST, a_tensorflow_job("old", "Running"))
    async with a_page(page_cluster) as browser:
        found = await rows_of(browser)
    assert {*found} == {"", KEY}
    assert found[""]["troubles"] == []
    assert not [path for path in page_cluster.paths if path == "/apis/kubeflow.org/v1/tfjobs"][1:]


async def test_the_right_to_jobs_of_one_api_is_none_to_those_of_the_other(page_cluster: PageCluster) -> None:
    """In the list, in the view of a job, and in what can be asked for; where there are no jobs of an API nobody is asked."""
    page_cluster.served.add(FIRST)
    page_cluster.tokens = {name: (name, ()) for name in ("ann", "old-hand", "root")}
    page_cluster.grant("ann", "team")
    page_cluster.grant("old-hand", "team", resources=f"{FIRST} pods events")
    page_cluster.grant("root", resources=f"tfjobs {FIRST} pods events")
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    tokens = {name: {"Authorization": f"Bearer {name}"} for name in page_cluster.tokens}
    async with a_cluster_page(page_cluster) as browser:
        async with browser.stream(**tokens["root"]) as events:
            known: dict[str, Any] = {}
            await until_jobs(events, known, {"team/mnist"})
            assert not [each for each in page_cluster.reviews if FIRST in each]
            page_cluster.put(FIRST, a_tensorflow_job("old", "Running"))
            page_cluster.put("pods", an_alpha_pod("old"))
            await until_jobs(events, known, {"team/mnist", KEY})
        shown = {}
        for name, token in tokens.items():
            shown[name] = jobs_in(await rows_of(browser, **token))
            async with browser.stream(f"stream?job={KEY}", **token) as events:
                assert (await anext(views(events)) is None) == (name == "ann")
            for path in (f"manifest/{KEY}", f"explain/{KEY}"):
                assert (await browser.get(f"/-/{path}", **token))[0] == (403 if name == "ann" else 200)
            assert (await browser.get("/-/manifest/team/mnist", **token))[0] == (403 if name == "old-hand" else 200)
    assert shown == {"ann": {"team/mnist"}, "old-hand": {KEY}, "root": {"team/mnist", KEY}}
