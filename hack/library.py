"""`make library`: build the wheel of the library alone, `kubecontrollers`, into build/.

It has the packages of this checkout that any controller can use, under a name of its own: no file belongs to both wheels, so
that both can be installed, and each uninstalled. `write_package` gives tests and linters the same modules without a wheel.
"""

import configparser
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from hack.image.build import PROJECT, SETUP, VERSION
from hack.plugin.archive import run_backend

NAME: Final = "kubecontrollers"
OUTPUT: Final = PROJECT / "build"
SOURCES: Final = (
    "api/*.py",
    "api/client/**/*.py",
    "controller/__init__.py",
    "controller/events/*.py",
    "controller/framework/*.py",
    "controller/leaderelection/*.py",
    "controller/manager/*.py",
    "controller/observability/*.py",
    "informers/*.py",
    "workqueue/*.py",
)
"""The modules of the library. Each keeps its path below the package."""
TESTING: Final = PROJECT / "test" / "kit"
"""The test kit, imported as `kit` in this checkout and as `kubecontrollers.testing` by others."""
FACADE: Final = PROJECT / "controller" / "framework" / "__init__.py"
"""The names that the package itself has."""
REQUIRES: Final = ("aiohappyeyeballs", "httptools", "msgspec", "PyYAML", "structlog", "tenacity")
EXTRAS: Final = {"prometheus": ("prometheus-client",), "test": ("pytest",)}
README: Final = """\
# kubecontrollers

Write Kubernetes controllers in Python: informers, work queues, a client, leader election and events, as in client-go and
controller-runtime, for asyncio. The guide "Write a controller" explains a complete example.

- `pip install kubecontrollers` has what a controller needs.
- `kubecontrollers[prometheus]` adds the page of metrics and probes.
- `kubecontrollers[test]` adds pytest, for the test kit.
"""
_RENAMED: Final = (
    (re.compile(r"\btfjob_operator\b"), NAME),
    (re.compile(r"(?<=from )kit\b(?=[. ])|(?<=import )kit\b|\bkit(?=\.\w)"), f"{NAME}.testing"),
)


def write_package(folder: Path) -> None:
    """Write the package into a folder that lacks it: all modules and `py.typed`."""
    package = folder / NAME
    for source, target in sorted(_modules()):
        file = package / target
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(renamed(source.read_text()))
    (package / "__init__.py").write_text(f'{renamed(FACADE.read_text())}\n__version__ = "{VERSION}"\n')
    (package / "py.typed").touch()


def _modules() -> Iterator[tuple[Path, Path]]:
    """Yield each module and its path in the package."""
    for pattern in SOURCES:
        for path in PROJECT.glob(pattern):
            yield path, path.relative_to(PROJECT)
    for path in TESTING.rglob("*.py"):
        yield path, Path("testing") / path.relative_to(TESTING)


def renamed(text: str) -> str:
    """Return the text of a module with the names under which others import the library."""
    for name, new in _RENAMED:
        text = name.sub(new, text)
    return text


def build_wheel(scratch: Path) -> Path:
    """Build the wheel in a temporary folder, and return its path. Raises CalledProcessError."""
    sources, target = scratch / "library-sources", scratch / "library"
    write_package(sources)
    target.mkdir()
    (sources / "README.md").write_text(README)
    shutil.copyfile(PROJECT / "LICENSE", sources / "LICENSE")
    with (sources / "setup.cfg").open("w") as file:
        _settings().write(file)
    for path in (sources, *sources.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # the wheel records modes, which depend on the umask
    return run_backend("wheel", sources, target)


def _settings() -> configparser.ConfigParser:
    """Return the setup.cfg of the wheel, with versions from that of this checkout."""
    lines = SETUP["options"]["install_requires"] + SETUP["options.extras_require"]["test"]
    versions = {Requirement(line).name: line for line in lines.split("\n") if line}

    def listed(names: tuple[str, ...]) -> str:
        return "\n".join(["", *(versions[name] for name in names)])

    settings = configparser.ConfigParser(interpolation=None)
    settings.read_dict(
        {
            "metadata": {
                **{key: SETUP["metadata"][key] for key in ("version", "license", "license_files", "classifiers")},
                "name": NAME,
                "description": "Kubernetes controllers in Python: informers, work queues, client, leader election, events",
                "long_description": "file: README.md",
                "long_description_content_type": "text/markdown",
            },
            "options": {
                "python_requires": SETUP["options"]["python_requires"],
                "packages": "find:",
                "install_requires": listed(REQUIRES),
            },
            "options.package_data": {"*": "py.typed"},
            "options.extras_require": {extra: listed(names) for extra, names in EXTRAS.items()},
            "options.entry_points": (
                {"pytest11": f"\n{NAME} = {NAME}.testing.plugin"} if (TESTING / "plugin.py").exists() else {}
            ),
        }
    )
    return settings


def main() -> int:
    """Build the wheel; return the exit code."""
    OUTPUT.mkdir(exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tfjob-library-") as scratch:
            wheel = Path(shutil.copy(build_wheel(Path(scratch)), OUTPUT))
    except subprocess.CalledProcessError as error:
        print(f"cannot build the library: {error}", file=sys.stderr)
        return 1
    print(f"{wheel}  {wheel.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
