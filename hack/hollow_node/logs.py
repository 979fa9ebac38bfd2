"""The logs of containers, as the kubelet serves them to the API server: `GET /containerLogs/NAMESPACE/POD/CONTAINER`.

The output of a run is computed from the pod's script and status. Nothing is stored, so logs survive a restart of the
node. Parameters and errors are those of the kubelet (pkg/kubelet/kubelet_pods.go).
"""

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from hack.control_plane.run.pki import Authority
from hack.hollow_node.containers import waits_for
from hack.hollow_node.objects import HOST_IP, HollowPod, HollowStatus
from hack.hollow_node.script import START_ERROR, Output, parse_script
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import CONFIG_MAPS
from tfjob_operator.workqueue import Clock

Find = Callable[[str, str], tuple[HollowPod, HollowStatus] | None]
"""Finds a pod of the node by its namespace and name, and the status that was reported last."""

POLL_S: Final = 0.1
"""The delay after which followers of a log see the end of a run."""
AUTHORITY_LIMIT_S: Final = 10.0
_PULLS: Final = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class LogError(ValueError):
    """The log does not exist; the message is the kubelet's."""


class LogLine(NamedTuple):
    """When a line was printed, and its text."""

    time: datetime
    text: str


class Options(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of a request (v1.PodLogOptions)."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: datetime | None = None
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of a container: its ID, its end (None: it is running), and its whole output."""

    container_id: str
    finished: datetime | None
    lines: Sequence[LogLine] = field(repr=False)

    def printed(self, now: datetime) -> int:
        """Return how many lines the run has printed by now."""
        end = now if self.finished is None else min(now, self.finished)
        return sum(line.time <= end for line in self.lines)


def run_of(pod: HollowPod, status: HollowStatus, container: str, *, previous: bool) -> LoggedRun:
    """Return the requested run of a container. Raises LogError."""
    all_statuses = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    found = next((each for each in all_statuses if each.name == container), None)
    name = f'container "{container}" in pod "{pod.metadata.name}"'
    if found is None:
        raise LogError(f"{name} is not available")
    last, end = found.last_state.terminated, found.state.terminated
    if previous:
        if last is None or not last.container_id:
            raise LogError(f"previous terminated {name} not found")
        end = last
    elif found.state.running is not None:
        return LoggedRun(found.container_id, None, _lines(pod, container, found.state.running.started_at))
    if end is None and last is None:
        reason = waits_for(found)
        raise LogError(f"{name} is waiting to start: {_PULLS.get(reason, reason)}")
    end = end if end is not None and end.container_id else last
    if end is None or not end.container_id or end.started_at is None:
        raise LogError(f"{name} is terminated")
    lines = () if end.reason == START_ERROR else _lines(pod, container, end.started_at)
    return LoggedRun(end.container_id, end.finished_at, lines)


def _lines(pod: HollowPod, container: str, started: datetime) -> Sequence[LogLine]:
    outputs = parse_script(pod).outputs.get(container, ())
    lines = [LogLine(started + timedelta(seconds=at), text) for each in outputs for at, text in _printed_by(each)]
    return sorted(lines, key=lambda line: line.time)


def _printed_by(output: Output) -> Iterator[tuple[float, str]]:
    """Yield the lines of one entry, each with its second; epochs print the lines of `model.fit(..., verbose=2)`."""
    if not output.epochs:
        yield output.at, output.text
    for epoch in range(1, output.epochs + 1):
        yield output.at + (epoch - 1) * output.epoch_s, f"Epoch {epoch}/{output.epochs}"
        measured = f"loss: {2.3 / epoch**0.5:.4f} - accuracy: {1 - 0.9 / epoch**0.5:.4f}"
        yield output.at + epoch * output.epoch_s, f"10/10 - {output.epoch_s:.0f}s - {measured}"


async def stream(find: Find, clock: Clock, path: Sequence[str], options: Options) -> AsyncIterator[bytes]:
    """Yield b"", then the log of `path` (namespace, pod, container). Raises LogError before the first yield."""
    namespace, name, container = path
    pod = find(namespace, name)
    if pod is None:
        raise LogError(f'pod "{name}" not found')
    run = run_of(*pod, container, previous=options.previous)
    now = clock.now()
    since = options.since_time if options.since_seconds is None else now - timedelta(seconds=options.since_seconds)
    number = run.printed(now)
    first = 0 if options.tail_lines is None else max(number - options.tail_lines, 0)
    yield b""
    while True:
        for line in run.lines[first:number]:
            if since is None or line.time >= since:
                stamp = f"{line.time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z " if options.timestamps else ""
                yield f"{stamp}{line.text}\n".encode()
        if not options.follow or run.finished is not None:
            return
        await asyncio.sleep(POLL_S)
        run = _later(find(namespace, name), container, run, clock.now())
        first, number = number, max(number, run.printed(clock.now()))


def _later(pod: tuple[HollowPod, HollowStatus] | None, container: str, run: LoggedRun, now: datetime) -> LoggedRun:
    """Return the current state of a run, which may have ended in the meantime."""
    for previous in (False, True):
        with contextlib.suppress(LogError):
            found = run_of(*pod, container, previous=previous) if pod is not None else None
            if found is not None and found.container_id == run.container_id:
                return LoggedRun(run.container_id, found.finished, run.lines)
    return LoggedRun(run.container_id, now, run.lines)


async def client_authority(client: RestClient) -> str:
    """Return the client CA certificates that the API server publishes. Raises ApiError."""
    deadline = asyncio.get_running_loop().time() + AUTHORITY_LIMIT_S
    while True:
        try:
            found = await client.get(CONFIG_MAPS, "kube-system", "extension-apiserver-authentication")
        except NotFoundError:  # an API server publishes them shortly after its start
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(POLL_S)
        else:
            data: dict[str, str] = msgspec.json.decode(found)["data"]
            return data["client-ca-file"]


@contextlib.asynccontextmanager
async def serving_logs(find: Find, clock: Clock, authority: str) -> AsyncIterator[int]:
    """Serve logs to clients with a certificate of this authority, until the end of the block; yield the port."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.split("/")
        if len(parts) != 5 or parts[1] != "containerLogs":
            return web.Response(status=404, text="404 page not found")
        try:
            options = msgspec.convert(dict(request.query), Options, strict=False)
            log = stream(find, clock, parts[2:], options)
            await anext(log)
        except (LogError, msgspec.ValidationError) as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        left = options.limit_bytes
        async for data in log:
            sent = data if left is None else data[:left]
            await response.write(sent)
            left = None if left is None else left - len(sent)
            if left == 0:
                break
        return response

    server = web.Server(respond, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST_IP, 0, ssl_context=_tls(authority)).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _tls(authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        own = Authority.make(Path(folder)).server("kubelet", [HOST_IP])
        context.load_cert_chain(own.certificate, own.key)
    context.load_verify_locations(cadata=authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
