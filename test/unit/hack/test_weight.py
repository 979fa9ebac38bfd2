"""The measurements of the code base."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hack import weight

HARNESS = """
import asyncio
from types import SimpleNamespace
from tfjob_operator.controller.tfjob import sync

KEY = "ns/mnist"

class ControllerHarness:
    def __init__(self):
        self.workers = SimpleNamespace(run=lambda: asyncio.sleep(1000))
        self.jobs = SimpleNamespace(put=sync.added, indexer={})
        self.pods = SimpleNamespace(put=self.run)
        self.phase = "Created"

    def observe_children(self):
        pass

    def run(self, phase):
        print("a log entry")
        self.phase = phase

    def observe_status(self):
        condition = SimpleNamespace(type=self.phase, status="True")
        self.jobs.indexer[KEY] = SimpleNamespace(status=SimpleNamespace(conditions=[condition]))
"""
LIVING = {
    "test/fakes/virtual_loop.py": (weight.ROOT / "test" / "fakes" / "virtual_loop.py").read_text(),
    "test/fakes/controller.py": HARNESS,
    "test/fakes/jobs.py": "job = replica = lambda *_: 1\npod = lambda _, index, phase, code=None: phase\n",
    "controller/tfjob/sync.py": """
from tfjob_operator.api import types

def added(job):
    checked()
    types.check()
    [types.check() for _ in range(2)]
    from tfjob_operator.api import late
    late.work()

def checked():
    pass
""",
    "api/types.py": "def check():\n    pass\n",
    "api/late.py": "from tfjob_operator.api import types\ntypes.check()\nclass Late: pass\ndef work(): pass\n",
}
"""A tree in which the life of a job consists of a few calls."""


def write(tree: Path, files: dict[str, str]) -> Path:
    """Write the files of a tree, by path; return the tree."""
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return tree


def function(name: str, lines: int) -> str:
    """A decorated function with this number of lines, excluding the decorator."""
    return "\n".join(["@decorated", f"def {name}():", *["    pass"] * (lines - 1)]) + "\n"


def test_files_and_lines_are_counted_by_folder_and_never_through_symlinks(tmp_path: Path) -> None:
    """The product is also reachable through links in tfjob_operator/; each file is counted once."""
    tree = write(
        tmp_path,
        {
            "api/v1/types.py": "A = 1\n\n# the end",
            "controller/app.py": "A = 1\n",
            "controller/tfjob/sync.py": "A = 1\nB = 2\n",
            "controller/table.txt": "no code",
            "hack/tool.py": "A = 1\n" * 5,
            "test/unit/test_tool.py": "A = 1\n" * 7,
            "noxfile.py": "A = 1\n",
        },
    )
    for link in ("tfjob_operator/api", "hack/api", "cli"):
        (tree / link).parent.mkdir(exist_ok=True)
        (tree / link).symlink_to(tree / "api")
    (tree / "test" / "link.py").symlink_to(tree / "controller" / "app.py")
    figures = weight.count(tree)
    assert (figures["product files"], figures["product lines"]) == (3, 6)
    assert (figures["api files"], figures["api lines"]) == (1, 3)
    assert (figures["cli files"], figures["cli lines"]) == (0, 0)
    assert (figures["controller files"], figures["controller lines"]) == (2, 3)
    assert (figures["controller/tfjob files"], figures["controller/tfjob lines"]) == (1, 2)
    assert (figures["hack files"], figures["hack lines"]) == (1, 5)
    assert (figures["test files"], figures["test lines"]) == (1, 7)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("A = 1\nimport os\n", 0),
        ('"""One.\n\nTwo.\n"""\n\nA = 1\n', 4),
        ("# license\nimport os\nfrom a import (\n    b,\n)\n\nA = 1\nimport sys\n", 5),
        ('"""One."""\nimport os\nif TYPE_CHECKING:\n    import a\n\n    import b\n\nA = 1\n', 6),
        ("import typing\nif typing.TYPE_CHECKING:\n    import a\nif DEBUG:\n    import b\n", 3),
        ('import os\n"""Not a docstring."""\nimport sys\n', 1),
    ],
)
def test_the_head_of_a_file_is_its_docstring_and_its_leading_imports(source: str, lines: int) -> None:
    """Blank lines and comments in between count."""
    assert weight.head_lines(ast.parse(source)) == lines


def test_heads_are_given_in_lines_and_as_a_share_of_the_product(tmp_path: Path) -> None:
    """Files outside the product are ignored."""
    tree = write(tmp_path, {"api/a.py": "import os\nA = 1\n", "cli/b.py": "A = 1\n" * 6, "hack/c.py": "import os\n"})
    figures = weight.count(tree)
    assert figures["file heads, lines"] == 1
    assert figures["file heads, % of product lines"] == 12.5


def test_an_import_counts_in_every_form_and_anywhere_in_a_file(tmp_path: Path) -> None:
    """A file that imports a module twice is one importer; importing a member imports its module."""
    tree = write(
        tmp_path,
        {
            "api/__init__.py": "from tfjob_operator.api.types import Job\n",
            "api/types.py": "from tfjob_operator.api import types\n",
            "api/names.py": "",
            "cli/app.py": "from tfjob_operator.api import names, types\nimport tfjob_operator.api.names\n",
            "cli/watch.py": "def run():\n    import tfjob_operator.api.types as t\n",
            "cli/page/html.py": "from ..watch import run\nfrom . import css\n",
            "cli/page/css.py": "if TYPE_CHECKING:\n    from tfjob_operator.cli.watch import run\n    import types\n",
        },
    )
    assert weight.importers(weight.parse(tree)) == {
        "tfjob_operator.api.types": {
            "tfjob_operator.api.__init__",
            "tfjob_operator.cli.app",
            "tfjob_operator.cli.watch",
        },
        "tfjob_operator.api.names": {"tfjob_operator.cli.app"},
        "tfjob_operator.cli.app": set(),
        "tfjob_operator.cli.watch": {"tfjob_operator.cli.page.html", "tfjob_operator.cli.page.css"},
        "tfjob_operator.cli.page.html": set(),
        "tfjob_operator.cli.page.css": {"tfjob_operator.cli.page.html"},
    }
    assert weight.count(tree)["product files with one importer"] == 2


def test_an_init_file_never_counts_as_a_file_with_one_importer(tmp_path: Path) -> None:
    """A package is imported by its own name."""
    tree = write(tmp_path, {"api/__init__.py": "", "cli/app.py": "import tfjob_operator.api\n"})
    assert weight.count(tree)["product files with one importer"] == 0


def test_repeated_class_names_long_functions_and_large_files_are_counted(tmp_path: Path) -> None:
    """A repeated name counts once. Limits are inclusive; decorators are not part of a function's length."""
    nested = "class Plan:\n    class Page:\n        pass\nclass Once:\n    pass\n"
    method = "class Other:\n    async def run(self):\n" + "        pass\n" * 40
    tree = write(
        tmp_path,
        {
            "api/a.py": nested,
            "cli/b.py": nested.replace("Once", "Plan"),
            "hack/c.py": "class Once:\n    pass\n" + function("no_product", 50),
            "api/d.py": function("longest_allowed", 40) + function("too_long", 41) + method,
            "api/e.py": "A = 1\n" * 600,
            "api/f.py": "A = 1\n" * 601,
        },
    )
    figures = weight.count(tree)
    assert figures["class names defined more than once"] == 2
    assert figures["product functions over 40 lines"] == 2
    assert figures["product files over 600 lines"] == 1


