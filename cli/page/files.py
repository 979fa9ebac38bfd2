"""The files of the page, read once: they are part of the package, also inside a zip file."""

from __future__ import annotations

from importlib.resources import files
from typing import Final, NamedTuple

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class File(NamedTuple):
    """What a browser gets."""

    body: bytes
    kind: str


def read_files() -> dict[str, File]:
    """Return all files by name."""
    folder = files("tfjob_operator.cli.page").joinpath("static")
    return {
        each.name: File(each.read_bytes(), _TYPES[each.name.rpartition(".")[2]])
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in _TYPES
    }
