"""SECURITY.md: what it promises is tested."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "SECURITY.md").read_text()
TEST: Final = re.compile(r"`(test/[\w/]+\.py)::(\w+)`")
HEADS: Final = ("| attempt |", "| ---")


def test_every_line_of_the_threat_model_names_tests_that_are_there() -> None:
    """In its last column; a renamed test has to be renamed there too."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(HEADS)]
    assert len(lines) >= PAGE.count("\n### ")
    for line in lines:
        named = TEST.findall(line.split("|")[-2])
        assert named, f"no test: {line}"
        for file, test in named:
            source = (ROOT / file).read_text()
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{file} has no {test}"


def test_every_test_that_the_threat_model_names_stands_in_its_table() -> None:
    """So the check above sees all of them."""
    assert len(TEST.findall(PAGE)) == PAGE.count("::")