def test_words_are_those_of_the_docs_and_of_docstrings_in_the_product(tmp_path: Path) -> None:
    """Recordings, hidden folders, build output and the changelog are excluded, as are comments and other strings."""
    source = '"""One two."""\nA = "no"\n"""Three."""\ndef a():\n    """Four\n    five."""\n    # no\n    print("no")\n'
    excluded = ("CHANGELOG.md", ".cache/a.md", "test/data/a.md", "build/a.md", "docs/a.txt")
    tree = write(
        tmp_path,
        {
            "README.md": "one *two*\n",
            "docs/design/a.md": "three",
            "test/README.md": "four",
            "api/a.py": source,
            "hack/b.py": '"""No."""\n',
            **dict.fromkeys(excluded, "no"),
        },
    )
    figures = weight.count(tree)
    assert figures["words of the docs"] == 4
    assert figures["words of product docstrings"] == 5


def test_a_file_with_a_syntax_error_is_named(tmp_path: Path) -> None:
    """The working tree may contain an unfinished edit."""
    with pytest.raises(weight.WeightError, match=r"^api/a\.py: invalid syntax .*line 2"):
        weight.count(write(tmp_path, {"api/a.py": "A = 1\nB =\n"}))


def test_the_life_of_this_tree_enters_the_controller_and_ends() -> None:
    """The path is the same in every process; modules and the profile function of this process are restored."""

    def profile(*_: object) -> None:
        pass

    import fakes.jobs

    before = sys.getprofile()
    path = [*sys.path]
    sys.setprofile(profile)
    try:
        life = weight.trace_life()
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(before)
    assert any(file.startswith("controller/tfjob/") for file in life.files)
    assert len(set(life.files)) == len(life.files) < life.moves
    assert all((weight.ROOT / file).is_file() for file in life.files)
    assert weight.life_of(weight.ROOT) == life
    assert sys.modules["fakes.jobs"] is fakes.jobs
    assert sys.path == path


