"""An image that replaces those in users' manifests, which are no longer published or cannot be pulled by the node.

It consists of the first layer of the operator's image (Debian with Python) and the programs of `image/`. The node has it under
all of these names, so manifests run unchanged.
"""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Final

from hack.image import build
from hack.image.build import Layer
from hack.real_node.node import Containers

PROGRAMS: Final = Path(__file__).with_name("image")
FOLDER: Final = "opt/programs"
NAMES: Final = (
    "docker.io/tensorflow/tensorflow:1.3.0",  # standard parameter servers, and TensorBoard
    "docker.io/library/busybox:1.36",
    "registry.example.com/flower-classifier:cpu",
    "registry.example.com/matrix-sample:1",
    "registry.example.com/matrix-sample-gpu:1",
    "registry.example.com/trainer:2.1",
    "gcr.io/kubeflow-ci/tf-mnist-with-summaries:1.0",
)
TRAINER: Final = NAMES[-2]
CONFIG: Final = {
    "Entrypoint": ["python", f"/{FOLDER}/sample.py"],
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH=/{FOLDER}", "PYTHONDONTWRITEBYTECODE=1"],
}


def import_stand_in(containers: Containers, operator_image: Path, work: Path) -> None:
    """Import the image into a node under all names; `work` is an empty folder. Raises ControlPlaneError."""
    made = [_first_layer(operator_image, work), build.pack(_tree(work / "tree"), work / "programs.tar")]
    build.write(work / "stand-in.tar", NAMES[0], made, CONFIG)
    containers.import_image(work / "stand-in.tar")
    for name in NAMES[1:]:
        containers.tag(NAMES[0], name)


def _first_layer(image: Path, work: Path) -> Layer:
    """Take the lowest layer out of an OCI archive."""
    with tarfile.open(image) as found:

        def blob(digest: str) -> str:
            return f"blobs/{digest.replace(':', '/')}"

        def read(name: str) -> dict[str, list[dict[str, str]]]:
            file = found.extractfile(name)
            assert file is not None
            content: dict[str, list[dict[str, str]]] = json.load(file)
            return content

        index = read(blob(read("index.json")["manifests"][0]["digest"]))
        manifest = read(blob(index["manifests"][0]["digest"]))
        name = blob(manifest["layers"][0]["digest"])
        found.extract(name, work, filter="data")
    return build.read(work / name)


def _tree(tree: Path) -> Path:
    """Put the programs where manifests call them: `python -m trainer.task`, `python /var/tf_mnist/...`, `tensorboard`."""
    programs, commands = tree / FOLDER, tree / "usr" / "local" / "bin"
    (programs / "trainer").mkdir(parents=True)
    (programs / "trainer" / "__init__.py").touch()
    commands.mkdir(parents=True)
    (commands / "python").symlink_to("/usr/bin/python3")
    for source, target in (
        ("sample.py", programs / "sample.py"),
        ("sample.py", programs / "tensorflow.py"),
        ("sample.py", programs / "trainer" / "task.py"),
        ("sample.py", tree / "var" / "tf_mnist" / "mnist_with_summaries.py"),
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROGRAMS / source, target)
    board = commands / "tensorboard"
    board.write_text(f"#!/usr/bin/python3\n{(PROGRAMS / 'tensorboard.py').read_text()}")
    board.chmod(0o755)
    return tree
