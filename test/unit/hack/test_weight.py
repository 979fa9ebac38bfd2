"""The measurements of the code base."""

from __future__ import annotations

import ast
import os
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
    "test/kit/virtual_loop.py": (weight.ROOT / "test" / "kit" / "virtual_loop.py").read_text(),
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
"""A tree in which a job takes a few calls."""


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
            "controller/composition.py": "import os\n",
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
    assert (figures["file heads, lines"], figures["file heads, % of product lines"]) == (1, 16.7)
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


def test_an_import_counts_in_every_form_and_anywhere_in_a_file(tmp_path: Path) -> None:
    """A file that imports a module twice is one importer; importing a member imports its module."""
    tree = write(
        tmp_path,
        {
            "api/__init__.py": "from tfjob_operator.api.types import Job\n",
            "api/types.py": "from tfjob_operator.api import types\n",
            "api/names.py": "",
            "cli/main.py": "from tfjob_operator.api import names, types\nimport tfjob_operator.api.names\n",
            "cli/watch.py": "def run():\n    import tfjob_operator.api.types as t\n",
            "cli/page/html.py": "from ..watch import run\nfrom . import css\n",
            "cli/page/css.py": "if TYPE_CHECKING:\n    from tfjob_operator.cli.watch import run\n    import types\n",
        },
    )
    assert weight.importers(weight.parse(tree)) == {
        "tfjob_operator.api.types": {
            "tfjob_operator.api.__init__",
            "tfjob_operator.cli.main",
            "tfjob_operator.cli.watch",
        },
        "tfjob_operator.api.names": {"tfjob_operator.cli.main"},
        "tfjob_operator.cli.main": set(),
        "tfjob_operator.cli.watch": {"tfjob_operator.cli.page.html", "tfjob_operator.cli.page.css"},
        "tfjob_operator.cli.page.html": set(),
        "tfjob_operator.cli.page.css": {"tfjob_operator.cli.page.html"},
    }
    assert weight.count(tree)["product files with one importer"] == 2


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


def test_hand_written_pages_are_those_of_the_root_and_the_docs_without_generated_text(tmp_path: Path) -> None:
    """A page that is all generated does not count; the folders' READMEs and the table of behaviours do not either."""
    table = "<!-- generated: hack/a.csv -->\n\nno no\n\n<!-- end of generated -->\n"
    tree = write(
        tmp_path,
        {
            "README.md": f"one two\n{table}three\n{table}four\n",
            "docs/design/a.md": "five <!-- generated: inline --> <!-- end of generated -->",
            "docs/reference.md": table,
            **dict.fromkeys(("docs/behaviours.md", "hack/README.md", ".cache/a.md", "docs/a.txt"), "no"),
        },
    )
    assert weight.hand_written_words(tree) == {Path("README.md"): 4, Path("docs/design/a.md"): 10}
    figures = weight.count(tree)
    assert (figures["hand-written pages"], figures["words of hand-written pages"]) == (2, 14)


def test_calls_from_one_file_of_the_product_to_another_are_counted(tmp_path: Path) -> None:
    """Calls within a file, calls from the harness and code that runs at import do not count."""
    trace = weight.trace_job(write(tmp_path, LIVING))
    assert trace == weight.JobTrace(("controller/tfjob/sync.py", "api/types.py", "api/late.py"), 4)


def test_a_job_without_success_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An incompatible harness must not yield a figure."""
    harness = HARNESS.replace("self.phase = phase", "pass")
    with pytest.raises(subprocess.CalledProcessError):
        weight.trace_job(write(tmp_path, LIVING | {"test/fakes/controller.py": harness}))
    assert "the job did not succeed; conditions: {'Created': 'True'}" in capfd.readouterr().err


def test_a_recorded_run_is_a_row_with_the_time_of_all_its_processes(tmp_path: Path) -> None:
    """Other suites keep their entries, a total comes first; the exit code is that of the command."""
    tree = write(tmp_path, LIVING | {"test/core-seconds.json": '{"unit": 900.0, "chart": 7.0}'})
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    parent = f"""
import os, subprocess, sys
subprocess.run([sys.executable, "-c", {burn!r}])
print(sum(os.times()[:4]), file=open({str(tmp_path / "used")!r}, "w"))
sys.exit(3)
"""
    before = os.times()
    assert weight.record("unit", [sys.executable, "-c", parent], tree) == 3
    after = os.times()
    figures = weight.measure(tree)
    least = float((tmp_path / "used").read_text())  # of the command and its child, until shortly before its end
    most = after.children_user + after.children_system - before.children_user - before.children_system
    assert least - 0.1 < figures["core-seconds: unit"] < most + 0.1
    assert (figures["core-seconds: chart"], figures["one job: files"]) == (7.0, 3)
    assert figures["core-seconds: total"] == round(7.0 + figures["core-seconds: unit"], 1)


def test_a_commit_is_measured_as_committed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not as the working tree is."""
    write(tmp_path, LIVING)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=test", "-c", "user.email=test@example.com"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--no-gpg-sign", "--message=one"]):
        subprocess.run([*git, *command], check=True)
    write(tmp_path, {"api/a.py": "A = 2\n"})
    monkeypatch.setattr(weight, "ROOT", tmp_path)
    assert weight.measure_commit("HEAD")["api files"] == weight.measure(tmp_path)["api files"] - 1 == 2