def test_moves_are_calls_from_one_file_of_the_product_to_another(tmp_path: Path) -> None:
    """Calls within a file, calls from the harness and code that runs at import do not count."""
    life = weight.life_of(write(tmp_path, LIVING))
    assert life == weight.Life(("controller/tfjob/sync.py", "api/types.py", "api/late.py"), 4)
    assert weight.trace_life(tmp_path) == life


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("self.phase = phase", "pass", "the job did not succeed; conditions: Created=True"),
        ("def observe_children", "def observe", "AttributeError: .* no attribute 'observe_children'"),
        ("sleep(1000)", "nothing()", "AttributeError: module 'asyncio' has no attribute 'nothing'"),
    ],
)
def test_a_life_that_fails_is_an_error_with_its_reason(old: str, new: str, reason: str, tmp_path: Path) -> None:
    """An incompatible harness must not yield a figure."""
    tree = write(tmp_path, LIVING | {"test/fakes/controller.py": HARNESS.replace(old, new)})
    with pytest.raises(weight.WeightError, match=f"^tree: the life of a job failed: {reason}"):
        weight.measure("tree", tree)


def test_all_figures_of_a_tree_form_one_column(tmp_path: Path) -> None:
    """A missing figure is a dash; the total covers the suites of that tree."""
    tree = write(tmp_path, LIVING | {"test/core-seconds.json": '{"unit": 1101.25, "chart": 2}'})
    lines = weight.table({"1234567": ({"a": 1200, "one life: moves": 3}, {}), "this tree": weight.measure("", tree)})
    rows = [line.rsplit(maxsplit=2) for line in lines.splitlines()[1:]]
    cells = {name: (first, last) for name, first, last in rows}
    assert lines.splitlines()[0].split(maxsplit=1) == ["1234567", "this tree"]
    assert len({len(line) for line in lines.splitlines()}) == 1
    assert cells["a"] == ("1,200", "-")
    assert cells["one life: files"] == ("-", "3")
    assert cells["one life: files in controller/tfjob"] == ("-", "1")
    assert cells["one life: moves"] == ("3", "4")
    assert [*cells.items()][-3:] == [
        ("core-seconds: chart", ("-", "2.0")),
        ("core-seconds: unit", ("-", "1,101.2")),
        ("core-seconds: total", ("-", "1,103.2")),
    ]


def test_a_recorded_run_is_stored_with_the_time_of_all_its_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other suites keep their entries; the exit code is that of the command."""
    record = write(tmp_path, {"test/core-seconds.json": '{"unit": 1.5, "chart": 7.0}'}) / "test" / "core-seconds.json"
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); sys.exit(3)"
    assert weight.record("unit", [sys.executable, "-c", parent], tmp_path) == 3
    stored = json.loads(record.read_text())
    assert 0.4 <= stored["unit"] < 5
    assert stored["unit"] == round(stored["unit"], 1)
    assert record.read_text() == f'{{\n  "chart": 7.0,\n  "unit": {stored["unit"]}\n}}\n'
    assert capsys.readouterr().out == f"unit: {stored['unit']} core-seconds\n"
    assert weight.core_seconds(tmp_path) == stored


def test_the_first_recorded_run_creates_the_record(tmp_path: Path) -> None:
    """A command killed by a signal has the exit code that a shell reports."""
    (tmp_path / "test").mkdir()
    assert weight.core_seconds(tmp_path) == {}
    assert weight.record("unit", ["sh", "-c", "kill -9 $$"], tmp_path) == 137
    assert weight.core_seconds(tmp_path).keys() == {"unit"}


def test_a_malformed_record_is_an_error(tmp_path: Path) -> None:
    """The error is reported before the suite runs."""
    write(tmp_path, {"test/core-seconds.json": '["unit"]'})
    with pytest.raises(weight.WeightError, match=r"test/core-seconds\.json is not valid"):
        weight.record("unit", ["touch", str(tmp_path / "ran")], tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_commit_is_extracted_as_committed(tmp_path: Path) -> None:
    """Uncommitted edits are excluded; the copy is deleted afterwards."""
    write(tmp_path, {"api/a.py": "A = 1\n"})
    git = ["git", "-C", str(tmp_path), "-c", "user.name=test", "-c", "user.email=test@example.com"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--no-gpg-sign", "--message=one"]):
        subprocess.run([*git, *command], check=True)
    write(tmp_path, {"api/a.py": "A = 2\n", "api/b.py": ""})
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    with weight.extracted("HEAD", tmp_path) as (name, tree):
        assert head.startswith(name)
        assert [path.relative_to(tree).as_posix() for path in weight.find(tree, "api", ".py")] == ["api/a.py"]
        assert (tree / "api" / "a.py").read_text() == "A = 1\n"
    assert not tree.exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["no-such-commit"], "unknown commit: no-such-commit"),
        (["--record", "unit", "--", "/no/such/command"], "cannot run /no/such/command: No such file or directory"),
    ],
)
def test_an_error_is_one_line(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No table is printed, and nothing is recorded."""
    assert weight.main(arguments) == 1
    assert capsys.readouterr() == ("", f"error: {error}\n")


@pytest.mark.parametrize(
    "arguments", [["--record", "unit"], ["--", "true"], ["HEAD", "--record", "unit", "--", "true"]]
)
def test_a_record_takes_a_suite_and_a_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Anything else is a usage error."""
    with pytest.raises(SystemExit, match="2"):
        weight.main(arguments)
    assert "--record takes one SUITE, `--` and a command" in capsys.readouterr().err
