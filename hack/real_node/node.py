"""A running node, with the control plane that it belongs to, as tests use it.

    with RealNode.start() as node:
        node.containers.import_image(Path("image.tar"))
        node.plane.run_kubectl("get", "nodes")

Works only in the sandbox (`python -m hack.real_node run -- ...`); with it ends whatever may be left. To be used from the main
thread: the kernel ends the parts with the thread that started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from hack.control_plane import ControlPlane
from hack.control_plane.build.binaries import find_or_build, version_of
from hack.control_plane.errors import ControlPlaneError, log_tail
from hack.control_plane.run.processes import Part
from hack.real_node import parts
from hack.real_node.containers import Containers, pause_image
from hack.real_node.inside import FOLDER_VARIABLE, NODE_ADDRESS, TOOLS_FILE
from hack.real_node.tools import Tools
from hack.stoppable import Stoppable

PROJECT: Final = Path(__file__).resolve().parents[2]
READY_LIMIT_S: Final = 120.0  # ten seconds on a quiet machine
POLL_S: Final = 0.2


class RealNode(Stoppable):
    """A cluster of one node; invariant: after `stop` none of its parts runs."""

    def __init__(self, plane: ControlPlane, folder: Path, tools: Tools) -> None:
        """Use `start`."""
        self.plane = plane
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self._places = parts.Places(folder)
        self._tools = tools
        self._kubelet_version = version_of(tools.kubelet)
        self.containers = Containers(tools.containerd, self._places.socket)
        self._parts = {
            name: Part(name, self.logs / f"{name}.log")
            for name in ("containerd", "kube-scheduler", "kubelet", "kube-proxy", "dns")
        }

    @classmethod
    def start(cls) -> Self:
        """Start a control plane and a node, and return when pods can run. Raises ControlPlaneError outside of the sandbox."""
        sandbox = os.environ.get(FOLDER_VARIABLE)
        if sandbox is None:
            raise ControlPlaneError("a real node runs in its sandbox alone: python -m hack.real_node run -- COMMAND")
        tools = Tools.from_json(json.loads((Path(sandbox) / TOOLS_FILE).read_text()))
        programs = find_or_build()
        plane = ControlPlane.start(
            "real-node",
            extra_apiserver_args=parts.APISERVER_ARGUMENTS,
            extra_controllers=parts.controllers(version_of(programs.kube_controller_manager)),
            binaries=programs,
        )
        node = cls(plane, Path(sandbox) / "node", tools)
        try:
            node._start()
        except BaseException:
            node.stop()
            raise
        return node

    def stop(self) -> None:
        """End every part, then the control plane. Containers end with the sandbox."""
        for part in reversed(self._parts.values()):
            part.kill()
        self.plane.stop()

    def stop_kubelet(self) -> None:
        """Kill the kubelet; its containers run on, as they do when a node is cut off."""
        self._parts["kubelet"].kill()

    def start_kubelet(self) -> None:
        """Start the kubelet, again or for the first time; does not wait."""
        kubeconfig = self.plane.kubeconfig_for(f"system:node:{parts.NODE}", ["system:masters", "system:nodes"])
        self._launch(
            "kubelet", parts.kubelet_command(self._tools.kubelet, self._places, kubeconfig, self._kubelet_version)
        )

    def is_ready(self) -> bool:
        """Return whether the node's Ready condition is True at the API server."""
        path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self.plane.run_kubectl("get", "node", parts.NODE, "-o", path, check=False).stdout == "True"

    def _start(self) -> None:
        places, tools = self._places, self._tools
        places.networks.mkdir()
        places.containerd_settings.write_text(parts.containerd_settings(places))
        (places.networks / "10-pods.conflist").write_text(json.dumps(parts.network(places)))
        authority = self.plane.directory / "pki" / "ca.crt"
        places.kubelet_settings.write_text(json.dumps(parts.kubelet_settings(authority, self._kubelet_version)))
        self._launch("containerd", [str(tools.containerd / "containerd"), f"--config={places.containerd_settings}"])
        self._until(self.containers.answers, "containerd answers")
        self.containers.import_image(pause_image(tools, parts.PAUSE_IMAGE, places.folder))
        scheduler = self.plane.kubeconfig_for("system:kube-scheduler")
        version = version_of(tools.kube_scheduler)
        self._launch("kube-scheduler", parts.kube_scheduler_command(tools.kube_scheduler, scheduler, version))
        self.start_kubelet()
        proxy = self.plane.kubeconfig_for("system:kube-proxy")
        self._launch("kube-proxy", parts.kube_proxy_command(tools.kube_proxy, proxy))
        names = [
            sys.executable,
            "-m",
            "hack.real_node.dns",
            str(self.plane.kubeconfig),
            NODE_ADDRESS,
            str(places.hosts),
        ]
        self._launch("dns", names)
        self._until(self.is_ready, "the node is ready")

    def _launch(self, name: str, command: list[str]) -> None:
        # containerd looks for its shims on the path, and finds those of its own version first.
        os.environ["PATH"] = _first_on_path(self._tools.containerd, os.environ["PATH"])
        self._parts[name].start(command, PROJECT)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        while not holds():
            for part in self._parts.values():
                part.check()
            if time.monotonic() > deadline:
                tails = "\n".join(log_tail(part.log) for part in self._parts.values() if part.log.exists())
                raise ControlPlaneError(f"not within {READY_LIMIT_S:.0f} s: {what}\n{tails}")
            with contextlib.suppress(InterruptedError):
                time.sleep(POLL_S)


def _first_on_path(folder: Path, path: str) -> str:
    return path if path.startswith(f"{folder}:") else f"{folder}:{path}"
