"""The page, with the requests of a browser, on a local API server."""

import json
from typing import Any

from hack.objects import a_board, a_job, a_pod, an_event
from hack.page_cluster import PageCluster
from support.waiting import until
from unit.cli.page.browser import a_page, rows_of, until_known, views


async def test_changes_come_as_changes_and_a_browser_that_was_away_gets_what_it_missed(
    page_cluster: PageCluster,
) -> None:
    """By Last-Event-ID; everything anew where the ID comes from another process."""
    for name in ("a", "b", "c"):
        page_cluster.put("tfjobs", a_job(name, "Running"))
    async with a_page(page_cluster) as browser:
        async with browser.stream() as events:
            assert (await anext(events))[2]["full"]
            page_cluster.put("tfjobs", a_job("a", "Running", "Succeeded"))
            seen, kind, data = await anext(events)
            assert (kind, data["full"], [row["key"] for row in data["rows"]]) == ("rows", False, ["team/a"])
        page_cluster.delete("tfjobs", "team", "b")
        page_cluster.put("tfjobs", a_job("d", "Created"))
        async with browser.stream(Last_Event_ID=seen) as events:
            missed: dict[str, Any] = {"team/b": {}}
            await until_known(events, missed, lambda: "team/d" in missed and "team/b" not in missed)
            assert {*missed} - {""} == {"team/d"}
        for stale in (f"other-{seen.partition('-')[2]}", "nonsense", f"{seen.partition('-')[0]}-999999"):
            async with browser.stream(Last_Event_ID=stale) as events:
                assert (await anext(events))[2]["full"]


async def test_a_queued_job_says_what_its_workload_waits_for(page_cluster: PageCluster) -> None:
    """As soon as Kueue is served; a Workload of an earlier job of the name is another's."""
    page_cluster.put("tfjobs", a_job("mnist", "Suspended", labels={"kueue.x-k8s.io/queue-name": "gpus"}))
    async with a_page(page_cluster) as browser:
        assert (await rows_of(browser))["team/mnist"]["note"] == "Queued"
        page_cluster.served.add("workloads")
        unreserved = {"type": "QuotaReserved", "status": "False", "message": "LocalQueue gpus doesn't exist"}
        for uid in ("earlier", "uid-mnist"):
            owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": uid, "controller": True}
            meta = {"name": f"tfjob-{uid}", "namespace": "team", "ownerReferences": [owner]}
            page_cluster.put("workloads", {"metadata": meta, "status": {"conditions": [unreserved]}})
        found = await rows_of(browser)
        async with browser.stream() as changes:
            await until_known(changes, found, lambda: found["team/mnist"]["note"] == "QueueMissing")
        assert found["team/mnist"]["why"] == unreserved["message"]


async def test_a_job_is_told_again_when_its_events_change(page_cluster: PageCluster) -> None:
    """Though nothing else does. The list shows the event of a pod that could not be created."""
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    async with a_page(page_cluster) as browser, browser.stream("stream?job=team/mnist") as events:
        assert (await anext(views(events)))["events"] == []
        page_cluster.put("events", an_event("mnist-worker-0", "Pod"))
        assert [each["object"] for each in (await anext(views(events)))["events"]] == ["mnist-worker-0"]
        page_cluster.put(
            "events", an_event("mnist", type="Warning", reason="FailedCreatePod", message="exceeded quota")
        )
        found = await rows_of(browser)
        async with browser.stream() as changes:
            await until_known(changes, found, lambda: found["team/mnist"]["note"] == "QuotaExceeded")


async def test_a_user_of_one_namespace_sees_that_one_and_a_missing_right_is_named_until_it_is_granted(
    page_cluster: PageCluster,
) -> None:
    """That of the context, if the jobs of all namespaces may not be listed. What may be read is shown meanwhile."""
    page_cluster.forbidden |= {"tfjobs/", "pods", "events/"}
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    page_cluster.put("tfjobs", a_job("bert", "Running", namespace="nlp"))
    async with a_page(page_cluster, flags="--context=team-cluster") as browser:
        found = await rows_of(browser)
        assert {*found} == {"", "team/mnist"}
        assert found[""]["flags"] == "--context=team-cluster"
        assert (found[""]["context"], found[""]["namespace"]) == ("team-cluster", "team")
        assert [each["what"] for each in found[""]["troubles"]] == ["pods"]
        page_cluster.forbidden.discard("pods")
        async with browser.stream() as events:
            await until_known(events, found, lambda: not found[""]["troubles"])


