"""Curves as the page gets them: read from logs while somebody looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.page_cluster import PageCluster
from tfjob_operator.cli.diagnosis.objects import Pod
from tfjob_operator.cli.page.details import MOST_RUNS, telling_pod
from unit.cli.page.browser import Browser, a_page, rows_of
from unit.cli.page.things import a_job, a_pod, pod, running, waiting


@pytest.mark.parametrize(
    ("pods", "name"),
    [
        ([pod("a", "Worker", 1), pod("a", "Worker", 0), pod("a", "PS")], "a-worker-0"),
        ([pod("a", "Worker", 0), pod("a", "Chief")], "a-chief-0"),
        ([pod("a", "Chief", status=waiting("ErrImagePull")), pod("a", "Worker")], "a-worker-0"),
        ([pod("a", "PS"), pod("a", "Evaluator")], None),
    ],
)
def test_the_chief_tells_how_a_training_goes_or_the_first_worker(pods: list[Pod], name: str | None) -> None:
    """The first of them that has written anything."""
    found = telling_pod(pods)
    assert (found.metadata.name if found is not None else None) == name


async def messages(browser: Browser, query: str, whole: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The newest message of each run, as soon as they are `whole`."""
    found: dict[str, Any] = {}
    async with browser.http.get(f"{browser.home}/-/curves?{query}") as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                run = json.loads(line.removeprefix(b"data: "))
                found[run["run"]] = run
                if whole(found):
                    return found
    raise AssertionError("the stream has ended")


def both_are_read(found: dict[str, Any]) -> bool:
    """Whether two lines of each log are in the messages."""
    return [len(found.get(key, {}).get("curves", {}).get("loss", ())) for key in ("team/a", "team/b")] == [2, 2]


async def test_several_runs_come_in_one_stream_and_go_on_as_their_logs_do(
    page_cluster: PageCluster, page_kubeconfig: Path
) -> None:
    """Each message has all of one run; NaN becomes null."""
    for name in ("a", "b"):
        page_cluster.put("tfjobs", a_job(name, "Running"))
        page_cluster.put("pods", a_pod(name, status=running()))
        page_cluster.write_log(f"{name}-worker-0", b"step 10: loss = 0.5\nstep 20: loss = nan\n")
    async with a_page(page_kubeconfig) as browser:
        await browser.enter()
        await rows_of(browser)
        found = await messages(browser, "run=team/a&run=team/b&run=team/a", both_are_read)
        assert found["team/a"]["curves"]["loss"] == [[10, 0.5], [20, None]]
        assert found["team/b"]["progress"]["step"] == 20
        async with browser.http.get(f"{browser.home}/-/curves?run=team/a") as response:
            is_told = False
            async for line in response.content:
                if line.startswith(b"data: "):
                    loss = json.loads(line.removeprefix(b"data: "))["curves"].get("loss", [])
                    if loss[-1:] == [[30, 0.25]]:
                        return
                    if len(loss) == 2 and not is_told:
                        is_told = True
                        page_cluster.write_log("a-worker-0", b"step 30: loss = 0.25\n")
        raise AssertionError("the stream has ended")


async def test_what_keeps_a_run_from_being_read_is_said(page_cluster: PageCluster, page_kubeconfig: Path) -> None:
    """A job without pods, a job that is not there, a right that is missing; more runs than can be drawn are left out."""
    page_cluster.forbidden.add("pods/log")
    page_cluster.put("tfjobs", a_job("a", "Running"))
    page_cluster.put("pods", a_pod("a"))
    async with a_page(page_kubeconfig) as browser:
        await browser.enter()
        await rows_of(browser)
        runs = "&".join(f"run=team/{name}" for name in "abcdefghijk")
        found = await messages(browser, runs, lambda found: "pods/log" in found.get("team/a", {}).get("error", ""))
        found |= await messages(browser, runs, lambda found: len(found) == MOST_RUNS)
        assert found["team/b"]["error"] == "no replica has written anything yet"
        assert {*found} == {f"team/{name}" for name in "abcdef"}
