"""`kubectl tfjob tensorboard`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Thread
from typing import IO, Any, Final, NamedTuple

import click

from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.options import target_options
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.selection import pods_path
from tfjob_operator.cli.session import Session
from tfjob_operator.cli.target import Target, kubectl

POLL_S: Final = 2.0
"""The interval at which the pod is polled."""
_OPERATOR: Final = "training.kubeflow.org/operator-name=tensorboard-controller"
"""The label of the objects that the operator creates for TensorBoards."""


class JobTensorBoard(NamedTuple):
    """The TensorBoard of a job: the owner, and the selector of its pods."""

    job: str
    job_uid: str
    selector: str


def board_of(target: Target, name: str, job: Mapping[str, Any]) -> JobTensorBoard:
    """Return the TensorBoard of a job. Raises CliError if it has none."""
    if not any(key.lower() == "tensorboard" for key in facts.spec_of(job)):
        edit = target.command(job["metadata"]["namespace"], "edit", jobs.full_name(job))
        raise CliError(f"{name} has no TensorBoard: set spec.tensorBoard.logDir with {edit}")
    return JobTensorBoard(
        name, job["metadata"]["uid"], board_selector(job["metadata"]["name"], is_alpha=facts.is_alpha(job))
    )


def board_selector(job: str, *, is_alpha: bool) -> str:
    """Return the selector of the objects that the operator creates for the TensorBoard of a job."""
    return f"{_OPERATOR},{alpha.LABEL_JOB_NAME if is_alpha else 'app.kubernetes.io/instance'}={job}"


class Forwarding:
    """Forwards the local port `ports[0]` to port `ports[1]` of a TensorBoard's pod and its replacements. `pause` sleeps.

    kubectl port-forward does the forwarding. Old kubectl versions do not notice if the pod is deleted, so the pod is polled.
    """

    def __init__(
        self,
        target: Target,
        session: Session,
        board: JobTensorBoard,
        *,
        ports: tuple[int, int],
        pause: Callable[[float], None],
    ) -> None:
        self._target = target
        self._session = session
        self._board = board
        self._ports = ports
        self._pause = pause
        self._printed = ""

    def connections(self) -> Iterator[None]:
        """Yield whenever the port is connected to a pod; end when the job is deleted.

        Raises CliError if the first try fails.
        """
        is_first = True
        while (pod := self._next_pod()) is not None:
            with self._kubectl(pod["metadata"]["name"]) as process:
                try:
                    if _has_begun(process):
                        yield
                        is_first = False
                        self._stay(process, pod["metadata"]["uid"])
                    elif is_first:
                        _, errors = process.communicate()
                        last = (errors.split("\n") if errors else ["exited"])[0]
                        raise CliError(f"kubectl port-forward: {last}")
                finally:
                    process.terminate()
            self._print("reconnecting")
            self._pause(POLL_S)

    def _next_pod(self) -> dict[str, Any] | None:
        """Wait for a ready pod and return it; None if the job is deleted."""
        while True:
            path = pods_path(self._session.namespace)
            pods = self._session.get(path, labelSelector=self._board.selector)["items"]
            ready = next((pod for pod in pods if facts.pod_facts(pod).ready), None)
            if ready is not None:
                self._printed = ""
                return dict(ready)
            try:
                job = jobs.get(self._session, self._board.job)
            except ApiServerError as error:
                if error.is_not_found:
                    return None
                raise
            if job["metadata"]["uid"] != self._board.job_uid:
                return None
            phase = (pods[0].get("status") or {}).get("phase") if pods else None
            self._print(f"waiting for its pod ({phase or 'not created'})")
            self._pause(POLL_S)

    def _print(self, text: str) -> None:
        if text != self._printed:
            echo(f"TensorBoard of {self._board.job}: {text}", err=True)
            self._printed = text

    def _kubectl(self, pod: str) -> subprocess.Popen[str]:
        local, remote = self._ports
        line = kubectl(
            self._target,
            self._session.namespace,
            "port-forward",
            f"pod/{pod}",
            f"{local}:{remote}",
            "--address=127.0.0.1",
        )
        pipe = subprocess.PIPE
        return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)  # noqa: S603

    def _stay(self, process: subprocess.Popen[str], uid: str) -> None:
        """Wait until kubectl exits or the pod is no longer ready."""
        for stream in (process.stdout, process.stderr):  # discard the line that it prints for each connection
            Thread(target=_drain, args=[stream], daemon=True).start()
        while True:
            try:
                process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                with suppress(CliError):  # an unreachable server does not mean that the pod is gone
                    if not self._is_there(uid):
                        return
            else:
                return

    def _is_there(self, uid: str) -> bool:
        path = pods_path(self._session.namespace)
        pods = self._session.get(path, labelSelector=self._board.selector)["items"]
        return any(pod["metadata"]["uid"] == uid and facts.pod_facts(pod).ready for pod in pods)


def _drain(stream: IO[str]) -> None:
    with suppress(ValueError):  # closed while it is read
        while stream.read(65_536):
            pass


def _has_begun(process: subprocess.Popen[str]) -> bool:
    return process.stdout is not None and process.stdout.readline().startswith("Forwarding from ")


PORT: Final = 6006
"""TensorBoard's default port: the port of the pod, and the preferred local port."""
_HOST: Final = "127.0.0.1"


@click.command("tensorboard")
@click.argument("name", metavar="JOB")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="NUMBER",
    help=f"The local port; by default {PORT}, or a free one.",
)
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@target_options
def command(*, target: Target, name: str, port: int | None, no_browser: bool) -> None:
    """Open the TensorBoard of a job by forwarding a port of 127.0.0.1 to it until Ctrl-C.

    The job must have spec.tensorBoard. When the pod is replaced, the port is forwarded to the new one.
    """
    with target.session() as session:
        board = board_of(target, name, jobs.get(session, name))
        local = _free_port(port)
        forwarding = Forwarding(target, session, board, ports=(local, PORT), pause=time.sleep)
        for _ in forwarding.connections():
            url = f"http://{_HOST}:{local}/"
            echo(f"TensorBoard of {name}: {url}   (press Ctrl-C to stop)")
            if not no_browser and _has_display():
                import webbrowser

                webbrowser.open(url)
            no_browser = True  # only once
    echo(f"the TensorBoard of {name} was deleted", err=True)


def _free_port(wanted: int | None) -> int:
    """Return a free port: the requested one; without a request, TensorBoard's default port or, if in use, any port."""
    for port in (wanted,) if wanted else (PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as error:
                if wanted:
                    raise CliError(f"cannot listen on {_HOST}:{wanted}: {error.strerror}") from error
                continue
            return int(probe.getsockname()[1])
    raise CliError(f"no free port on {_HOST}")


def _has_display() -> bool:
    """Return True if there is a desktop: a text browser would take over the terminal."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
