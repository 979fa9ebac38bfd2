"""The page as it runs in a cluster: who is let in, and that everybody sees what they could see with kubectl."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from hack.objects import a_board, a_job, a_pod, a_tensorflow_job, an_alpha_pod, an_event, ended
from hack.page_cluster import PageCluster
from tfjob_operator.cli.page.cluster_authenticator import ClusterAuthenticator
from tfjob_operator.cli.page.objects import TENSORFLOW_V1ALPHA1, JobKey
from tfjob_operator.cli.page.viewers import READS_OF_CLUSTER, reads_of
from unit.cli.page.browser import (
    MIXED,
    PAGES,
    READS,
    Browser,
    a_cluster_page,
    jobs_in,
    routes_of,
    rows_of,
    until_jobs,
    views,
)

ANN = "Bearer token-of-ann"
BEN = "Bearer token-of-ben"
ROOT = "Bearer token-of-root"


@pytest.fixture
def cluster(page_cluster: PageCluster) -> PageCluster:
    """Two namespaces with a job each. Ann sees one of them, root both, and Ben none."""
    for namespace, name in (("team", "mnist"), ("nlp", "bert")):
        page_cluster.put("tfjobs", a_job(name, "Running", namespace=namespace))
        page_cluster.put("pods", a_pod(name, namespace=namespace))
        page_cluster.put("events", an_event(f"{name}-worker-0", "Pod", namespace=namespace))
    groups = ("system:authenticated",)
    page_cluster.tokens = {
        "token-of-ann": ("ann", ("team-members", *groups)),
        "token-of-ben": ("ben", groups),
        "token-of-root": ("root", groups),
    }
    page_cluster.grant("team-members", "team", resources="tfjobs pods events pods/log")
    page_cluster.grant("root", resources="tfjobs pods events pods/log")
    return page_cluster


async def code(browser: Browser, path: str, token: str = ANN, **headers: str) -> int:
    """The code of a response."""
    return (await browser.get(path, Authorization=token, **headers))[0]


async def test_nobody_gets_in_without_a_good_token(cluster: PageCluster) -> None:
    """Neither pages nor data, but the form to log in."""
    read = PAGES | MIXED | READS
    async with a_cluster_page(cluster) as browser:
        for path in (*read.values(), "/nothing/at/all/here"):
            assert (await browser.get(path))[0] == 401, path
            assert await code(browser, path, "Bearer wrong") == 401, path
            assert await code(browser, path, "Basic YW5uOmFubg==") == 401, path
            assert (await browser.get(path, X_Remote_User="root"))[0] == 401, path
        assert b"Log in" in (await browser.get("/team/mnist"))[2]
        for public in ("page.css", "login.js", "icon.svg"):
            assert (await browser.get(f"/-/static/{public}"))[0] == 200
        for token in ("a b", "a,b", "x" * 8_000 + "!"):
            assert await code(browser, "/", f"Bearer {token}") == 401
        assert await code(browser, "/") == 200
    assert {each[0] for each in cluster.reviews if len(each) == 1} == {"wrong", "token-of-ann"}


async def test_health_is_for_everybody_and_by_any_name(cluster: PageCluster) -> None:
    """The kubelet asks by the pod's address, without a token. All else has to be asked for by a name of the page."""
    async with a_cluster_page(cluster, hosts=frozenset({"jobs.example.com"})) as browser:
        assert (await browser.get("/healthz"))[0] == 200
        assert (await browser.get("/readyz"))[0] == 200
        assert await code(browser, "/") == 421
        for host in ("Jobs.example.com", "jobs.example.com:8080"):
            assert await code(browser, "/", Host=host) == 200
        assert await code(browser, "/", Host="evil@jobs.example.com") == 421


@contextlib.asynccontextmanager
async def synced(cluster: PageCluster, **plan: Any) -> AsyncIterator[Browser]:
    """A page that has read all jobs, as root has seen."""
    async with a_cluster_page(cluster, **plan) as browser:
        assert jobs_in(await rows_of(browser, Authorization=ROOT)) >= {"team/mnist", "nlp/bert"}
        yield browser


