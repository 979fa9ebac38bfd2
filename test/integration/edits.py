"""An editor for `kubectl edit` that makes the edits of a test: paths in a manifest, and their new values."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml


def change(manifest: Any, edits: dict[str, Any]) -> None:
    """Set each path, whose parts are separated by spaces, to its value; None removes it."""
    for path, value in edits.items():
        parts: list[Any] = [int(part) if part.isdigit() else part for part in path.split()]
        place, last = manifest, parts.pop()
        for part in parts:
            place = place[part] if isinstance(place, list) else place.setdefault(part, {})
        if value is None:
            del place[last]
        else:
            place[last] = value


class _Loader(yaml.SafeLoader):
    """Leaves times as they are written, since API servers read no other form of them."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in found if each[0] != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def change_file(file: Path, edits: dict[str, Any]) -> None:
    manifest = yaml.load(file.read_text(), Loader=_Loader)  # a safe one
    change(manifest, edits)
    file.write_text(yaml.safe_dump(manifest))


if __name__ == "__main__":
    change_file(Path(sys.argv[-1]), json.loads(os.environ["EDITS"]))
