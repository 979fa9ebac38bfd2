"""What `make demo` and `make test` do on a machine that cannot have the programs of a control plane."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from hack.control_plane.build.apt import ELSEWHERE
from hack.control_plane.build.binaries import CONTROL_PLANE

ROOT: Final = Path(__file__).parents[3]
NEEDED: Final = ("bash", "cat", "cut", "dirname", "grep", "id", "sha256sum")
INDEXES: Final = "#!/bin/sh\necho '{}'\n"
"""An apt-get that answers with the origins of its indexes."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout, beside a folder `bin` with the few programs that the machine has. There is neither apt-get nor Python."""
    folder = tmp_path / "checkout"
    for name in ("hack/bootstrap.sh", ELSEWHERE.relative_to(ROOT)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    return folder


def bootstrap(checkout: Path, **environ: str) -> str:
    """Return what the set-up of a target with a control plane prints; it fails, at the latest for want of a Python."""
    place = {"PATH": str(checkout.parent / "bin"), "HOME": str(checkout.parent)}
    command = [str(checkout / "hack" / "bootstrap.sh"), "--control-plane"]
    done = subprocess.run(command, env={**place, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert not (checkout / ".venv").exists()
    return done.stderr


def on(checkout: Path, os_release: str) -> None:
    """Let the machine be one with this /etc/os-release."""
    (checkout.parent / "os-release").write_text(os_release)
    script = checkout / "hack" / "bootstrap.sh"
    script.write_text(script.read_text().replace("/etc/os-release", str(checkout.parent / "os-release")))


@pytest.mark.parametrize("origins", [None, "Ubuntu"])
def test_without_debians_archive_it_ends_with_two_ways_before_it_installs_anything(
    checkout: Path, origins: str | None
) -> None:
    """Neither packages nor an environment, which would be of no use."""
    on(checkout, "ID=ubuntu\nID_LIKE=debian\n")
    if origins is not None:
        (checkout.parent / "bin" / "apt-get").write_text(INDEXES.format(origins))
        (checkout.parent / "bin" / "apt-get").chmod(0o755)
    printed = bootstrap(checkout)
    assert printed.startswith(ELSEWHERE.read_text())
    assert printed.splitlines()[-1].startswith("error: the programs of a control plane are not cached here")


@pytest.mark.parametrize(("os_release", "origins"), [("ID=debian\n", ""), ("ID=raspbian\n", "Debian")])
def test_with_debians_archive_it_goes_on(checkout: Path, os_release: str, origins: str) -> None:
    """A new Debian has no indexes yet; a derivative may use Debian's archive."""
    on(checkout, os_release)
    (checkout.parent / "bin" / "apt-get").write_text(INDEXES.format(origins))
    (checkout.parent / "bin" / "apt-get").chmod(0o755)
    assert ELSEWHERE.read_text() not in bootstrap(checkout)


@pytest.mark.parametrize("place", ["assets", ".cache/tfjob-operator/control-plane-k8s1.20.2"])
def test_programs_that_are_there_need_no_archive(checkout: Path, place: str) -> None:
    """Those of KUBEBUILDER_ASSETS and of the cache; but envtest has no controller manager, so it alone is not enough."""
    on(checkout, "ID=fedora\n")
    folder = checkout.parent / place
    folder.mkdir(parents=True)
    for name in CONTROL_PLANE:
        (folder / name).touch()
    assets = {"KUBEBUILDER_ASSETS": str(folder)} if place == "assets" else {}
    assert ELSEWHERE.read_text() not in bootstrap(checkout, **assets)
    (folder / "kube-controller-manager").unlink()
    assert ELSEWHERE.read_text() in bootstrap(checkout, **assets)


def test_the_readme_has_both_ways_in_the_same_words() -> None:
    """The script's own text is read by nobody before it is needed."""
    readme = (ROOT / "README.md").read_text()
    ways = re.findall(r"(?:^    .+\n)+", ELSEWHERE.read_text(), re.MULTILINE)
    assert len(ways) == 2
    assert all(way in readme for way in ways)
