"""The pure parts of the real node: names, settings, command lines, and the messages where it cannot run."""

import os
import shutil
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from hack.control_plane import ControlPlaneError
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from hack.objects import an_object
from hack.real_node import machine, node, sandbox
from hack.real_node.dns import hosts
from hack.real_node.inside import FOLDER_VARIABLE
from hack.real_node.node import RealNode
from tfjob_operator.api.core import SERVICES

PLACES = Path("/node")


service = partial(an_object, SERVICES, namespace="a")
HEADLESS = {"clusterIP": "None"}


def endpoints(name: str, **hostnames: str) -> Any:
    """The ready endpoints of a service, by the last number of their addresses, with their hostnames."""
    addresses = [{"ip": f"10.244.0.{n[1:]}", "hostname": hostname} for n, hostname in hostnames.items()]
    return {"metadata": {"name": name, "namespace": "a"}, "subsets": [{"addresses": addresses}]}


def test_a_headless_name_leads_to_the_ready_pods_and_another_to_the_service() -> None:
    """A service that has neither gets no name at all."""
    web = service("web", {"clusterIP": "10.96.0.7"})
    services = [service("ps-0", HEADLESS), web, service("gone", HEADLESS), service("outside", {})]
    assert hosts(services, [endpoints("ps-0", _9="", _8=""), endpoints("web", _3="")]) == (
        "10.244.0.8 ps-0.a.svc.cluster.local\n10.244.0.9 ps-0.a.svc.cluster.local\n10.96.0.7 web.a.svc.cluster.local\n"
    )


def test_a_pod_whose_subdomain_is_a_headless_service_has_a_name_below_it() -> None:
    """As every DNS of a cluster has it; jobs with a shared network rely on it."""
    assert hosts([service("job", HEADLESS)], [endpoints("job", _9="job-worker-0")]) == (
        "10.244.0.9 job-worker-0.job.a.svc.cluster.local\n10.244.0.9 job.a.svc.cluster.local\n"
    )


def test_containerd_gets_settings_that_it_can_read() -> None:
    """It ignores a wrong file, and would start with its defaults."""
    settings = tomllib.loads(node.containerd_settings(PLACES))
    plugin = settings["plugins"]["io.containerd.grpc.v1.cri"]
    assert settings["grpc"]["address"] == "/node/containerd.sock"
    assert plugin["sandbox_image"] == node.PAUSE_IMAGE
    assert plugin["cni"]["conf_dir"] == "/node/cni"


def test_the_kubelet_lets_nobody_in_without_a_certificate() -> None:
    """Pods can reach its address."""
    settings = node.kubelet_settings(Path("/ca.crt"), OLDEST)
    assert settings["authentication"]["anonymous"] == {"enabled": False}
    assert settings["authorization"] == {"mode": "Webhook"}


@pytest.mark.parametrize(
    ("version", "needed"), [(Kubernetes(20), True), (Kubernetes(23), True), (Kubernetes(24), False)]
)
def test_flags_that_went_are_given_where_they_are_needed_alone(version: Kubernetes, needed: bool) -> None:
    """A program exits on an unknown flag; without them an old kubelet would use Docker, and an old scheduler a taken port."""
    kubelet = node.kubelet_command(Path("/kubelet"), PLACES, Path("/node/kubeconfig"), version)
    scheduler = node.kube_scheduler_command(Path("/scheduler"), Path("/node/kubeconfig"), version)
    assert ("--container-runtime=remote" in kubelet) is needed
    assert ("--port=0" in scheduler) is needed


@pytest.mark.parametrize(("version", "asked"), [(Kubernetes(34), None), (Kubernetes(35), False), (NEWEST, False)])
def test_a_kubelet_takes_the_control_groups_that_there_are(version: Kubernetes, asked: bool | None) -> None:
    """A new kubelet refuses cgroup v1 unless it is allowed; an old one refuses a setting that it does not know."""
    assert node.kubelet_settings(Path("/ca.crt"), version).get("failCgroupV1") is asked


