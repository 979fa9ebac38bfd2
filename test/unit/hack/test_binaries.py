"""Where the programs of the local control plane are found: in the assets, else in the cache. Building is not tested here."""

from pathlib import Path

import pytest

from hack.control_plane import ControlPlaneError
from hack.control_plane.build.binaries import CONTROL_PLANE, ENVTEST, cache_folder, find


def fill(folder: Path, *names: str) -> Path:
    """Put executable files of these names into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_the_cache_is_below_the_users_cache_folder_and_named_by_the_versions() -> None:
    """The files of different versions are in different folders."""
    folder = cache_folder({"XDG_CACHE_HOME": "/somewhere"})
    assert folder.parent == Path("/somewhere/tfjob-operator")
    assert folder.name.startswith("control-plane-k8s1.20.2-etcd3.4")


@pytest.mark.parametrize("setting", ["", "relative/path"])
def test_without_a_usable_setting_the_cache_is_in_the_home_folder(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The XDG specification requires that relative paths are ignored."""
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder({"XDG_CACHE_HOME": setting}).parent == Path("/home/somebody/.cache/tfjob-operator")


def test_assets_come_before_the_cache(tmp_path: Path) -> None:
    """KUBEBUILDER_ASSETS, as users of envtest know it, is honoured first."""
    environment = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    assets = fill(tmp_path / "assets", *CONTROL_PLANE)
    fill(cache_folder(environment), *CONTROL_PLANE)
    assert find(CONTROL_PLANE, environment) == ({name: assets / name for name in CONTROL_PLANE}, [])


def test_a_controller_manager_that_the_assets_lack_comes_from_the_cache(tmp_path: Path) -> None:
    """Envtest does not run a controller manager, so its assets often have none."""
    environment = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    assets = fill(tmp_path / "assets", *ENVTEST)
    cache = fill(cache_folder(environment), *CONTROL_PLANE)
    found, missing = find(CONTROL_PLANE, environment)
    assert missing == []
    assert found["kube-controller-manager"] == cache / "kube-controller-manager"
    assert all(found[name] == assets / name for name in ENVTEST)


def test_what_is_nowhere_is_named_as_missing(tmp_path: Path) -> None:
    """Only the missing programs are built."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    fill(cache_folder(environment), "etcd", "kubectl")
    found, missing = find(CONTROL_PLANE, environment)
    assert sorted(found) == ["etcd", "kubectl"]
    assert missing == ["kube-apiserver", "kube-controller-manager"]


@pytest.mark.parametrize("lacking", ENVTEST)
def test_assets_that_lack_a_program_of_envtest_are_an_error(tmp_path: Path, lacking: str) -> None:
    """A user who sets the variable means those programs, and must not get others silently."""
    assets = fill(tmp_path / "assets", *(name for name in ENVTEST if name != lacking))
    with pytest.raises(ControlPlaneError, match=f"KUBEBUILDER_ASSETS=.* does not contain an executable {lacking};"):
        find(CONTROL_PLANE, {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": str(assets)})


def test_a_file_that_cannot_be_executed_is_no_program(tmp_path: Path) -> None:
    """A download without its executable bit would otherwise fail much later, with a less useful error."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    fill(cache_folder(environment), *CONTROL_PLANE)
    (cache_folder(environment) / "etcd").chmod(0o644)
    assert find(CONTROL_PLANE, environment)[1] == ["etcd"]
