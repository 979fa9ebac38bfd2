"""A wall clock for each operator, by libfaketime, which can be moved while it runs. The monotonic clock stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from faults.leaders import NAMES, Place

LIBRARIES: Final = tuple(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


def why_not() -> str:
    """Say why clocks cannot be moved here; "" if they can."""
    return "" if LIBRARIES else "there is no libfaketime: apt-get install libfaketime"


class Clocks:
    """The clocks of both operators, each by what stands in a file."""

    def __init__(self, folder: Path) -> None:
        self._files = {name: folder / f"{name}.clock" for name in NAMES}
        for file in self._files.values():
            file.write_text("+0\n")

    def place(self, name: str) -> Place:
        return Place(
            environment={
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self._files[name]),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        )

    def move(self, name: str, seconds: int) -> None:
        """Let the clock of an operator show so many seconds more, or less, than the right time."""
        file = self._files[name]
        new = file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(file)