async def test_what_is_said_of_pods_is_for_who_may_list_pods(cluster: PageCluster) -> None:
    """Others see the job with its replicas, as the job itself tells of them; events are a right of their own.

    Who may list the jobs of all namespaces is asked about once.
    """
    cluster.grant("ben", "team", verbs="list", resources="tfjobs")
    cluster.put("tfjobs", a_job("stuck", "Created"))
    cluster.put("events", an_event("stuck", type="Warning", reason="FailedCreatePod", message="exceeded quota"))
    async with synced(cluster) as browser:
        assert (await rows_of(browser, Authorization=ANN))["team/mnist"]["replicas"][0]["ready"] == 1
        assert (await rows_of(browser, Authorization=BEN))["team/mnist"]["replicas"][0]["ready"] is None
        async with browser.stream("stream?job=team/mnist", Authorization=BEN) as events:
            seen = await anext(views(events))
        assert [each["state"] for each in seen["replicas"]] == ["Unknown", "Unknown"]
        assert seen["events"] == []
        async with browser.stream("stream?job=team/mnist", Authorization=ANN) as events:
            seen = await anext(views(events))
        assert seen["replicas"][0]["state"] == "Running"
        assert [each["object"] for each in seen["events"]] == ["mnist-worker-0"]
        for who, note in ((ANN, "QuotaExceeded"), (BEN, "")):
            async with browser.stream("stream?job=team/stuck", Authorization=who) as events:
                assert (await anext(views(events)))["row"]["note"] == note
            assert (await rows_of(browser, Authorization=who))["team/stuck"]["note"] != "QuotaExceeded", (
                "not all may see events"
            )
    of_root = {each for each in cluster.reviews if each[0] == "root"}
    assert of_root == {("root", "list", "tfjobs", ""), ("root", "list", "pods", "")}


async def test_no_route_shows_anything_of_another_namespace(cluster: PageCluster) -> None:
    """A job that is there and one that is not look the same to who may not see either. A new route needs a case here."""
    authenticator = ClusterAuthenticator(cast("Any", None), lambda: True, str)
    anybody = {"/-/static/{file}", "/-/login", "/-/logout", "/healthz", "/readyz", "/metrics"}
    assert routes_of(authenticator) == {*anybody, *PAGES, *MIXED, *READS}
    cluster.served.add("tfjobs.tensorflow.org")
    hidden: dict[str, Any] = {"namespace": "nlp", "annotations": {"a": "secret"}}
    cluster.put("tfjobs.tensorflow.org", a_tensorflow_job("old", "Running", **hidden))
    cluster.put("pods", an_alpha_pod("old", namespace="nlp"))
    cluster.put("tfjobs", a_job("bert", "Running", labels={"kueue.x-k8s.io/queue-name": "secret"}, **hidden))
    cluster.put("pods", a_pod("bert", namespace="nlp"))
    for pod in ("bert-worker-0", "worker-x7ab-0-abcde"):
        cluster.write_log(pod, b"secret: step 1: loss = 7.125\n")
    cluster.usage = {pod: {"cpu": "7125m", "memory": "1"} for pod in ("bert-worker-0", "worker-x7ab-0-abcde")}
    cluster.put("services", a_board("secret", "nlp", **{"app.kubernetes.io/instance": "bert", "tf_job_name": "old"}))
    cluster.grant("root", resources="tfjobs.tensorflow.org pods.metrics.k8s.io services")
    async with synced(cluster) as browser:
        for path in [*anybody, *PAGES.values(), *MIXED.values(), *READS.values()]:
            for name in ("bert", "none"):
                status, shown = await beginning(browser, path.replace("bert", name).replace("{file}", "main.js"), ANN)
                assert status == (403 if path in READS.values() else 400 if "/-/log" in path else 200), path
                assert status != 403 or b'User \\"ann\\" cannot ' in shown
                assert not re.search(rb"secret|7.125|old.:", shown), path
        for path in [*MIXED.values(), *READS.values()]:
            status, shown = await beginning(browser, path, ROOT)
            assert (status, re.search(rb"secret|7.125|causes", shown) is not None) == (200, True), (path, shown)


