"""Finds the programs of a control plane, or builds them once.

Programs come from KUBEBUILDER_ASSETS (as in envtest), else from the user's cache. Missing programs are built from Debian's
packages into the cache (`build`). Concurrent builds wait for each other. A program in the cache is always complete, because
it is moved there by a rename.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack import debian
from hack.control_plane.build.apt import PrivateApt, install
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress, output_of
from hack.kubernetes_versions import Kubernetes

# Compiles commands of Kubernetes (such as `kube-apiserver`) from an unpacked source tree, without the tree's Makefile.
#
# The Makefile first builds six code generators and runs them over the whole tree, which takes longer than the programs.
# Debian's source package already contains all generated files except the OpenAPI definitions that kube-apiserver serves.
# Therefore one generator is enough, and the whole build takes about 260 seconds of CPU time.


GO: Final = "/usr/lib/go/bin"
PACKAGE: Final = "k8s.io/kubernetes"
BUILD_LIMIT_S: Final = 3600.0  # two to three minutes on two cores; a slow single core must finish too
SERVES_OPENAPI: Final = "kube-apiserver"
GENERATOR: Final = "openapi-gen"
OPENAPI_PACKAGE: Final = f"{PACKAGE}/pkg/generated/openapi"
OPENAPI_TAG: Final = re.compile(r"\+k8s:openapi-gen=")
NOT_SERVED: Final = frozenset({"code-generator", "sample-apiserver"})  # as in the Makefile
VERSION_PACKAGES: Final = ("client-go/pkg/version", "component-base/version")


class GoTree:
    """The source of Kubernetes in a GOPATH; invariant: everything that Go writes is below `work`."""

    def __init__(self, source: Path, work: Path, runner: LoggedRunner, version: str) -> None:
        """Move the unpacked `source` into a new GOPATH below `work`. `version` is what the programs will report."""
        self._runner = runner
        self._work = work
        self._version = version
        self.root = work / "gopath" / "src" / PACKAGE
        self.root.parent.mkdir(parents=True)
        source.rename(self.root)
        (work / "home").mkdir()

    def compile(self, commands: Sequence[str], out: Path) -> None:
        """Compile the commands into the folder `out`."""
        if SERVES_OPENAPI in commands:
            self._generate_openapi()
        self._build([f"./cmd/{command}" for command in commands], out)

    def _generate_openapi(self) -> None:
        """Generate the OpenAPI definitions as the Makefile does, and check the API violations that the generator reports."""
        tools = self._work / "tools"
        tools.mkdir()
        self._build([f"./vendor/k8s.io/kube-openapi/cmd/{GENERATOR}"], tools)
        report = self._work / "violations"
        self._runner.run(
            str(tools / GENERATOR),
            "--logtostderr",
            f"--input-dirs={','.join(sorted(set(self._packages_with_openapi())))}",
            f"--output-package={OPENAPI_PACKAGE}",
            "--output-file-base=zz_generated.openapi",
            "--go-header-file=vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
            f"--report-filename={report}",
            limit_s=BUILD_LIMIT_S,
            cwd=self.root,
            env=self._environment(),
        )
        known = self.root / "api" / "api-rules" / "violation_exceptions.list"
        if report.read_text() != known.read_text():
            raise ControlPlaneError(
                f"{GENERATOR} reports API rule violations that are not in the tree's own {known.name}"
            )

    def _packages_with_openapi(self) -> Iterator[str]:
        """Yield the packages whose types are tagged for OpenAPI. Packages in `staging` are imported by their vendored path."""
        staging = self.root / "staging" / "src" / "k8s.io"
        repositories = [folder for folder in staging.iterdir() if folder.is_dir() and folder.name not in NOT_SERVED]
        for folder in (self.root / "cmd", self.root / "pkg", *repositories):
            for file in folder.rglob("*.go"):
                if OPENAPI_TAG.search(file.read_text()):
                    path = str(file.parent.relative_to(self.root))
                    yield f"{PACKAGE}/{path.replace('staging/src/', 'vendor/', 1)}"

    def _build(self, packages: Sequence[str], out: Path) -> None:
        # Omitting debug information saves a third of the time. Go's own packages keep theirs, because Debian ships them
        # compiled. Upstream's tag omits the code of cloud providers.
        self._runner.run(
            f"{GO}/go",
            "build",
            "-tags=providerless",
            f"-gcflags={PACKAGE}/...=-dwarf=false",
            f"-gcflags={PACKAGE}/vendor/...=-dwarf=false",
            f"-ldflags=-s -w {self._version_flags()}",
            "-o",
            f"{out}/",
            *packages,
            limit_s=BUILD_LIMIT_S,
            cwd=self.root,
            env=self._environment(),
        )

    def _version_flags(self) -> str:
        """Return the linker flags that set the version of the programs."""
        major, minor, _ = self._version.split(".")
        said = {"gitVersion": f"v{self._version}", "gitMajor": major, "gitMinor": minor, "gitCommit": "debian"}
        said["gitTreeState"] = "clean"
        return " ".join(
            f"-X {PACKAGE}/vendor/k8s.io/{package}.{name}={value}"
            for package in VERSION_PACKAGES
            for name, value in said.items()
        )

    def _environment(self) -> dict[str, str]:
        home = self._work / "home"
        return {
            "PATH": f"{GO}:{os.defpath}",
            "HOME": str(home),
            "GOCACHE": str(home / "go-build"),
            "GOPATH": str(self._work / "gopath"),
            "GO111MODULE": "off",
            "GOFLAGS": "",
            "CGO_ENABLED": "0",
            "GOGC": "off",  # saves a quarter of the time; a compiler runs for seconds and stays below 1 GB
            "TMPDIR": str(home),
            "LC_ALL": "C",
        }


# Builds Kubernetes from Debian's source package, and takes etcd and kubectl from Debian's binary packages: those of
# `debian.PROGRAMS`. The machine's own release has the tools, whose versions do not matter.
#
# The programs are written to `<folder>/out`. The source has Debian's patches, is compiled without cgo (`GoTree`), and uses its
# vendored modules, except two that do not work with newer versions of Go:
#
# - reflect2 1.0.1 fails to read maps since Go 1.18, and kube-apiserver crashes at the first custom resource. It is replaced by
#   Debian's package of reflect2 1.0.2.
# - kube-openapi compares values with `reflect.DeepEqual`, which since Go 1.16 treats "", 0 and false as null, so custom
#   resources with an empty string are rejected (kubernetes#99804). It gets upstream's patch (kube-openapi#230).


KUBERNETES_VERSION = "1.20.2"
ETCD_VERSION = "3.4"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program from Debian's binary packages: its package, the arguments that print its version, and the expected output."""

    package: str
    question: tuple[str, ...]
    answer: str


