"""Measure the code base: size, structure, the path of one job through the product, and the CPU time of the tests.

`python -m hack.weight [COMMIT ...]` prints a column for each commit and one for the working tree. `python -m hack.weight
--record SUITE COMMAND [ARGUMENT ...]` runs a test suite and records its CPU time in test/core-seconds.json. `python -m
hack.weight --pages` prints the number of words of each hand-written page.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "tfjob_operator"
PRODUCT: Final = ("api", "cli", "controller", "informers", "workqueue")
"""The top-level folders that are imported as subpackages of PACKAGE."""
LARGE_FILE: Final = 600
LONG_FUNCTION: Final = 40
_CONTROLLER: Final = "controller/tfjob"
_NO_DOCS: Final = ("test/data/", "build/", "dist/")
_CHECKED_TABLE: Final = Path("docs", "behaviours.md")
"""A table that `hack.check_behaviours` compares with the tests; not counted as a hand-written page."""
_GENERATED: Final = re.compile(rb"^<!-- generated: \S+ -->$.*?^<!-- end of generated -->$", re.DOTALL | re.MULTILINE)
"""The markers around the text that `make renew` writes, with its source."""
_TYPE_CHECKING: Final = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
_CHILD: Final = "import sys; sys.path.append(sys.argv[1]); import weight; weight.print_trace(weight.Path(sys.argv[2]))"
RECORD: Final = Path("test", "core-seconds.json")


class JobTrace(NamedTuple):
    """One job's path through the product: files in order of first entry, and the number of calls between them.

    File names are relative to the tree. A call counts if its nearest caller within the product is in another file; resuming a
    coroutine is a call too.
    """

    files: tuple[str, ...]
    calls: int


def find(tree: Path, folder: str, suffix: str) -> list[Path]:
    """Return the files of a folder by suffix, sorted. Symlinks and hidden folders are skipped."""
    found: list[Path] = []
    if not (tree / folder).is_symlink():
        for parent, folders, names in os.walk(tree / folder):
            folders[:] = [each for each in folders if not each.startswith(".")]
            found += [Path(parent, name) for name in names if name.endswith(suffix)]
    return sorted(path for path in found if not path.is_symlink())


def parse(tree: Path) -> dict[str, ast.Module]:
    """Return the parsed product by dotted name; packages end with `.__init__`."""
    paths = [path.relative_to(tree) for folder in PRODUCT for path in find(tree, folder, ".py")]
    return {
        ".".join((PACKAGE, *path.with_suffix("").parts)): ast.parse((tree / path).read_bytes(), path) for path in paths
    }


def head_lines(body: ast.Module) -> int:
    """Return the number of the last line of the leading docstring, imports and `if TYPE_CHECKING:` blocks."""
    last = 0
    for node in body.body:
        is_docstring = not last and bool(_docstring_words(node))
        is_type_checking = isinstance(node, ast.If) and ast.unparse(node.test) in _TYPE_CHECKING
        if not (is_docstring or is_type_checking or isinstance(node, (ast.Import, ast.ImportFrom))):
            break
        last = node.end_lineno or last
    return last


def importers(modules: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Map each module, packages excluded, to the other modules that import it anywhere in their files."""
    found: dict[str, set[str]] = {name: set() for name in modules if not name.endswith(".__init__")}
    for importer, body in modules.items():
        names: set[str] = set()
        for node in ast.walk(body):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                relative = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(relative, importer.rpartition(".")[0])
                members = [f"{base}.{alias.name}" for alias in node.names]
                names.update(member if member in found else base for member in members)
        for name in names & found.keys() - {importer}:
            found[name].add(importer)
    return found


def count(tree: Path) -> dict[str, float]:
    """Return the figures of a tree's sources by row name."""
    figures: dict[str, float] = {}
    parts = {"product": PRODUCT, **{part: (part,) for part in (*PRODUCT, _CONTROLLER, "hack", "test")}}
    lengths = {
        part: [len(path.read_bytes().splitlines()) for folder in folders for path in find(tree, folder, ".py")]
        for part, folders in parts.items()
    }
    for part, lines in lengths.items():
        figures |= {f"{part} files": len(lines), f"{part} lines": sum(lines)}
    modules = parse(tree)
    nodes = [node for body in modules.values() for node in ast.walk(body)]
    heads = sum(map(head_lines, modules.values()))
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    long = [node for node in functions if (node.end_lineno or 0) - node.lineno + 1 > LONG_FUNCTION]
    markdown = [path.relative_to(tree) for path in find(tree, ".", ".md")]
    docs = [tree / path for path in markdown if path.name != "CHANGELOG.md" and not str(path).startswith(_NO_DOCS)]
    pages = hand_written_words(tree)
    return figures | {
        "file heads, lines": heads,
        "file heads, % of product lines": round(100 * heads / max(sum(lengths["product"]), 1), 1),
        f"product files over {LARGE_FILE} lines": sum(lines > LARGE_FILE for lines in lengths["product"]),
        "product files with one importer": sum(len(others) == 1 for others in importers(modules).values()),
        "class names defined more than once": sum(times > 1 for times in classes.values()),
        f"product functions over {LONG_FUNCTION} lines": len(long),
        "words of the docs": sum(len(path.read_bytes().split()) for path in docs),
        "hand-written pages": len(pages),
        "words of hand-written pages": sum(pages.values()),
        "words of product docstrings": sum(map(_docstring_words, nodes)),
    }


