"""The local control plane is a real one and leaves nothing behind. The build of its programs is not tested here."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import pytest

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.control_plane.build.binaries import find_or_build
from hack.control_plane.run import folders, parts
from hack.control_plane.run.plane import GAVE_UP
from hack.kubernetes_versions import LISTS_FROM_SNAPSHOTS
from support.waiting import eventually

PROJECT = Path(__file__).parents[2]
PATIENCE_S = 45.0

POD = """
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers: [{name: main, image: none}]
"""
OWNER_SCRIPT = """
import json, signal
from hack.control_plane import ControlPlane
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
with ControlPlane.start("owner") as plane:
    print(json.dumps([str(plane.directory), plane.pids()]), flush=True)
    signal.pause()
"""

IMPATIENT = """#!/bin/sh
case "$1" in
--kubeconfig=*) [ -e tried ] || {{ touch tried; echo {gave_up}; exit 1; }} ;;
esac
exec {manager} "$@"
"""
"""A controller manager that does not wait for the API server at its first start."""


def runs(pid: int) -> bool:
    """Tell whether a process runs; one that is dead and not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def second_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A second instance, whose etcd first gets a port that is taken: the one of the first instance's etcd."""
    chosen = parts.choose_ports()
    taken = replace(chosen, etcds=tuple(control_plane.ports_of(["etcd"])))
    with mock.patch.object(parts, "choose_ports", side_effect=[taken, chosen]):
        plane = ControlPlane.start("second")
    with plane:
        yield plane


@pytest.fixture
def owner() -> Iterator[tuple[subprocess.Popen[str], Path, dict[str, int]]]:
    """Another process that owns a control plane, the plane's folder and its processes."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER_SCRIPT],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        directory, pids = json.loads(process.stdout.readline())
        yield process, Path(directory), pids
        process.kill()


def test_a_deleted_namespace_goes_with_all_that_is_in_it(control_plane: ControlPlane) -> None:
    """The namespace controller runs: without it a namespace stays in Terminating for ever."""
    control_plane.create_namespace("doomed")
    control_plane.run_kubectl("create", "--namespace=doomed", "-f", "-", input=POD)
    control_plane.run_kubectl("delete", "namespace", "doomed", "--timeout=60s")
    assert "NotFound" in control_plane.run_kubectl("get", "namespace", "doomed", check=False).stderr


def test_kubectl_leaves_nothing_in_the_home_folder(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cache belongs to the instance and goes with it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    control_plane.run_kubectl("get", "pods", "--all-namespaces")
    assert list(tmp_path.iterdir()) == []


def test_a_restarted_etcd_has_its_data(second_plane: ControlPlane) -> None:
    """A killed etcd leaves its socket in the folder."""
    second_plane.run_kubectl("create", "configmap", "kept")
    second_plane.restart("etcd")
    assert "kept" in second_plane.run_kubectl("get", "configmaps", "--output=name").stdout


def test_the_past_can_be_forgotten(control_plane: ControlPlane, namespace: str) -> None:
    """A resource version that a client still has is then expired (410), which no call to the API server can bring about.

    Newer servers keep snapshots in memory, and go on answering from them until they are restarted.
    """
    created = control_plane.run_kubectl("create", "--namespace", namespace, "configmap", "old", "-o", "json").stdout
    revision = int(json.loads(created)["metadata"]["resourceVersion"])
    for name in ("new", "newer"):
        control_plane.run_kubectl("create", "--namespace", namespace, "configmap", name)
    path = f"/api/v1/namespaces/{namespace}/configmaps?limit=1&resourceVersionMatch=Exact&resourceVersion={revision}"
    control_plane.run_kubectl("get", "--raw", path)
    control_plane.etcd_call("kv/compaction", {"revision": revision + 1, "physical": True})
    after = control_plane.run_kubectl("get", "--raw", path, check=False)
    assert ("too old" not in after.stderr) == control_plane.version.has(LISTS_FROM_SNAPSHOTS)
    control_plane.forget_before(revision + 2)
    assert "too old" in control_plane.run_kubectl("get", "--raw", path, check=False).stderr


def test_a_part_that_dies_later_is_reported_with_the_end_of_its_log(control_plane: ControlPlane) -> None:
    """The cause is at hand, not only that something no longer answers."""
    os.kill(control_plane.pids()["kube-controller-manager"], signal.SIGKILL)

    def complaint() -> str:
        try:
            control_plane.check()
        except ControlPlaneError as error:
            return str(error)
        return ""

    eventually(lambda: bool(complaint()), "the death is noticed")
    assert "kube-controller-manager was killed by signal 9; end of " in complaint()
    assert len(complaint().splitlines()) > 3
    control_plane.restart_controller_manager()
    assert complaint() == ""


def test_a_part_that_dies_at_the_start_is_an_error_with_the_end_of_its_log() -> None:
    """And the parts that had started by then are stopped again."""
    with pytest.raises(
        ControlPlaneError, match=r"(?s)kube-apiserver ended with code 1; end of .*unknown flag"
    ) as caught:
        ControlPlane.start("dying", extra_apiserver_args=["--no-such-flag"])
    folder = Path(re.findall(r"end of (\S+)/logs/", str(caught.value))[0])
    assert not folder.exists()


def test_a_controller_manager_that_gave_up_waiting_for_the_api_server_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine an API server may take longer to start than the ten seconds that a controller manager waits."""
    for field in fields(programs := find_or_build()):
        (tmp_path / field.name.replace("_", "-")).symlink_to(getattr(programs, field.name))
    impatient = tmp_path / "kube-controller-manager"
    impatient.unlink()
    impatient.write_text(IMPATIENT.format(gave_up=GAVE_UP, manager=programs.kube_controller_manager))
    impatient.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with ControlPlane.start("impatient") as plane:
        assert GAVE_UP in (plane.directory / "logs" / "kube-controller-manager.log").read_text()


