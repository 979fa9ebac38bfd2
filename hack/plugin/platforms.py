"""The systems for which the plugin is packed."""

from __future__ import annotations

from typing import Final, NamedTuple

PYTHONS: Final = ("3.11", "3.12", "3.13")
"""Those of setup.cfg. Compiled modules of all of them lie beside each other in one archive: their names tell them apart."""


class Platform(NamedTuple):
    """A system as krew names it, and the tags of the wheels that run there, as pip's --platform wants them."""

    os: str
    arch: str
    tags: tuple[str, ...]

    @property
    def archive(self) -> str:
        """Return the name of its archive."""
        return f"kubectl-tfjob-{self.os}-{self.arch}.tar.gz"

    @property
    def zipapp(self) -> str:
        """Return the name of the plugin as a single file."""
        return f"kubectl-tfjob-{self.os}-{self.arch}.pyz"


def _linux(arch: str, machine: str) -> Platform:
    # For glibc of CentOS 7 and newer. Debian, Ubuntu, Fedora and RHEL have it, Alpine has not.
    return Platform(
        "linux", arch, tuple(f"{libc}_{machine}" for libc in ("manylinux2014", "manylinux_2_17", "manylinux_2_28"))
    )


PLATFORMS: Final = (
    _linux("amd64", "x86_64"),
    _linux("arm64", "aarch64"),
    Platform("darwin", "amd64", ("macosx_11_0_x86_64",)),
    Platform("darwin", "arm64", ("macosx_11_0_arm64",)),
)
