"""Find the programs of a control plane, or build them once.

In: KUBEBUILDER_ASSETS, as users of envtest know it, then the cache of this machine's user. Out: paths. Programs that are
in neither are built from Debian's packages into the cache (`debian_build`). Of two builds at once, one waits for the other;
a program in the cache is always complete, since it gets there by a rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.control_plane.build import debian_build
from hack.control_plane.build.commands import output_of
from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.progress import Progress
from hack.kubernetes_versions import Kubernetes

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
ENVTEST = ("etcd", "kube-apiserver", "kubectl")  # what envtest itself expects in a folder of assets
RECIPE = 2  # part of the cache's name; to be incremented by a change of the recipe that changes the programs


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of a control plane; each path is that of an executable file."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kubectl: Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that keeps what was built, named by the versions in it."""
    base = environment.get("XDG_CACHE_HOME") or ""
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"  # XDG: a relative path must be ignored
    versions = f"k8s{debian_build.KUBERNETES_VERSION}-etcd{debian_build.ETCD_VERSION}-r{RECIPE}"
    return root / "tfjob-operator" / f"control-plane-{versions}"


def find(names: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[dict[str, Path], list[str]]:
    """Return the paths of the programs that exist, from the assets or else the cache, and the names of those that do not."""
    assets = _assets(environment)
    cache = cache_folder(environment)
    found: dict[str, Path] = {}
    missing: list[str] = []
    for name in names:
        places = [folder / name for folder in (assets, cache) if folder is not None]
        place = next((path for path in places if _is_program(path)), None)
        if place is None:
            missing.append(name)
        else:
            found[name] = place
    return found, missing


def find_or_build_programs(names: Sequence[str]) -> dict[str, Path]:
    """Return the paths of any programs of etcd and Kubernetes by name; build into the cache those that are not found."""
    found, missing = find(names)
    if missing:
        _build(missing)
        found, missing = find(names)
    if missing:
        raise ControlPlaneError(f"built, and yet not there: {', '.join(missing)} in {cache_folder()}")
    return found


def find_or_build() -> Binaries:
    """Return the programs of a control plane: KUBEBUILDER_ASSETS, else the cache, else a build of some minutes."""
    programs = find_or_build_programs(CONTROL_PLANE)
    return Binaries(**{name.replace("-", "_"): path for name, path in programs.items()})


def version_of(program: Path) -> Kubernetes:
    """Ask a program of Kubernetes, other than kubectl, for its version. Raises ControlPlaneError if it does not say one."""
    said = output_of(str(program), "--version", limit_s=30.0).strip()
    try:
        return Kubernetes.parse(said.removeprefix("Kubernetes "))
    except ValueError as error:
        raise ControlPlaneError(f"{program} does not tell its version, but: {said}") from error


def _assets(environment: Mapping[str, str]) -> Path | None:
    setting = environment.get("KUBEBUILDER_ASSETS")
    if not setting:
        return None
    folder = Path(setting).absolute()
    lacking = [name for name in ENVTEST if not _is_program(folder / name)]
    if lacking:
        raise ControlPlaneError(
            f"KUBEBUILDER_ASSETS={setting} has no executable {', '.join(lacking)}; unset it or mend it"
        )
    return folder


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _build(names: Sequence[str]) -> None:
    cache = cache_folder()
    progress = Progress("control-plane build")
    with _only_builder(cache.parent, progress):
        # Another process may have built them while we waited for the lock.
        names = [name for name in names if not _is_program(cache / name)]
        if not names:
            return
        log = cache.parent / f"{cache.name}.build.log"
        log.write_text("")
        progress.say(f"{', '.join(names)}: not in KUBEBUILDER_ASSETS nor in {cache}; building once, log in {log}")
        with _workshop(cache.parent) as work:
            out = debian_build.build(names, work, log, progress)
            cache.mkdir(exist_ok=True)
            for name in names:
                (out / name).chmod(0o755)
                (out / name).rename(cache / name)
        progress.say(f"done: {', '.join(names)} in {cache}")


@contextlib.contextmanager
def _only_builder(root: Path, progress: Progress) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    with (root / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another build is under way: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _workshop(root: Path) -> Iterator[Path]:
    # We hold the lock, so every folder of this name was left by a build that was killed.
    for left_over in root.glob("build-*/"):
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="build-", dir=root))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
