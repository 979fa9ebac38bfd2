"""Debian packages for a build, without touching the machine's own list of sources.

In: what apt already knows about Debian's archive (`apt-get indextargets`), whichever mirror that is. Out: a private
list of the same archive's source and binary packages, in a folder of the caller's. Every command here uses it, so a
broken third-party repository of the machine does not matter, and nothing below /etc/apt changes. Only `install` alters the
machine: it adds packages, through sudo if need be.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress, output_of

TARGET_FORMAT = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(CREATED_BY)|$(SOURCESENTRY)"
DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
QUIET_ENV = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
UPDATE_LIMIT_S = 300.0
INSTALL_LIMIT_S = 900.0
LOCK_WAIT_S = 120  # another apt (unattended upgrades, another build) may hold dpkg's lock for a while


@dataclass(frozen=True, slots=True)
class AptSource:
    """One suite of an archive, as a line of a source list names it."""

    uri: str
    release: str
    component: str
    signed_by: str = ""

    def lines(self) -> tuple[str, str]:
        """Return the line for binary packages and the one for source packages."""
        options = f"[signed-by={self.signed_by}] " if self.signed_by else ""
        place = f"{options}{self.uri} {self.release} {self.component}"
        return f"deb {place}", f"deb-src {place}"


def parse_index_targets(text: str) -> list[AptSource]:
    """Read Debian's own sources out of `apt-get indextargets --format TARGET_FORMAT`, each once, in their order."""
    sources: dict[AptSource, None] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 6:
            continue
        uri, release, component, origin, created_by, entry = fields
        if origin == "Debian" and created_by == "Packages":
            sources[AptSource(uri, release, component, _signed_by(entry))] = None
    return list(sources)


def _signed_by(entry: str) -> str:
    """Return the keyring for a source entry (`file:number`): the one that it names, else Debian's own, else apt's."""
    file, _, number = entry.rpartition(":")
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        text = ""
    find = keyring_of_stanza if file.endswith(".sources") else keyring_of_line
    named = find(text, int(number)) if number.isdigit() else ""
    return named or (str(DEBIAN_KEYRING) if DEBIAN_KEYRING.exists() else "")


def keyring_of_line(text: str, number: int) -> str:
    """Return the path of the keyring that a line of a `.list` file names; lines count from 1.

    Returns "" if there is none; a key that is named by its fingerprint has no path.
    """
    lines = text.splitlines()
    if not 1 <= number <= len(lines):
        return ""
    options = re.match(r"\s*deb(?:-src)?\s+\[([^]]*)\]", lines[number - 1])
    found = re.search(r"(?:^|\s)signed-by=(/\S+)", options[1]) if options else None
    return found[1] if found else ""


def keyring_of_stanza(text: str, number: int) -> str:
    """Return the path of the keyring that a stanza of a `.sources` file names; apt counts stanzas from 1, not lines.

    Returns "" if there is none; a key that is embedded in the stanza has no path.
    """
    uncommented = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    stanzas = [stanza for stanza in re.split(r"\n\s*\n", uncommented) if stanza.strip()]
    if not 1 <= number <= len(stanzas):
        return ""
    found = re.search(r"^signed-by:[ \t]*(/\S+)", stanzas[number - 1], re.MULTILINE | re.IGNORECASE)
    return found[1] if found else ""


def debian_sources() -> list[AptSource]:
    """Return what apt on this machine knows of Debian's archive; empty where it has fetched no indexes yet."""
    return parse_index_targets(output_of("apt-get", "indextargets", "--format", TARGET_FORMAT, env=QUIET_ENV))