COMPILED: Final = {
    "etcd": Compiled("etcd-server", ("--version",), f"etcd Version: {ETCD_VERSION}."),
    "kubectl": Compiled("kubernetes-client", ("version", "--client", "--short"), f"Version: v{KUBERNETES_VERSION}"),
}
TOOLS = ("golang-go", "dpkg-dev", "patch")
REFLECT2_PACKAGE = "golang-github-modern-go-reflect2-dev"
REFLECT2 = "usr/share/gocode/src/github.com/modern-go/reflect2"
NULL_CHECK = "data == nil || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))"


def build(names: Sequence[str], work: Path, log: Path, progress: Progress) -> Path:
    """Build these programs (`etcd` or any command of Kubernetes); return their folder."""
    runner = LoggedRunner(log, progress)
    for name in ("apt", "tools-apt", "out"):
        (work / name).mkdir()
    out = work / "out"
    apt = PrivateApt(work / "apt", runner, progress, debian.PROGRAMS)
    apt.prepare()
    for name in names:
        if name in COMPILED:
            _take(name, apt, work, progress)
    commands = [name for name in names if name not in COMPILED]
    if commands:
        install(TOOLS, work / "tools-apt", runner, progress)
        tree = GoTree(_prepare_source(apt, work, progress), work, runner, KUBERNETES_VERSION)
        progress.say(f"compiling {', '.join(commands)}: two to three minutes on two cores")
        tree.compile(commands, out)
    return out


def upstream_version(version: str) -> str:
    """Return the upstream part of a Debian version: `1.20.5+really1.20.2-1.1+deb12u1` is upstream's 1.20.2."""
    upstream = version.rpartition("-")[0] or version
    upstream = upstream.rpartition(":")[2]
    return re.split(r"[+~]", upstream.rpartition("+really")[2])[0]


def _take(name: str, apt: PrivateApt, work: Path, progress: Progress) -> None:
    # The package is not installed, because etcd's package would start a system service.
    recipe = COMPILED[name]
    progress.say(f"taking {name} from Debian's {recipe.package} (downloaded, not installed)")
    program = work / "out" / name
    shutil.move(apt.unpack(recipe.package, work) / "usr" / "bin" / name, program)
    answer = output_of(str(program), *recipe.question)
    if recipe.answer not in answer:
        raise ControlPlaneError(
            f"this build supports `{recipe.answer}` of {name}, but Debian {debian.PROGRAMS} has: {answer}"
        )