async def beginning(browser: Browser, path: str, token: str) -> tuple[int, bytes]:
    """The code and the body of a response, of a stream what comes in a moment."""
    shown = b""
    async with browser.http.get(browser.home + path, headers={"Authorization": token}) as response:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                async for piece in response.content.iter_any():
                    shown += piece
    return response.status, shown


async def test_a_log_needs_the_right_to_logs(cluster: PageCluster) -> None:
    """That of pods is not enough, as for kubectl logs."""
    cluster.grant("ben", "team")
    cluster.write_log("mnist-worker-0", b"step 1\n")
    async with a_cluster_page(cluster) as browser:
        status, _, body = await browser.get("/-/log/team/mnist-worker-0", Authorization=BEN)
        assert status == 403
        assert 'cannot get resource "pods/log"' in json.loads(body)["message"]
        assert (await browser.get("/-/log/team/mnist-worker-0", Authorization=ANN))[2] == b"step 1\n"


async def test_a_diagnosis_is_made_of_what_its_viewer_may_read(cluster: PageCluster) -> None:
    """Ben may not read logs, so his diagnosis quotes none. What the page itself may not read is in no diagnosis.

    It is made once for all who have the same rights and ask within seconds.
    """
    cluster.put("tfjobs", a_job("mnist", "Failed"))
    cluster.put("pods", a_pod("mnist", status=ended(1)))
    cluster.write_log("mnist-worker-0", b"ModuleNotFoundError: No module named 'numpyy'\n")
    cluster.grant("ben", "team")
    async with synced(cluster) as browser:
        found = {}
        for token in (ANN, BEN):
            status, _, body = await browser.get("/-/explain/team/mnist", Authorization=token)
            assert status == 200
            found[token] = json.loads(body)
        assert found[ANN]["causes"][0]["id"] == "python-module-missing"
        assert "numpyy" not in json.dumps(found[BEN])
        assert "logs" in found[BEN]["unseen"]
        assert "nodes" in found[ANN]["unseen"]
        cluster.delete("pods", "team", "mnist-worker-0")
        again = await browser.get("/-/explain/team/mnist", Authorization=ANN)
        assert json.loads(again[2]) == found[ANN]


HERE = "/api/v1/namespaces/team"
EXPLAINED = {
    "tfjobs.tensorflow.org": "/apis/tensorflow.org/v1alpha1/namespaces/team/tfjobs/old",
    "pods": f"{HERE}/pods",
    "pods/log": f"{HERE}/pods/worker-x7ab-0-abcde/log",
    "events": f"{HERE}/events",
    "services": f"{HERE}/services",
    "persistentvolumeclaims": f"{HERE}/persistentvolumeclaims",
    "resourcequotas": f"{HERE}/resourcequotas",
    "limitranges": f"{HERE}/limitranges",
    "jobs": "/apis/batch/v1/namespaces/team/jobs",
    "namespaces": HERE,
    "nodes": "/api/v1/nodes/node-1",
    "leases": "/apis/coordination.k8s.io/v1/leases",
}
"""What a diagnosis reads, by the permission that its viewer needs."""
OF_INFORMERS = {
    "/apis",
    "/api/v1/pods",
    "/api/v1/events",
    "/apis/kubeflow.org/v1/tfjobs",
    "/apis/tensorflow.org/v1alpha1/tfjobs",
}


