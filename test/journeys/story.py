"""A story: the commands of a document, run in order, with their output.

In a `console` block of a document a command follows `$ `, and its output is below. `...` means omitted lines. Times, ages,
UIDs and similar values are ignored in comparisons.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import yaml

from hack.control_plane import ControlPlane
from support.pages import ROOT, Command, below

PATIENCE_S: Final = 60.0
"""How long an answer may take to be the printed one. Each is there within a second or two on a machine without other work."""
READS: Final = re.compile(
    r"kubectl( (-n|--namespace|--as)[= ]\S+)*( tfjob)? (list|explain|status|get|describe|logs|timeline|version|top)\b"
)
"""Commands that only read: they are repeated until their answer is the printed one."""
FILE: Final = re.compile(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b(\d+(\.\d+)?(ms|s|m|h|d))+\b"), "AGE"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b(127|10)\.\d+\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r"\s+"), " "),
)


def plain(text: str) -> str:
    """Return a text without what differs from run to run: times, ages, and where its lines are broken."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text.strip()


def is_as_shown(printed: str, shown: tuple[str, ...]) -> bool:
    """Whether a command has printed what the document shows; a document that shows nothing leaves it open."""
    parts = re.split(r"^\.\.\.$", "\n".join(shown), flags=re.MULTILINE)
    pattern = ".*".join(re.escape(plain(part)) for part in parts)
    return not shown or re.fullmatch(pattern, plain(printed)) is not None


@dataclass
class Story:
    """A person at a shell: kubectl and its plugin in the PATH, a kubeconfig with a namespace of their own, and the checkout."""

    plane: ControlPlane
    namespace: str
    folder: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        commands = self.folder / "bin"
        commands.mkdir()
        (commands / "kubectl").symlink_to(self.plane.kubectl)
        (commands / "kubectl-tfjob").symlink_to(Path(sys.executable).parent / "kubectl-tfjob")
        (self.folder / "manifests").symlink_to(ROOT / "manifests")
        kubeconfig = self.folder / "kubeconfig"
        settings = yaml.safe_load(self.plane.kubeconfig.read_text())
        for each in settings["contexts"]:
            each["context"]["namespace"] = self.namespace
        kubeconfig.write_text(yaml.safe_dump(settings))
        path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {
            **os.environ,
            "PATH": path,
            "KUBECONFIG": str(kubeconfig),
            "COLUMNS": "120",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, command: str, code: int | None = 0) -> str:
        """Run a command in a shell, and return what it prints on both outputs; `code` is the exit code it must have, if any."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert code is None or done.returncode == code, f"$ {command}\nexit code {done.returncode}\n{done.stdout}"
        assert "Traceback" not in done.stdout, done.stdout
        # The documents' reader is in the namespace `default`.
        return done.stdout.replace(self.namespace, "default")

    def follow(self, page: str, heading: str) -> str:
        """Run the commands below a heading, and compare each answer with the printed one. Returns all that was printed.

        Files that the page shows, each with its name as a comment in the first line, are there.
        """
        for name, text in FILE.findall((ROOT / page).read_text()):
            (self.folder / name).write_text(text)
        return "".join(self.take(each) for each in below(page, heading) if each.answer or "NAME" not in each.text)

    def take(self, step: Command) -> str:
        """Run one command; one that only reads is repeated until it prints what the document does."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            printed = self.run(step.text, code=None if step.answer else 0)
            if is_as_shown(printed, step.answer):
                return printed
            if not READS.match(step.text) or time.monotonic() > deadline:
                shown = "\n".join(step.answer)
                pytest.fail(f"$ {step.text}\nprints\n{printed}\nbut {step.page} shows\n{shown}", pytrace=False)
            time.sleep(0.1)
