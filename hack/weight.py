"""Measures the code base: size, structure, the path of one job through the product, and CPU time of the tests.

Run as `python -m hack.weight [COMMIT ...]`: prints a table with one column per commit, and last the working tree.
`python -m hack.weight --record SUITE -- COMMAND [ARGUMENT ...]` runs a test suite and records its CPU time in
test/core-seconds.json, where the table reads it.

Exit codes: 0 on success, 1 on failure (one line on stderr); with --record, the exit code of the command.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import importlib.util
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "tfjob_operator"
PRODUCT: Final = ("api", "cli", "controller", "informers", "workqueue")
"""The folders at the root of a tree that are imported as subpackages of PACKAGE."""
RECORD: Final = Path("test", "core-seconds.json")
LARGE_FILE: Final = 600
LONG_FUNCTION: Final = 40
_CONTROLLER: Final = "controller/tfjob"
_NO_DOCS: Final = ("test/data/", "build/", "dist/")
_TYPE_CHECKING: Final = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
_LIFE_LIMIT_S: Final = 60.0  # half a second on an idle machine
_CHILD: Final = "import sys; sys.path.append(sys.argv[1]); import weight; weight.print_life(sys.argv[2])"


class WeightError(Exception):
    """A tree cannot be measured; the message is printed to the user."""


@dataclass(frozen=True, slots=True)
class Life:
    """The path of one job through the product: its files in order of first entry, relative to the tree, and its moves.

    A move is a call of a function whose nearest product caller is in another file; resuming a coroutine is a call.
    """

    files: tuple[str, ...]
    moves: int


def find(tree: Path, folder: str, suffix: str) -> list[Path]:
    """Return the files of a folder by suffix, sorted. Symlinks and hidden folders are skipped."""
    found: list[Path] = []
    if not (tree / folder).is_symlink():
        for parent, folders, names in os.walk(tree / folder):
            folders[:] = [each for each in folders if not each.startswith(".")]
            found += [Path(parent, name) for name in names if name.endswith(suffix)]
    return sorted(path for path in found if not path.is_symlink())


def parse(tree: Path) -> dict[str, ast.Module]:
    """Return the parsed product by dotted name; packages end with `.__init__`. Raises WeightError."""
    modules = {}
    for path in (path.relative_to(tree) for folder in PRODUCT for path in find(tree, folder, ".py")):
        try:
            modules[".".join((PACKAGE, *path.with_suffix("").parts))] = ast.parse((tree / path).read_bytes())
        except (SyntaxError, ValueError) as error:
            raise WeightError(f"{path}: {error}") from error
    return modules


def head_lines(body: ast.Module) -> int:
    """Return the last line of the leading docstring, imports and `if TYPE_CHECKING:` blocks."""
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
    """Return the figures of a tree's sources by row name. Raises WeightError."""
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
    return figures | {
        "file heads, lines": heads,
        "file heads, % of product lines": 100.0 * heads / max(sum(lengths["product"]), 1),
        f"product files over {LARGE_FILE} lines": sum(lines > LARGE_FILE for lines in lengths["product"]),
        "product files with one importer": sum(len(others) == 1 for others in importers(modules).values()),
        "class names defined more than once": sum(times > 1 for times in classes.values()),
        f"product functions over {LONG_FUNCTION} lines": len(long),
        "words of the docs": sum(len(path.read_bytes().split()) for path in docs),
        "words of product docstrings": sum(map(_docstring_words, nodes)),
    }


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
        self.moves = 0

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
            self.moves += caller is not None and self._file(caller) != file

    def _file(self, frame: FrameType) -> str:
        """Return the path of a frame's file, relative to the tree, or "" if it is not part of the product."""
        name = frame.f_code.co_filename
        if name not in self._files:
            path = os.path.relpath(os.path.realpath(name), self._tree)
            self._files[name] = path if path.partition(os.sep)[0] in PRODUCT else ""
        return self._files[name]


@contextlib.contextmanager
def _fresh_imports(tree: Path) -> Iterator[None]:
    """Import the product and the fakes of a tree afresh; on exit, restore the previous modules.

    Fresh modules start with empty caches, so a life takes the same path in every process.
    """

    def take() -> dict[str, Any]:
        names = [name for name in sys.modules if name.partition(".")[0] in {PACKAGE, "fakes"}]
        return {name: sys.modules.pop(name) for name in names}

    modules, path = take(), [*sys.path]
    spec = ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(tree)]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    sys.path[:0] = [str(tree), str(tree / "test")]
    try:
        yield
    finally:
        take()
        sys.modules.update(modules)
        sys.path[:] = path


def trace_life(tree: Path = ROOT) -> Life:
    """Trace a job with one worker through the product: create, Running, Succeeded.

    The controller runs in this thread, on its own virtual-time loop, with the fakes of the tree. Raises WeightError if
    the job does not succeed.
    """
    with _fresh_imports(tree):
        from fakes.virtual_loop import VirtualTimeLoop

        tracer = _Tracer(tree)
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(_live(tracer))
    return Life(tuple(tracer.entered), tracer.moves)


