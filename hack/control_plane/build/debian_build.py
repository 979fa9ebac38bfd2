"""Build Kubernetes from Debian's source package, and take etcd and kubectl from its binary ones.

In: the names of the programs that are wanted, a folder to work in. Out: those programs in `<folder>/out`. The source is
Debian's with its patches applied, compiled without cgo (`go_build`) and with its vendored modules, except two that newer
versions of Go break:

- reflect2 1.0.1 reads the runtime's maps in a way that no longer works since Go 1.18, so that kube-apiserver dies at the first
  custom resource. It is replaced by Debian's package of reflect2 1.0.2.
- kube-openapi compares values by `reflect.DeepEqual`, which since Go 1.16 takes "", 0 and false for null, so that custom
  resources with an empty string are rejected (kubernetes#99804). It is patched as upstream patched it (kube-openapi#230).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.control_plane.build.apt import PrivateApt
from hack.control_plane.build.commands import LoggedRunner, output_of
from hack.control_plane.build.go_build import GoTree
from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.progress import Progress

KUBERNETES_VERSION = "1.20.2"
ETCD_VERSION = "3.4"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program that Debian has compiled: its package, the arguments that ask for its version, and the expected answer."""

    package: str
    question: tuple[str, ...]
    answer: str


COMPILED: Final = {
    "etcd": Compiled("etcd-server", ("--version",), f"etcd Version: {ETCD_VERSION}."),
    "kubectl": Compiled("kubernetes-client", ("version", "--client", "--short"), f"Version: v{KUBERNETES_VERSION}"),
}
BUILD_PACKAGES = ("golang-go", "dpkg-dev", "patch", "golang-github-modern-go-reflect2-dev")
REFLECT2 = Path("/usr/share/gocode/src/github.com/modern-go/reflect2")
NULL_CHECK = "data == nil || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))"


def build(names: Sequence[str], work: Path, log: Path, progress: Progress) -> Path:
    """Make the named programs (`etcd` or any command of Kubernetes); return the folder that holds them."""
    runner = LoggedRunner(log, progress)
    (work / "apt").mkdir()
    out = work / "out"
    out.mkdir()
    apt = PrivateApt(work / "apt", runner, progress)
    apt.prepare()
    for name in names:
        if name in COMPILED:
            _take(name, apt, runner, work, progress)
    commands = [name for name in names if name not in COMPILED]
    if commands:
        tree = GoTree(_prepare_source(apt, work, progress), work, runner, KUBERNETES_VERSION)
        progress.say(f"compiling {', '.join(commands)}: two to three minutes on two cores")
        tree.compile(commands, out)
    return out


def upstream_version(version: str) -> str:
    """Return the upstream part of a Debian version: `1.20.5+really1.20.2-1.1+deb12u1` is upstream's 1.20.2."""
    upstream = version.rpartition("-")[0] or version
    upstream = upstream.rpartition(":")[2]
    return re.split(r"[+~]", upstream.rpartition("+really")[2])[0]


def _take(name: str, apt: PrivateApt, runner: LoggedRunner, work: Path, progress: Progress) -> None:
    # The package is not installed: etcd's would start a system service that nobody asked for.
    recipe = COMPILED[name]
    progress.say(f"taking {name} out of Debian's {recipe.package} (downloaded, not installed)")
    folder = work / name
    folder.mkdir()
    package = apt.download(recipe.package, folder)
    runner.run("dpkg-deb", "-x", str(package), str(folder / "files"), limit_s=60.0)
    program = work / "out" / name
    shutil.move(folder / "files" / "usr" / "bin" / name, program)
    answer = output_of(str(program), *recipe.question)
    if recipe.answer not in answer:
        raise ControlPlaneError(
            f"this recipe is for `{recipe.answer}` of {name}, Debian 12's, but the mirror has: {answer}"
        )


def _prepare_source(apt: PrivateApt, work: Path, progress: Progress) -> Path:
    version = apt.source_version("kubernetes")
    if upstream_version(version) != KUBERNETES_VERSION:
        raise ControlPlaneError(
            f"this recipe is for Kubernetes {KUBERNETES_VERSION}, Debian 12's, but the mirror has {version}; "
            "set KUBEBUILDER_ASSETS to a folder with other binaries"
        )
    apt.install(BUILD_PACKAGES)
    progress.say(f"fetching and patching the source of Kubernetes {version}")
    source = apt.unpack_source("kubernetes", version, work / "source")
    _replace_reflect2(source / "vendor" / "github.com" / "modern-go" / "reflect2")
    accept_zero_values(source / "vendor" / "k8s.io" / "kube-openapi" / "pkg" / "validation" / "validate" / "type.go")
    return source


def accept_zero_values(validator: Path) -> None:
    """Patch the validator of custom resources: only null is null. Raises ControlPlaneError if it has another form."""
    text = validator.read_text()
    if text.count(NULL_CHECK) != 1:
        raise ControlPlaneError(f"{validator} does not have the check that this recipe patches")
    validator.write_text(text.replace(NULL_CHECK, "data == nil"))


def _replace_reflect2(vendored: Path) -> None:
    if not REFLECT2.is_dir():
        raise ControlPlaneError(
            f"Debian's reflect2 is not at {REFLECT2}: its package has another layout than Debian 12's"
        )
    for pattern in ("*.go", "*.s"):  # the old files are removed first: 1.0.2 has fewer, and a mixture does not compile
        for old in vendored.glob(pattern):
            old.unlink()
        for new in REFLECT2.glob(pattern):
            if not new.name.endswith("_test.go"):
                shutil.copy(new, vendored / new.name)
