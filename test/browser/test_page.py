"""The dashboard in a real Chromium: each view, live updates, hostile text, and access."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from browser.conftest import ROOT, Dashboard, Looking, browsing, dashboard_of, reads_well
from browser.scene import SCRIPT, ended, fill, job, pod, runs
from hack.objects import a_board, ago
from hack.page_cluster import ADDON, PageCluster, page_of
from support.waiting import eventually

RESNET = "/vision/resnet50-imagenet"
VIEWS = {
    "list": ("/", "tr[data-key]"),
    "nothing": ("/?q=nothing-is-called-so", ".blank"),
    "job": (RESNET, ".replicas td"),
    "failed": ("/nlp/bert-finetune-2", ".why .advice"),
    "timeline": (f"{RESNET}?tab=timeline", ".gantt"),
    "curves": (f"{RESNET}?tab=curves&with=vision/resnet50-small", ".chart"),
    "logs": (f"{RESNET}?tab=logs", ".log div"),
    "events": (f"{RESNET}?tab=events", ".events td"),
    "manifest": (f"{RESNET}?tab=manifest", ".manifest .key"),
    "first": ("/legacy/tfjob.tensorflow.org/mnist-2017", ".replicas td"),
    "first-timeline": ("/legacy/tfjob.tensorflow.org/mnist-2017?tab=timeline", ".gantt"),
    "missing": ("/vision/nothing", ".blank h1"),
    "hostile": ("/evil/hostile", ".replicas td"),
}
PICTURES = {"list": "light", "failed": "dark"}
"""The views that the docs have pictures of, `page-NAME.png`; `--screenshots` writes these anew."""


def test_the_address_of_a_list_says_what_it_shows(tab: Looking) -> None:
    """So a link shows the same to everybody who opens it."""
    tab.open("/")
    assert {"Running", "4/4", "3"} <= {*tab.shows("tr[data-key]", "resnet50-imagenet").inner_text().split()}
    tab.open("/?q=ns:vision&sort=-restarts")
    tab.shows("tr[data-key]")
    names = tab.page.locator("tr[data-key] .name a").all_inner_texts()
    assert (names[0], {*names[1:]}) == ("resnet50-imagenet", {"resnet50-small", "segmentation-unet"})


def test_what_changes_in_the_cluster_is_on_the_screen_within_a_second(tab: Looking, dashboard: Dashboard) -> None:
    """The fastest of five changes counts: the others may be late on a busy machine, but have to come, too."""
    tab.open_jobs()
    took = []
    for number in range(5):
        begun = time.monotonic()
        dashboard.cluster.put("tfjobs", job(f"live-{number}", "Created", 1, {"Worker": 1}))
        tab.shows(f"tr[data-key='vision/live-{number}']")
        took.append(time.monotonic() - begun)
        dashboard.cluster.delete("tfjobs", "vision", f"live-{number}")
    tab.gone("tr[data-key^='vision/live']")
    assert min(took) < 1.0, took


def test_a_job_goes_through_its_life_before_ones_eyes(tab: Looking, dashboard: Dashboard) -> None:
    """Pods appear, the job ends and is deleted: its last state stays until there is another job of its name."""
    put = dashboard.cluster.put
    put("tfjobs", job("short", "Created", 1, {"Worker": 1}))
    tab.open("/vision/short")
    tab.shows(".replicas", "Missing")
    put("pods", pod("short", "Worker", 0, 5, runs(5)))
    put("tfjobs", job("short", "Running", 5, {"Worker": 1}))
    tab.shows(".title .pill", "Running")
    tab.shows(".replicas .pill", "Running")
    dashboard.cluster.write_log("short-worker-0", b"the end\n")
    tab.open("/vision/short?tab=logs&replica=all")
    tab.shows("[role=status]", "following")
    put("pods", pod("short", "Worker", 0, 9, ended(0, 9, "")))
    put("tfjobs", job("short", "Succeeded", 9, {"Worker": 1}, over=1))
    tab.shows(".title .pill", "Succeeded")
    tab.shows("[role=status]", "end of the log")
    dashboard.cluster.delete("pods", "vision", "short-worker-0")
    dashboard.cluster.delete("tfjobs", "vision", "short")
    tab.shows(".lead", "was deleted")
    put("tfjobs", job("short", "Created", 1, {"Worker": 1}))
    tab.shows(".title .pill", "Created")
    dashboard.cluster.delete("tfjobs", "vision", "short")


def test_a_failed_job_says_why_on_top(tab: Looking) -> None:
    """The page has the words of the row, then those of `kubectl tfjob explain`; what is below does not move when they come."""
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    tab.page.route("**/-/explain/**", hold)
    tab.open("/nlp/bert-finetune-2")
    tab.shows(".why h2", "ExitCode:1")
    at = tab.shows(".tabs").bounding_box()
    eventually(lambda: held, "the diagnosis is asked for")
    held[0].continue_()
    tab.shows(".why h2", "Python module sentencepiece not found in the image")
    assert tab.shows(".tabs").bounding_box() == at
    assert "Worker 0" in tab.shows(".replicas .bad").locator("xpath=ancestor::tr").inner_text()


@pytest.mark.parametrize("job", ["vision/resnet50-small", "nlp/translate-base"])
def test_a_job_that_looks_healthy_shows_what_explain_finds(tab: Looking, job: str) -> None:
    """Only the log shows that a training hangs, or that one has failed whose script exits with 0."""
    cause = {"id": "x", "severity": "warning", "title": "Silent for 16m", "evidence": [], "to_do": [], "affected": []}
    causes: list[dict[str, Any]] = []

    def answer(route: Any) -> None:
        route.fulfill(json={"causes": causes, "state_line": "", "unseen": "", "accelerators": []})

    tab.page.route("**/-/explain/**", answer)
    with tab.page.expect_response("**/-/explain/**"):
        tab.open(f"/{job}")
    tab.shows(".tabs")
    assert not tab.page.locator(".why").count()
    causes.append(cause)
    tab.open(f"/{job}")
    tab.shows(".why.warning h2", "Silent for 16m")


def test_a_job_of_the_first_api_is_shown_like_any_other_and_named_as_such(tab: Looking) -> None:
    """The list leads to it; its pods of which only the Job controller's events are left have a place in the timeline."""
    tab.open("/?q=api:tensorflow.org")
    row = tab.shows("tr[data-key]", "mnist-2017")
    assert {"legacy", "tensorflow.org"} <= {*row.inner_text().split()}
    row.get_by_role("link").click()
    tab.shows(".facts", "tensorflow.org")
    tab.shows(".replicas", "Worker 1")
    assert tab.page.locator(".replicas tbody tr").count() == 3
    tab.page.keyboard.press("2")
    tab.page.locator("details.more summary").click()
    tab.shows(".more tbody tr", "worker-x7ab-1-zyxwv")
    tab.page.keyboard.press("5")
    tab.shows(".events", "Created pod: worker-x7ab-1-abcde")
    tab.page.keyboard.press("6")
    tab.shows(".manifest", "kind: TfJob")


