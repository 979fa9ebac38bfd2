"""Suite `by-hand`: parts that are written by hand, and the libraries that do the same (docs/design/by-hand.md).

Subject `start` starts processes; `http` measures CPU time within one process. A library that is not installed is left out:
point PYTHONPATH at a folder with the packages of `OPTIONAL` to measure all of them.
"""

import asyncio
import importlib.util
import os
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from hack.bench.load import MeasureError, pod_body
from hack.bench.measuring import Bench, Numbers, Result, child, interleaved, ratio
from hack.control_plane.run.folders import write_kubeconfig
from hack.control_plane.run.pki import Authority
from hack.http_server import Handler, serving

Create = Callable[[Any], Awaitable[object]]

ROUNDS: Final = 7
HTTP_ROUNDS: Final = 21
OPTIONAL: Final = ("anyio", "google.protobuf", "ruamel.yaml", "watchfiles")
"""Modules that no extra of setup.cfg installs."""
CREATES: Final = 300


class Pair(NamedTuple):
    """A program of ours and an equivalent one with the library; `needs` is a module of the library."""

    ours: str
    library: str
    needs: str


_KUBECONFIG: Final = "import os, sys; path = os.environ['KUBECONFIG']; "
STARTS: Final = {
    "client": Pair(
        "from tfjob_operator.api.client import HttpTransport, RestClient", "import aiohttp, msgspec", "aiohttp"
    ),
    "metrics_pages": Pair(
        "import tfjob_operator.controller.observability.http_server",
        "import aiohttp.web, prometheus_client, httptools, structlog",
        "aiohttp",
    ),
    "metrics_thread": Pair(
        "import tfjob_operator.controller.observability.http_server",
        "import asyncio, httptools, structlog, prometheus_client; prometheus_client.start_http_server(0, '127.0.0.1')",
        "prometheus_client",
    ),
    "kubeconfig": Pair(
        f"{_KUBECONFIG}from tfjob_operator.api.kubeconfig import read_kubeconfig; read_kubeconfig().access()",
        f"{_KUBECONFIG}import kubernetes.config; kubernetes.config.load_kube_config(path)",
        "kubernetes",
    ),
    "session": Pair("import tfjob_operator.cli.session", "import json, ssl, urllib3", "urllib3"),
    "tables": Pair("import tfjob_operator.cli.terminal", "import rich.console, rich.table", "rich"),
    "quantities": Pair("import tfjob_operator.api.resources", "import kubernetes.utils.quantity", "kubernetes"),
    "validation": Pair(
        "import tfjob_operator.api.v1.validation", "import msgspec, pydantic; pydantic.BaseModel", "pydantic"
    ),
    "protobuf": Pair(
        "import tfjob_operator.api.core_messages",
        "import msgspec; from google.protobuf import descriptor_pb2, message_factory",
        "google.protobuf",
    ),
    "parallel": Pair(
        "import tfjob_operator.workqueue.parallel", "import asyncio, anyio; anyio.CapacityLimiter", "anyio"
    ),
    "config_file": Pair("import asyncio", "import asyncio, watchfiles", "watchfiles"),
    "yaml_lines": Pair("import yaml", "import ruamel.yaml", "ruamel.yaml"),
}
"""What a process imports for the same work; the difference is what the library adds to each start."""
_MEASURED: Final = (
    "; import time; cpu = time.process_time(); "
    "print(cpu, next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])"
)


