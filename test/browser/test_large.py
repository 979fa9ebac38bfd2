"""The dashboard with hundreds of jobs and a thousand replicas in a real Chromium: problems are found at once."""

import pytest

from browser.conftest import Looking, reads_well
from browser.scene import MANY, SICK, TEAMS, WIDE, fill_many
from support.waiting import eventually

FILL = fill_many
MOST = 200
UNHEALTHY = {f"sweep-{number}" for numbers in SICK.values() for number in numbers} | {"wide", "restarts"}


def names(tab: Looking) -> list[str]:
    """What the rows on the screen are called."""
    return [str(each) for each in tab.page.locator("tr[data-key] td.name > :first-child").all_inner_texts()]


def test_sick_jobs_stand_first_each_with_its_reason(tab: Looking) -> None:
    """Also in words of the API server, so that nobody has to open a job to know what is wrong."""
    tab.open_jobs()
    assert {*names(tab)[: len(UNHEALTHY)]} == UNHEALTHY
    assert reads_well(tab.page)
    tab.page.get_by_role("button", name="Unhealthy").click()
    tab.gone("tr[data-key$='sweep-2']")
    rows, took = (
        dict(zip(names(tab), tab.page.locator(column).all_inner_texts(), strict=True))
        for column in ("td.reason", "td.took")
    )
    assert {*rows} == UNHEALTHY
    assert rows["sweep-0"].startswith("Unschedulable: 0/12 nodes are available")
    assert rows["sweep-41"] == "ExitCode:3: ValueError: shapes differ"
    assert rows["sweep-120"] == "ImagePullBackOff: Back-off pulling image train:2"
    assert took["sweep-41"]
    assert reads_well(tab.page)


def test_a_long_list_has_pages_and_filters_that_cover_all_of_it(tab: Looking) -> None:
    """At most so many rows are in the document."""
    tab.open_jobs()
    seen = names(tab)
    tab.page.get_by_role("button", name="Next").click()
    tab.gone("tr[data-key$='wide']")
    assert (len(seen), len({*seen, *names(tab)})) == (MOST, MANY + 2)
    tab.page.get_by_label("Filter jobs").fill("sweep-299")
    tab.gone("tr[data-key$='sweep-298']")
    assert names(tab) == ["sweep-299"]
    tab.page.get_by_label("Filter jobs").fill("")
    tab.page.get_by_label("Namespace").select_option(TEAMS[1])
    tab.gone("tr[data-key^='vision']")
    assert len(names(tab)) == MANY / 3
    assert tab.page.locator("#where").inner_text() == "team-cluster", "the chooser says which namespaces"
    assert f"ns={TEAMS[1]}" in tab.page.url
    tab.gone("td.ns")
    tab.gone("th.queue")  # no job has a queue
    tab.page.get_by_label("Namespace").select_option(TEAMS[0])
    tab.shows(".chip", "Failed0").click()  # a state that only other namespaces have
    tab.page.get_by_role("button", name="Created").click()
    tab.page.locator("tr[data-key] a").first.click()
    tab.shows(".crumbs")
    tab.page.keyboard.press("u")
    tab.shows("tr[data-key]")
    assert tab.page.url.endswith(f"?ns={TEAMS[0]}&state=Created")


def test_a_thousand_replicas_can_be_searched_and_the_sick_ones_stand_first(tab: Looking) -> None:
    """Logs and timeline offer so many of them, too, the worst among them. The longest states are not cut."""
    tab.open("/vision/wide")
    tab.shows(".replicas td")
    assert names(tab)[:3] == ["Worker 877", "Worker 512", "Worker 400"]
    assert len(names(tab)) == MOST
    assert {"OOMKilled", "137"} <= {*tab.shows(".replicas tr", "CrashLoopBackOff").inner_text().split()}
    cut = "all => all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.outerHTML)"
    assert tab.page.locator(".replicas td.state").evaluate_all(cut) == []
    assert reads_well(tab.page)
    box, button = (tab.shows(each).bounding_box() for each in (".why", ".why .all"))
    assert button["width"] > 0.99 * box["width"]  # so no command is half covered
    tab.shows(".why .all", "Show all").click()
    tab.gone(".why .all")
    tab.page.get_by_role("button", name="Unhealthy").click()
    eventually(lambda: len(names(tab)) == 2, "only the sick are shown")
    tab.page.get_by_role("button", name="All").click()
    tab.page.get_by_label("Filter replicas").fill("worker-999")
    eventually(lambda: names(tab) == ["Worker 999"], "any replica is found")
    tab.shows(".facts", "Restarts").get_by_text("68").wait_for()
    tab.open("/vision/wide?tab=timeline")
    for worker in (877, 512):
        tab.shows(".gantt .name", f"Worker {worker}")
    tab.shows(".legend", f"{WIDE - MOST} more replicas")
    assert tab.page.locator(".gantt .name").count() == MOST
    tab.open("/vision/wide?tab=logs")
    tab.shows(".log-bar")
    options = tab.page.locator(".log-bar select").first.locator("option").all_inner_texts()
    assert (len(options), {"All replicas", "Worker 877"} <= {*options}) == (MOST, True)


def test_the_timeline_shows_restarts_up_to_the_last_run(tab: Looking) -> None:
    """In place, and of pods that were deleted long ago: the replica does not seem to start, or not to have run at all."""
    tab.open("/vision/restarts?tab=timeline")
    assert tab.shows(".gantt").locator(".count").all_text_contents() == ["92 restarts", "7 restarts"]
    widths = tab.page.locator(".gantt rect").evaluate_all(
        "all => Object.fromEntries(all.map((each) => [each.textContent.split(' for ')[0], each.width.baseVal.value]))"
    )
    assert widths["Worker 0: Starting"] * 50 < widths["Worker 0: 92 restarts"]
    assert widths["Worker 1: Running"] * 3 < widths["Worker 1: 7 restarts"]
    assert reads_well(tab.page)


@pytest.mark.parametrize("tab", [{"viewport": {"width": 390, "height": 800}}], indirect=True, ids=["phone"])
def test_a_phone_shows_restarts_exit_codes_logs_and_every_tab(tab: Looking) -> None:
    """In cards, without scrolling sideways."""
    for path, selectors in {
        "/?q=sweep-41": ["td.reason:has-text('shapes differ')"],
        "/vision/wide?q=worker-877": ["td.restarts:has-text('65')"],
        "/nlp/sweep-241": ["td.exit:has-text('3')", "td.link a", ".tabs a >> nth=0", ".tabs a >> nth=5"],
        "/vision/restarts?tab=timeline": [".gantt .count"],
        "/nlp/sweep-241?tab=events": [".events td.words"],
    }.items():
        tab.open(path)
        for selector in selectors:
            box = tab.shows(selector).bounding_box()
            assert 0 <= box["x"] < box["x"] + 15 < box["x"] + box["width"] <= 390