def test_a_second_instance_is_a_world_of_its_own_that_can_be_stopped_twice(
    control_plane: ControlPlane, second_plane: ControlPlane, namespace: str
) -> None:
    """They share neither data nor users. Between the choice of a port and its use anybody may take it: another is chosen."""
    second_plane.check()
    assert second_plane.ports_of(["etcd"]) != control_plane.ports_of(["etcd"])
    assert "address already in use" in (second_plane.directory / "logs" / "etcd.log").read_text()
    with pytest.raises(ControlPlaneError, match=rf'kubectl get namespace {namespace}.*"{namespace}" not found'):
        second_plane.run_kubectl("get", "namespace", namespace)
    stranger = f"--kubeconfig={control_plane.kubeconfig}"
    crossed = second_plane.run_kubectl(stranger, f"--server={second_plane.server}", "get", "pods", check=False)
    assert crossed.returncode != 0
    second_plane.stop()
    second_plane.stop()
    assert not second_plane.directory.exists()
    with pytest.raises(ControlPlaneError, match="stopped"):
        second_plane.run_kubectl("get", "pods")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_owner_that_ends_leaves_no_process_and_the_next_start_clears_its_folder(
    owner: tuple[subprocess.Popen[str], Path, dict[str, int]], number: signal.Signals
) -> None:
    """However a test run ends."""
    process, directory, pids = owner
    assert all(runs(pid) for pid in pids.values())
    process.send_signal(number)
    process.wait(timeout=PATIENCE_S)
    eventually(lambda: not any(runs(pid) for pid in pids.values()), "all processes end")
    assert directory.exists() == (number != signal.SIGINT)  # it clears up where it can
    folders.sweep()
    assert not directory.exists()


@pytest.mark.nightly
def test_several_etcds_and_api_servers_serve_through_a_balancer_while_one_after_the_other_is_gone() -> None:
    """Clients know the balancer alone; a part that was killed or ended comes back with what it had."""

    def leader(plane: ControlPlane) -> str:
        for member in plane.etcds:
            said = plane.etcd_call("maintenance/status", {}, member=member)
            header = said["header"]
            if isinstance(header, dict) and header["member_id"] == said["leader"]:
                return member
        return ""

    def creates(plane: ControlPlane, name: str) -> bool:
        said = plane.run_kubectl("create", "namespace", name, check=False).stderr
        return not said or "AlreadyExists" in said

    with ControlPlane.start("several", shape=parts.Shape(etcd_members=3, apiservers=2)) as plane:
        assert (len(plane.etcds), len(plane.apiservers)) == (3, 2)
        first = leader(plane)
        plane.kill(first)
        eventually(lambda: creates(plane, "without-a-member"), "the other two elect a leader")
        plane.start_again(first)
        for server in plane.apiservers:
            plane.end(server)
            eventually(lambda name=f"without-{server}": creates(plane, name), "the other one serves")  # type: ignore[misc]
            plane.start_again(server)
        assert {"without-a-member", *(f"without-{server}" for server in plane.apiservers)} <= set(
            plane.run_kubectl("get", "namespaces", "--output=jsonpath={.items[*].metadata.name}").stdout.split()
        )
        plane.check()


def test_the_command_line_runs_a_command_with_kubectl_after_the_users_own(tmp_path: Path) -> None:
    """The control plane ends with it."""

    def answer() -> list[str]:
        command = [
            sys.executable,
            "-m",
            "hack.control_plane",
            "run",
            "sh",
            "-c",
            "kubectl get --raw /readyz; env; exit 3",
        ]
        environment = {**os.environ, "PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin"}
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 3
        (kubeconfig,) = (line for line in done.stdout.splitlines() if "KUBECONFIG=" in line)
        assert not Path(kubeconfig.rpartition("=")[2]).parent.exists()
        return done.stdout.splitlines()

    if shutil.which("kubectl", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        assert answer()[0].startswith("ok")
    own = tmp_path / "kubectl"
    own.write_text("#!/bin/sh\necho mine\n")
    own.chmod(0o755)
    assert answer()[0] == "mine"
