"""The logs of containers, as the kubelet serves them to the API server: `GET /containerLogs/NAMESPACE/POD/CONTAINER`.

What a run prints is in its pod's script, and when it ran is in the pod's status. So nothing is kept here, and a node that
was started again has the logs of before. The parameters and errors are those of the kubelet (pkg/kubelet/kubelet_pods.go).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from hack.control_plane.run.pki import self_signed
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
"""How soon the end of a run is seen by those who follow it."""
REQUEST_LIMIT_S: Final = 30.0
AUTHORITY_LIMIT_S: Final = 10.0
STEPS_OF_EPOCH: Final = 10
_PULLS: Final = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class LogError(ValueError):
    """There is no such log; the message is the kubelet's."""


class LogLine(msgspec.Struct, frozen=True):
    """When a line was printed, and its text."""

    time: datetime
    text: str

    def render(self, *, timestamps: bool) -> bytes:
        """Return the line as it is sent."""
        stamp = f"{self.time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z " if timestamps else ""
        return f"{stamp}{self.text}\n".encode()


@dataclass(frozen=True, slots=True)
class Options:
    """What of a log is wanted (v1.PodLogOptions)."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None

    @classmethod
    def parse(cls, query: str, now: datetime) -> Options:
        """Read the parameters of a request. Raises ValueError."""
        given = {name: values[-1] for name, values in parse_qs(query).items()}
        numbers = {name: int(given[name]) for name in ("tailLines", "sinceSeconds", "limitBytes") if name in given}
        since = datetime.fromisoformat(given["sinceTime"]) if "sinceTime" in given else None
        if "sinceSeconds" in numbers:
            since = now - timedelta(seconds=numbers["sinceSeconds"])
        follow, previous, timestamps = (given.get(name) == "true" for name in ("follow", "previous", "timestamps"))
        return cls(
            follow,
            previous,
            timestamps,
            tail=numbers.get("tailLines"),
            since=since,
            limit_bytes=numbers.get("limitBytes"),
        )


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of a container: its ID, when it started and ended (None: it runs), and all that it would ever print."""

    container_id: str
    started: datetime
    finished: datetime | None
    lines: Sequence[LogLine] = field(repr=False)

    def printed(self, now: datetime) -> int:
        """Return how many lines the run has printed by now."""
        end = now if self.finished is None else min(now, self.finished)
        return sum(line.time <= end for line in self.lines)


def run_of(pod: HollowPod, status: HollowStatus, container: str, *, previous: bool) -> LoggedRun:
    """Return the run whose log is wanted. Raises LogError."""
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
        started = found.state.running.started_at
        return LoggedRun(found.container_id, started, None, _lines(pod, container, started))
    if end is None and last is None:
        reason = waits_for(found)
        raise LogError(f"{name} is waiting to start: {_PULLS.get(reason, reason)}")
    end = end if end is not None and end.container_id else last
    if end is None or not end.container_id or end.started_at is None:
        raise LogError(f"{name} is terminated")
    lines = () if end.reason == START_ERROR else _lines(pod, container, end.started_at)
    return LoggedRun(end.container_id, end.started_at, end.finished_at, lines)


def _lines(pod: HollowPod, container: str, started: datetime) -> Sequence[LogLine]:
    outputs = parse_script(pod).outputs.get(container, ())
    lines = [LogLine(started + timedelta(seconds=at), text) for each in outputs for at, text in _printed_by(each)]
    return sorted(lines, key=lambda line: line.time)


def _printed_by(output: Output) -> Iterator[tuple[float, str]]:
    """Yield the lines of one entry with their seconds: for epochs what `model.fit(..., verbose=2)` prints."""
    if not output.epochs:
        yield output.at, output.text
    for epoch in range(1, output.epochs + 1):
        yield output.at + (epoch - 1) * output.epoch_s, f"Epoch {epoch}/{output.epochs}"
        steps = f"{STEPS_OF_EPOCH}/{STEPS_OF_EPOCH} - {output.epoch_s:.0f}s"
        measured = f"loss: {2.3 / epoch**0.5:.4f} - accuracy: {1 - 0.9 / epoch**0.5:.4f}"
        yield output.at + epoch * output.epoch_s, f"{steps} - {measured}"


