"""The packages of setup.cfg: complete, mapped to the folders of this checkout, and without links in git. The public names."""

import ast
import asyncio
import configparser
import re
import subprocess
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from fakes.cluster import ModelCluster
from fakes.objects import Pod
from hack.package_links import link_packages, package_dirs
from kit.cluster import Cluster, Simulate
from kit.model.kinds import NAMESPACES
from kit.model.transport import ModelTransport
from kit.virtual_loop import VirtualClock
from support.cases import for_each
from support.library import LIBRARY, NAME, PUBLIC, example, library
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.core import CONFIG_MAPS
from tfjob_operator.api.meta import ObjectMeta, Struct, index_by_owner
from tfjob_operator.controller.manager import Controller
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter, RateLimitingQueue

ROOT = Path(__file__).parents[2]
MAPPED = package_dirs(ROOT)
LINKS_IN_THE_CHART = "manifests/chart/files/"
PAGE = ROOT / "docs" / "compatibility.md"
PROVISIONAL = {"testing.cluster": "Cluster Simulate"}
"""Names of the test kit, which may change in a minor version."""
WHOLE = {
    "api.client", "controller.events", "controller.framework", "controller.leaderelection", "controller.manager",
    "informers", "workqueue",
}  # fmt: skip
"""The packages whose `__all__` has public names only."""


def test_every_top_level_package_is_mapped_below_the_one_name() -> None:
    """`package_dir` has the folder of the name itself, and each package beside it."""
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    expected = {NAME: ROOT / NAME} | {f"{NAME}.{folder}": ROOT / folder for folder in folders - {NAME}}
    assert expected == MAPPED


def test_every_package_is_listed() -> None:
    """A package that is missing in the list works in a checkout, and is missing in the wheel and in the image."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    listed = settings["options"]["packages"].split()
    found = {
        ".".join((package, *path.parent.relative_to(folder).parts))
        for package, folder in MAPPED.items()
        for path in folder.rglob("*.py")
    }
    assert listed == sorted(found), "\n".join(["packages of setup.cfg should be:", *sorted(found)])


def test_git_has_no_links_outside_the_chart() -> None:
    """Links hide imports from tools, show every file twice to a search, and are plain files in a checkout on Windows."""
    staged = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    links = [line.partition("\t")[2] for line in staged.splitlines() if line.startswith("120000 ")]
    assert [link for link in links if not link.startswith(LINKS_IN_THE_CHART)] == []


@for_each("package", sorted(MAPPED))
def test_the_packages_are_imported_from_this_checkout(package: str) -> None:
    """The environment of another checkout would resolve `tfjob_operator` here and the packages below it there."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).samefile(MAPPED[package] / "__init__.py")