async def test_a_diagnosis_reads_nothing_that_its_viewer_may_not_read(cluster: PageCluster) -> None:
    """Of each kind: with all permissions it is read, without that one it is not, nor anything that is not in the table."""
    asked = [*reads_of(JobKey(TENSORFLOW_V1ALPHA1, "team", "old")), *READS_OF_CLUSTER]
    names = {"/".join(filter(None, (each.resource.plural, each.subresource))) for each in asked}
    assert names == {each.partition(".")[0] for each in EXPLAINED}
    cluster.served.add("tfjobs.tensorflow.org")
    cluster.put("tfjobs.tensorflow.org", a_tensorflow_job("old", "Running"))
    labels = {"tf_job_name": "old", "tensorflow.org": ""}
    cluster.put("jobs", {"metadata": {"namespace": "team", "name": "worker-x7ab-0", "labels": labels}})
    pod = an_alpha_pod("old", status=ended(1))
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.put("pods", pod)
    for lacks in ("", *EXPLAINED):
        cluster.tokens[f"without-{lacks}"] = f"without-{lacks}", ()
        cluster.grant(f"without-{lacks}", resources=" ".join({*EXPLAINED, "tfjobs"} - {lacks}))
    async with synced(cluster) as browser:
        await rows_of(browser, Authorization="Bearer without-")
        for lacks in ("", *EXPLAINED):
            cluster.paths.clear()
            status = await code(browser, "/-/explain/team/tfjob.tensorflow.org/old", f"Bearer without-{lacks}")
            read = {each for each in cluster.paths if each not in OF_INFORMERS}
            assert status == (403 if lacks == "tfjobs.tensorflow.org" else 200)
            allowed = {path for each, path in EXPLAINED.items() if each != lacks}
            assert read <= allowed, lacks
            assert lacks or read == allowed


async def test_a_review_that_fails_is_neither_yes_nor_no(cluster: PageCluster) -> None:
    """503, with a time after which to ask again; what was confirmed before goes on."""
    async with synced(cluster) as browser:
        cluster.reviews_fail = True
        for path in ("/", "/-/stream", "/-/manifest/team/mnist"):
            status, headers, body = await browser.get(path, Authorization=ANN)
            assert (status, headers["Retry-After"]) == (503, "5")
            assert "etcd is unavailable" in json.loads(body)["message"]
        assert (await browser.get("/", Authorization=ROOT))[0] == 200
        cluster.reviews_fail = False
        assert await code(browser, "/") == 200


async def test_what_the_page_counts_is_for_everybody_and_names_nobody(cluster: PageCluster) -> None:
    """Prometheus scrapes it without a token: reviews by their answers, open streams, jobs."""
    async with synced(cluster, hosts=frozenset({"127.0.0.1"})) as browser:
        assert await code(browser, "/-/manifest/team/mnist", BEN) == 403
        assert await code(browser, "/", "Bearer wrong") == 401
        cluster.reviews_fail = True
        assert await code(browser, "/") == 503
        _, headers, body = await browser.get("/metrics", Host="10.0.0.7:8080")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
    asked = 'tfjob_page_reviews_total{kind="%s",answer="%s"}'
    assert found.pop("tfjob_page_streams").isdecimal()
    assert found == {
        asked % ("TokenReview", "yes"): "2",
        asked % ("TokenReview", "no"): "1",
        asked % ("TokenReview", "failed"): "1",
        asked % ("SubjectAccessReview", "yes"): "2",
        asked % ("SubjectAccessReview", "no"): "1",
        asked % ("SubjectAccessReview", "failed"): "0",
        "tfjob_page_jobs": "2",
    }


