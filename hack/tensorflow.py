"""`python -m hack.tensorflow`: install TensorFlow, TensorBoard, Keras 2 and 3, and JAX into the cache once; print their folder.

Pods mount the folder as a volume and add it to PYTHONPATH; its packages are for the image's Python. The test node has no
registry, and TensorFlow with its dependencies (2.7 GB) is too large for an image that is rebuilt on each change.
"""

import sys
from typing import Final

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError
from hack.debian import IMAGE_PYTHON as PYTHON

VERSION: Final = "2.21.0"
TENSORBOARD_VERSION: Final = "2.21.0"  # no longer a dependency of TensorFlow since 2.21
TF_KERAS_VERSION: Final = "2.21.0"  # these three as in manifests/examples/training
KERAS_VERSION: Final = "3.15.1"
JAX_VERSION: Final = "0.10.2"


def main() -> int:
    """Install them and return the exit code; the first run takes minutes, later runs take no time."""
    wheels = (
        f"tensorflow=={VERSION}",
        f"tensorboard=={TENSORBOARD_VERSION}",
        f"tf_keras=={TF_KERAS_VERSION}",
        f"keras=={KERAS_VERSION}",
        f"jax=={JAX_VERSION}",
    )
    name = "-".join([*wheels, f"py{PYTHON}"]).replace("==", "-")
    try:
        print(packages.install_wheels(name, f"--python-version={PYTHON}", *wheels))
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
