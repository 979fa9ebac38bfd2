"""The operator as a process of a test, with its log, HTTP pages and exit code."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from hack.control_plane import ControlPlane
from hack.control_plane.run.parts import any_free
from hack.objects import a_kubeconfig
from support.waiting import LIMIT_S, eventually

ROOT = Path(__file__).parents[2]
OPERATOR = ("-m", "tfjob_operator.controller")

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def kubeconfig(folder: Path, server: str, **cluster: Any) -> Path:
    """A kubeconfig for this server, without a user."""
    file = folder / "kubeconfig"
    file.write_text(json.dumps(a_kubeconfig(server, namespace="", **cluster)))
    return file


def with_token(plane: ControlPlane, token: str, folder: Path) -> Path:
    """A kubeconfig for a control plane, with this token as the user."""
    document = json.loads(plane.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    file = folder / "with-token"
    file.write_text(json.dumps(document))
    return file


class OperatorProcess:
    """The operator as a process with these flags, its log, and its pages. A context manager; leaving it kills the process."""

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        *flags: str,
        port: int | None = None,
        program: Sequence[str] = OPERATOR,
        root: Path = ROOT,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; it serves its pages on `port`, or on one that is free. `program` is what Python runs, in the folder `root`.

        `variables` are added to the environment.
        """
        self.port = port or any_free()
        self._log = log
        self._out = log.open("wb")
        command = [sys.executable, *program, f"--kubeconfig={kubeconfig}", *flags]
        command += ["--monitoring-address=127.0.0.1", f"--monitoring-port={self.port}"]
        self.process = subprocess.Popen(
            command, stdout=self._out, stderr=self._out, cwd=root, env=os.environ | dict(variables or {})
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()  # also ends one that is stopped
        self.process.wait()
        self._out.close()

    def text(self) -> str:
        return self._log.read_text()

    def lines(self, event: str = "", **fields: object) -> list[dict[str, Any]]:
        """The lines of the log, each of them JSON, with this event and these fields."""
        whole = self.text().rpartition("\n")[0]
        found: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in found if event in {"", line["event"]} and fields.items() <= line.items()]

    def wait_for(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait for a line with this event and these fields."""
        found: list[dict[str, Any]] = eventually(
            lambda: self.lines(event, **fields) or self.process.poll() is not None, f"{event} is logged:", yet=self.text
        )
        assert isinstance(found, list), self.text()
        return found[0]

    def get(self, path: str) -> tuple[int, str]:
        """Return the code and the body of a page; code 0 if nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def scrape(self) -> Series:
        code, text = self.get("/metrics")
        assert code == 200
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, /, **labels: str) -> float:
        return self.scrape()[name, frozenset(labels.items())]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; return the exit code and how long it took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(LIMIT_S)
        return code, time.monotonic() - begun