async def stream(find: Find, clock: Clock, path: Sequence[str], options: Options) -> AsyncIterator[bytes]:
    """Yield the log of `path` (namespace, pod, container). Raises LogError before the first line."""
    namespace, name, container = path
    pod = find(namespace, name)
    if pod is None:
        raise LogError(f'pod "{name}" not found')
    run = run_of(*pod, container, previous=options.previous)
    number = run.printed(clock.now())
    first = 0 if options.tail is None else max(number - options.tail, 0)
    for line in run.lines[first:number]:
        if options.since is None or line.time >= options.since:
            yield line.render(timestamps=options.timestamps)
    yield b""  # the head is sent although nothing is printed yet
    while options.follow and run.finished is None:
        await asyncio.sleep(POLL_S)
        run = _later(find, path, run, clock.now())
        printed = run.printed(clock.now())
        for line in run.lines[number:printed]:
            yield line.render(timestamps=options.timestamps)
        number = max(number, printed)
        yield b""  # whoever has gone away is noticed


def _later(find: Find, path: Sequence[str], run: LoggedRun, now: datetime) -> LoggedRun:
    """Return a run that was going on as it is now."""
    namespace, name, container = path
    pod = find(namespace, name)
    for previous in (False, True):
        with contextlib.suppress(LogError):
            found = run_of(*pod, container, previous=previous) if pod is not None else None
            if found is not None and found.container_id == run.container_id:
                return LoggedRun(run.container_id, run.started, found.finished, run.lines)
    return LoggedRun(run.container_id, run.started, now, run.lines)


async def client_authority(client: RestClient) -> str:
    """Return the certificates that the API server publishes as its clients' authority. Raises ApiError."""
    deadline = asyncio.get_running_loop().time() + AUTHORITY_LIMIT_S
    while True:
        try:
            found = await client.get(CONFIG_MAPS, "kube-system", "extension-apiserver-authentication")
        except NotFoundError:  # an API server that has just started publishes them in a moment
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(POLL_S)
        else:
            data: dict[str, str] = msgspec.json.decode(found)["data"]
            return data["client-ca-file"]


@contextlib.asynccontextmanager
async def serving_logs(find: Find, clock: Clock, authority: str) -> AsyncIterator[int]:
    """Serve logs while the block lasts, to clients with a certificate of this authority; the value is the port."""
    requests: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_answer(find, clock, reader, writer))
        requests.add(task)
        task.add_done_callback(requests.discard)

    server = await asyncio.start_server(accept, HOST_IP, 0, ssl=_tls(authority))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


def _tls(authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        own = self_signed(Path(folder), "kubelet")
        context.load_cert_chain(own.certificate, own.key)
    context.load_verify_locations(cadata=authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def _answer(find: Find, clock: Clock, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request and close the connection, or give up if the client does."""
    try:
        with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_LIMIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            await _respond(find, clock, head, writer)
    finally:
        writer.close()


async def _respond(find: Find, clock: Clock, head: bytes, writer: asyncio.StreamWriter) -> None:
    request = re.match(rb"GET (\S+) HTTP/1\.1\r\n", head)
    target = urlsplit(request[1].decode()) if request is not None else None
    parts = [unquote(part) for part in target.path.split("/")] if target is not None else []
    if target is None or len(parts) != 5 or parts[1] != "containerLogs":
        await _refuse(writer, 404, "404 page not found")
        return
    try:
        options = Options.parse(target.query, clock.now())
        begun, left = False, options.limit_bytes
        async for data in stream(find, clock, parts[2:], options):
            if not begun:
                writer.write(_head(200, "Transfer-Encoding: chunked"))
                begun = True
            sent = data if left is None else data[:left]
            left = None if left is None else left - len(sent)
            writer.write(b"%x\r\n%b\r\n" % (len(sent), sent) if sent else b"")
            await writer.drain()
            if left == 0:
                break
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    except ValueError as error:
        await _refuse(writer, 400, str(error))


async def _refuse(writer: asyncio.StreamWriter, code: int, message: str) -> None:
    body = message.encode()
    writer.write(_head(code, f"Content-Length: {len(body)}") + body)
    await writer.drain()


def _head(code: int, length: str) -> bytes:
    reason = {200: "OK", 400: "Bad Request", 404: "Not Found"}[code]
    return f"HTTP/1.1 {code} {reason}\r\nContent-Type: text/plain\r\nConnection: close\r\n{length}\r\n\r\n".encode()