def test_curves_of_several_runs_lie_over_each_other_and_go_on(tab: Looking, dashboard: Dashboard) -> None:
    """There is one chart for the loss, one for the accuracy; they stand at one height, and both grow with the log."""
    tab.open(f"{RESNET}?tab=curves&with=vision/resnet50-small")
    found = [".chart", ".chart polyline"]
    eventually(lambda: [tab.page.locator(each).count() for each in found] == [2, 4], "both runs are drawn")
    loss, accuracy = (each.bounding_box() for each in tab.page.locator(".grid > .panel").all())
    assert loss["y"] == accuracy["y"]
    dashboard.cluster.write_log("resnet50-small-worker-0", b"step 5000: loss = 0.0100\n")
    tab.shows(".chart[aria-label*='0.01 at step 5000']")


def test_what_users_write_stays_text(tab: Looking) -> None:
    """This holds for scripts in names of queues, nodes, events and logs, escape sequences, and a line of ten megabytes."""
    tab.open("/?q=hostile")
    tab.shows("tr[data-key]", "<script>")
    tab.open("/evil/hostile")
    tab.shows(".replicas", r"\x1b[31m\u202egnp.exe")
    tab.open("/evil/hostile?tab=events")
    tab.shows(".events", "<script>")
    tab.open("/evil/hostile?tab=logs")
    tab.shows(".log div", "the end")
    lines = tab.page.locator(".log div").all_inner_texts()
    assert lines[0] == SCRIPT
    assert (lines[1][:4], lines[1][-10:]) == ("xxxx", "more bytes")
    assert len(lines[1]) < 5_000
    tab.open("/evil/hostile?tab=curves")
    tab.shows(".chart, .grid .blank")
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.evaluate("document.scripts.length") == 1


