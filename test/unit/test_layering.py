"""The arrows of docs/architecture.md, as a test: who may import whom, and which package may import which library."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("api", "controller", "informers", "workqueue")
NAME = "tfjob_operator"
"""The one name under which all is imported. The rules below leave it out."""

# What a module may import of ours, by the longest prefix of its name that stands here.
MAY_IMPORT = {
    "workqueue": ("workqueue",),
    "api": (),
    "api.depth": (),
    "api.meta": (),
    "api.text": (),
    "api.core": ("api.meta",),
    "api.coordination": ("api.meta",),
    "api.events": ("api.meta", "api.core"),
    "api.scheduling": ("api.meta",),
    "api.v1": ("api.depth", "api.meta", "api.core", "api.text", "api.v1"),
    "api.client": ("api.client", "api.depth", "api.meta", "api.text", "workqueue"),
    "api.client.auth": ("api.client.auth", "api.client.http"),
    "api.client.http": ("api.client.http",),
    "informers": ("informers", "api.depth", "api.meta", "api.client", "workqueue"),
    "controller": (
        "controller.app",
        "controller.leaderelection",
        "controller.observability",
        "controller.options",
        "api.client",
    ),
    "controller.app": ("controller", "informers", "api", "workqueue"),
    "controller.tfjob": (
        "controller.tfjob",
        "controller.events",
        "controller.manager",
        "informers",
        "api",
        "workqueue",
    ),
    "controller.events": (
        "controller.events",
        "api.client",
        "api.core",
        "api.events",
        "api.meta",
        "api.text",
        "workqueue",
    ),
    "controller.leaderelection": (
        "controller.leaderelection",
        "api.client",
        "api.coordination",
        "api.meta",
        "workqueue",
    ),
    "controller.manager": (
        "controller.manager",
        "controller.leaderelection",
        "controller.observability",
        "api.client",
        "informers",
        "workqueue",
    ),
    "controller.observability": ("controller.observability", "api.text", "workqueue"),
}
# What is pure knows values, and no more: nothing that acts, no clock, no log. `decide` asks `build` how long a body would be.
VALUES = ("api.meta", "api.core", "api.scheduling", "api.text", "api.v1", "controller.tfjob.children")
MAY_IMPORT |= {
    "controller.tfjob.children": VALUES,
    "controller.tfjob.build": (*VALUES, "controller.tfjob.build"),
    "controller.tfjob.decide": (*VALUES, "controller.tfjob.build", "controller.tfjob.decide"),
}
PURE = ("controller.tfjob.children", "controller.tfjob.build", "controller.tfjob.decide")

ONLY_IN = {
    "kubernetes": ("api.client.auth.kubeconfig",),
    "aiohttp": (),  # for the three pages of a process it would cost 12 MB
    "httptools": ("api.client.http.response_parser", "controller.observability.http_server"),
    "aiohappyeyeballs": ("api.client.http.sockets",),
    "prometheus_client": ("controller.observability",),
    "time": (),  # the clock is injected
}
PURE_LIBRARIES = {
    "__future__",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "msgspec",
    "re",
    "typing",
}
"""What pure modules are made with: none of it reads a clock (but `datetime.now`), draws, writes or waits."""


def modules() -> list[tuple[str, Path]]:
    """Every module of the product, by its dotted name."""
    found = []
    for package in FOLDERS:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            # `from x.api import core` is about the module, `from x.api.core import Pod` about the one that it is taken from.
            names |= inside if all(is_module(name) for name in inside) else {node.module}
    return names


def is_module(name: str) -> bool:
    """Whether a dotted name is a module of ours, and not something inside one."""
    path = ROOT.joinpath(*name.removeprefix(f"{NAME}.").split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether `name` is one of the prefixes or lies below one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_a_module_imports_only_what_lies_below_it(module: str, path: Path) -> None:
    """api.{meta,core,v1}, workqueue <- api.client <- informers <- controller; libraries stay where they belong."""
    rule = max((prefix for prefix in MAY_IMPORT if within(module, (prefix,))), key=len)
    for name in imports_of(path):
        assert not within(name, (*FOLDERS, "hack", "fakes")), f"{module} imports {name}: ours are below {NAME}"
        ours = name.removeprefix(f"{NAME}.")
        if ours != name:
            assert within(ours, MAY_IMPORT[rule]), f"{module} imports {ours}"
        for library, places in ONLY_IN.items():
            if within(name, (library,)):
                assert within(module, places), f"{module} imports {library}"


@pytest.mark.parametrize(
    ("module", "path"),
    [each for each in modules() if within(each[0], PURE)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_decides_and_builds_reads_no_clock_writes_nothing_and_logs_nothing(module: str, path: Path) -> None:
    """So that it can be tested by tables and properties, and a plan depends on nothing but what was observed."""
    libraries = {name.partition(".")[0] for name in imports_of(path)} - {NAME}
    assert libraries <= PURE_LIBRARIES, f"{module} imports {libraries - PURE_LIBRARIES}"
    called = {node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called}
    assert not names & {"now", "today", "open", "print"}, f"{module} calls {names}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor for the sake of types alone: what can only be read together is one module, or its border runs elsewhere."""
    paths = dict(modules())
    imported = {
        module: {ours for name in imports_of(path) if (ours := name.removeprefix(f"{NAME}.")) in paths}
        for module, path in paths.items()
    }
    while bottom := {module for module, below in imported.items() if not below & imported.keys()}:
        imported = {module: below for module, below in imported.items() if module not in bottom}
    while top := imported.keys() - set().union(*imported.values()):
        imported = {module: below for module, below in imported.items() if module not in top}
    assert not imported, sorted(imported)


@pytest.mark.parametrize("folder", ["hack", "test"])
def test_tools_and_tests_import_the_product_by_its_one_name(folder: str) -> None:
    """`api.meta` and `tfjob_operator.api.meta` would be two modules with classes of their own."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        found = {name for name in imports_of(path) if within(name, FOLDERS)}
        assert not found, f"{path.relative_to(ROOT)} imports {sorted(found)}"


@pytest.mark.parametrize("path", sorted((ROOT / "api" / "client" / "http").glob("*.py")), ids=lambda path: path.stem)
def test_the_http_client_has_no_word_of_kubernetes(path: Path) -> None:
    """It is a floor of its own: whoever talks HTTP to one server could use it alone."""
    words = set(re.findall(r"[a-z]+", path.read_text().lower()))
    assert not words & {"kube", "kubernetes", "kubeconfig", "apiserver", "pod", "pods", "watch", "lease", "namespace"}


def test_the_programs_of_a_control_plane_are_built_without_a_word_of_running_it() -> None:
    """hack/control_plane has two floors: `run` stands upon `build`."""
    folder = ROOT / "hack" / "control_plane" / "build"
    imported = {name for path in folder.glob("*.py") for name in imports_of(path) if within(name, ("hack",))}
    shared = ("hack.control_plane.errors", "hack.control_plane.progress", "hack.kubernetes_versions")
    assert {name for name in imported if not within(name, ("hack.control_plane.build", *shared))} == set()
