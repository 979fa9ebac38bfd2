"""Debian packages for a build, without changes to the machine's list of sources.

It reads which Debian archive this machine uses (`apt-get indextargets`). For a release in that archive, it writes a private
source list into a folder of the caller. All commands use that list, so a broken third-party repository does no harm, and
nothing below /etc/apt changes. Only `install` changes the machine: it adds packages, with sudo if necessary.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress, output_of

TARGET_FORMAT = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(CREATED_BY)"
DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ELSEWHERE = Path(__file__).parents[1] / "elsewhere.txt"
"""What to do on a machine without Debian's archive; hack/bootstrap.sh prints it, too."""
QUIET_ENV = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
UPDATE_LIMIT_S = 300.0
INSTALL_LIMIT_S = 900.0
LOCK_WAIT_S = 120  # another apt (unattended upgrades, another build) may hold dpkg's lock


class AptSource(NamedTuple):
    """One suite of an archive, as in a line of a source list."""

    uri: str
    release: str
    component: str

    def lines(self) -> tuple[str, str]:
        """Return the source-list lines for binary and source packages; both accept only signatures by Debian's keys."""
        place = f"[signed-by={DEBIAN_KEYRING}] {self.uri} {self.release} {self.component}"
        return f"deb {place}", f"deb-src {place}"


def parse_index_targets(text: str) -> list[AptSource]:
    """Read Debian's own sources out of `apt-get indextargets --format TARGET_FORMAT`, each once, in their order."""
    fields = (line.strip().split("|") for line in text.splitlines())
    return [*dict.fromkeys(AptSource(*each[:3]) for each in fields if each[3:] == ["Debian", "Packages"])]


def debian_sources() -> list[AptSource]:
    """Return the Debian archives in apt's configuration, or an empty list if no indexes were fetched yet."""
    return parse_index_targets(output_of("apt-get", "indextargets", "--format", TARGET_FORMAT, env=QUIET_ENV))


def sources_of(release: str, own: Iterable[AptSource]) -> list[AptSource]:
    """Return the sources of a release in the archives that the machine uses for its own one.

    They include updates and security updates if the machine's own do.
    """
    suites = ((source, re.fullmatch(r"\w+(|-updates|-security)", source.release)) for source in own)
    return [*dict.fromkeys(source._replace(release=release + suite[1]) for source, suite in suites if suite)]