def test_the_keyboard_alone_leads_to_a_job_and_back(tab: Looking) -> None:
    """Keys focus the filter, choose a job, open it and one of its tabs, whose address can be linked to."""
    tab.open_jobs()
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("bert")
    tab.gone("tr[data-key='vision/resnet50-imagenet']")
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("Enter")
    tab.shows("h1", "bert-finetune-2")
    tab.page.keyboard.press("3")
    tab.shows(".blank", "No metrics in the log")
    assert "tab=curves" in tab.page.url
    tab.page.keyboard.press("?")
    assert {"ns:a", "queue:a", "state:a", "note:a", "Unhealthy"} <= {*tab.shows("dialog[open]").inner_text().split()}
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("u")
    tab.shows("tr[data-key]")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_reads_well_light_and_dark_and_on_a_phone(
    tab: Looking, view: str, request: pytest.FixtureRequest
) -> None:
    """Names of controls, contrast, order of headings and announcements are checked; what is wide scrolls in a frame."""
    path, sign = VIEWS[view]
    tab.open(path)
    tab.shows(sign)
    if view in PICTURES and request.config.getoption("--screenshots", default=False):
        tab.page.emulate_media(color_scheme=PICTURES[view])
        tab.page.screenshot(path=ROOT / "docs" / "images" / f"page-{view}.png")
    assert reads_well(tab.page)


@contextmanager
def newcomer(chromium: Any, *options: str, **more: Any) -> Iterator[tuple[Looking, Dashboard]]:
    """A browser that has opened the address of a page with a cluster of its own, see `dashboard_of`."""
    with dashboard_of(*options, **more) as dashboard, browsing(chromium, dashboard.address) as looking:
        looking.open(dashboard.address)
        yield looking, dashboard


def test_an_empty_cluster_says_how_a_job_comes_into_it(chromium: Any) -> None:
    """The first job is shown in its place."""
    with newcomer(chromium, scene=lambda _: None) as (looking, dashboard):
        looking.shows(".blank h2", "There are no jobs in this cluster")
        assert reads_well(looking.page)
        dashboard.cluster.put("tfjobs", job("first", "Created", 1, {"Worker": 1}))
        looking.shows("tr[data-key='vision/first']")
        looking.gone(".blank h2")


def test_a_used_or_wrong_token_is_refused_and_a_new_one_is_printed(
    chromium: Any, dashboard: Dashboard, session: Any
) -> None:
    """Without a valid token no job is shown. The printed address works in a tab that shows the refusal, too."""
    with browsing(chromium, dashboard.address) as looking:
        for path in (dashboard.address, "/#token=wrong", "/"):
            looking.page.goto("about:blank")
            looking.open(path)
            looking.shows(".banner.lost", "Access denied. Open the link printed by")
            assert looking.page.locator("tr[data-key]").count() == 0
        printed = dashboard.process.stdout or ()
        looking.open(next(line.split()[-1] for line in printed if "#token=" in line))
        looking.shows("tr[data-key]")
        looking.gone(".banner.lost")
        assert "token" not in looking.page.url