def test_links_give_the_layout_of_the_installed_package(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for folder in ("name", "first"):
        (checkout / folder).mkdir(parents=True)
        (checkout / folder / "__init__.py").write_text(folder)
    (checkout / "setup.cfg").write_text("[options]\npackage_dir =\n    name = name\n    name.one = first\n")
    for target in (tmp_path / "links", checkout, checkout):
        link_packages(checkout, target)
        assert (target / "name" / "__init__.py").read_text() == "name"
        assert (target / "name" / "one" / "__init__.py").read_text() == "first"
    assert not (checkout / "name" / "__init__.py").is_symlink()


def test_a_checkout_without_a_mapping_needs_no_links(tmp_path: Path) -> None:
    """Releases before `package_dir` have links of their own."""
    (tmp_path / "setup.cfg").write_text("[options]\npackages = find:\n")
    link_packages(tmp_path, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["setup.cfg"]


@for_each("module", PUBLIC)
def test_every_public_name_can_be_imported(module: str) -> None:
    """A new name of a package is promised, too: from the moment in which it is in `__all__`."""
    found = import_module(f"{NAME}.{module}")
    promised = PUBLIC[module].split()
    library()
    assert [name for name in promised if not hasattr(import_module(f"{LIBRARY}.{module}"), name)] == []
    if module in WHOLE:
        assert sorted(found.__all__) == sorted(promised)


def test_the_examples_import_public_names_only() -> None:
    """They are what docs/write-a-controller.md explains."""
    imported = {
        (node.module or "", name.name)
        for path in (ROOT / "hack" / "examples").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    ours = {(module.removeprefix(f"{LIBRARY}."), name) for module, name in imported if module.startswith(f"{LIBRARY}.")}
    assert ours
    public = PUBLIC | PROVISIONAL
    assert {(module, name) for module, name in ours if name not in public.get(module, "").split()} == set()


def examples() -> dict[str, str]:
    """Return the code of the docstring of each public module that has code."""
    found = {name: cleandoc(import_module(f"{NAME}.{name}").__doc__ or "") for name in PUBLIC}
    code = {
        name: "\n".join(line for line in text.splitlines() if re.match(r"    (?! *[+|])", line))
        for name, text in found.items()
    }
    return {name: text for name, text in code.items() if text}


class Kettle(Struct, frozen=True):
    """The kind of the examples."""

    metadata: ObjectMeta


@pytest.mark.parametrize(("name", "code"), examples().items(), ids=[*examples()])
async def test_the_examples_of_docstrings_run(name: str, code: str) -> None:
    """With public names, and what the reader has: a client, a kind, a sync. One used a constant that did not exist."""
    cluster = await ModelCluster[Any]("default").begin()
    await cluster.client.create(NAMESPACES, "", {"metadata": {"name": "kube-system"}})
    transport = ModelTransport(cluster.server, "example")
    synced: list[str] = []

    async def sync(key: str) -> None:
        synced.append(key)

    def stop_soon() -> asyncio.Event:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(5.0, stop.set)
        return stop

    queue: RateLimitingQueue[str] = RateLimitingQueue(ItemExponentialFailureRateLimiter())
    queue.add("ns/a")
    asyncio.get_running_loop().call_later(5.0, queue.shut_down)
    controller = Controller("example", sync, queue=queue)
    kettle = Kettle(metadata=ObjectMeta(name="blue", namespace="default", uid="1"))
    names = {
        each: getattr(import_module(f"{NAME}.{module}"), each) for module in PUBLIC for each in PUBLIC[module].split()
    }
    names |= {"asyncio": asyncio, "Pod": Pod, "Kettle": Kettle, "KETTLES": CONFIG_MAPS, "kettle": kettle}
    names |= {"Cluster": Cluster, "Simulate": Simulate}  # of the test kit, which has no public names yet
    names |= {"client": RestClient(transport), "transport": transport, "lease_transport": transport, "queue": queue}
    names |= {
        "LeaseClock": VirtualClock,
        "sync": sync,
        "controller": controller,
        "stop_on_signals": stop_soon,
        "owner_uids": index_by_owner,
    }
    given: dict[str, Any] = {**names}
    exec(f"async def example():\n{code}\n", given)
    await given["example"]()
    assert (name != "workqueue") or synced == ["ns/a"]


async def test_the_code_of_the_guide_is_programs_that_import_all_they_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each section. They are given the client, and the functions that hack/examples/mirror.py shows."""
    mirror = example("mirror")
    cluster = await ModelCluster[Any]("default").begin()
    stop, synced = asyncio.Event(), []

    async def sync(key: str) -> None:
        synced.append(key)
        stop.set()

    monkeypatch.setattr(import_module(f"{LIBRARY}.controller.manager"), "stop_on_signals", lambda: stop)
    await cluster.client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
    guide = (ROOT / "docs" / "write-a-controller.md").read_text(encoding="utf-8")
    given = {"client": mirror.RestClient(ModelTransport(cluster.server, "guide"))}
    given |= {"sync": sync, "keys_of": mirror.keys_of}
    for section in guide.partition("\n## Test a controller")[0].split("\n## "):
        if code := "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)):
            program = dict(given)
            exec(f"async def program():\n{indent(code, '    ')}\n", program)
            async with asyncio.timeout(600.0):
                await program["program"]()
        for module, names in re.findall(rf"^from {LIBRARY}(?:\.(\S+))? import (.*)$", code, re.MULTILINE):
            promised = PUBLIC[module or "controller.framework"].split()
            assert [name for name in names.split(", ") if name not in promised] == []
    assert set(synced) == {"default/a"}


def test_every_module_that_the_guide_names_is_there() -> None:
    library()
    guide = (ROOT / "docs" / "write-a-controller.md").read_text(encoding="utf-8")
    for name in set(re.findall(rf"`({LIBRARY}(?:\.\w+)+)`", guide)):
        import_module(name)


@for_each(
    "shown",
    (
        ("from-kopf", "website_kopf"),
        ("from-kopf", "website"),
        ("write-a-controller", "foo"),
        ("write-a-controller", "spread"),
    ),
)
def test_a_page_shows_the_whole_program_that_it_explains(
    shown: tuple[str, str], check_generated: Callable[[Path, str], None]
) -> None:
    page, program = ROOT / "docs" / f"{shown[0]}.md", ROOT / "hack" / "examples" / f"{shown[1]}.py"
    before, begin, rest = page.read_text().partition(f"<!-- generated: hack/examples/{shown[1]}.py -->\n")
    _, end, after = rest.partition("<!-- end of generated -->\n")
    assert end
    check_generated(page, f"{before}{begin}\n```python\n{program.read_text()}```\n\n{end}{after}")


def test_the_guide_shows_the_test_of_the_example_as_it_runs() -> None:
    guide = (ROOT / "docs" / "write-a-controller.md").read_text(encoding="utf-8").partition("## Test a controller")[2]
    (shown,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert (ROOT / "hack" / "examples" / "test_mirror.py").read_text(encoding="utf-8").endswith(shown)


def test_the_page_lists_the_public_names(check_generated: Callable[[Path, str], None]) -> None:
    rows = [
        f"| `{LIBRARY}.{module}`, `{NAME}.{module}` | {', '.join(f'`{name}`' for name in PUBLIC[module].split())} |"
        for module in PUBLIC
    ]
    table = "\n".join(["| module | names |", "| --- | --- |", *rows])
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- generated: public-python-names -->\n\n")
    _, end, after = rest.partition("\n\n<!-- end of generated -->\n")
    assert after
    check_generated(PAGE, f"{before}{begin}{table}{end}{after}")
