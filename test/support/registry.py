"""Debian's docker-registry on loopback. The package is only unpacked, because installing it starts a service."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.part import Part
from hack.control_plane.run.parts import any_free
from support.machine import lacks

USER: Final = ("publisher", "not a secret")
HTPASSWD: Final = "publisher:$2b$05$abcdefghijklmnopqrstuuiitcSTbmWtinjxTMhPy6Z4ocreVFuRu\n"
"""`USER` as the registry reads it."""
READY_LIMIT_S: Final = 60.0


@contextmanager
def registry(folder: Path, *, login: bool = False) -> Iterator[str]:
    """Run an empty registry inside the block; yield its address. With `login` it requires the credentials of `USER`.

    Skips the test if the package is not available.
    """
    try:
        program = packages.unpack("docker-registry") / "usr" / "bin" / "docker-registry"
    except ControlPlaneError as error:
        pytest.skip(lacks("Debian's docker-registry", str(error)))
    address = f"127.0.0.1:{any_free()}"
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}, "delete": {"enabled": True}},
        "http": {"addr": address},
    }
    if login:
        (folder / "htpasswd").write_text(HTPASSWD)
        settings["auth"] = {"htpasswd": {"realm": "registry", "path": str(folder / "htpasswd")}}
    (folder / "registry.yaml").write_text(json.dumps(settings))
    part = Part("docker-registry", folder / "registry.log")
    part.start([str(program), "serve", str(folder / "registry.yaml")], folder)
    deadline = time.monotonic() + READY_LIMIT_S
    try:
        while not _responds(address):
            part.check()
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"the registry is not ready in {READY_LIMIT_S:.0f} s")
            time.sleep(0.05)
        yield address
    finally:
        part.kill()


def _responds(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=5.0):
            return True
    except urllib.error.HTTPError:  # credentials are required
        return True
    except OSError:
        return False
