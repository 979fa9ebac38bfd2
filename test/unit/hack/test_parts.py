"""The other, pure parts of the local control plane: command lines, ports, orders, certificates, kubeconfigs, states."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from hack.control_plane import ControlPlaneError
from hack.control_plane.build.binaries import version_of
from hack.control_plane.run import parts
from hack.control_plane.run.folders import PartState, State, write_kubeconfig
from hack.control_plane.run.keeper import Order
from hack.control_plane.run.pki import Authority
from hack.kubernetes_versions import OLDEST, Kubernetes

PORTS = parts.Ports(etcd=1, kube_apiserver=2, kube_controller_manager=3)
SEVERAL = parts.Shape(etcd_members=3, apiservers=2)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path)


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> parts.Files:
    return parts.Files(
        folder=tmp_path,
        authority=authority,
        server=authority.server("server", ["127.0.0.1"]),
        kubelet_client=authority.client("kubelet-client", "kubelet-client"),
        token_signer=authority.token_signer(),
        controller_manager_kubeconfig=tmp_path / "kubeconfig",
    )


def test_extra_flags_of_the_api_server_come_last(tmp_path: Path, files: parts.Files) -> None:
    """Of two equal flags it takes the later one."""
    extra = ["--allow-privileged=false"]
    command = parts.kube_apiserver_command(tmp_path / "kube-apiserver", files, PORTS.kube_apiserver, extra)
    assert command.index("--allow-privileged=true") < command.index("--allow-privileged=false") == len(command) - 1


def test_everything_listens_on_loopback(tmp_path: Path, files: parts.Files) -> None:
    """Nobody outside the machine may reach a control plane of a test."""
    commands = [
        parts.etcd_command(tmp_path / "etcd", files, PORTS),
        parts.kube_apiserver_command(tmp_path / "kube-apiserver", files, PORTS.kube_apiserver),
        parts.kube_controller_manager_command(tmp_path / "kube-controller-manager", files, PORTS, OLDEST),
        *(
            parts.etcd_member_command(tmp_path / "etcd", files, parts.choose_ports(shape=SEVERAL), SEVERAL, n)
            for n in (0, 1, 2)
        ),
    ]
    for command in commands:
        listening = [flag for flag in command if flag.startswith(("--bind-address", "--listen"))]
        assert listening
        assert all("127.0.0.1" in flag for flag in listening)


@pytest.mark.parametrize(("minor", "given"), [(20, True), (23, True), (24, False), (36, False)])
def test_the_controller_managers_port_without_tls_is_closed_where_it_exists(
    tmp_path: Path, files: parts.Files, minor: int, given: bool
) -> None:
    """1.24 dropped the flag, and exits if it is given."""
    version = Kubernetes(minor)
    command = parts.kube_controller_manager_command(tmp_path / "kube-controller-manager", files, PORTS, version)
    assert ("--port=0" in command) is given


@pytest.mark.parametrize(("text", "minor"), [("Kubernetes v1.20.2", 20), ("Kubernetes v1.36.0-rc.1", 36)])
def test_a_program_is_asked_for_its_version(tmp_path: Path, text: str, minor: int) -> None:
    """Assets may be of any version."""
    assert version_of(program(tmp_path, text)) == Kubernetes(minor)


def test_a_program_that_tells_no_version_is_refused(tmp_path: Path) -> None:
    """Otherwise it would get the flags of another version."""
    with pytest.raises(ControlPlaneError, match="does not tell its version, but: hello"):
        version_of(program(tmp_path, "hello"))


def program(folder: Path, says: str) -> Path:
    """An executable file that prints something."""
    made = folder / "program"
    made.write_text(f"#!/bin/sh\necho '{says}'\n")
    made.chmod(0o755)
    return made


def test_ports_are_three_different_free_ones_below_the_range_of_outgoing_connections() -> None:
    """Otherwise a client's connection could take the port of an API server while that is restarted."""
    asked: list[int] = []

    def free(port: int) -> bool:
        asked.append(port)
        return len(asked) > 5

    chosen = parts.choose_ports(free=free)
    numbers = {chosen.etcd, chosen.kube_apiserver, chosen.kube_controller_manager}
    assert len(numbers) == 3
    assert numbers <= set(asked[5:])
    assert all(port >= parts.LOWEST for port in asked)