class PrivateApt:
    """apt-get over a private source list; invariant: nothing below /etc/apt or apt's own state is written by it."""

    def __init__(self, folder: Path, runner: LoggedRunner, progress: Progress) -> None:
        self._folder = folder
        self._runner = runner
        self._progress = progress
        self._options: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Write the private list and fetch its indexes."""
        sources = self._known_sources()
        lists = self._folder / "lists"
        (lists / "partial").mkdir(parents=True)
        source_list = self._folder / "sources.list"
        source_list.write_text("".join(f"{line}\n" for source in sources for line in source.lines()))
        settings = {
            "Dir::Etc::sourcelist": source_list,
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": lists,
            # The machine's package cache describes the machine's lists, not ours: keep ours in memory.
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "Dir::Cache::archives": self._archives(),
            "APT::Sandbox::User": "root",  # the folder belongs to the user who builds, not to `_apt`
            "APT::Update::Error-Mode": "any",  # a list that was not fetched must fail here, not as a missing package
            "Acquire::Retries": "3",
            "DPkg::Lock::Timeout": LOCK_WAIT_S,
        }
        self._options = tuple(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))
        self._progress.say("fetching the package indexes of this machine's Debian mirror into a private folder")
        self._runner.run("apt-get", *self._options, "-q", "update", limit_s=UPDATE_LIMIT_S, env=QUIET_ENV)

    def install(self, packages: Sequence[str]) -> None:
        """Install those of the packages that are missing on this machine."""
        missing = [package for package in packages if not is_installed(package)]
        if not missing:
            return
        self._progress.say(f"installing {' '.join(missing)} (apt-get install)")
        command = ["apt-get", *self._options, "-q", "-y", "--no-install-recommends", "install", *missing]
        what = f"install {' '.join(missing)}"
        self._runner.run(*as_root(command, what), limit_s=INSTALL_LIMIT_S, env=QUIET_ENV)

    def download(self, package: str, into: Path) -> Path:
        """Download a binary package without installing it; return its file."""
        self._runner.run("apt-get", *self._options, "-q", "download", package, limit_s=300.0, cwd=into, env=QUIET_ENV)
        return _only(into.glob(f"{package}_*.deb"), f"the downloaded package {package}")

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

    def _archives(self) -> Path:
        archives = self._folder / "archives"
        (archives / "partial").mkdir(parents=True)
        return archives

    def _known_sources(self) -> list[AptSource]:
        if shutil.which("apt-get") is None:
            raise ControlPlaneError("this recipe needs Debian's apt-get; elsewhere set KUBEBUILDER_ASSETS")
        sources = debian_sources()
        if sources:
            return sources
        # A fresh image has no indexes, and without them apt does not say which of its sources are Debian's.
        self._progress.say("apt has no package indexes yet: running apt-get update once")
        update = as_root(["apt-get", "-q", "update"], "fetch package indexes")
        try:
            self._runner.run(*update, limit_s=UPDATE_LIMIT_S, env=QUIET_ENV)
        except ControlPlaneError as error:
            self._progress.say("apt-get update complained (perhaps about an unrelated repository); going on")
            failure: ControlPlaneError | None = error
        else:
            failure = None
        sources = debian_sources()
        if not sources:
            raise ControlPlaneError(
                "apt knows no Debian archive (no source with Origin: Debian); add one or set KUBEBUILDER_ASSETS"
            ) from failure
        return sources


def is_installed(package: str) -> bool:
    """Tell whether dpkg has the package fully installed."""
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
        raise ControlPlaneError(f"root is needed to {what}, and there is no sudo: do it as root once, then run again")
    try:
        output_of("sudo", "-n", "true")
    except ControlPlaneError as error:
        message = f"root is needed to {what}, and sudo wants a password: run `sudo -v` first, then this again"
        raise ControlPlaneError(message) from error
    settings = [f"{name}={value}" for name, value in QUIET_ENV.items()]  # sudo drops the environment
    return ["sudo", "-n", "env", *settings, *command]


def _only(paths: Iterable[Path], what: str) -> Path:
    found = list(paths)
    if len(found) != 1:
        raise ControlPlaneError(f"expected exactly one of {what}, found {[path.name for path in found]}")
    return found[0]
