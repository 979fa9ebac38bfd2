"""The arrows of docs/architecture.md, as a test: who may import whom, and which package may import which library."""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from support.cases import for_each

ROOT = Path(__file__).parents[2]
FOLDERS = "api cli controller informers workqueue"
NAME = "tfjob_operator"
"""The one name under which all is imported. The rules below leave it out."""

# What a module may import of ours, by the longest prefix of its name that stands here. What is pure knows values, and no more:
# nothing that acts, no clock, no log. `plan` asks `build` how long a body would be.
API_VALUES = "api.core api.decoding api.meta api.resources api.text api.v1"
VALUES = f"{API_VALUES} controller.jobs.children controller.jobs.draft controller.jobs.pods"
SEEN = "api.meta api.text api.v1 cli.durations cli.model cli.timelines"
# What the page shows, made of what it has: the rest of cli/page reads and serves.
PAGE_VIEWS = "cli.page.objects cli.page.views"
ALPHA = "controller.alpha.batch_jobs controller.alpha.build controller.alpha.observe controller.alpha.alpha_plan"
ALPHA_VALUES = f"{VALUES} api.v1alpha1 controller.alpha.batch_jobs"
BOARD = "controller.tensorboard.desired controller.tensorboard.dialects controller.tensorboard.request"
CONTROLS = "controller.events controller.manager informers api workqueue"
MAY_IMPORT = {
    "workqueue": "workqueue",
    "api": "",
    "api.core": "api.meta",
    "api.credential_plugin": "api.access",
    "api.kubeconfig": "api.access api.credential_plugin",
    "api.core_messages": "api.core api.meta api.protobuf",
    "api.kinds": "api.core api.meta",
    "api.resources": "api.core api.meta",
    "api.v1": "api.decoding api.meta api.core api.text api.v1",
    "api.v1alpha1": "api.decoding api.meta api.core api.text api.v1 api.v1alpha1",
    "api.client": "api.access api.client api.decoding api.meta api.protobuf api.retry api.text workqueue",
    "api.client.auth": "api.access api.kubeconfig api.client.auth api.client.http",
    "api.client.http": "api.client.http",
    "informers": "informers api.decoding api.meta api.protobuf api.retry api.client workqueue",
    "cli": "cli informers api workqueue",
    "cli.model": f"{API_VALUES} api.v1alpha1 cli.durations cli.model",
    "cli.logs.follower": "cli.logs.follower cli.logs.lines",
    "cli.diagnosis": f"{API_VALUES} api.v1alpha1 cli.diagnosis cli.durations cli.model cli.operators cli.training",
    "cli.training": "cli.training",
    "cli.timelines": SEEN,
    "cli.status": f"{SEEN} cli.sizes cli.status",
    **dict.fromkeys(
        PAGE_VIEWS.split(), f"{API_VALUES} api.v1alpha1 cli.diagnosis cli.model cli.timelines {PAGE_VIEWS}"
    ),
    "controller": (
        "controller.composition controller.manager controller.leaderelection controller.observability controller.config.file "
        "controller.kubeconfig controller.options api.access api.kubeconfig api.client api.v1.constants"
    ),
    "controller.composition": "controller informers api workqueue",
    "controller.alpha": f"controller.alpha controller.config.values controller.jobs {CONTROLS}",
    "controller.alpha.batch_jobs": ALPHA_VALUES,
    "controller.alpha.build": f"{ALPHA_VALUES} controller.config.values",
    "controller.alpha.observe": ALPHA_VALUES,
    "controller.alpha.alpha_plan": f"{ALPHA_VALUES} controller.alpha.observe",
    "controller.config": "controller.config controller.events api.client api.core api.meta workqueue",
    "controller.config.values": "api.meta",
    "controller.framework": (
        "controller.framework controller.events controller.leaderelection controller.manager controller.observability "
        "api.client api.core api.kinds api.meta informers workqueue"
    ),
    "controller.jobs": f"controller.jobs {CONTROLS}",
    **dict.fromkeys(VALUES.split()[-3:], VALUES),
    "controller.tfjob": f"controller.tfjob controller.config.values controller.jobs {CONTROLS}",
    "controller.tfjob.build": f"{VALUES} controller.config.values controller.tfjob.build",
    "controller.tfjob.plan": f"{VALUES} controller.tfjob.build controller.tfjob.plan",
    "controller.tensorboard": f"controller.tensorboard controller.framework controller.jobs.writes {CONTROLS}",
    **dict.fromkeys(BOARD.split(), f"api.meta api.core api.kinds api.v1 api.v1alpha1 {BOARD}"),
    "controller.events": "controller.events api.client api.core api.meta api.text workqueue",
    "controller.leaderelection": "controller.leaderelection api.client api.core api.meta workqueue",
    "controller.manager": (
        "controller.manager controller.events controller.leaderelection controller.observability api.client api.meta informers "
        "workqueue"
    ),
    "controller.observability": "controller.observability api.text workqueue",
}
PACKAGES = (
    ("`workqueue/`", "queues, rate limits, back-off, clock", "workqueue"),
    (
        "`api/`",
        "objects as values; `api/v1`: TFJob, defaults, validation; no I/O",
        "api api.core api.core_messages api.kinds api.resources api.v1 api.v1alpha1",
    ),
    (
        "`api/{access,kubeconfig,credential_plugin}`",
        "address and credentials of the API server",
        "api.access api.kubeconfig api.credential_plugin",
    ),
    (
        "`api/client/`",
        "`http/` (independent of Kubernetes), `auth/`, and above them verbs, watches, errors",
        "api.client api.client.auth api.client.http",
    ),
    ("`informers/`", "a cache of the API for any resource", "informers"),
    (
        "`controller/{framework,manager,events,leaderelection,observability}`",
        "what any controller needs, independent of TFJob; `framework` connects it",
        "controller.framework controller.manager controller.events controller.leaderelection controller.observability",
    ),
    ("`controller/config/`", "the configuration file; `values` is pure", "controller.config controller.config.values"),
    (
        "`controller/jobs/`",
        "shared by the controllers of both dialects; `children`, `draft` and `pods` are pure",
        f"controller.jobs {' '.join(VALUES.split()[-3:])}",
    ),
    (
        "`controller/tfjob/{plan,build}/`",
        "the semantics of TFJob. Pure: no clock, I/O or logging",
        "controller.tfjob.plan controller.tfjob.build",
    ),
    ("`controller/tfjob/`", "the effects around them", "controller.tfjob"),
    (
        "`controller/tensorboard/`",
        "a controller for `spec.tensorBoard`; `request` and `desired` are pure",
        f"controller.tensorboard {BOARD}",
    ),
    (
        "`controller/alpha/`",
        "a controller for v1alpha1; `batch_jobs`, `build`, `observe` and `alpha_plan` are pure",
        f"controller.alpha {ALPHA}",
    ),
    (
        "`controller/{__main__,kubeconfig,options,composition}.py`",
        "flags; `composition` connects all parts",
        "controller controller.composition",
    ),
    (
        "`cli/`",
        "`kubectl tfjob` and the dashboard; `model/`, `diagnosis/`, `timelines/`, `status`, `training` are pure",
        f"cli cli.model cli.logs.follower cli.diagnosis cli.training cli.timelines cli.status {PAGE_VIEWS}",
    ),
)
"""The rows of the table of packages in docs/architecture.md: folder, contents, and the rules above that are about it."""
LIBRARY = (
    "workqueue informers api.client api.core api.meta api.retry api.text controller.manager controller.events "
    "controller.leaderelection controller.observability"
)
"""The packages that do not know TFJob."""
PURE = (
    "cli.diagnosis cli.logs.follower cli.model cli.status cli.timelines cli.training controller.alpha.build "
    "controller.alpha.batch_jobs controller.alpha.observe controller.alpha.alpha_plan controller.config.values "
    "controller.tfjob.build controller.tfjob.plan "
    f"{' '.join(VALUES.split()[-3:])} {PAGE_VIEWS} {BOARD}"
)
DISPLAYS = (
    "cli.listing cli.status cli.watching cli.watches cli.timelines.render cli.page.views cli.page.board "
    "cli.commands.list_ cli.commands.watch_ cli.commands.prune_"
)
DECIDERS = "api.core api.v1.conditions cli.model.pods"
DECIDING_WORDS = {"phase", "containerStatuses", "waiting", "terminated", "lastState", "Ready"}
ONLY_IN = {
    "kubernetes": "controller.kubeconfig",
    "aiohttp": "cli.commands.dashboard_ cli.page",  # for the three pages of an operator it would cost 12 MB
    "httptools": "api.client.http.responses controller.observability.http_server",
    "aiohappyeyeballs": "api.client.http.transport",
    "prometheus_client": "controller.observability",
    "click": "cli",
    # Elsewhere it is injected.
    "time": (
        "workqueue.clock cli.session cli.writes cli.commands.list_ cli.commands.logs_ cli.commands.restart_ "
        "cli.commands.tensorboard_ cli.commands.watch_ cli.page.board"
    ),
}
PURE_LIBRARIES = {
    "__future__", "collections", "dataclasses", "datetime", "decimal", "enum", "functools", "hashlib", "itertools", "msgspec",
    "re", "string", "textwrap", "typing", "zlib",
}  # fmt: skip
"""What pure modules are made with: none of it reads a clock (but `datetime.now`), draws, writes or waits."""


