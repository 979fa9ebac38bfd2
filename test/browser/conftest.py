"""A dashboard as started by a user, and a real Chromium that opens it. Without Chromium these tests are skipped."""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from browser.scene import fill
from hack import browser as tools
from hack.page_cluster import DASHBOARD, PageCluster, page_of
from support.machine import lacks

ROOT = Path(__file__).parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of these tests; pytest knows them when it is given a path in this folder."""
    parser.addoption("--screenshots", action="store_true", help="write the pictures of docs/images anew")


def pytest_runtest_setup() -> None:
    """Skip these tests if there is no browser."""
    if reason := tools.missing():
        pytest.skip(lacks(*reason))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. Its driver has an event loop of its own, which must have ended when tests of other modules need one."""
    sys.path.insert(0, str(tools.playwright()))
    driver = importlib.import_module("playwright.sync_api")
    options = {"executable_path": tools.chromium(), "args": ["--no-sandbox"]}  # root has none
    with driver.sync_playwright() as started, started.chromium.launch(**options) as shown:
        yield shown


class Dashboard(NamedTuple):
    """A running `kubectl tfjob dashboard`. `cluster` is what it shows."""

    cluster: PageCluster
    process: subprocess.Popen[str]
    address: str


@contextmanager
def dashboard_of(
    *options: str, scene: Callable[[PageCluster], None] = fill, forbidden: Iterable[str] = ()
) -> Iterator[Dashboard]:
    """Run `kubectl tfjob dashboard` as a user of a cluster with this scene would."""
    with PageCluster().running() as cluster:
        cluster.forbidden |= {*forbidden}
        scene(cluster)
        with page_of(cluster.kubeconfig, *DASHBOARD, *options) as (process, address):
            yield Dashboard(cluster, process, address)


@pytest.fixture(scope="module")
def dashboard(request: pytest.FixtureRequest) -> Iterator[Dashboard]:
    """A page with the jobs that the module's FILL puts, by default the scene's; each test has to undo its changes."""
    with dashboard_of(scene=getattr(request.module, "FILL", fill)) as started:
        yield started


class Looking:
    """A tab. `errors` is what the browser complained about, such as a script that the policy forbids."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", lambda said: self.errors.extend([said.text] if said.type == "error" else []))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, path: str) -> Any:
        """Go to an address, or a path of the page."""
        self.page.goto(path)
        return self.page

    def open_jobs(self) -> None:
        """Go to the list of jobs, and wait until it has some."""
        self.open("/")
        self.shows("tr[data-key]")

    def shows(self, selector: str, text: str = "") -> Any:
        """Wait until a matching element is visible, and return it."""
        found = self.page.locator(selector, has_text=text).first
        found.wait_for(state="visible", timeout=20_000)
        return found

    def gone(self, selector: str) -> None:
        """Wait until the first matching element is hidden or gone."""
        self.page.locator(selector).first.wait_for(state="hidden", timeout=20_000)


@contextmanager
def browsing(chromium: Any, address: str, **look: Any) -> Iterator[Looking]:
    """A tab for the page at this address, in a browser of its own, which nobody has used before."""
    with chromium.new_context(reduced_motion="reduce", base_url=address, **look) as context:
        yield Looking(context.new_page())


@pytest.fixture(scope="module")
def session(chromium: Any, dashboard: Dashboard) -> Any:
    """The storage state, with the secret, of a browser that has used the token."""
    with browsing(chromium, dashboard.address) as looking:
        looking.open(dashboard.address)
        looking.shows("tr[data-key]")
        return looking.page.context.storage_state()


@pytest.fixture
def tab(chromium: Any, dashboard: Dashboard, session: Any, request: pytest.FixtureRequest) -> Iterator[Looking]:
    """A tab of a browser that has used the token; a parameter changes its size."""
    look = {"viewport": {"width": 1280, "height": 800}, **getattr(request, "param", {})}
    with browsing(chromium, dashboard.address, storage_state=session, **look) as looking:
        yield looking
    assert looking.errors == []


def reads_well(page: Any) -> bool:
    """Whether axe finds nothing serious on a page as it is shown now, light and dark, and a phone has room for it."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        if tools.axe().is_file():
            page.evaluate(tools.axe().read_text("utf-8"))
            found = page.evaluate("axe.run()")["violations"]
            bad = [each for each in found if each["impact"] in {"serious", "critical"}]
            assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in bad] == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 800})
    return True