def test_a_control_plane_of_several_parts_has_a_port_for_each_and_one_for_the_balancer() -> None:
    """Clients are told of the balancer alone."""
    chosen = parts.choose_ports(free=lambda _: True, shape=SEVERAL)
    assert (len(chosen.etcds), len(chosen.etcd_peers), len(chosen.apiservers)) == (3, 3, 2)
    all_of_them = (
        *chosen.etcds,
        *chosen.etcd_peers,
        *chosen.apiservers,
        chosen.kube_controller_manager,
        chosen.balancer,
    )
    assert len(set(all_of_them)) == 10
    assert chosen.server == chosen.balancer
    assert parts.choose_ports(free=lambda _: True).server != 0


def test_members_of_etcd_and_api_servers_know_all_members(tmp_path: Path, files: parts.Files) -> None:
    chosen = parts.choose_ports(free=lambda _: True, shape=SEVERAL)
    for number, name in enumerate(SEVERAL.etcds):
        command = parts.etcd_member_command(tmp_path / "etcd", files, chosen, SEVERAL, number)
        assert f"--name={name}" in command
        (cluster,) = (flag for flag in command if flag.startswith("--initial-cluster="))
        assert all(f":{port}" in cluster for port in chosen.etcd_peers)
    (servers,) = (flag for flag in parts.etcd_flags(files, chosen) if flag.startswith("--etcd-servers="))
    assert all(f":{port}" in servers for port in chosen.etcds)


def test_ports_that_are_asked_for_are_taken_unseen_and_none_free_is_an_error() -> None:
    """They are not checked here: the keeper must detect collisions at the start anyway."""
    assert parts.choose_ports((1, 2, 3), free=lambda _: False) == PORTS
    with pytest.raises(ControlPlaneError, match="no 3 free ports"):
        parts.choose_ports(free=lambda _: False)


def test_an_order_survives_the_command_line() -> None:
    """The keeper decodes the same order that its owner encoded."""
    order = Order("one", {"etcd": "/x/etcd"}, detached=True, extra_apiserver_args=("--v=4", "--a=b c"), ports=(1, 2, 3))
    order = replace(order, shape=SEVERAL)
    assert Order.from_text(order.to_text()) == order


def test_a_state_survives_its_file_and_tells_of_parts_that_ended(tmp_path: Path) -> None:
    """`status` runs in another process than the keeper."""
    log = tmp_path / "etcd.log"
    log.write_text("one\nlast words\n")
    ended = PartState("etcd", 12, str(log), exit_code=-9)
    state = State("one", 1, "https://x", "https://y", "/kubectl", (ended, PartState("kube-apiserver", 13, "/no/log")))
    state.write(tmp_path)
    assert State.read(tmp_path) == state
    (complaint,) = state.complaints()
    assert complaint.startswith(f"etcd was killed by signal 9; end of {log}:")
    assert complaint.endswith("last words")
    with pytest.raises(ControlPlaneError, match="not ready, or gone"):
        State.read(tmp_path / "elsewhere")


def test_a_clients_certificate_carries_its_user_and_groups(authority: Authority) -> None:
    """The API server reads them from the common name and the organizations."""
    made = authority.client("alice", "alice", ["team-a", "team-b"])
    subject = x509.load_pem_x509_certificate(made.certificate.read_bytes()).subject
    assert [(item.rfc4514_attribute_name, item.value) for item in subject] == [
        ("O", "team-a"),
        ("O", "team-b"),
        ("CN", "alice"),
    ]
    assert made.key.stat().st_mode & 0o077 == 0
    with pytest.raises(ControlPlaneError, match="1 to 64 characters"):
        authority.client("long", "x" * 65)


def test_a_certificate_is_renewed_in_its_file_and_lives_as_long_as_it_is_told(authority: Authority) -> None:
    """A server and an operator read it again from where it was."""
    first = authority.server("server", ["127.0.0.1"])
    before = first.certificate.read_bytes()
    assert authority.server("server", ["127.0.0.1"], life=timedelta(hours=2)) == first
    assert first.certificate.read_bytes() != before
    ends = x509.load_pem_x509_certificate(first.certificate.read_bytes()).not_valid_after_utc
    assert timedelta(hours=1) < ends - datetime.now(UTC) < timedelta(hours=3)


def test_a_kubeconfig_holds_all_that_a_client_needs(tmp_path: Path, authority: Authority) -> None:
    """It can be passed on without the files from which it was made."""
    made = authority.client("alice", "alice")
    path = write_kubeconfig(
        tmp_path / "kubeconfig",
        server="https://127.0.0.1:1",
        authority=authority.certificate,
        user="alice",
        credential=made,
    )
    content = json.loads(path.read_text())
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert set(content["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert str(tmp_path) not in path.read_text()
