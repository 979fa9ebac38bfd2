"""The folder of a running control plane, and the ones that killed control planes left behind.

An instance owns one folder, `tfjob-control-plane-<user>-<name>...`, private to its user, in memory where there is room
(etcd syncs every write, which costs nothing there). The instance's keeper holds a lock on a file in the folder for
as long as it lives, so that anyone can tell a folder in use from a left-over one, even after the keeper was killed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hack.control_plane.build.commands import ControlPlaneError, log_tail
from hack.control_plane.run.pki import Credential

MEMORY = Path("/dev/shm")  # noqa: S108 - our folder in it is made with mode 0700 and must not exist before
MEMORY_ROOM = 1 << 30  # etcd alone allocates 64 MB at its start; containers often have just that much shared memory
LOCK_FILE = "keeper.lock"
HALF_MADE_S = 600.0  # a folder without a lock file is being made right now, or its maker was killed long ago
NAME_FORMAT = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def base_folder() -> Path:
    """Return where a new instance goes: shared memory if it is writable and has room, else the temporary files."""
    with contextlib.suppress(OSError):
        if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_ROOM:
            return MEMORY
    return Path(tempfile.gettempdir())


def all_bases() -> list[Path]:
    """Return every place where an instance may be: when it started, there may have been more or less free memory than now."""
    return [MEMORY, Path(tempfile.gettempdir())]


def checked_name(name: str) -> str:
    """Return the name. Raises ControlPlaneError if it may not be part of a folder's name."""
    if not NAME_FORMAT.fullmatch(name):
        raise ControlPlaneError(f"a name has 1 to 32 of a-z, 0-9 and inner dashes; this one does not: {name!r}")
    return name


def find_named(name: str, bases: Sequence[Path] | None = None) -> Path | None:
    """Return the folder of the running instance that the command line started under this name, None if there is none."""
    folders = [_named(name, base) for base in bases or all_bases()]
    return next((folder for folder in folders if is_alive(folder)), None)


@dataclass(slots=True)
class HeldFolder:
    """A folder with its lock held; invariant: the lock is held until `remove` or the end of this process."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Delete the folder with all that is in it and give the lock back."""
        remove_folder(self.path)
        os.close(self.lock)


def make_named(name: str, base: Path | None = None) -> HeldFolder:
    """Make the folder of a named instance. Raises ControlPlaneError if it exists."""
    path = _named(name, base or base_folder())
    try:
        path.mkdir(mode=0o700)
    except FileExistsError as error:
        raise ControlPlaneError(f"control plane {name!r} is already up, or just starting, in {path}") from error
    return _hold(path)


def make_private(name: str, base: Path | None = None) -> HeldFolder:
    """Make a new folder for an instance whose name others may have, too."""
    prefix = f"{_prefix()}{checked_name(name)}."  # a dot, which no name contains: never the folder of a named one
    return _hold(Path(tempfile.mkdtemp(prefix=prefix, dir=base or base_folder())))


def is_alive(folder: Path) -> bool:
    """Return whether the keeper of the instance in this folder runs."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def sweep(bases: Sequence[Path] | None = None) -> list[Path]:
    """Delete the folders of this user whose keeper is gone; return them."""
    left_over = [folder for base in bases or all_bases() for folder in _mine(base) if _is_left_over(folder)]
    for folder in left_over:
        remove_folder(folder)
    return left_over


def remove_folder(folder: Path) -> None:
    """Delete a folder, even if a client that is just ending still puts a file into it."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


def _prefix() -> str:
    return f"tfjob-control-plane-{os.getuid()}-"


def _named(name: str, base: Path) -> Path:
    return base / f"{_prefix()}up-{checked_name(name)}"


def _mine(base: Path) -> Iterator[Path]:
    for folder in base.glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError):
            if folder.is_dir() and not folder.is_symlink() and folder.lstat().st_uid == os.getuid():
                yield folder


def _is_left_over(folder: Path) -> bool:
    if (folder / LOCK_FILE).exists():
        return not is_alive(folder)
    try:
        return time.time() - folder.stat().st_mtime > HALF_MADE_S
    except OSError:
        return False  # its keeper has just removed it


def _hold(path: Path) -> HeldFolder:
    # The file is locked before it gets its name, so that nobody ever sees it unlocked while the instance runs.
    draft = path / f"{LOCK_FILE}.draft"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    draft.rename(path / LOCK_FILE)
    return HeldFolder(path, descriptor)


# What a keeper reports about its instance: a small JSON file in the instance's folder.
#
# The keeper writes it by a rename whenever something changed; owners, `status` and `env` read it. Whether the keeper still
# lives is not in it, since a killed keeper cannot say so: that is what the lock in the folder is for.


STATE_FILE = "state.json"


def died_message(name: str, code: int, log: Path) -> str:
    """Return a message about a part that ended, with the end of its log."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"{name} {how}; {log_tail(log)}"


@dataclass(frozen=True, slots=True)
class PartState:
    """One part as its keeper saw it last; `exit_code` is None while it runs."""

    name: str
    pid: int
    log: str
    exit_code: int | None = None

    def complaint(self) -> str | None:
        """Return a message about a part that ended, None while it runs."""
        return None if self.exit_code is None else died_message(self.name, self.exit_code, Path(self.log))


@dataclass(frozen=True, slots=True)
class State:
    """An instance that is ready, or was."""

    name: str
    keeper: int
    server: str
    etcd_endpoint: str
    kubectl: str
    parts: tuple[PartState, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)
    """Where the members of etcd and the API servers listen, by their names."""

    def write(self, folder: Path) -> None:
        """Put the state into the folder; a reader sees the old one or the new one."""
        draft = folder / f"{STATE_FILE}.draft"
        draft.write_text(json.dumps(asdict(self), indent=2))
        draft.rename(folder / STATE_FILE)

    @classmethod
    def read(cls, folder: Path) -> State:
        """Return the state of the instance in a folder. Raises ControlPlaneError if it is not ready yet, or gone."""
        try:
            content = json.loads((folder / STATE_FILE).read_text())
        except (OSError, ValueError) as error:
            raise ControlPlaneError(f"the control plane in {folder} is not ready, or gone") from error
        parts = tuple(PartState(**part) for part in content.pop("parts"))
        return cls(**content, parts=parts)

    def complaints(self) -> list[str]:
        """Return a message about every part that ended."""
        return [complaint for part in self.parts if (complaint := part.complaint()) is not None]


# Kubeconfig files for one control plane.
#
# In: the server's address, the authority and a client's credential. Out: a file with all of these embedded, so that it can
# be handed to any client and does not depend on the files that it was made from. The file is JSON, which is YAML too.


def write_kubeconfig(path: Path, *, server: str, authority: Path, user: str, credential: Credential) -> Path:
    """Write the kubeconfig of one user, readable by its owner alone; return its path."""
    context = "tfjob-control-plane"
    cluster = {"server": server, "certificate-authority-data": _embedded(authority)}
    identity = {
        "client-certificate-data": _embedded(credential.certificate),
        "client-key-data": _embedded(credential.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
        "current-context": context,
    }
    # Written under another name and renamed: a reader never sees half of it, and two writers do each other no harm.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(document, file, indent=2)
    draft.rename(path)
    return path


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
