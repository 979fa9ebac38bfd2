"""`python -m hack.tensorflow`: fetch TensorFlow and TensorBoard for pods, once; prints the folder that holds them.

In: the package index that pip knows. Out: a folder in the cache, for a volume and PYTHONPATH of a container with Python 3.11.
The tests' node has no registry, and TensorFlow with its dependencies is 1.5 GB: too much for an image that is rebuilt at each
change.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Final

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress

VERSION: Final = "2.21.0"
TENSORBOARD_VERSION: Final = "2.21.0"  # since 2.21 TensorFlow does not depend on it any more
PYTHON: Final = "3.11"  # that of the operator's image, Debian 12's
FETCH_LIMIT_S: Final = 1800.0


def prepare() -> Path:
    """Return the folder with both: minutes the first time, then at once. Raises ControlPlaneError."""
    root = packages.root()
    target = root / f"tensorflow-cpu-{VERSION}-tensorboard-{TENSORBOARD_VERSION}-py{PYTHON.replace('.', '')}"
    if target.is_dir():
        return target
    progress = Progress("tensorflow")
    with tempfile.TemporaryDirectory(prefix="tensorflow-", dir=root) as work:
        folder = Path(work) / "packages"
        progress.say(f"fetching TensorFlow {VERSION} (1.5 GB unpacked)")
        runner = LoggedRunner(root / "tensorflow.log", progress)
        wheels = ("--only-binary=:all:", f"--python-version={PYTHON}", f"--target={folder}")
        runner.run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"),
            *(*wheels, f"tensorflow-cpu=={VERSION}", f"tensorboard=={TENSORBOARD_VERSION}"),
            limit_s=FETCH_LIMIT_S,
        )
        folder.chmod(0o755)  # pods run as somebody else
        with contextlib.suppress(OSError):  # another process was faster, with the same files
            folder.rename(target)
    return target


def main() -> int:
    """Fetch it; return the exit code."""
    try:
        print(prepare())
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
