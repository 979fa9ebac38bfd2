"""The wheel of the library: complete without the operator, beside it in both orders, and typed."""

import ast
import os
import re
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from hack.image.build import VERSION
from hack.library import EXTRAS, NAME, REQUIRES, build_wheel, renamed
from hack.plugin.archive import build_wheel as build_operator
from support.library import library
from support.machine import lacks

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "hack" / "examples"
IMPORTED_AS: Final = {"yaml": "PyYAML", "prometheus_client": "prometheus-client"}
FOREIGN: Final = re.compile(r"tf_?job|tf_operator|tensorflow|kubeflow", re.IGNORECASE)
"""Words of the operator."""
UNINVITED: Final = ("aiohttp", "click", "kubernetes", "prometheus_client", "pydantic", "pytest", "tenacity", "yaml")
"""What the first import must not load: it belongs to extras, to others, or to what few programs do."""
OPERATOR_WORKS: Final = "import tfjob_operator.controller.composition, tfjob_operator.cli.main"
LIBRARY_WORKS: Final = """
import importlib, pkgutil, kubecontrollers
for module in pkgutil.walk_packages(kubecontrollers.__path__, "kubecontrollers."):
    importlib.import_module(module.name)
from kubecontrollers.controller.manager import Manager
"""


def run(*command: str | Path, **environ: str) -> str:
    """What a command prints, without this checkout on its path; it must succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)], cwd="/", env=kept | environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def sources() -> Iterator[tuple[str, str]]:
    """Yield the modules of the library, as others have them, by their paths."""
    for path in sorted((library() / NAME).rglob("*.py")):
        yield str(path.relative_to(library())), path.read_text()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    scratch = tmp_path_factory.mktemp("wheels")
    return {NAME: build_wheel(scratch), "tfjob-operator": build_operator(scratch)}


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {*archive.namelist()}


def test_the_library_has_no_word_of_the_operator() -> None:
    """Names of metrics, log events and temporary files are the program's."""
    found = [f"{path}: {line}" for path, text in sources() for line in text.splitlines() if FOREIGN.search(line)]
    assert found == []


def test_the_library_requires_what_its_modules_import_and_nothing_else() -> None:
    imported = set()
    for path, text in sources():
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {(path, name.partition(".")[0]) for name in names}
    others = {
        (path, IMPORTED_AS.get(name, name))
        for path, name in imported
        if name not in {*sys.stdlib_module_names, NAME, "_typeshed", "typing_extensions"}  # for type checkers
    }
    optional = {name for names in EXTRAS.values() for name in names}
    assert {name for _, name in others} - optional == {*REQUIRES}
    of_extras = {path.removeprefix(f"{NAME}/") for path, name in others if name in optional}
    assert {path for path in of_extras if not path.startswith(("controller/observability/", "testing/"))} == set()


def test_import_paths_are_renamed_and_the_word_kit_is_not() -> None:
    code = (
        "from kit import world\nfrom kit.model import Server\n"
        "import kit\npytest_plugins = 'kit.plugin'\n# a kit. Of tfjob_operator.api"
    )
    assert renamed(code) == (
        "from kubecontrollers.testing import world\nfrom kubecontrollers.testing.model import Server\n"
        "import kubecontrollers.testing\npytest_plugins = 'kubecontrollers.testing.plugin'\n# a kit. Of kubecontrollers.api"
    )


def test_the_first_import_loads_nothing_of_extras_and_warns_of_nothing() -> None:
    code = f"import sys, {NAME}, {NAME}.controller.manager, {NAME}.informers\nprint({NAME}.__version__, *sys.modules)"
    version, *loaded = run(sys.executable, "-W", "error", "-c", code, PYTHONPATH=str(library())).split()
    assert version == VERSION
    assert {name.partition(".")[0] for name in loaded} & {*UNINVITED, "tfjob_operator"} == set()


def test_no_file_is_in_both_wheels(wheels: dict[str, Path]) -> None:
    """Else the uninstall of one would break the other."""
    ours, operators = files_in(wheels[NAME]), files_in(wheels["tfjob-operator"])
    assert ours & operators == set()
    assert {name.partition("/")[0] for name in ours} == {NAME, f"{NAME}-{VERSION}.dist-info"}
    modules = {str(path.relative_to(library())) for path in (library() / NAME).rglob("*.py")} | {f"{NAME}/py.typed"}
    assert {name for name in ours if name.startswith(f"{NAME}/")} == modules


def test_the_wheel_says_what_it_requires(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels[NAME]) as archive:
        metadata = archive.read(f"{NAME}-{VERSION}.dist-info/METADATA").decode()
        assert f"{NAME}-{VERSION}.dist-info/licenses/LICENSE" in archive.namelist()
        plugin = archive.read(f"{NAME}-{VERSION}.dist-info/entry_points.txt").decode()
    assert plugin == f"[pytest11]\n{NAME} = {NAME}.testing.plugin\n"
    required = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)]
    assert {each.name for each in required if each.marker is None} == {*REQUIRES}
    assert {each.name for each in required if each.marker is not None} == {"prometheus-client", "pytest"}
    assert all(each.specifier for each in required)


def test_both_wheels_install_in_either_order_and_each_survives_the_uninstall_of_the_other(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    venv.create(tmp_path, with_pip=True, symlinks=True)
    python = tmp_path / "bin" / "python"
    (packages,) = tmp_path.glob("lib/python3.*/site-packages")
    # Only the path of the other packages is added: *.pth files in it, such as that of an editable install, are not read.
    (packages / "third-parties.pth").write_text("\n".join(site.getsitepackages()))
    works = {NAME: LIBRARY_WORKS, "tfjob-operator": OPERATOR_WORKS}

    def change(*arguments: str | Path) -> None:
        run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)

    first, second = wheels
    for new, old in ((first, ""), (second, first), (first, second)):
        change("install", "--no-index", "--no-deps", "--no-compile", wheels[new])
        for name in filter(None, (old, new)):
            run(python, "-W", "error", "-c", works[name])
        if old:
            change("uninstall", "--yes", old)
            run(python, "-W", "error", "-c", works[new])


def test_the_test_of_the_example_passes_with_the_kit_of_the_library(tmp_path: Path) -> None:
    """As a stranger runs it, in a folder of its own."""
    for name in ("mirror.py", "test_mirror.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    options = ("-q", "-p", f"{NAME}.testing.plugin", "--kube-seeds=10", f"--rootdir={tmp_path}", "--confcutdir=/")
    run(sys.executable, "-m", "pytest", *options, tmp_path / "test_mirror.py", PYTHONPATH=str(library()))


@pytest.mark.skipif(find_spec("mypy") is None, reason=lacks("mypy", "make lint"))
def test_the_examples_are_clean_under_strict_mypy_beside_the_installed_library(tmp_path: Path) -> None:
    """`py.typed` and the annotations of every public name that they use."""
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\nwarn_unreachable = true\n")
    options = (f"--config-file={tmp_path / 'mypy.ini'}", f"--cache-dir={ROOT / 'build' / 'mypy-examples'}")
    names = [path.name for path in sorted(EXAMPLES.glob("*.py")) if not path.stem.endswith("_kopf")]
    copies = [tmp_path / name for name in names]
    for name, copy in zip(names, copies, strict=True):
        copy.write_text((EXAMPLES / name).read_text())
    run(sys.executable, "-m", "mypy", *options, *copies, MYPYPATH=str(library()))
