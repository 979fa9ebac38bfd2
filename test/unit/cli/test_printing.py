"""What is printed: all text through one function, and commands for the cluster that was asked."""

import ast
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfjob_operator.cli.diagnosis.causes import ManifestChange, WhileRunning
from tfjob_operator.cli.diagnosis.table import PROBLEMS
from tfjob_operator.cli.printing import control, echo, is_printable, printable
from tfjob_operator.cli.target import Target
from unit.cli.conftest import Server, job, run

ROOT = Path(__file__).parents[3]
JOBS, PODS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs", "/api/v1/namespaces/team/pods"


def test_the_plugins_own_sequences_reach_the_terminal_and_no_others() -> None:
    """Also not one that looks like its mark."""
    own = f"{control('31m')}red{control('0m')}"
    assert printable(f"a\tb {own} \x1b[31m\x9b2J\u202e\ud800\n") == (
        "a\tb \x1b[31mred\x1b[0m \\x1b[31m\\x9b2J\\u202e\\ud800\\n"
    )
    mark = control("")[:-1]
    assert printable(f"{mark}]0;title\x07 {mark}") == f"\\x1b{mark[1:]}]0;title\\x07 \\x1b{mark[1:]}"
    assert printable("gr\u00fcn \u6f22") == "gr\u00fcn \u6f22"
    assert (is_printable("a\nb"), is_printable("a\rb")) == (True, False)


def test_lines_are_printed_as_lines(capfd: pytest.CaptureFixture[str]) -> None:
    echo("a\nb", "c")
    echo("d", err=True, nl=False)
    assert capfd.readouterr() == ("a\\nb\nc\n", "d")


PRINTS = """
import sys
from tfjob_operator.cli.printing import run, write
write(b"\\x1b[2Jlog\\n")
write(b"")
print_both = "print('\\x1b[2Jout\\u6f22'); print('\\x1b[2Jask? ', end='', file=sys.stderr)"
sys.exit(run([sys.executable, "-c", f"import sys; {print_both}; sys.exit(3)"]))
"""


def _on_a_terminal(*streams: str) -> tuple[bytes, dict[str, bytes], int]:
    """Run PRINTS with these streams on a terminal; return what the terminal shows, what the others got, and the exit code."""
    leader, follower = pty.openpty()
    where = {name: follower if name in streams else subprocess.PIPE for name in ("stdout", "stderr")}
    with subprocess.Popen([sys.executable, "-c", PRINTS], **where) as program:  # type: ignore[call-overload]
        os.close(follower)
        others = {name: pipe.read() for name in where if (pipe := getattr(program, name)) is not None}
        code = program.wait()
    shown = b""
    try:
        while streams:
            shown += os.read(leader, 1024)
    except OSError:  # the end of a terminal
        pass
    os.close(leader)
    return shown.replace(b"\r\n", b"\n"), others, code


def test_what_a_program_prints_reaches_a_terminal_without_control_characters() -> None:
    """And any other place as it is; a question without a newline is shown."""
    out, log, ask = "\x1b[2Jout\u6f22\n".encode(), b"\x1b[2Jlog\n", b"\x1b[2Jask? "
    clean = {each: each.replace(b"\x1b", b"\\x1b") for each in (out, log, ask)}
    assert _on_a_terminal() == (b"", {"stdout": log + out, "stderr": ask}, 3)
    assert _on_a_terminal("stdout") == (clean[log] + clean[out], {"stderr": ask}, 3)
    assert _on_a_terminal("stderr") == (clean[ask], {"stdout": log + out}, 3)
    shown, others, code = _on_a_terminal("stdout", "stderr")
    assert (sorted(shown.split(b"\\x1b[2J")), others, code) == ([b"", b"ask? ", b"log\n", out[4:]], {}, 3)


@pytest.mark.parametrize(
    "where", ["{}", "import threading; thread = threading.Thread(target=lambda: {}); thread.start()"]
)
def test_the_traceback_of_a_bug_has_no_control_characters(where: str) -> None:
    """Its message may quote a server."""
    bug = "(_ for _ in ()).throw(ValueError('\\x1b[2J'))"
    code = f"from tfjob_operator.cli import main\nmain.app.main = lambda *_, **__: exec({where.format(bug)!r})\nmain.main()"
    errors = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).stderr
    assert b"ValueError: \\x1b[2J\n" in errors
    assert b"\x1b" not in errors


NAMES = {
    "kubectl tfjob": "the name of the program",
    "kubectl not found in PATH: ": "no command",
    "kubectl ": "where a command begins in a line, to print it on a line of its own",
    "\\bkubectl (tfjob )?": "the pattern that finds commands",
    "kubectl port-forward: ": "the beginning of its error",
    " is not in the PATH, so kubectl will not find it": "no command",
    "Access denied. Open the link printed by kubectl tfjob dashboard; each link works in one browser.": "names a command",
}
"""The texts with `kubectl ` that are no commands to run. Docstrings, which are the help, and `cli/diagnosis` are others."""


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "cli").rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        docs |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield str(path.relative_to(ROOT)), node.value


