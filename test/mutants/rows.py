"""The rows of mutants.csv: one-line mistakes in the product, each with the test that finds it."""

import csv
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """A mistake: in `file`, the line `old` becomes `new`, both without indentation.

    `occurrence` counts from 1 if the file has the line several times, else it is "". `origin`: seed if a random line and an
    ordinary operator were drawn, judgement if a colleague could make this mistake and a user would notice. `found_by` is the
    function of a test that fails, or its file if that cannot be imported. Without one, `note` tells why no test finds the
    mutant. The note "hangs" means that the test may not end.
    """

    number: str
    file: str
    occurrence: str
    old: str
    new: str
    origin: str
    found_by: str
    note: str

    def applied(self, text: str) -> str:
        """Return the text of the file with the mistake. Raises ValueError if the line is missing or ambiguous."""
        lines = text.splitlines(keepends=True)
        found = [number for number, line in enumerate(lines) if line.strip() == self.old]
        if len(found) < int(self.occurrence or 1) or (len(found) > 1 and not self.occurrence):
            where = f"{self.file} has {len(found)} lines {self.old!r}"
            raise ValueError(f"mutant {self.number}: {where}: change its row to the line that replaces them")
        number = found[int(self.occurrence or 1) - 1]
        lines[number] = lines[number].replace(self.old, self.new)
        return "".join(lines)


def read() -> list[Mutant]:
    """Return all mutants."""
    with Path(__file__).with_name("mutants.csv").open(newline="") as file:
        return [Mutant(**row) for row in csv.DictReader(file)]
