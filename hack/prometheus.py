"""Prometheus and Alertmanager on loopback for tests.

Debian's packages are only unpacked, because installing them starts services. For example:

    with Prometheus.start(folder, targets={"tf-job-operator": "127.0.0.1:8443"}, rules=file) as prometheus:
        prometheus.query("up")
"""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.part import Part
from hack.control_plane.run.parts import any_free

PRIVATE_MOUNTS: Final = ("unshare", "--user", "--map-root-user", "--mount")
"""Runs a command with mounts of its own, which plain containers do not allow."""
READY_LIMIT_S: Final = 60.0  # a second on an idle machine
PERIOD: Final = "1s"
"""The interval of scrapes and rule evaluations, short so that tests need not wait for minutes."""


def program(name: str) -> str:
    """Return the path of `prometheus`, `promtool`, `prometheus-alertmanager` or `amtool`. Raises ControlPlaneError."""
    package = "prometheus" if name in {"prometheus", "promtool"} else "prometheus-alertmanager"
    return str(packages.unpack(package) / "usr" / "bin" / name)


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool or amtool."""
    return subprocess.run([program(name), *arguments], check=False, capture_output=True, text=True, timeout=60.0)


@contextmanager
def _serving(name: str, folder: Path, command: Sequence[str]) -> Iterator[str]:
    """Run a server inside the block, which starts when the server is ready; yield its host and port."""
    address = f"127.0.0.1:{any_free()}"
    part = Part(name, folder / f"{name}.log")
    part.start([*command, f"--web.listen-address={address}"], folder)
    deadline = time.monotonic() + READY_LIMIT_S
    try:
        while not _is_ready(address):
            part.check()
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{name} is not ready in {READY_LIMIT_S:.0f} s")
            time.sleep(0.1)
        yield address
    finally:
        part.kill()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5.0):
            return True
    except OSError:
        return False


def alertmanager(folder: Path, settings: Path) -> AbstractContextManager[str]:
    """Run an Alertmanager inside the block; yield its host and port.

    Debian's build reads a template in /usr/share, so it runs in a mount namespace where /usr/share contains the package's
    files.
    """
    share = packages.unpack("prometheus-alertmanager") / "usr" / "share"
    flags = (f"--config.file={settings}", f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address=")
    alone = (*PRIVATE_MOUNTS, "sh", "-c", 'mount --bind "$0" /usr/share && exec "$@"')
    return _serving("alertmanager", folder, [*alone, str(share), program("prometheus-alertmanager"), *flags])


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    address: str

    @classmethod
    @contextmanager
    def start(
        cls, folder: Path, targets: Mapping[str, str], rules: Path, *, alertmanagers: Sequence[str], honor_labels: bool
    ) -> Iterator[Self]:
        """Run a Prometheus inside the block; it scrapes `targets` (job to host and port) and evaluates the rules of a file.

        Targets have the label `namespace`, as with the Prometheus operator; with `honor_labels`, a label that the series
        already has takes precedence.
        """
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
        file = folder / "prometheus.yaml"
        file.write_text(json.dumps(settings))
        flags = (f"--config.file={file}", f"--storage.tsdb.path={folder / 'prometheus'}")
        with _serving("prometheus", folder, [program("prometheus"), *flags]) as address:
            yield cls(address)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series of an expression. Raises HTTPError if it is invalid."""
        found: list[dict[str, Any]] = self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}", timeout=30.0) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data
