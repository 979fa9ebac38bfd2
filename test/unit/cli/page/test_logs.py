"""Logs as the page sends them: cut into lines, of one pod, of all replicas of a job, and as curves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.objects import a_job, a_pod, ended, pod, running, waiting
from hack.page_cluster import PageCluster
from support.waiting import until
from tfjob_operator.api.client.options import LogOptions
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.page.log_streams import MAX_RUNS, PREFETCH, Logs, metrics_pod
from tfjob_operator.cli.page.views import MAX_LINE, LogLines
from unit.cli.page.browser import Browser, a_page


def lines_of(*chunks: bytes) -> list[str]:
    """All lines of a log that comes in these pieces."""
    lines = LogLines()
    return [line for chunk in chunks for line in lines.feed(chunk)] + [*lines.end()]


def test_codes_of_terminals_are_left_out() -> None:
    """Colours, cursor movements, titles of windows, links."""
    said = b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n"
    assert lines_of(said) == ["red and link"]


def test_a_line_that_is_written_over_is_what_was_written_last() -> None:
    """Progress bars use carriage returns or backspaces. The last line may have no end."""
    said = (b"1/3\r2/3\r3/3\n", b"a\r", b"b\r\n", b"10%\x08\x08\x0820%\nthe ", b"end")
    assert lines_of(*said) == ["3/3", "b", "20%", "the end"]


def test_a_line_of_ten_megabytes_is_cut_and_says_by_how_much() -> None:
    """It is never held whole."""
    lines = LogLines()
    for _ in range(160):
        assert [*lines.feed(b"x" * 65_536)] == []
        assert len(lines._head) <= MAX_LINE
    [line] = lines.feed(b"\n")
    assert line == "x" * MAX_LINE + f" ... {160 * 65_536 - MAX_LINE} more bytes"


@given(st.lists(st.binary(max_size=40)))
def test_no_bytes_whatsoever_raise_or_leave_a_control_character(chunks: list[bytes]) -> None:
    """Whatever a program writes."""
    for line in lines_of(*chunks):
        assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in line)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_where_a_log_is_cut_into_pieces_changes_nothing(text: bytes, at: int) -> None:
    """Where it is cut depends on the network."""
    assert lines_of(text[:at], text[at:]) == lines_of(text)


async def test_the_logs_of_a_job_come_as_they_are_written_each_line_once(page_cluster: PageCluster) -> None:
    """After the name of its replica; also of pods that start later, after restarts, and after a lost connection."""
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    page_cluster.put("pods", a_pod("mnist"))
    page_cluster.write_log("mnist-worker-0", b"zero\none\ntwo\n")
    async with (
        a_page(page_cluster) as browser,
        browser.http.get(f"{browser.home}/-/logs/team/mnist?follow=true&tail=2") as response,
    ):
        line = response.content.readline
        assert [await line(), await line()] == [b"worker-0 | one\n", b"worker-0 | two\n"]
        page_cluster.put("pods", a_pod("mnist", index=1))
        page_cluster.write_log("mnist-worker-1", b"\x1b[31mhello\x1b[0m\n")
        assert await line() == b"worker-1 | hello\n"
        page_cluster.stop()
        said = {await line(), await line()}
        assert {each.partition(b": cannot read logs, retrying: ")[0] for each in said} == {b"worker-0", b"worker-1"}
        page_cluster.start()
        page_cluster.write_log("mnist-worker-0", b"three\n")
        assert await line() == b"worker-0 | three\n"
        page_cluster.put("pods", a_pod("mnist", status=running(restarts=1)))
        page_cluster.write_log("mnist-worker-0", b"four\n")
        assert await line() == b"worker-0 | four\n"


async def test_a_stream_of_a_former_pod_that_never_ends_does_not_keep_the_next_pod_from_being_read(
    page_cluster: PageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a dead node. The log of the new pod is read from its beginning."""
    monkeypatch.setattr("tfjob_operator.cli.logs.follower.GRACE_S", 0.1)
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    page_cluster.put("pods", a_pod("mnist"))
    page_cluster.write_log("mnist-worker-0", b"zero\n")
    async with (
        a_page(page_cluster) as browser,
        browser.http.get(f"{browser.home}/-/logs/team/mnist?follow=true") as response,
    ):
        assert await response.content.readline() == b"worker-0 | zero\n"
        page_cluster.put("pods", a_pod("mnist", uid="another"))
        assert await response.content.readline() == b"worker-0 | zero\n"


