"""The library as others have it, written from this checkout once per process, and its examples."""

import atexit
import shutil
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hack.library import write_package


@cache
def library() -> Path:
    """Write the package, make it importable in this process, and return its folder, for PYTHONPATH of others."""
    folder = Path(mkdtemp(prefix="kubecontrollers-"))
    atexit.register(shutil.rmtree, folder)
    write_package(folder)
    sys.path.insert(0, str(folder))
    return folder


def example(name: str) -> Any:
    """Import hack/examples/NAME.py. Its classes are the library's, which are not those of `tfjob_operator`."""
    library()
    return import_module(f"hack.examples.{name}")