class PrivateApt:
    """apt-get with a private source list; invariant: it writes nothing below /etc/apt or into apt's own state."""

    def __init__(self, folder: Path, runner: LoggedRunner, progress: Progress, release: str = "") -> None:
        """`release` is for downloads; without it, the list has the machine's own sources, from which packages are installed."""
        self._folder = folder
        self._runner = runner
        self._progress = progress
        self._release = release
        self._options: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Write the private list and fetch its indexes."""
        sources = self._known_sources()
        if self._release:
            sources = sources_of(self._release, sources)
        for folder in ("lists", "archives"):
            (self._folder / folder / "partial").mkdir(parents=True)
        source_list = self._folder / "sources.list"
        source_list.write_text("".join(f"{line}\n" for source in sources for line in source.lines()))
        settings = {
            "Dir::Etc::sourcelist": source_list,
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": self._folder / "lists",
            # The machine's package cache is for the machine's lists; keep this one in memory.
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "Dir::Cache::archives": self._folder / "archives",
            "APT::Sandbox::User": "root",  # the folder belongs to the user who builds, not to `_apt`
            "APT::Update::Error-Mode": "any",  # fail here if a list was not fetched, not later with a missing package
            "Acquire::Retries": "3",
            "DPkg::Lock::Timeout": LOCK_WAIT_S,
        }
        if self._release:
            # Otherwise apt would select a newer version that is installed here, or require the machine's default release.
            (self._folder / "status").touch()
            settings |= {"Dir::State::status": self._folder / "status", "APT::Default-Release": ""}
        self._options = tuple(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))
        self._progress.say(
            f"downloading the package indexes of {self._release or 'this machine'} into a private folder"
        )
        self._runner.run("apt-get", *self._options, "-q", "update", limit_s=UPDATE_LIMIT_S, env=QUIET_ENV)

    def install(self, packages: Sequence[str]) -> None:
        """Install these packages."""
        what = f"install {' '.join(packages)}"
        self._progress.say(what)
        command = ["apt-get", *self._options, "-q", "-y", "--no-install-recommends", "install", *packages]
        self._runner.run(*as_root(command, what), limit_s=INSTALL_LIMIT_S, env=QUIET_ENV)

    def download(self, package: str, into: Path) -> Path:
        """Download a binary package without installing it; return its file."""
        self._runner.run("apt-get", *self._options, "-q", "download", package, limit_s=300.0, cwd=into, env=QUIET_ENV)
        return _only(into.glob(f"{package}_*.deb"), f"the downloaded package {package}")

    def unpack(self, package: str, into: Path) -> Path:
        """Download a binary package and return a folder in `into` with its files; it is not installed."""
        folder = into / package
        folder.mkdir()
        archive = self.download(package, folder)
        self._runner.run("dpkg-deb", "-x", str(archive), str(folder / "files"), limit_s=300.0)
        return folder / "files"

    def source_version(self, package: str) -> str:
        """Return the newest version of a source package in the archive. Raises ControlPlaneError if there is none."""
        shown = output_of("apt-cache", *self._options, "showsrc", "--only-source", package, env=QUIET_ENV)
        versions = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)
        if not versions:
            raise ControlPlaneError(f"this machine's Debian mirror has no source package {package}")
        return str(versions[-1])

    def unpack_source(self, package: str, version: str, into: Path) -> Path:
        """Download a source package and unpack it with its patches applied; return the unpacked tree."""
        into.mkdir()
        command = ("apt-get", *self._options, "-q", "source", f"{package}={version}")
        self._runner.run(*command, limit_s=600.0, cwd=into, env=QUIET_ENV)
        return _only((path for path in into.iterdir() if path.is_dir()), f"the unpacked source of {package}")

    def _known_sources(self) -> list[AptSource]:
        if shutil.which("apt-get") is None:
            raise ControlPlaneError(f"this machine has no apt-get. {ELSEWHERE.read_text()}")
        if not debian_sources():
            # A new image has no package indexes; without them, apt does not say which sources it uses. The update may fail for
            # an unrelated repository.
            self._progress.say("apt has no package indexes yet: running apt-get update once")
            update = as_root(["apt-get", "-q", "update"], "fetch package indexes")
            with contextlib.suppress(ControlPlaneError):
                self._runner.run(*update, limit_s=UPDATE_LIMIT_S, env=QUIET_ENV)
        if sources := debian_sources():
            return sources
        raise ControlPlaneError(f"apt has no source with Origin: Debian. {ELSEWHERE.read_text()}")


def install(packages: Sequence[str], folder: Path, runner: LoggedRunner, progress: Progress) -> None:
    """Install the missing packages from the machine's own release; needs root or sudo only if there are any.

    `folder` is an empty folder for the private list. Raises ControlPlaneError.
    """
    if missing := [package for package in packages if not is_installed(package)]:
        apt = PrivateApt(folder, runner, progress)
        apt.prepare()
        apt.install(missing)


def is_installed(package: str) -> bool:
    """Return whether the package is completely installed."""
    try:
        status = output_of("dpkg-query", "-W", "-f", "${db:Status-Status}", package, env=QUIET_ENV)
    except ControlPlaneError:
        return False
    return status.strip() == "installed"


def as_root(command: Sequence[str], what: str) -> list[str]:
    """Return the command that runs this one as root. Raises ControlPlaneError if that needs a password, or there is no sudo."""
    if os.geteuid() == 0:
        return list(command)
    if shutil.which("sudo") is None:
        raise ControlPlaneError(
            f"root is required to {what}, and sudo is missing: do it as root, then run this command again"
        )
    try:
        output_of("sudo", "-n", "true")
    except ControlPlaneError as error:
        message = f"root is required to {what}, and sudo needs a password: run `sudo -v`, then this command again"
        raise ControlPlaneError(message) from error
    settings = [f"{name}={value}" for name, value in QUIET_ENV.items()]  # sudo drops the environment
    return ["sudo", "-n", "env", *settings, *command]


def _only(paths: Iterable[Path], what: str) -> Path:
    found = list(paths)
    if len(found) != 1:
        raise ControlPlaneError(f"expected exactly one of {what}, found {[path.name for path in found]}")
    return found[0]