def is_installed(module: str) -> bool:
    """Return whether a module can be imported here."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def measure_starts(bench: Bench) -> list[Result]:
    """Measure CPU time and memory of fresh processes."""
    results: list[Result] = []
    with _server(bench) as kubeconfig:
        for name, pair in STARTS.items():
            if not is_installed(pair.needs):
                bench.say(f"{name} is left out: {pair.needs} is not installed")
                continue
            sides = {
                side: partial(_start, program, kubeconfig)
                for side, program in pair._asdict().items()
                if side != "needs"
            }
            for side in sides.values():
                side()  # compiles what is imported for the first time
            runs = interleaved(sides, ROUNDS)
            cpu = {side: [each["cpu"] for each in found] for side, found in runs.items()}
            memory = {side: median(each["mb"] for each in found) for side, found in runs.items()}
            results += [
                Result(f"{name}_start_cpu", median(cpu["ours"]) * 1e3, "CPU ms"),
                Result(f"{name}_start_cpu_of_library", median(cpu["library"]) * 1e3, "CPU ms"),
                Result(f"{name}_start_cpu_ratio", ratio(cpu["library"], cpu["ours"]), "x"),
                Result(f"{name}_memory_saved", memory["library"] - memory["ours"], "MB VmRSS"),
            ]
    return results


def _start(program: str, kubeconfig: str) -> Numbers:
    environment = os.environ | {"KUBECONFIG": kubeconfig, "PYTHONDONTWRITEBYTECODE": ""}
    run = subprocess.run([sys.executable, "-c", program + _MEASURED], env=environment, capture_output=True, check=True)
    cpu, kilobytes = run.stdout.split()
    return {"cpu": float(cpu), "mb": float(kilobytes) / 1024}


# Subject `http`: creates over TLS, to a server in this process that only responds.


class _Server(Handler):
    def do_POST(self) -> None:  # noqa: N802 - http.server calls it
        self.answer(self.rfile.read(int(self.headers["Content-Length"])), 201)


@contextmanager
def _server(bench: Bench) -> Iterator[str]:
    folder = bench.scratch
    authority = Authority.make(folder)
    user = authority.client("admin", "admin")
    serving_pair = authority.server("server", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(serving_pair.certificate, serving_pair.key)
    with serving(_Server, context) as port:
        file = folder / "kubeconfig"
        server = f"https://127.0.0.1:{port}"
        yield str(write_kubeconfig(file, server=server, authority=authority.certificate, user="admin", credential=user))


def measure_http(bench: Bench) -> list[Result]:
    """Create pods with our client, and with aiohttp and msgspec: one at a time, and 32 at once."""
    bench.say(f"creating {CREATES} pods, {HTTP_ROUNDS} times: our client, aiohttp")
    results: list[Result] = []
    with (
        _server(bench) as kubeconfig,
        child(our_creates, kubeconfig) as ours,
        child(their_creates, kubeconfig) as theirs,
    ):
        for at_once in (1, 32):
            sides = {"ours": partial(ours, at_once), "aiohttp": partial(theirs, at_once)}
            for side in sides.values():
                side()
            turns = {name: [each["us"] for each in found] for name, found in interleaved(sides, HTTP_ROUNDS).items()}
            results += [
                *(Result(f"create_{at_once}_at_once_{name}", median(found), "us CPU") for name, found in turns.items()),
                Result(f"create_{at_once}_at_once_aiohttp_vs_ours", ratio(turns["aiohttp"], turns["ours"]), "x"),
            ]
    return results


def our_creates(kubeconfig: str) -> Callable[[int], Numbers]:
    """Prepare `RestClient.create`."""
    from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
    from tfjob_operator.api.core import PODS

    @asynccontextmanager
    async def client() -> AsyncIterator[Create]:
        async with HttpTransport(load_settings(kubeconfig)) as transport:
            yield partial(RestClient(transport).create, PODS, "bench")

    return lambda at_once: asyncio.run(_create(client, at_once))


def their_creates(kubeconfig: str) -> Callable[[int], Numbers]:
    """Prepare `aiohttp.ClientSession.post` with the timeouts of our client: for connecting and for the whole request."""
    import aiohttp

    from tfjob_operator.cli.target import Target

    access = Target(kubeconfig=kubeconfig).access()
    server, context = access.server, access.tls_context()
    if context is None:
        raise MeasureError("the kubeconfig has no https server")

    @asynccontextmanager
    async def client() -> AsyncIterator[Create]:
        limits = aiohttp.ClientTimeout(total=30.0, sock_connect=10.0)
        connector = aiohttp.TCPConnector(ssl=context, limit=32)
        async with aiohttp.ClientSession(server, connector=connector, timeout=limits) as session:

            async def create(body: object) -> None:
                headers = {"Content-Type": "application/json", "Accept": "application/json"}
                data = msgspec.json.encode(body)
                async with session.post("/api/v1/namespaces/bench/pods", data=data, headers=headers) as response:
                    if response.status != 201:
                        raise MeasureError(f"status {response.status}")
                    await response.read()

            yield create

    return lambda at_once: asyncio.run(_create(client, at_once))


async def _create(client: Callable[[], AbstractAsyncContextManager[Create]], at_once: int) -> Numbers:
    """Create pods and return the mean CPU time per pod; connections are opened before the measurement."""
    bodies = [pod_body(number) for number in range(CREATES)]
    async with client() as create:
        await asyncio.gather(*map(create, bodies[:at_once]))
        waiting = iter(bodies)

        async def work() -> None:
            for body in waiting:
                await create(body)

        began = time.process_time()
        await asyncio.gather(*(work() for _ in range(at_once)))
        return {"us": (time.process_time() - began) / CREATES * 1e6}
