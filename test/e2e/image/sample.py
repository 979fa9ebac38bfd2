"""What runs in place of the programs in users' images, without TensorFlow: replicas find each other, and the loss falls.

A parameter server serves for ever, and so does a worker beside a master. Any other replica connects to all of them, "trains"
for two seconds, and writes its losses to the volume for results, if one is mounted.

The same file is the module `tensorflow` in the image: as much of TensorFlow 1 as the standard parameter servers' program uses.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
"""Otherwise the first process of a container ignores SIGTERM, and its end takes half a minute."""

STEPS = 20
STEP_S = 0.1
PATIENCE_S = 60.0
ALONE = '{"cluster": {}, "task": {"type": "worker", "index": 0}}'
"""A job of v1 with one replica has no TF_CONFIG."""
RESULTS = Path("/app/results")
DRIVERS = Path("/usr/lib/nvidia")


def main() -> None:
    """Serve, or train."""
    place = json.loads(os.environ.get("TF_CONFIG", ALONE))
    cluster, kind, index = place["cluster"], place["task"]["type"], place["task"]["index"]
    print(f"REPLICA_TYPE={kind},REPLICA_INDEX={index}", flush=True)
    if kind == "ps" or (kind == "worker" and "master" in cluster):
        serve(int(cluster[kind][index].rpartition(":")[2]))
    for address in (*cluster.get("ps", ()), *(cluster.get("worker", ()) if kind == "master" else ())):
        print(f"got {ask(address)} from {address}", flush=True)
    if DRIVERS.is_dir():
        found = sorted(each.name for each in DRIVERS.iterdir())
        print(f"drivers {found} by LD_LIBRARY_PATH={os.environ.get('LD_LIBRARY_PATH')}", flush=True)
    learn(summaries())


def summaries() -> Path | None:
    """Return where to write the losses: the folder on the command line, else one on the volume, if there is one."""
    named = [word.partition("=")[2] for word in sys.argv if word.startswith("--log_dir=")]
    if named:
        return Path(named[0])
    return RESULTS / "training_summaries" if RESULTS.is_dir() else None


def serve(port: int) -> None:
    """Greet whoever connects, for ever."""
    with socket.create_server(("", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"parameters")


def ask(address: str) -> str:
    """Return what a server sends; wait for its name and for the server itself."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                return connection.recv(99).decode()
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"no way to {address}: {error}")
            time.sleep(0.5)


def learn(folder: Path | None) -> None:
    """Print each step, and write it to the folder as `[time, step, loss]`."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    for step in range(STEPS):
        loss = round(2.5 / (step + 1), 4)
        print(f"step {step} loss {loss}", flush=True)
        if folder is not None:
            with (folder / "losses").open("a") as file:
                file.write(json.dumps([time.time(), step, loss]) + "\n")
        time.sleep(STEP_S)


class ClusterSpec:
    """The addresses of all tasks."""

    def __init__(self, cluster: dict[str, list[str]]) -> None:
        self.cluster = cluster


class Server:
    """A task that greets."""

    def __init__(self, cluster: ClusterSpec, *, job_name: str, task_index: int) -> None:
        self._port = int(cluster.cluster[job_name][task_index].rpartition(":")[2])
        self.target = f"grpc://localhost:{self._port}"

    def join(self) -> None:
        """Serve for ever."""
        serve(self._port)


class train:  # noqa: N801 - a module, in TensorFlow 1
    """The module in which TensorFlow 1 has these classes."""

    ClusterSpec = ClusterSpec
    Server = Server


if __name__ == "__main__":
    main()