@pytest.mark.parametrize(("version", "own"), [(Kubernetes(28), False), (Kubernetes(29), True)])
def test_pods_leave_a_lost_node_in_every_version(version: Kubernetes, own: bool) -> None:
    """Since 1.29 their eviction is done by a controller of its own."""
    controllers = node.controllers(version)
    assert "nodelifecycle" in controllers
    assert ("taint-eviction-controller" in controllers) is own


def test_control_groups_of_another_process_may_go_while_we_look(tmp_path: Path, mocker: MockerFixture) -> None:
    """With two nodes at once a group may be removed during the search, which goes on. Inner groups come before outer ones."""
    for group in ("k8s.io/kept/inner", "k8s.io/going"):
        (tmp_path / group).mkdir(parents=True)
    for group in ("", "k8s.io", "k8s.io/kept", "k8s.io/kept/inner", "k8s.io/going"):
        (tmp_path / group / "cgroup.procs").touch()
    mocker.patch.object(sandbox, "CGROUPS", tmp_path)
    scan = os.scandir

    def remove_and_scan(folder: str | os.PathLike[str] | int) -> Iterator[os.DirEntry[str]]:
        if not isinstance(folder, int) and Path(folder).name == "going":
            shutil.rmtree(folder)  # rmtree calls scandir too, with a descriptor
        return scan(folder)

    mocker.patch.object(os, "scandir", remove_and_scan)
    found = [str(path.relative_to(tmp_path)) for path in sandbox._groups()]
    assert found == ["k8s.io/kept/inner", "k8s.io/kept", "k8s.io", "."]


def test_every_file_of_a_node_is_below_its_folder() -> None:
    """So removing that folder removes everything."""
    command = node.kubelet_command(Path("/kubelet"), PLACES, Path("/node/kubeconfig"), OLDEST)
    paths = [word.partition("=")[2] for word in command if "=/" in word]
    assert paths
    assert all(path.startswith("/node/") for path in paths)


def test_who_is_not_root_is_told_so(mocker: MockerFixture) -> None:
    """By a message, and before anything is tried."""
    mocker.patch.object(os, "geteuid", return_value=1000)
    (complaint,) = machine.lacking()
    assert "root" in complaint or "Debian" in complaint


def test_a_new_machine_gets_the_program_that_tries_the_kernel(mocker: MockerFixture) -> None:
    """Without `ip`, each attempt failed, and was said to be a feature that the kernel lacks."""
    mocker.patch.object(os, "geteuid", return_value=0)
    mocker.patch("shutil.which", return_value="/usr/bin/any")
    tried = mocker.patch("subprocess.run", return_value=mocker.Mock(returncode=0))
    installed = mocker.patch("hack.packages.install", side_effect=lambda _: tried.assert_not_called())
    assert list(machine.lacking()) == []
    installed.assert_called_once_with(["iproute2"])
    tried.assert_called()


def test_a_node_does_not_start_outside_of_its_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write its rules and bridges into the machine's own network."""
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(ControlPlaneError, match="sandbox"):
        RealNode.start()


@pytest.mark.parametrize(("controller", "file"), [("cpu", "cpu.shares"), ("", "cpu.weight")])
def test_all_containers_together_get_the_cpu_time_of_several_processes(
    tmp_path: Path, mocker: MockerFixture, controller: str, file: str
) -> None:
    """Of control groups v1 and v2, only one is there. A machine that does not allow it is left as it is."""
    mocker.patch.object(sandbox, "CGROUPS", tmp_path)
    sandbox._raise_cpu_shares()
    assert not [*tmp_path.iterdir()]
    (tmp_path / controller).mkdir(exist_ok=True)
    (tmp_path / controller / "cgroup.procs").touch()
    sandbox._raise_cpu_shares()
    assert int((tmp_path / controller / "k8s.io" / file).read_text()) > 512
    (tmp_path / controller / "k8s.io" / file).unlink()
    (tmp_path / controller / "k8s.io" / file).mkdir()
    sandbox._raise_cpu_shares()
