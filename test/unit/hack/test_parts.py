"""The parts of the local control plane that need no process: command lines, ports, folders, certificates, kubeconfigs."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from hack.control_plane import ControlPlaneError
from hack.control_plane.build.binaries import version_of
from hack.control_plane.run import folders, parts
from hack.control_plane.run.pki import Authority
from hack.kubernetes_versions import OLDEST, Kubernetes

SEVERAL = parts.Shape(etcd_members=3, apiservers=2)
FOLDER = Path("/plane")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path)


def test_extra_flags_of_the_api_server_come_last() -> None:
    """Of two equal flags it takes the later one."""
    extra = ["--allow-privileged=false"]
    command = parts.kube_apiserver_command(FOLDER / "kube-apiserver", FOLDER, 1, extra, name="server", etcd=[])
    assert command.index("--allow-privileged=true") < command.index("--allow-privileged=false") == len(command) - 1


def test_everything_listens_on_loopback() -> None:
    """Nobody outside the machine may reach a control plane of a test."""
    several = parts.choose_ports(shape=SEVERAL)
    commands = [
        parts.etcd_command(FOLDER / "etcd", FOLDER, parts.choose_ports(), parts.SINGLE, 0),
        *(parts.etcd_command(FOLDER / "etcd", FOLDER, several, SEVERAL, number) for number in range(3)),
        parts.kube_apiserver_command(FOLDER / "kube-apiserver", FOLDER, 1, name="server", etcd=[]),
        parts.kube_controller_manager_command(FOLDER / "kube-controller-manager", FOLDER, 1, OLDEST),
        [line.strip().replace("bind ", "--bind-address ") for line in parts.haproxy_settings(several).splitlines()],
    ]
    for command in commands:
        listening = [flag for flag in command if flag.startswith(("--bind-address", "--listen"))]
        assert listening
        assert all("127.0.0.1" in flag for flag in listening)


@pytest.mark.parametrize(("minor", "given"), [(20, True), (23, True), (24, False), (36, False)])
def test_the_controller_managers_port_without_tls_is_closed_where_it_exists(minor: int, given: bool) -> None:
    """1.24 dropped the flag, and exits if it is given."""
    command = parts.kube_controller_manager_command(FOLDER / "manager", FOLDER, 1, Kubernetes(minor))
    assert ("--port=0" in command) is given


@pytest.mark.parametrize(
    ("text", "minor"), [("Kubernetes v1.20.2", 20), ("Kubernetes v1.36.0-rc.1", 36), ("hello", None)]
)
def test_a_program_is_asked_for_its_version(tmp_path: Path, text: str, minor: int | None) -> None:
    """Assets may be of any version; a program without one would get the flags of another version."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    if minor is not None:
        assert version_of(program) == Kubernetes(minor)
        return
    with pytest.raises(ControlPlaneError, match="printed no version: hello"):
        version_of(program)


def test_ports_are_different_free_ones_below_the_range_of_outgoing_connections() -> None:
    """Otherwise a client's connection could take the port of an API server while that is restarted."""
    asked: list[int] = []

    def free(port: int) -> bool:
        asked.append(port)
        return len(asked) > 5

    chosen = parts.choose_ports(free, SEVERAL)
    assert (len(chosen.etcds), len(chosen.peers), len(chosen.apiservers)) == (3, 3, 2)
    numbers = {*chosen.etcds, *chosen.peers, *chosen.apiservers, chosen.manager, chosen.balancer}
    assert len(numbers) == 10
    assert numbers <= set(asked[5:])
    assert all(port >= parts.LOWEST for port in asked)
    assert chosen.server == chosen.balancer
    single = parts.choose_ports(lambda _: True)
    assert single.server == single.apiservers[0]
    with pytest.raises(ControlPlaneError, match="no 5 free ports"):
        parts.choose_ports(lambda _: False)


def test_members_of_etcd_and_api_servers_know_all_members() -> None:
    chosen = parts.choose_ports(lambda _: True, SEVERAL)
    for number, name in enumerate(SEVERAL.etcds):
        command = parts.etcd_command(FOLDER / "etcd", FOLDER, chosen, SEVERAL, number)
        assert f"--name={name}" in command
        (cluster,) = (flag for flag in command if flag.startswith("--initial-cluster="))
        assert all(f":{port}" in cluster for port in chosen.peers)
    servers = parts.etcd_flags(FOLDER, chosen)[0]
    assert all(f":{port}" in servers for port in chosen.etcds)


def test_a_clients_certificate_carries_its_user_and_groups(authority: Authority) -> None:
    """The API server reads them from the common name and the organizations."""
    made = authority.client("alice", "alice", ["team-a", "team-b"])
    subject = x509.load_pem_x509_certificate(made.certificate.read_bytes()).subject
    names = [(item.rfc4514_attribute_name, item.value) for item in subject]
    assert names == [("O", "team-a"), ("O", "team-b"), ("CN", "alice")]
    assert made.key.stat().st_mode & 0o077 == 0
    with pytest.raises(ControlPlaneError, match="1 to 64 characters"):
        authority.client("long", "x" * 65)


def test_a_certificate_is_renewed_in_its_file_and_lives_as_long_as_requested(authority: Authority) -> None:
    """A server and an operator read it again from where it was."""
    first = authority.server("server", ["127.0.0.1"])
    before = first.certificate.read_bytes()
    assert authority.server("server", ["127.0.0.1"], life=timedelta(hours=2)) == first
    assert first.certificate.read_bytes() != before
    ends = x509.load_pem_x509_certificate(first.certificate.read_bytes()).not_valid_after_utc
    assert timedelta(hours=1) < ends - datetime.now(UTC) < timedelta(hours=3)


def test_a_kubeconfig_holds_all_that_a_client_needs(tmp_path: Path, authority: Authority) -> None:
    """It can be passed on without the files from which it was made."""
    made, path = authority.client("alice", "alice"), tmp_path / "kubeconfig"
    folders.write_kubeconfig(
        path, server="https://127.0.0.1:1", authority=authority.certificate, user="alice", credential=made
    )
    content = json.loads(path.read_text())
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert set(content["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}
    assert str(tmp_path) not in path.read_text()


def test_sweeping_deletes_the_folders_whose_owner_is_gone_and_no_other(tmp_path: Path) -> None:
    """Closing the descriptor releases the lock, as the end of a killed owner does; other users cannot read a folder."""
    alive, dead = folders.make("alive", tmp_path), folders.make("dead", tmp_path)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    os.close(dead.lock)
    assert alive.path.stat().st_mode & 0o077 == 0
    assert folders.sweep([tmp_path]) == [dead.path]
    assert sorted(tmp_path.iterdir()) == sorted([alive.path, stranger])
    alive.remove()
    assert not alive.path.exists()


def test_a_folder_that_is_just_being_made_is_left_alone_and_an_old_one_of_that_kind_is_not(tmp_path: Path) -> None:
    """A folder is created a moment before its lock is taken, and its owner may be killed in between."""
    held = folders.make("half", tmp_path)
    (held.path / folders.LOCK_FILE).unlink()
    assert folders.sweep([tmp_path]) == []
    os.utime(held.path, (1, 1))
    assert folders.sweep([tmp_path]) == [held.path]
    os.close(held.lock)
