"""`python -m hack.tensorflow`: fetch TensorFlow and TensorBoard for pods, once; prints the folder that holds them.

In: the package index that pip knows. Out: a folder in the cache, for a volume and PYTHONPATH of a container with Python 3.11.
The tests' node has no registry, and TensorFlow with its dependencies is 1.5 GB: too much for an image that is rebuilt at each
change.
"""

import sys
from typing import Final

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError

VERSION: Final = "2.21.0"
TENSORBOARD_VERSION: Final = "2.21.0"  # since 2.21 TensorFlow does not depend on it any more
PYTHON: Final = "3.11"  # that of the operator's image, Debian 12's


def main() -> int:
    """Fetch both: minutes the first time, then at once; return the exit code."""
    name = f"tensorflow-cpu-{VERSION}-tensorboard-{TENSORBOARD_VERSION}-py{PYTHON.replace('.', '')}"
    wheels = (f"tensorflow-cpu=={VERSION}", f"tensorboard=={TENSORBOARD_VERSION}")
    try:
        print(packages.install_wheels(name, f"--python-version={PYTHON}", *wheels))
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