class _Listening(BaseHTTPRequestHandler):
    """A program of somebody else on another port of the address."""

    heard: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Keep what is sent, and answer with a page."""
        self.heard.append(f"{self.path}\n{self.headers}")
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<link rel=icon href=data:,>")


def test_another_port_of_the_address_is_sent_nothing_secret(tab: Looking, session: Any) -> None:
    """Though a link leads there, and to a browser it is the same site; nor can its page read the secret."""
    [secret] = [each["value"] for each in session["origins"][0]["localStorage"] if each["name"] == "session"]
    tab.open_jobs()
    with HTTPServer(("127.0.0.1", 0), _Listening) as other:
        threading.Thread(target=other.serve_forever, args=[0.01], daemon=True).start()
        with tab.page.context.expect_page() as opened:
            tab.page.evaluate("(port) => { window.open(`http://127.0.0.1:${port}/`); }", other.server_port)
        opened.value.wait_for_load_state()
        tab.page.goto(f"http://127.0.0.1:{other.server_port}/")
        assert tab.page.evaluate("localStorage.length + document.cookie.length") == 0
        other.shutdown()
    assert len([each for each in _Listening.heard if each.startswith("/\n")]) == 2
    assert not [each for each in _Listening.heard if secret in each or "cookie:" in each.lower()]


def test_a_lost_connection_is_said_and_so_is_what_to_do(chromium: Any) -> None:
    """This holds for the API server, which comes back, and for the page's own server, which does not."""
    with newcomer(chromium) as (looking, dashboard):
        cluster = dashboard.cluster
        looking.shows("tr[data-key]")
        cluster.stop()
        looking.shows(".banner.lost", "No connection to the API server")
        looking.shows("#live", "out of date")
        assert looking.page.locator(".banner").count() == 1
        assert reads_well(looking.page)
        cluster.start()
        looking.gone(".banner.lost")
        cluster.put("tfjobs", job("after", "Created", 1, {"Worker": 1}))
        looking.shows("tr[data-key='vision/after']")
        looking.page.evaluate("dispatchEvent(new Event('online'))")  # opens the stream anew
        cluster.put("tfjobs", job("later", "Created", 1, {"Worker": 1}))
        looking.shows("tr[data-key='vision/later']")
        dashboard.process.kill()
        looking.shows(".banner.lost", "Connection lost")
        assert reads_well(looking.page)
        looking.shows("#live", "connection lost")
        looking.shows("tr[data-key='vision/after']")


def test_a_user_without_rights_is_told_which_and_sees_jobs_when_they_are_granted(chromium: Any) -> None:
    """First a namespace may not be read at all; then only its pods and events may not. Commands are for the page's cluster."""
    context, forbidden = "--context=team-cluster", ("tfjobs", "pods", "events")
    with newcomer(chromium, "--namespace=nlp", context, forbidden=forbidden) as (looking, dashboard):
        looking.shows(".blank h2", "You may not list TFJobs in the namespace nlp")
        looking.shows(".blank", f"kubectl {context} create role tfjob-viewer -n nlp --verb=get,list,watch")
        looking.gone(".banner")  # the page itself says what may not be read
        assert reads_well(looking.page)
        looking.open(RESNET)
        looking.shows(".blank", "You may not read this job")
        looking.gone(".tabs")
        dashboard.cluster.forbidden -= {"tfjobs"}
        looking.open("/")
        looking.shows("tr[data-key='nlp/bert-finetune-2']")
        looking.shows("#where", "team-cluster / nlp")
        looking.shows(".banner.missing", "You may not read events and pods")
        assert reads_well(looking.page)
        looking.open("/nlp/bert-finetune-2")
        looking.shows(".replicas .pill", "Unknown")
        looking.open(RESNET)
        looking.shows(".blank h1", "This page shows the namespace nlp alone")


NOTIFIED = """window.told = []; window.Notification = class {
    static permission = 'default';
    static requestPermission = async () => 'granted';
    constructor(title, { body }) { window.told.push(`${title} (${body})`); }
}"""


def test_the_browser_notifies_when_a_watched_job_ends(tab: Looking, dashboard: Dashboard) -> None:
    """Also on another page of the tab, and after a reload; jobs that are not watched end without a notification."""
    put = dashboard.cluster.put
    for name in ("watched", "other"):
        put("tfjobs", job(name, "Running", 9, {"Worker": 1}))
    tab.page.add_init_script(NOTIFIED)
    tab.open("/vision/watched")
    tab.page.get_by_role("button", name="Notify me when it ends").click()
    tab.page.get_by_role("button", name="You will be notified").wait_for()
    tab.open("/")
    tab.shows("tr[data-key='vision/watched']")
    put("tfjobs", job("other", "Succeeded", 9, {"Worker": 1}, over=1))
    put("tfjobs", job("watched", "Failed", 9, {"Worker": 1}, over=1, message="out of luck"))
    eventually(lambda: tab.page.evaluate("told.length"), "the browser is told")
    tab.shows("tr[data-key='vision/other']", "Succeeded")
    assert tab.page.evaluate("told") == ["vision/watched: Failed (out of luck)"]
    for name in ("watched", "other"):
        dashboard.cluster.delete("tfjobs", "vision", name)