def _prepare_source(apt: PrivateApt, work: Path, progress: Progress) -> Path:
    version = apt.source_version("kubernetes")
    if upstream_version(version) != KUBERNETES_VERSION:
        raise ControlPlaneError(
            f"this build supports Kubernetes {KUBERNETES_VERSION}, but Debian {debian.PROGRAMS} has {version}; "
            "set KUBEBUILDER_ASSETS to a folder with other binaries"
        )
    progress.say(f"downloading and patching the source of Kubernetes {version}")
    source = apt.unpack_source("kubernetes", version, work / "source")
    reflect2 = apt.unpack(REFLECT2_PACKAGE, work) / REFLECT2
    _replace_reflect2(source / "vendor" / "github.com" / "modern-go" / "reflect2", reflect2)
    accept_zero_values(source / "vendor" / "k8s.io" / "kube-openapi" / "pkg" / "validation" / "validate" / "type.go")
    return source


def accept_zero_values(validator: Path) -> None:
    """Patch the validator of custom resources so that only null counts as null, and zero values do not.

    Raises ControlPlaneError if the patch does not apply.
    """
    text = validator.read_text()
    if text.count(NULL_CHECK) != 1:
        raise ControlPlaneError(f"{validator} does not contain the check to patch")
    validator.write_text(text.replace(NULL_CHECK, "data == nil"))


def _replace_reflect2(vendored: Path, newer: Path) -> None:
    if not newer.is_dir():
        raise ControlPlaneError(f"the package {REFLECT2_PACKAGE} has no /{REFLECT2}")
    for pattern in ("*.go", "*.s"):  # remove the old files first: 1.0.2 has fewer, and a mixture does not compile
        for old in vendored.glob(pattern):
            old.unlink()
        for new in newer.glob(pattern):
            if not new.name.endswith("_test.go"):
                shutil.copy(new, vendored / new.name)


CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
ENVTEST = ("etcd", "kube-apiserver", "kubectl")  # what envtest expects in a folder of assets
RECIPE = 2  # part of the cache's name; increment it when the build changes the programs


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of a control plane; each path is that of an executable file."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kubectl: Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the cache folder, which is named by the versions in it."""
    base = environment.get("XDG_CACHE_HOME") or ""
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"  # XDG: a relative path must be ignored
    versions = f"k8s{KUBERNETES_VERSION}-etcd{ETCD_VERSION}-r{RECIPE}"
    return root / "tfjob-operator" / f"control-plane-{versions}"


def find(names: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[dict[str, Path], list[str]]:
    """Return the paths of the existing programs, from the assets or else the cache, and the names of the missing ones."""
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
    """Return the paths of programs of etcd and Kubernetes by name; build missing ones into the cache."""
    found, missing = find(names)
    if missing:
        _build(missing)
        found, missing = find(names)
    if missing:
        raise ControlPlaneError(f"missing after the build: {', '.join(missing)} in {cache_folder()}")
    return found


def find_or_build() -> Binaries:
    """Return the programs of a control plane from KUBEBUILDER_ASSETS, else the cache, else a build of some minutes."""
    programs = find_or_build_programs(CONTROL_PLANE)
    return Binaries(**{name.replace("-", "_"): path for name, path in programs.items()})


def version_of(program: Path) -> Kubernetes:
    """Return the version of a program of Kubernetes other than kubectl. Raises ControlPlaneError if it prints none."""
    said = output_of(str(program), "--version", limit_s=30.0).strip()
    try:
        return Kubernetes.parse(said.removeprefix("Kubernetes "))
    except ValueError as error:
        raise ControlPlaneError(f"{program} printed no version: {said}") from error


def _assets(environment: Mapping[str, str]) -> Path | None:
    setting = environment.get("KUBEBUILDER_ASSETS")
    if not setting:
        return None
    folder = Path(setting).absolute()
    lacking = [name for name in ENVTEST if not _is_program(folder / name)]
    if lacking:
        raise ControlPlaneError(
            f"KUBEBUILDER_ASSETS={setting} does not contain an executable {', '.join(lacking)}; unset or fix it"
        )
    return folder


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _build(names: Sequence[str]) -> None:
    cache = cache_folder()
    progress = Progress("control-plane build")
    with _only_builder(cache.parent, progress):
        # Another process may have built them while this one waited for the lock.
        names = [name for name in names if not _is_program(cache / name)]
        if not names:
            return
        log = cache.parent / f"{cache.name}.build.log"
        log.write_text("")
        progress.say(
            f"{', '.join(names)}: found neither in KUBEBUILDER_ASSETS nor in {cache}; building them once, log: {log}"
        )
        with _workshop(cache.parent) as work:
            out = build(names, work, log, progress)
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
            progress.say("waiting for another build")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _workshop(root: Path) -> Iterator[Path]:
    # With the lock held, every folder of this name is left over from a killed build.
    for left_over in root.glob("build-*/"):
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="build-", dir=root))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