async def test_a_right_that_is_withdrawn_is_withdrawn_on_open_streams_too(
    cluster: PageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time for which answers are kept, without any event in the cluster; here that is shorter. So are tokens."""
    for number in ("reviews.ALLOWED_TTL_S", "viewers.ALLOWED_TTL_S", "streams.STREAM_DENIED_TTL_S"):
        monkeypatch.setattr(f"tfjob_operator.cli.page.{number}", 0.3)
    async with synced(cluster) as browser:
        known: dict[str, Any] = {}
        async with browser.stream("stream?job=team/mnist", Authorization=ANN) as events:
            await until_jobs(events, known, {"team/mnist"})
            cluster.rights = {each for each in cluster.rights if each[0] != "team-members"}
            await until_jobs(events, known, set())
            assert await anext(views(events)) is None
        cluster.grant("team-members", "team")
        async with browser.stream(Authorization=ANN) as events:
            async for _ in events:
                cluster.tokens.clear()
        assert await code(browser, "/") == 401


async def test_a_browser_that_comes_back_with_fewer_rights_is_sent_everything_anew(
    cluster: PageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may show what it may not see any more, so what has changed is not enough."""
    cluster.grant("team-members", "nlp")
    async with synced(cluster) as browser:
        async with browser.stream(Authorization=ANN) as events:
            seen = next(number for number, kind, _ in [await anext(events), await anext(events)] if kind == "rows")
        cluster.rights.discard(("team-members", "list", "tfjobs", "nlp"))
        monkeypatch.setattr("tfjob_operator.cli.page.reviews.ALLOWED_TTL_S", 0.0)
        async with browser.stream(Authorization=ANN, Last_Event_ID=seen) as events:
            async for _, kind, data in events:
                if kind == "rows":
                    assert (data["full"], [row["key"] for row in data["rows"]]) == (True, ["team/mnist"])
                    break


async def test_a_namespace_that_gets_its_first_job_appears(
    cluster: PageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To who may list its jobs, and to nobody else: others are not even told that something has happened."""
    monkeypatch.setattr("tfjob_operator.cli.page.streams.HEARTBEAT_S", 2.0)
    cluster.grant("team-members", "new")
    async with (
        synced(cluster) as browser,
        browser.stream(Authorization=ANN) as events,
        browser.stream(Authorization=BEN) as others,
    ):
        known: dict[str, Any] = {}
        await until_jobs(events, known, {"team/mnist"})
        cluster.put("tfjobs", a_job("first", "Created", namespace="new"))
        await until_jobs(events, known, {"team/mnist", "new/first"})
        told = []
        async for _, kind, data in others:
            if kind == "beat":
                break
            told.append((kind, data["rows"] if kind == "rows" else None))
        assert ("rows", []) in told
        assert {kind for kind, rows in told if kind != "viewer" and rows != []} == set()


async def test_somebody_logs_in_with_a_token_that_only_the_browser_keeps(cluster: PageCluster) -> None:
    """In a cookie that no script sees, no other page is sent with, and that goes when the browser is closed."""
    async with synced(cluster) as browser:
        status, headers, _ = await browser.log_in(" token-of-ann\n")
        assert status == 204
        cookie, *attributes = headers["Set-Cookie"].split("; ")
        assert {*attributes} == {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"}
        assert cookie == "tfjob-page=token-of-ann"
        assert (await browser.get("/", Cookie=cookie))[0] == 200
        assert jobs_in(await rows_of(browser, Cookie=cookie)) == {"team/mnist"}
        assert [(await browser.log_in(token))[0] for token in ("wrong", "", "x" * 5000)] == [401, 401, 403]
        assert (await browser.get("/-/login", "POST", "nonsense", Content_Type="application/json"))[0] == 400
        status, headers, _ = await browser.get("/-/logout", "POST", Content_Type="application/json")
        assert status == 204
        assert 'tfjob-page=""' in headers["Set-Cookie"]
        assert "Max-Age=0" in headers["Set-Cookie"]


async def test_another_page_can_neither_log_somebody_in_nor_ask_for_them(cluster: PageCluster) -> None:
    """A browser says which page a request comes from; forms of other pages can not send JSON."""
    async with a_cluster_page(cluster) as browser:
        navigates = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        sites = ({"Sec_Fetch_Site": site} for site in ("cross-site", "same-site"))
        for headers in (*sites, {"Origin": "https://evil.example"}, navigates):
            assert (await browser.log_in("token-of-ann", **headers))[0] == 403
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        assert (await browser.get("/-/login", "POST", "token=token-of-ann", **form))[0] == 403
        assert await code(browser, "/-/manifest/team/mnist", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="cors") == 403
        assert await code(browser, "/", **navigates) == 200
        assert (await browser.log_in("token-of-ann", Origin=browser.home, Sec_Fetch_Site="same-origin"))[0] == 204


async def test_a_page_of_one_namespace_asks_about_that_one_alone(cluster: PageCluster) -> None:
    """Whoever may list its jobs sees them, and nothing is asked about the cluster as a whole."""
    async with a_cluster_page(cluster, namespace="team") as browser:
        assert jobs_in(await rows_of(browser, Authorization=ANN)) == {"team/mnist"}
    assert {each for each in cluster.reviews if len(each) > 1} == {
        ("ann", "list", "tfjobs", "team"),
        ("ann", "list", "pods", "team"),
    }
