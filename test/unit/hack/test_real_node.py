"""The pure rest of the real node: names, settings, command lines, and what is said where it cannot run."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from api.meta import ObjectMeta
from hack.control_plane import ControlPlaneError
from hack.real_node import machine, parts
from hack.real_node.dns import Address, Endpoints, NamedService, NamedServiceSpec, Subset, hosts
from hack.real_node.inside import FOLDER_VARIABLE
from hack.real_node.node import RealNode
from hack.real_node.tools import Tools

PLACES = parts.Places(Path("/node"))


def service(name: str, cluster_ip: str) -> NamedService:
    """A service in the namespace `a`."""
    return NamedService(ObjectMeta(name=name, namespace="a"), NamedServiceSpec(cluster_ip))


def endpoints(name: str, *addresses: str) -> Endpoints:
    """The ready endpoints of a service."""
    return Endpoints(ObjectMeta(name=name, namespace="a"), (Subset(tuple(map(Address, addresses))),))


def test_a_headless_name_leads_to_the_ready_pods_and_another_to_the_service() -> None:
    """A service without either has no name at all."""
    services = [service("ps-0", "None"), service("web", "10.96.0.7"), service("gone", "None"), service("outside", "")]
    assert hosts(services, [endpoints("ps-0", "10.244.0.9", "10.244.0.8"), endpoints("web", "10.244.0.3")]) == (
        "10.244.0.8 ps-0.a.svc.cluster.local\n10.244.0.9 ps-0.a.svc.cluster.local\n10.96.0.7 web.a.svc.cluster.local\n"
    )


def test_containerd_gets_settings_that_it_can_read() -> None:
    """It takes a wrong file for none, and starts with its defaults."""
    settings = tomllib.loads(parts.containerd_settings(PLACES))
    plugin = settings["plugins"]["io.containerd.grpc.v1.cri"]
    assert settings["grpc"]["address"] == "/node/containerd.sock"
    assert plugin["sandbox_image"] == parts.PAUSE_IMAGE
    assert plugin["cni"]["conf_dir"] == "/node/cni"


def test_the_kubelet_lets_nobody_in_without_a_certificate() -> None:
    """Its address is one that pods reach."""
    settings = parts.kubelet_settings(Path("/ca.crt"))
    assert settings["authentication"]["anonymous"] == {"enabled": False}
    assert settings["authorization"] == {"mode": "Webhook"}


def test_every_file_of_a_node_is_below_its_folder() -> None:
    """What is left of it is removed with that one."""
    command = parts.kubelet_command(Path("/kubelet"), PLACES, Path("/node/kubeconfig"))
    paths = [word.partition("=")[2] for word in command if "=/" in word]
    assert paths
    assert all(path.startswith("/node/") for path in paths)


def test_tools_are_the_same_on_the_other_side_of_the_sandbox() -> None:
    """They are found outside and used inside."""
    tools = Tools(*(Path(f"/{name}") for name in ("kubelet", "scheduler", "proxy", "containerd", "catatonit")))
    assert Tools.from_json(tools.to_json()) == tools


def test_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, and before anything is tried."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (complaint,) = machine.lacking()
    assert "root" in complaint or "Debian" in complaint


def test_a_node_does_not_start_outside_of_its_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write its rules and bridges into the machine's own network."""
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(ControlPlaneError, match="sandbox"):
        RealNode.start()