def test_every_command_can_be_copied_and_buttons_of_others_are_commands_here(
    tab: Looking, dashboard: Dashboard
) -> None:
    """The page changes nothing. TensorBoard has one too, and a link where its Service has an address."""
    item = job("board", "Running", 9, {"Worker": 1})
    item["spec"]["tensorBoard"] = {"logDir": "/logs"}
    dashboard.cluster.put("tfjobs", item)
    dashboard.cluster.put("services", a_board("board.acme.io", "vision", **{"app.kubernetes.io/instance": "board"}))
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.open("/vision/board")
    assert tab.shows(".title a").get_attribute("href") == "http://board.acme.io:80/"
    tab.shows(".commands summary").click()
    commands = tab.page.locator(".commands code").all_inner_texts()
    assert [each.split(" -n ")[0] for each in commands[:4]] == [
        f"kubectl tfjob {verb}" for verb in ("tensorboard", "suspend", "restart", "scale")
    ]
    assert commands[-1] == "kubectl -n vision delete tfjobs.kubeflow.org board"
    tab.page.locator(".commands .copy").last.click()
    tab.shows(".copy", "Copied")
    assert tab.page.evaluate("navigator.clipboard.readText()") == commands[-1]
    for path in ("/nlp/bert-finetune-2", "/vision/board"):
        tab.open(path)
        tab.shows(".why .advice, .commands")
        assert tab.page.locator("code:not(.command > code:has(+ .copy))").count() == 0
    dashboard.cluster.delete("tfjobs", "vision", "board")


def test_attempts_are_shown_with_what_ended_them_and_when_the_next_one_begins(
    tab: Looking, dashboard: Dashboard
) -> None:
    """In the head of the job, and over its timeline; what to do is a command."""
    item = job("gang", "Restarting", 600, {"Worker": 2})
    over = {"number": 0, "startTime": ago(600), "endTime": ago(300), "rule": "badGpu", "action": "RestartAll"}
    over |= {"replicaType": "Worker", "replicaIndex": 1, "nodeName": "gpu-node-2", "exitCode": 42, "message": SCRIPT}
    again = {"number": 1, "startTime": ago(300), "endTime": ago(20), "reason": "RestartRequested"}
    item["spec"]["runPolicy"]["failurePolicy"] = {
        "maxRestarts": 3,
        "rules": [{"name": "badGpu", "action": "RestartAll"}],
    }
    item["status"] |= {
        "attempt": 2,
        "countedRestarts": 1,
        "nextRestartTime": ago(-100),
        "attemptHistory": [over, again],
        "avoidedNodes": [{"name": "gpu-node-2", "failures": 1, "expirationTime": ago(-3_000)}],
    }
    dashboard.cluster.put("tfjobs", item)
    tab.open("/vision/gang?tab=timeline")
    facts = " ".join(tab.shows(".facts", "Next restart in").inner_text().split())
    for words in ("Restarts 2", "Attempt 2, 1 of 3 restarts used", "Next restart in 1m", "gpu-node-2 (1 failure, 49m"):
        assert words in facts
    tab.shows(".gantt", "Attempt")
    assert tab.page.locator(".gantt .count").all_text_contents()[:2] == ["0", "1"]
    first, last = tab.page.locator("[aria-label='Attempts'] tbody tr").all_inner_texts()
    assert "restart requested" in first
    assert f"rule badGpu (RestartAll), worker-1 on gpu-node-2, exit code 42: {SCRIPT}" in last
    assert reads_well(tab.page)
    tab.shows(".commands summary").click()
    assert "kubectl tfjob restart -n vision gang" in tab.page.locator(".commands code").all_inner_texts()
    dashboard.cluster.delete("tfjobs", "vision", "gang")