async def _live(tracer: _Tracer) -> None:
    from fakes.controller import KEY, ControllerHarness
    from fakes.jobs import job, pod, replica

    harness = ControllerHarness()
    workers = asyncio.create_task(harness.workers.run())
    await asyncio.sleep(1)
    previous = sys.getprofile()
    sys.setprofile(tracer)
    try:
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
    finally:
        sys.setprofile(previous)
    workers.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await workers
    observed: Any = harness.jobs.indexer.get(KEY)
    conditions = observed.status.conditions or ()
    if not any(each.type == "Succeeded" and each.status == "True" for each in conditions):
        found = ", ".join(f"{each.type}={each.status}" for each in conditions) or "none"
        raise WeightError(f"the job did not succeed; conditions: {found}")


def print_life(tree: str) -> None:
    """Trace the life of a job in this process and print it as JSON; the product's own output is discarded."""
    with contextlib.redirect_stdout(io.StringIO()):
        life = trace_life(Path(tree))
    print(json.dumps([life.files, life.moves]))


def life_of(tree: Path) -> Life:
    """Run `trace_life` in a subprocess. Raises WeightError."""
    command = [sys.executable, "-c", _CHILD, str(Path(__file__).parent), str(tree)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=_LIFE_LIMIT_S, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise WeightError(f"the life of a job failed: {reason.removeprefix('weight.WeightError: ')}")
    files, moves = json.loads(done.stdout)
    return Life(tuple(files), moves)


def core_seconds(tree: Path) -> dict[str, float]:
    """Return the recorded CPU time of each test suite. Raises WeightError for a malformed record."""
    try:
        recorded = json.loads((tree / RECORD).read_bytes())
        return {str(suite): float(seconds) for suite, seconds in recorded.items()}
    except FileNotFoundError:
        return {}
    except (AttributeError, TypeError, ValueError) as error:
        raise WeightError(f"{RECORD} is not valid: {error}") from error


def record(suite: str, command: Sequence[str], tree: Path = ROOT) -> int:
    """Run a command, record its CPU time and that of its descendants, and return its exit code. Raises WeightError."""
    core_seconds(tree)  # fail on a malformed record before the run, not after it
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as error:
        raise WeightError(f"cannot run {command[0]}: {error.strerror}") from error
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    print(f"{suite}: {seconds} core-seconds")
    recorded = core_seconds(tree) | {suite: seconds}
    (tree / RECORD).write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
    return code if code >= 0 else 128 - code  # a signal, as shells report it


@contextlib.contextmanager
def extracted(commit: str, repository: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Extract a commit into a temporary folder; yield its short name and the folder. Raises WeightError."""
    git = ["git", "-C", str(repository)]
    named = subprocess.run(
        [*git, "rev-parse", "--short", "--verify", f"{commit}^{{commit}}"], capture_output=True, text=True, check=False
    )
    if named.returncode:
        raise WeightError(f"unknown commit: {commit}")
    with tempfile.TemporaryDirectory(prefix="weight-") as folder:
        archive = subprocess.run([*git, "archive", named.stdout.strip()], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield named.stdout.strip(), Path(folder).resolve()


def measure(name: str, tree: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return all figures of a tree, and the recorded CPU time of its test suites. Raises WeightError."""
    try:
        figures, life = count(tree), life_of(tree)
        figures["one life: files"] = len(life.files)
        figures[f"one life: files in {_CONTROLLER}"] = sum(file.startswith(_CONTROLLER + "/") for file in life.files)
        figures["one life: moves"] = life.moves
        return figures, core_seconds(tree)
    except (WeightError, subprocess.TimeoutExpired) as error:
        raise WeightError(f"{name}: {error}") from error


def table(trees: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]]) -> str:
    """Return the table of the measured trees, one column each; a missing figure is `-`."""
    figures, suites = zip(*trees.values(), strict=True)
    totals = [sum(each.values()) if each else None for each in suites]
    rows = [
        ["", *trees],
        *([name, *(_cell(each.get(name)) for each in figures)] for name in dict.fromkeys(chain(*figures))),
        *([f"core-seconds: {name}", *(_cell(each.get(name)) for each in suites)] for name in sorted({*chain(*suites)})),
        ["core-seconds: total", *map(_cell, totals)],
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)


def _cell(figure: int | float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.1f}" if isinstance(figure, float) else f"{figure:,}"


def main(arguments: Sequence[str]) -> int:
    """Print the table, or record the CPU time of a test suite; return the exit code."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    own, command = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(prog="python -m hack.weight", description="Measure the code base.")
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="a commit to compare the working tree with")
    parser.add_argument("--record", metavar="SUITE", help="record the CPU time of the command after `--`")
    options = parser.parse_args(own)
    if (options.record is not None) != (len(command) > 0) or (options.record is not None and options.commits):
        parser.error("--record takes one SUITE, `--` and a command")
    try:
        if command:
            return record(options.record, command)
        trees = {}
        for commit in options.commits:
            with extracted(commit) as (name, tree):
                trees[name] = measure(name, tree)
        trees["this tree"] = measure("this tree", ROOT)
    except (WeightError, subprocess.CalledProcessError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(trees))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