def hand_written_words(tree: Path) -> dict[Path, int]:
    """Return the word count of each hand-written Markdown page at the root and in docs/, excluding generated text."""
    pages = [*tree.glob("*.md"), *find(tree, "docs", ".md")]
    words = {page.relative_to(tree): len(_GENERATED.sub(b"", page.read_bytes()).split()) for page in pages}
    return {page: count for page, count in sorted(words.items()) if count and page != _CHECKED_TABLE}


def _docstring_words(node: ast.AST) -> int:
    """Return the word count of a docstring, including docstrings of constants and fields; 0 for other nodes."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return len(text.split())
    return 0


class _Tracer:
    """A profile function that records which functions of the product run in this thread.

    Code that runs at import is ignored: whether it runs depends on earlier imports of the process.
    """

    def __init__(self, tree: Path) -> None:
        self._tree = os.path.realpath(tree)
        self._files: dict[str, str] = {}
        self._importing = 0
        self.entered: dict[str, None] = {}
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        file = self._file(frame)
        if not file or event not in {"call", "return"}:
            return
        if frame.f_code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing:
            self.entered.setdefault(file)
            caller = frame.f_back
            while caller is not None and not self._file(caller):
                caller = caller.f_back
            self.calls += caller is not None and self._file(caller) != file

    def _file(self, frame: FrameType) -> str:
        """Return the path of a frame's file, relative to the tree, or "" if it is not part of the product."""
        name = frame.f_code.co_filename
        if name not in self._files:
            path = os.path.relpath(os.path.realpath(name), self._tree)
            self._files[name] = path if path.partition(os.sep)[0] in PRODUCT else ""
        return self._files[name]


def print_trace(tree: Path) -> None:
    """Trace a job in this process and print it as JSON; the product's own output is discarded."""
    spec = ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(tree)]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    kit = "kit" if importlib.util.find_spec("kit") else "fakes"  # older commits have it in test/fakes
    loop = importlib.import_module(f"{kit}.virtual_loop").VirtualTimeLoop

    tracer = _Tracer(tree)
    with contextlib.redirect_stdout(io.StringIO()), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_run_job(tracer))
    print(json.dumps([[*tracer.entered], tracer.calls]))


async def _run_job(tracer: _Tracer) -> None:
    from fakes.controller import KEY, ControllerHarness
    from fakes.jobs import job, pod, replica

    harness = ControllerHarness()
    workers = asyncio.create_task(harness.workers.run())
    await asyncio.sleep(1)
    sys.setprofile(tracer)
    harness.jobs.put(job({"tfReplicaSpecs": {"Worker": replica(1, "Never")}}))
    await asyncio.sleep(5)
    harness.observe_children()
    harness.observe_status()
    await asyncio.sleep(5)
    for state in (pod("Worker", 0, "Running"), pod("Worker", 0, "Succeeded", 0)):
        harness.pods.put(state)
        await asyncio.sleep(5)
        harness.observe_status()
        await asyncio.sleep(5)
    sys.setprofile(None)
    workers.cancel()
    observed: Any = harness.jobs.indexer.get(KEY)
    conditions = {each.type: each.status for each in observed.status.conditions or ()}
    if conditions.get("Succeeded") != "True":
        raise RuntimeError(f"the job did not succeed; conditions: {conditions}")


def trace_job(tree: Path = ROOT) -> JobTrace:
    """Trace a job with one worker through the product: create, Running, Succeeded.

    The job runs with the fakes of the tree, on virtual time, in a separate process, because filled caches would shorten the
    path.
    """
    command = [sys.executable, "-c", _CHILD, str(Path(__file__).parent), str(tree)]
    environment = os.environ | {"PYTHONPATH": str(tree / "test")}
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
    files, calls = json.loads(done.stdout)
    return JobTrace(tuple(files), calls)


def measure(tree: Path) -> dict[str, float]:
    """Return all figures of a tree by row name."""
    trace = trace_job(tree)
    suites = json.loads((tree / RECORD).read_bytes()) if (tree / RECORD).exists() else {}
    return {
        **count(tree),
        "one job: files": len(trace.files),
        f"one job: files in {_CONTROLLER}": sum(file.startswith(_CONTROLLER + "/") for file in trace.files),
        "one job: calls between files": trace.calls,
        **{f"core-seconds: {suite}": seconds for suite, seconds in suites.items()},
        "core-seconds: total": round(sum(suites.values()), 1),
    }


def measure_commit(commit: str) -> dict[str, float]:
    """Return all figures of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        return measure(Path(folder).resolve())


def record(suite: str, command: Sequence[str], tree: Path = ROOT) -> int:
    """Run a command, record the CPU time of all its processes, and return its exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = subprocess.run(command, check=False).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    recorded = json.loads((tree / RECORD).read_bytes()) | {suite: seconds}
    (tree / RECORD).write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
    return code


def main(arguments: Sequence[str]) -> int:
    """Print the table or the pages, or record the CPU time of a suite; return the exit code."""
    if arguments[:1] == ["--record"]:
        return record(arguments[1], arguments[2:])
    if arguments == ["--pages"]:
        pages = hand_written_words(ROOT)
        for name, words in [*pages.items(), (f"{len(pages)} pages", sum(pages.values()))]:
            print(f"{words:>7,} {name}")
        return 0
    columns = {commit: measure_commit(commit) for commit in arguments} | {"this tree": measure(ROOT)}
    print(" " * 38, *(f"{name:>12}" for name in columns))
    for row in dict.fromkeys(name for figures in columns.values() for name in figures):
        print(
            f"{row:38}", *(f"{figures[row]:>12,}" if row in figures else f"{'-':>12}" for figures in columns.values())
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