def test_replicas_show_cpu_and_memory_or_why_there_is_none(tab: Looking, dashboard: Dashboard) -> None:
    """Where the cluster does not serve the API for it, the table has no columns for it."""
    tab.open(RESNET)
    tab.shows("[role=status]", "CPU and memory are not shown: ")
    tab.gone("th.cpu")
    dashboard.cluster.usage = {"resnet50-imagenet-worker-1": {"cpu": "1250m", "memory": "3Gi"}}

    def measured() -> bool:
        with tab.page.expect_response("**/-/usage/**") as answer:
            tab.open(RESNET)
        return bool(answer.value.json()["pods"])

    eventually(measured, "the server asks for the usage again")
    row = tab.shows(".replicas tr", "1250m")
    assert {"Worker", "1", "3072Mi"} <= {*row.inner_text().split()}
    dashboard.cluster.usage = None


def test_logs_of_all_replicas_come_in_one_and_can_be_downloaded(tab: Looking, dashboard: Dashboard) -> None:
    """Each line has the name of its replica; new ones appear at the end; a file holds the log of one, or of all."""
    dashboard.cluster.write_log("resnet50-imagenet-worker-3", b"hello from a worker\n")
    tab.open(f"{RESNET}?tab=logs&replica=all")
    tab.shows(".log div", "chief-0 | step 1190")
    tab.shows(".log div", "worker-3 | hello from a worker")
    tab.page.get_by_label("Replica").select_option("Worker 3")
    tab.gone(".log div:has-text('chief-0')")
    dashboard.cluster.write_log("resnet50-imagenet-worker-3", b"one more line\n")
    tab.shows(".log div", "one more line")
    for choice, name in (("Worker 3", "resnet50-imagenet-worker-3"), ("all", "resnet50-imagenet")):
        tab.page.get_by_label("Replica").select_option(choice)
        tab.shows(".log div", "hello from a worker")
        with tab.page.expect_download() as saved:
            tab.page.get_by_role("button", name="Download").click()
        assert saved.value.suggested_filename == f"vision-{name}.log"
        assert "hello from a worker" in Path(saved.value.path()).read_text("utf-8")


def test_a_log_is_empty_or_at_its_end_and_a_failed_download_says_why(tab: Looking) -> None:
    """Lines that are not drawn yet count, when a stream ends."""
    for body, words in (("", "the log is empty"), ("one line\n", "end of the log")):
        tab.page.route("**/-/log/**", lambda route, *, body=body: route.fulfill(body=body))
        tab.open(f"{RESNET}?tab=logs")
        tab.shows("[role=status]", words)
    tab.page.route("**/-/log/**", lambda route: route.fulfill(status=502, json={"message": "no kubelet"}))
    tab.page.get_by_role("button", name="Download").click()
    tab.shows("[role=status]", "no kubelet")
    tab.errors.clear()


def test_curves_tell_why_a_log_cannot_be_read_as_logs_do(tab: Looking, dashboard: Dashboard) -> None:
    """An error is not taken for a job that has not written anything yet."""
    dashboard.cluster.forbidden.add("pods/log")
    tab.open(f"{RESNET}?tab=logs")
    words = tab.shows("[role=status]", "pods/log").inner_text()
    tab.open(f"{RESNET}?tab=curves")
    tab.shows(".blank", words)
    dashboard.cluster.forbidden.discard("pods/log")
    assert all("403" in each for each in tab.errors)
    tab.errors.clear()


def test_somebody_logs_in_where_a_link_led_and_sees_what_is_theirs_until_they_log_out(chromium: Any) -> None:
    """A wrong token is told of in the form. The list has no job of other namespaces, and their pages show nothing."""
    with PageCluster().running() as cluster:
        fill(cluster)
        cluster.tokens["good"] = ("ann", ("system:authenticated",))
        cluster.grant("ann", "nlp", resources="tfjobs pods events pods/log pods.metrics.k8s.io")
        with (
            page_of(cluster.kubeconfig, *ADDON) as (_, address),
            # To a browser this name is as good as https, so it keeps the cookie.
            browsing(chromium, address.replace("127.0.0.1", "localhost")) as stranger,
        ):
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
            assert all("status of 401" in each for each in stranger.errors)