def test_all_commands_in_messages_are_made_by_the_target() -> None:
    """One written by hand would be for the current context, and could be misread by a shell."""
    found = {text: path for path, text in _texts() if "kubectl " in text and not path.startswith("cli/diagnosis/")}
    assert found.keys() == NAMES.keys(), found


def test_all_commands_of_a_diagnosis_are_for_the_cluster_that_was_asked() -> None:
    steps = [step for problem in PROBLEMS.values() for step in problem.to_do if not isinstance(step, ManifestChange)]
    lines = [step.text if isinstance(step, WhileRunning) else step for step in steps]
    for line in lines:
        assert Target(context="gpu").for_cluster(line).count(" --context=gpu ") == line.count("kubectl ")
    assert not [each.id for each in PROBLEMS.values() if "kubectl " in each.title]
    assert sum("kubectl " in line for line in lines) > 100


SUSPENDED: dict[str, Any] = {"runPolicy": {"suspend": True}}
ALPHA: dict[str, Any] = {"replicaSpecs": []}
IN_TEAM = "kubectl FLAGS -n team "
COMMANDS: list[tuple[str, dict[str, Any], str]] = [
    (
        "restart mnist",
        job("mnist", "Failed"),
        f"{IN_TEAM}get tfjob.kubeflow.org/mnist -o yaml > mnist.saved.yaml,",
    ),
    ("restart mnist", job("mnist", "Failed"), f"{IN_TEAM}replace --force -f mnist.saved.yaml\n"),
    ("restart mnist", job(spec=SUSPENDED), "kubectl tfjob FLAGS resume mnist -n team\n"),
    ("restart mnist", job(), "kubectl tfjob FLAGS explain mnist -n team\n"),
    ("restart mnist --index=7", job(), f"{IN_TEAM}get pods --selector=training.kubeflow.org/job-name=mnist\n"),
    ("logs mnist", job(), "kubectl tfjob FLAGS explain mnist -n team\n"),
    ("exec mnist", job(), "kubectl tfjob FLAGS explain mnist -n team\n"),
    ("top mnist", job(), "kubectl tfjob FLAGS explain mnist -n team\n"),
    ("tensorboard mnist", job(), f"{IN_TEAM}edit tfjob.kubeflow.org/mnist\n"),
    ("scale mnist worker=3", job(spec=ALPHA), f"{IN_TEAM}edit tfjob.kubeflow.org/mnist\n"),
    ("explain mnist", job(spec=SUSPENDED), "kubectl tfjob FLAGS resume mnist -n team\n"),
    ("delete mnist", job(), f"{IN_TEAM}delete tfjob NAME.\n"),
    ("apply -f x", job(), f"{IN_TEAM}apply -f FILE.\n"),
]


@pytest.mark.parametrize(("line", "body", "expected"), COMMANDS)
@pytest.mark.parametrize("first", [True, False])
def test_printed_commands_are_for_the_cluster_the_user_and_the_namespace_that_were_asked(
    server: Server, line: str, body: dict[str, Any], expected: str, first: bool
) -> None:
    """Wherever the options stand. A token is not printed."""
    server.answers(f"{JOBS}/mnist", body)
    server.answers(PODS, {"metadata": {}, "items": []})
    given = ["--context=here", server.flags, "--token=secret", "--as=the boss"]
    flags = f"--context=here {server.flags} --token=TOKEN '--as=the boss'"
    verb, *rest = line.split()
    options = [*given, "--namespace=team"]
    result = run(*options, verb, *rest) if first else run(verb, *rest, *options)
    printed = result.output.replace(flags, "FLAGS")
    assert expected in printed
    others = [each for each in printed.splitlines() if not each.startswith(("Usage: ", "Try "))]
    assert not re.search(r"kubectl (?!tfjob FLAGS |FLAGS )", "\n".join(others)), printed
    assert "secret" not in printed


def test_words_of_a_printed_command_are_quoted_for_a_shell(tmp_path: Path) -> None:
    """A name with a blank, or worse, is one word; a command without a cluster has no options."""
    target = Target(kubeconfig="/my files/config")
    assert target.command("a", "tfjob", "explain", "$(id)") == (
        "kubectl tfjob '--kubeconfig=/my files/config' explain '$(id)' -n a"
    )
    old = tmp_path / "old job.yaml"
    old.write_text("apiVersion: kubeflow.org/v1beta2\nkind: TFJob\nmetadata: {name: a}\n")
    shown = run("submit", "mine", "--context=gpu", "--dry-run", "-f", str(old)).stderr
    assert f"convert it with kubectl tfjob convert '{old}'\n" in shown