async def test_no_more_logs_are_followed_than_may_be_and_the_first_line_says_so(
    page_cluster: PageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that has ended makes room for the next one."""
    monkeypatch.setattr("tfjob_operator.cli.page.log_streams.MAX_LOGS", 1)
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    for index in range(3):
        page_cluster.put("pods", a_pod("mnist", index=index, status=ended(0) if index == 0 else None))
        page_cluster.write_log(f"mnist-worker-{index}", b"done\n")
    async with a_page(page_cluster) as browser:
        async with browser.http.get(f"{browser.home}/-/logs/team/mnist?follow=true") as response:
            first = await response.content.readline()
            assert first.startswith(b"Following 1 of 3 replicas. The command `logs` follows all with --max-")
            assert await response.content.readline() == b"worker-0 | done\n"
        code, headers, body = await browser.get("/-/logs/team/mnist?download=true")
        assert (code, body) == (200, b"".join(b"worker-%d | done\n" % index for index in range(3)))
        assert headers["Content-Type"] == "text/plain; charset=utf-8"
        page_cluster.forbidden.add("pods/log")
        assert (await browser.get("/-/logs/team/mnist?follow=true"))[0] == 403
        assert (await browser.get("/-/logs/team/none"))[0] == 404


async def test_the_next_logs_are_opened_ahead_and_all_are_sent_in_order() -> None:
    """At most eight, whose memory is bounded: one after another a thousand would take minutes."""
    pods = [pod("mnist", index=each, status=ended(0)) for each in range(3 * PREFETCH)]
    opened: list[str] = []
    closed: list[str] = []

    @asynccontextmanager
    async def logs(_kind: Any, _namespace: str, name: str, _options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks(next_ones: int) -> AsyncIterator[bytes]:
            yield b"first\n"
            await until(lambda: len(opened) >= next_ones, "the next logs are read", yet=lambda: opened)
            yield b"last\n"

        opened.append(name)
        assert len(opened) - len(closed) <= 1 + PREFETCH
        yield chunks(min(len(opened) + PREFETCH, len(pods)))
        closed.append(name)

    client, cluster = SimpleNamespace(logs=logs), SimpleNamespace(pods_of=lambda _: pods)
    found = Logs(cast("Any", client), cast("Any", cluster)).of_job("team/mnist", LogOptions())
    async with asyncio.timeout(60):
        lines = [line async for some in found for line in some]
    assert lines == [f"worker-{number} | {line}" for number in range(len(pods)) for line in ("first", "last")]


async def test_a_new_pods_log_is_not_taken_for_that_of_the_former_pod_of_its_name() -> None:
    """Logs are requested by name: a stream that is opened again may be another pod's. Its lines come once."""
    pods = [pod("mnist", uid="former")]
    streams = iter([b"2026-03-01T10:00:00Z one\n", *[b"2026-03-01T10:00:01Z two\n"] * 2])

    @asynccontextmanager
    async def logs(_kind: Any, _namespace: str, _name: str, options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            pods[:] = [pod("mnist", uid="next")] if options.since else pods
            yield next(streams, b"2026-03-01T10:00:02Z end\n")

        yield chunks()

    client, cluster = SimpleNamespace(logs=logs), SimpleNamespace(pods_of=lambda _: pods)
    found: list[str] = []
    lines = Logs(cast("Any", client), cast("Any", cluster)).of_job("team/mnist", LogOptions(follow=True))
    async with aclosing(lines):
        while "worker-0 | end" not in found:
            found += await anext(lines)
    assert found == [f"worker-0 | {line}" for line in ("one", "two", "end")]


@pytest.mark.parametrize(
    ("pods", "name"),
    [
        ([pod("a", "Worker", 1), pod("a", "Worker", 0), pod("a", "PS")], "a-worker-0"),
        ([pod("a", "Worker", 0), pod("a", "Chief")], "a-chief-0"),
        ([pod("a", "Chief", status=waiting("ErrImagePull")), pod("a", "Worker")], "a-worker-0"),
        ([pod("a", "Worker", status=waiting("CrashLoopBackOff")), pod("a", "Worker", 1)], "a-worker-1"),
        ([pod("a", "Worker", status=waiting("ErrImagePull"))], "a-worker-0"),
        ([pod("a", "PS"), pod("a", "Evaluator")], None),
    ],
)
def test_the_chief_tells_how_a_training_goes_or_the_first_worker(pods: list[PodDetails], name: str | None) -> None:
    """The first of them that has written anything, else the first, whose log tells why there is none."""
    found = metrics_pod(pods)
    assert (found.metadata.name if found is not None else None) == name


async def messages(browser: Browser, query: str, whole: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The newest message of each run, as soon as they are `whole`."""
    found: dict[str, Any] = {}
    async with browser.stream(f"curves?{query}") as events:
        async for _, _, run in events:
            found[run["run"]] = run
            if whole(found):
                return found
    raise AssertionError("the stream has ended")


async def test_several_runs_come_in_one_stream(page_cluster: PageCluster) -> None:
    """Each message has all of one run; NaN becomes null."""
    for name in ("a", "b"):
        page_cluster.put("tfjobs", a_job(name, "Running"))
        page_cluster.put("pods", a_pod(name, status=running()))
        page_cluster.write_log(f"{name}-worker-0", b"step 10: loss = 0.5\nstep 20: loss = nan\n")

    def both_are_read(found: dict[str, Any]) -> bool:
        return [each["curves"].get("loss") for each in found.values()] == [[[10, 0.5], [20, None]]] * 2

    async with a_page(page_cluster) as browser:
        found = await messages(browser, "run=team/a&run=team/b&run=team/a", both_are_read)
    assert found["team/b"]["progress"]["step"] == 20


async def test_what_keeps_a_run_from_being_read_is_said(page_cluster: PageCluster) -> None:
    """A job without pods, a job that is not there, a right that is missing; more runs than can be drawn are left out."""
    page_cluster.forbidden.add("pods/log")
    page_cluster.put("tfjobs", a_job("a", "Running"))
    page_cluster.put("pods", a_pod("a"))
    async with a_page(page_cluster) as browser:
        runs = "&".join(f"run=team/{name}" for name in "abcdefghijk")
        found = await messages(browser, runs, lambda found: "pods/log" in found.get("team/a", {}).get("error", ""))
        found |= await messages(browser, runs, lambda found: len(found) == MAX_RUNS)
        assert found["team/b"]["error"] == "no replica has a pod"
        assert {*found} == {f"team/{name}" for name in "abcdef"}
        page_cluster.forbidden.add("pods")
        page_cluster.stop()
        page_cluster.start()
        await messages(browser, "run=team/b", lambda found: 'resource "pods"' in found["team/b"]["error"])
