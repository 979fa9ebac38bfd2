"""Link the folders of a checkout into a tree with the layout of the installed package.

Run as `python -m hack.package_links FOLDER`. It is for tools such as mypy and editors, which do not run the import hook of an
editable install. The layout is `package_dir` of setup.cfg. Existing files and links are kept.
"""

import configparser
import os
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def package_dirs(root: Path) -> dict[str, Path]:
    """Return the folder of each package that `package_dir` maps; empty for commits without such a mapping."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(root / "setup.cfg")
    lines = settings.get("options", "package_dir", fallback="").split("\n")
    pairs = (line.partition("=") for line in lines if line.strip())
    return {name.strip(): root / folder.strip() for name, _, folder in pairs}


def link_packages(root: Path, target: Path) -> None:
    """Create the tree in `target`. If `target` is `root`, the checkout runs without an editable install."""
    for package, folder in package_dirs(root).items():
        path = target.joinpath(*package.split("."))
        if "." in package:
            _link(path, folder)
        else:  # a real folder, because sub-packages are linked into it
            path.mkdir(parents=True, exist_ok=True)
            for file in folder.iterdir():
                if file.is_file():
                    _link(path / file.name, file)


def _link(link: Path, target: Path) -> None:
    if not link.exists():
        link.symlink_to(os.path.relpath(target.resolve(), link.parent.resolve()))


if __name__ == "__main__":
    link_packages(ROOT, Path(sys.argv[1]))
