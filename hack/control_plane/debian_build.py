"""Build Kubernetes from Debian's source package and take etcd from its binary one.

In: the names of the programs that are wanted, a folder to work in. Out: those programs in `<folder>/out`. The recipe
follows Debian's own rules for the package (patches applied, GOPATH inside the tree, no cgo, vendored modules), with one
difference: reflect2 1.0.1, which the tree vendors, reads the runtime's maps in a way that ended with Go 1.18, and
kube-apiserver dies of it at the first custom resource; Debian's package of reflect2 1.0.2 is laid over it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hack.control_plane.apt import PrivateApt
from hack.control_plane.commands import LoggedRunner, output_of
from hack.control_plane.errors import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hack.control_plane.progress import Progress

KUBERNETES_VERSION = "1.20.2"
ETCD_VERSION = "3.4"
ETCD = "etcd"
BUILD_PACKAGES = ("golang-go", "jq", "rsync", "make", "dpkg-dev", "patch", "golang-github-modern-go-reflect2-dev")
REFLECT2 = Path("/usr/share/gocode/src/github.com/modern-go/reflect2")
GO_FOLDER = Path("/usr/lib/go/bin")
BUILD_LIMIT_S = 3600.0  # five minutes on two cores; a slow single core must still get there


def build(names: Sequence[str], work: Path, log: Path, progress: Progress) -> Path:
    """Make the named programs (`etcd` or any command of Kubernetes); return the folder that holds them."""
    runner = LoggedRunner(log, progress)
    (work / "apt").mkdir()
    (work / "out").mkdir()
    apt = PrivateApt(work / "apt", runner, progress)
    apt.prepare()
    if ETCD in names:
        _take_etcd(apt, runner, work, progress)
    commands = [name for name in names if name != ETCD]
    if commands:
        tree = _prepare_tree(apt, work, progress)
        _compile(commands, tree, runner, progress)
        for name in commands:
            shutil.move(tree / "_output" / "bin" / name, work / "out" / name)
    return work / "out"


def upstream_version(version: str) -> str:
    """Return the upstream part of a Debian version: `1.20.5+really1.20.2-1.1+deb12u1` is upstream's 1.20.2."""
    upstream = version.rpartition("-")[0] or version
    upstream = upstream.rpartition(":")[2]
    return re.split(r"[+~]", upstream.rpartition("+really")[2])[0]


def _take_etcd(apt: PrivateApt, runner: LoggedRunner, work: Path, progress: Progress) -> None:
    # Not installed: the package would start a system service that nobody asked for.
    progress.say("taking etcd out of Debian's etcd-server (downloaded, not installed)")
    folder = work / "etcd"
    folder.mkdir()
    package = apt.download("etcd-server", folder)
    runner.run("dpkg-deb", "-x", str(package), str(folder / "files"), limit_s=60.0)
    shutil.move(folder / "files" / "usr" / "bin" / "etcd", work / "out" / ETCD)
    reported = _version_of(work / "out" / ETCD)
    if not reported.startswith(f"{ETCD_VERSION}."):
        raise ControlPlaneError(f"this recipe is for etcd {ETCD_VERSION}, Debian 12's, but the mirror has {reported}")


def _version_of(etcd: Path) -> str:
    found = re.search(r"etcd Version: (\S+)", output_of(str(etcd), "--version"))
    return found[1] if found else "an unknown version"


def _prepare_tree(apt: PrivateApt, work: Path, progress: Progress) -> Path:
    version = apt.source_version("kubernetes")
    if upstream_version(version) != KUBERNETES_VERSION:
        raise ControlPlaneError(
            f"this recipe is for Kubernetes {KUBERNETES_VERSION}, Debian 12's, but the mirror has {version}; "
            "set KUBEBUILDER_ASSETS to a folder with other binaries"
        )
    apt.install(BUILD_PACKAGES)
    progress.say(f"fetching and patching the source of Kubernetes {version}")
    tree = apt.unpack_source("kubernetes", version, work / "source")
    _replace_reflect2(tree / "vendor" / "github.com" / "modern-go" / "reflect2")
    link = tree / ".go" / "src" / "k8s.io" / "kubernetes"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../..")
    return tree


def _replace_reflect2(vendored: Path) -> None:
    if not REFLECT2.is_dir():
        raise ControlPlaneError(
            f"Debian's reflect2 is not at {REFLECT2}: its package has another layout than Debian 12's"
        )
    for pattern in ("*.go", "*.s"):  # the old files go first: 1.0.2 has fewer of them, and they would not go together
        for old in vendored.glob(pattern):
            old.unlink()
        for new in REFLECT2.glob(pattern):
            if not new.name.endswith("_test.go"):
                shutil.copy(new, vendored / new.name)


def _compile(commands: Sequence[str], tree: Path, runner: LoggedRunner, progress: Progress) -> None:
    # A tree without git does not know its version, and the programs would call themselves v0.0.0.
    version_file = tree / ".version"
    version_file.write_text(
        f"KUBE_GIT_COMMIT=debian\nKUBE_GIT_TREE_STATE=clean\nKUBE_GIT_VERSION=v{KUBERNETES_VERSION}\n"
        + "KUBE_GIT_MAJOR={}\nKUBE_GIT_MINOR={}\n".format(*KUBERNETES_VERSION.split("."))
    )
    home = tree / ".home"  # Go's build cache goes with the tree
    home.mkdir()
    environment = {
        "PATH": f"{GO_FOLDER}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(home),
        "GOCACHE": str(home / "go-build"),
        "GOPATH": str(tree / ".go"),
        "GOFLAGS": "-mod=vendor",
        "CGO_ENABLED": "0",
        "KUBE_GIT_VERSION_FILE": str(version_file),
        "TMPDIR": str(home),
        "LC_ALL": "C",
    }
    what = " ".join(f"cmd/{name}" for name in commands)
    progress.say(f"compiling {', '.join(commands)}: about 5 minutes on two cores")
    runner.run("make", f"WHAT={what}", limit_s=BUILD_LIMIT_S, cwd=tree, env=environment)
