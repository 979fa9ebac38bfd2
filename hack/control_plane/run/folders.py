"""The folder of a running control plane, folders left by killed processes, and kubeconfigs.

An instance owns one folder, `tfjob-control-plane-<user>-<name>...`, private to its user. The folder is in shared memory if
there is room: etcd syncs every write, and in memory a sync costs nothing. While the instance runs, its process holds a lock on
a file in the folder. The lock tells a folder in use from a left-over one, even after a kill.
"""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.control_plane.run.pki import Credential, write_private

MEMORY = Path("/dev/shm")  # noqa: S108 - our folder in it is made with mode 0700 and must not exist before
MEMORY_ROOM = 1 << 30  # etcd alone allocates 64 MB at its start; containers often have only that much shared memory
LOCK_FILE = "owner.lock"
HALF_MADE_S = 600.0  # a folder without a lock file is being created now, or its creator was killed long ago


def base_folder() -> Path:
    """Return the parent folder of a new instance: shared memory if it is writable and has room, else the temporary folder."""
    with contextlib.suppress(OSError):
        if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_ROOM:
            return MEMORY
    return Path(tempfile.gettempdir())


@dataclass(slots=True)
class HeldFolder:
    """A folder with its lock held; invariant: the lock is held until `remove` or the end of this process."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Delete the folder with its contents and release the lock."""
        _remove(self.path)
        os.close(self.lock)


def make(name: str, base: Path | None = None) -> HeldFolder:
    """Create a folder for an instance; `name` is only a label."""
    path = Path(tempfile.mkdtemp(prefix=f"{_prefix()}{name}.", dir=base or base_folder()))
    # The file is locked before it gets its name, so it is never seen unlocked while the instance runs.
    draft = path / f"{LOCK_FILE}.draft"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    draft.rename(path / LOCK_FILE)
    return HeldFolder(path, descriptor)


def is_alive(folder: Path) -> bool:
    """Return whether the process of the instance in this folder runs."""
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
    """Delete the folders of this user whose process is gone; return them."""
    # An instance may have started with more or less free memory than now.
    everywhere = bases or (MEMORY, Path(tempfile.gettempdir()))
    left_over = [folder for base in everywhere for folder in _mine(base) if _is_left_over(folder)]
    for folder in left_over:
        _remove(folder)
    return left_over


def _remove(folder: Path) -> None:
    """Delete a folder, even if a client that is exiting still creates a file in it."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


def _prefix() -> str:
    return f"tfjob-control-plane-{os.getuid()}-"


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
        return False  # its process has just removed it


def write_kubeconfig(path: Path, *, server: str, authority: Path, user: str, credential: Credential) -> Path:
    """Write the kubeconfig of one user, readable by its owner alone; return its path.

    It contains all certificates. It is JSON, which is also YAML.
    """
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
    write_private(path, json.dumps(document, indent=2).encode())
    return path


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
