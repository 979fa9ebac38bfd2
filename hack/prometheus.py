"""A real Prometheus and Alertmanager on loopback for tests: Debian's, unpacked and not installed, since that starts services.

with Prometheus.start(folder, targets={"tf-job-operator": "127.0.0.1:8443"}, rules=file) as prometheus:
    prometheus.query("up")
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.part import Part
from hack.control_plane.run.parts import any_free
from hack.stoppable import Stoppable

READY_LIMIT_S: Final = 60.0  # a second on a quiet machine
PERIOD: Final = "1s"
"""How often targets are scraped and rules evaluated, so that a test does not wait for minutes."""


def program(name: str) -> str:
    """Return the path of `prometheus`, `promtool`, `prometheus-alertmanager` or `amtool`. Raises ControlPlaneError."""
    package = "prometheus" if name in {"prometheus", "promtool"} else "prometheus-alertmanager"
    return str(packages.unpack(package) / "usr" / "bin" / name)


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool or amtool."""
    return subprocess.run([program(name), *arguments], check=False, capture_output=True, text=True, timeout=60.0)


@contextmanager
def alertmanager(folder: Path, settings: Path) -> Iterator[str]:
    """Run an Alertmanager inside the block; yields its host and port.

    Debian's reads a template in /usr/share, so it runs in a mount namespace where the package's files are there.
    """
    share = packages.unpack("prometheus-alertmanager") / "usr" / "share"
    address = f"127.0.0.1:{any_free()}"
    part = Part("alertmanager", folder / "alertmanager.log")
    part.start(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
            *('mount --bind "$0" /usr/share && exec "$@"', str(share)),
            program("prometheus-alertmanager"),
            f"--config.file={settings}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ],
        folder,
    )
    try:
        _until_ready(part, f"http://{address}")
        yield address
    finally:
        part.kill()


class Prometheus(Stoppable):
    """A running Prometheus; invariant: after `stop` it has ended."""

    def __init__(self, part: Part, port: int) -> None:
        """Use `start`."""
        self._part = part
        self._url = f"http://127.0.0.1:{port}"

    @classmethod
    def start(
        cls,
        folder: Path,
        targets: Mapping[str, str],
        rules: Path,
        *,
        alertmanagers: Sequence[str] = (),
        honor_labels: bool = False,
    ) -> Self:
        """Start one that scrapes `targets` (job: host and port) and evaluates the rules of a file; return when it responds.

        Targets have the label `namespace`, as from the Prometheus operator; with `honor_labels` that of a series counts.
        """
        port = any_free()
        settings = {
            "global": {"scrape_interval": PERIOD, "scrape_timeout": PERIOD, "evaluation_interval": PERIOD},
            "rule_files": [str(rules)],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [*alertmanagers]}]}]},
            "scrape_configs": [
                {
                    "job_name": job,
                    "honor_labels": honor_labels,
                    "static_configs": [{"targets": [target], "labels": {"namespace": "kubeflow"}}],
                }
                for job, target in targets.items()
            ],
        }
        (folder / "prometheus.yaml").write_text(json.dumps(settings))
        part = Part("prometheus", folder / "prometheus.log")
        part.start(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            folder,
        )
        prometheus = cls(part, port)
        try:
            _until_ready(part, prometheus._url)
        except BaseException:
            prometheus.stop()
            raise
        return prometheus

    def stop(self) -> None:
        """End it."""
        self._part.kill()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now. Raises ControlPlaneError when it is not valid."""
        found: list[dict[str, Any]] = self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}", timeout=30.0) as answer:  # noqa: S310 - our own
                data: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ControlPlaneError(f"Prometheus refused {urllib.parse.unquote(path)}: {error.read()!r}") from error
        return data


def _until_ready(part: Part, url: str) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while True:
        part.check()
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5.0):  # noqa: S310 - our own
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{url} is not ready in {READY_LIMIT_S:.0f} s") from error
        time.sleep(0.1)