class Module(NamedTuple):
    """A module of the product: its dotted name, what it imports, and the lines with an assert or a use of a docstring."""

    name: str
    path: Path
    imports: set[str]
    optimized_away: list[int]


@cache
def modules() -> Sequence[Module]:
    found = []
    for package in FOLDERS.split():
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            nodes = list(ast.walk(ast.parse(path.read_text())))
            gone = [node.lineno for node in nodes if isinstance(node, ast.Assert)]
            gone += [node.lineno for node in nodes if isinstance(node, ast.Attribute) and node.attr == "__doc__"]
            found.append(Module(name, path, imports_in(path, nodes), gone))
    return found


def imports_of(path: Path) -> set[str]:
    return imports_in(path, ast.walk(ast.parse(path.read_text())))


def imports_in(path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    """The modules that a file imports, of which these are the nodes."""
    names: set[str] = set()
    for node in nodes:
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


def within(name: str, prefixes: str) -> bool:
    """Whether `name` is one of these names, or lies below one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes.split())


def row_of(name: str) -> int:
    """The row of the table of packages that a module is in."""
    rows = ((prefix, number) for number, (*_, rules) in enumerate(PACKAGES) for prefix in rules.split())
    return max((len(prefix), number) for prefix, number in rows if within(name, prefix))[1]


def imports_of_row(number: int) -> str:
    """What the modules of a row may import of other rows, as paths. Names of one folder are in braces."""
    rules = PACKAGES[number][-1].split()
    allowed = {name for rule in rules for name in MAY_IMPORT.get(rule, "").split()}
    # The name of a folder stands for all that is below it, in whatever row.
    listed = [name for *_, others in PACKAGES for name in others.split()]
    allowed |= {below for name in allowed for below in listed if below.startswith(f"{name}.")}
    found = {name for name in allowed if row_of(name) != number}
    if number and found >= {rules.split()[0] for *_, rules in PACKAGES[:number]}:
        return "all above"
    found = {name for name in found if not any(name.startswith(f"{other}.") for other in found)}
    words = []
    for what, values in (("api", API_VALUES), ("controller/jobs", " ".join(VALUES.split()[-3:]))):
        if found >= {*values.split()}:
            found -= {*values.split()}
            words.append(f"values of `{what}`")
    folders: dict[str, list[str]] = {}
    for name in sorted(found):
        parent, _, last = name.rpartition(".")
        folders.setdefault(parent, []).append(last)
    for parent, names in folders.items():
        path = "".join(f"{part}/" for part in parent.split(".") if part)
        if parent and len(names) > 1:
            words.append(f"`{path}{{{','.join(names)}}}`")
        else:
            words += [f"`{path}{name}{'' if (ROOT / path / name).is_dir() else '.py'}`" for name in names]
    return ", ".join(words) or "none"


def test_the_table_of_packages_in_the_docs_has_the_imports_that_these_rules_allow(
    check_generated: Callable[[Path, str], None],
) -> None:
    assert {rule for *_, rules in PACKAGES for rule in rules.split()} >= MAY_IMPORT.keys()
    page = ROOT / "docs" / "architecture.md"
    before, begin, rest = page.read_text().partition("<!-- generated: test/unit/test_layering.py -->\n")
    _, end, after = rest.partition("<!-- end of generated -->")
    assert end
    rows = [
        f"| {folder} | {contents} | {imports_of_row(number)} |" for number, (folder, contents, _) in enumerate(PACKAGES)
    ]
    table = "\n".join(["| folder | contents | may import |", "|---|---|---|", *rows])
    check_generated(page, f"{before}{begin}\n{table}\n\n{end}{after}")


@for_each("module", modules())
def test_a_module_imports_only_what_lies_below_it(module: Module) -> None:
    """api.{meta,core,v1}, workqueue <- api.client <- informers <- controller; libraries stay where they belong."""
    rule = max((prefix for prefix in MAY_IMPORT if within(module.name, prefix)), key=len)
    for name in module.imports:
        assert not within(name, f"{FOLDERS} hack fakes kit"), f"{module.name} imports {name}: ours are below {NAME}"
        ours = name.removeprefix(f"{NAME}.")
        if ours != name:
            assert within(ours, MAY_IMPORT[rule]), f"{module.name} imports {ours}"
        for library, places in ONLY_IN.items():
            if within(name, library):
                assert within(module.name, places), f"{module.name} imports {library}"


@for_each("module", [each for each in modules() if within(each.name, PURE)])
def test_what_decides_and_builds_reads_no_clock_writes_nothing_and_logs_nothing(module: Module) -> None:
    """So that it can be tested by tables and properties, and a plan depends on nothing but what was observed."""
    libraries = {name.partition(".")[0] for name in module.imports} - {NAME}
    assert libraries <= PURE_LIBRARIES, f"{module.name} imports {libraries - PURE_LIBRARIES}"
    called = {node.func for node in ast.walk(ast.parse(module.path.read_text())) if isinstance(node, ast.Call)}
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called}
    assert not names & {"now", "today", "open", "print"}, f"{module.name} calls {names}"


@for_each("module", [each for each in modules() if within(each.name, DISPLAYS)])
def test_a_display_has_no_rule_of_its_own(module: Module) -> None:
    """What a job's state is, what a ready pod is, and why a job does not run is decided in cli/model alone."""
    rules = [name for name in module.imports if within(name.removeprefix(f"{NAME}."), DECIDERS)]
    assert not rules, f"{module.name} imports {rules}: read it from a JobSnapshot"
    nodes = ast.walk(ast.parse(module.path.read_text()))
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert not words & DECIDING_WORDS, f"{module.name} has {words & DECIDING_WORDS}: read it from a JobSnapshot"


@for_each("module", modules())
def test_nothing_rests_on_an_assert_or_a_docstring(module: Module) -> None:
    """The image leaves both out (PYTHONOPTIMIZE=2)."""
    assert not module.optimized_away, f"{module.name}: lines {module.optimized_away}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor for the sake of types alone: what can only be read together is one module, or its border runs elsewhere."""
    names = {each.name for each in modules()}
    imported = {
        each.name: {ours for name in each.imports if (ours := name.removeprefix(f"{NAME}.")) in names}
        for each in modules()
    }
    while bottom := {module for module, below in imported.items() if not below & imported.keys()}:
        imported = {module: below for module, below in imported.items() if module not in bottom}
    while top := imported.keys() - set().union(*imported.values()):
        imported = {module: below for module, below in imported.items() if module not in top}
    assert not imported, sorted(imported)


@pytest.mark.parametrize("folder", ["hack", "test"])
def test_tools_and_tests_import_the_product_by_its_one_name(folder: str) -> None:
    """`api.meta` and `tfjob_operator.api.meta` would be two modules with classes of their own."""
    perhaps = re.compile(rf"^\s*(?:from|import)\s+(?:{FOLDERS.replace(' ', '|')})\b", re.MULTILINE)
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not perhaps.search(path.read_text()):
            continue  # parsing all of them takes seconds
        found = {name for name in imports_of(path) if within(name, FOLDERS)}
        assert not found, f"{path.relative_to(ROOT)} imports {sorted(found)}"


@pytest.mark.parametrize("path", sorted((ROOT / "api" / "client" / "http").glob("*.py")), ids=lambda path: path.stem)
def test_the_http_client_has_no_word_of_kubernetes(path: Path) -> None:
    """It is a floor of its own: whoever talks HTTP to one server could use it alone."""
    words = set(re.findall(r"[a-z]+", path.read_text().lower()))
    assert not words & {"kube", "kubernetes", "kubeconfig", "apiserver", "pod", "pods", "watch", "lease", "namespace"}


@pytest.mark.parametrize("path", sorted((ROOT / "test" / "kit").rglob("*.py")), ids=lambda path: path.stem)
def test_the_test_kit_imports_the_library_alone(path: Path) -> None:
    """It is published with the library, so it knows nothing of TFJobs, nor of the fakes and tools of this repository."""
    for name in imports_of(path):
        ours = name.removeprefix(f"{NAME}.")
        known = within(ours, LIBRARY) if ours != name else within(name, "kit _typeshed msgspec pytest structlog")
        assert known or name.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_the_programs_of_a_control_plane_are_built_without_a_word_of_running_it() -> None:
    """hack/control_plane has two floors: `run` stands upon `build`."""
    folder = ROOT / "hack" / "control_plane" / "build"
    imported = {name for path in folder.glob("*.py") for name in imports_of(path) if within(name, "hack")}
    assert {
        name for name in imported if not within(name, "hack.control_plane.build hack.debian hack.kubernetes_versions")
    } == set()