async def test_only_replicas_have_a_log(page_cluster: PageCluster) -> None:
    """The page does not show other pods."""
    page_cluster.put("pods", a_pod("other") | {"metadata": {"name": "database", "namespace": "team", "labels": {}}})
    async with a_page(page_cluster) as browser:
        assert (await browser.get("/-/log/team/database"))[0] == 404


async def test_the_usage_of_a_jobs_pods_is_read_once_for_all_who_ask(page_cluster: PageCluster) -> None:
    """In cores and bytes. Without the metrics API the page says so; a malformed answer of it is a bad gateway."""
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    page_cluster.put("pods", a_pod("mnist"))
    async with a_page(page_cluster) as browser:
        code, _, body = await browser.get("/-/usage/other/mnist")
        assert (code, json.loads(body)["message"]) == (200, "Metrics API not available: install metrics-server")
        page_cluster.usage = {name: {"cpu": "250m", "memory": "2Ki"} for name in ("mnist-worker-0", "other-worker-0")}
        for _ in range(3):
            shown = json.loads((await browser.get("/-/usage/team/mnist"))[2])
            assert shown == {"pods": {"mnist-worker-0": {"cpu": 0.25, "memory": 2048}}, "message": ""}
        assert len([path for path in page_cluster.paths if "metrics.k8s.io" in path]) == 2
        assert "been measured" in json.loads((await browser.get("/-/usage/team/none"))[2])["message"]
        page_cluster.usage = {"mnist-worker-0": "malformed"}
        assert (await browser.get("/-/usage/fourth/mnist"))[0] == 502
        page_cluster.forbidden.add("pods.metrics.k8s.io")
        assert (await browser.get("/-/usage/third/mnist"))[0] == 403


async def test_a_tensorboard_with_a_load_balancer_has_an_address(page_cluster: PageCluster) -> None:
    """Of the Service that the operator has made for this job, once the balancer is there."""
    async with a_page(page_cluster) as browser:
        for host, url in ((None, ""), ("a.b", "http://a.b:80/")):
            page_cluster.put("services", a_board(host, **{"app.kubernetes.io/instance": "mnist"}))
            assert json.loads((await browser.get("/-/tensorboard/team/mnist"))[2]) == {"url": url}
        assert json.loads((await browser.get("/-/tensorboard/team/other"))[2]) == {"url": ""}


NO_NAMES = ("%2F", "mnist%2fstatus", "..", "mnist%3F", "Mnist", "a_b", "x" * 254, "-a", "a..b", "%0a")


async def test_what_is_no_name_of_an_object_is_refused_wherever_it_stands(page_cluster: PageCluster) -> None:
    """Else it would become a part of the API server's path, or of a question about another object."""
    async with a_page(page_cluster) as browser:
        # Rows need no events: both of their informers may still be at their streaming list (refused), list and watch.
        await until(lambda: page_cluster.paths.count("/api/v1/events") >= 6, "the events are read")
        asked = len(page_cluster.paths)
        for name in NO_NAMES:
            for path in ("manifest/team/{}", "manifest/{}/mnist", "log/team/{}", "logs/team/{}", "tensorboard/team/{}"):
                code, _, _ = await browser.get(f"/-/{path.format(name)}")
                assert code in ({400, 404} if name == ".." else {400}), (path, name)
            for query in ("stream?job=team/{}", "stream?job={}/mnist", "curves?run=team/{}", "log/team/p?container={}"):
                assert (await browser.get(f"/-/{query.format(name)}"))[0] == 400, (query, name)
        assert {*page_cluster.paths[asked:]} <= {"/apis"}
