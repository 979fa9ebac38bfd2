"""Checks docs/behaviours.md against the tests and the product.

Every behaviour has a test that quotes its ID, or a reason why not; and no file quotes an ID that is not listed.

Prints the table ID -> tests. Exit codes: 0 complete, 1 not, with a line for each gap.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TABLE: Final = ROOT / "docs" / "behaviours.md"
_ROW: Final = re.compile(r"\| ((?:[A-Z]{2}-|B)\d\d|[DMU]\d{1,2}[a-z]?) \| (.+?) \| (.*?) ?\|")
PRODUCT: Final = ("api", "cli", "controller", "informers", "workqueue")
_LIKE_AN_ID: Final = re.compile(r"\b(?:[A-Z]{2}-\d\d|[ABDMU]\d{1,2}[a-z]?)\b")
"""What looks like the ID of a behaviour, whether its family is listed or not."""


def listed(table: str) -> dict[str, str]:
    """Return the IDs of the table, each with the reason why it is left out, or "" for one that must be proved."""
    return {match[1]: match[3] for line in table.splitlines() if (match := _ROW.fullmatch(line))}


def quoted(source: str, listed_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each (ID, test) of a test file: the IDs of the listed families in the docstrings of its tests, listed or not."""
    families = {_family(each) for each in listed_ids}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            for found in set(_LIKE_AN_ID.findall(ast.get_docstring(node) or "")):
                if _family(found) in families:
                    yield found, node.name


def _family(behaviour: str) -> str:
    return re.split(r"\d", behaviour)[0]


def gaps(reasons: Mapping[str, str], tests: Mapping[str, list[str]]) -> list[str]:
    """Return what is wrong: behaviours without a test, reasons that no longer hold, IDs that are not listed."""
    found = []
    for behaviour, reason in reasons.items():
        if not tests.get(behaviour) and not reason:
            found.append(f"{behaviour} has no test and no reason")
        if tests.get(behaviour) and reason:
            found.append(f"{behaviour} is proved by {tests[behaviour][0]}, yet said to be left out: {reason}")
    found += [
        f"{behaviour} is quoted by {tests[behaviour][0]} but not listed" for behaviour in sorted(tests.keys() - reasons)
    ]
    return found


def dangling(source: str, reasons: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return each (line number, ID) of a file of the product where the ID is not listed."""
    return [
        (number, found)
        for number, line in enumerate(source.splitlines(), 1)
        for found in _LIKE_AN_ID.findall(line)
        if found not in reasons
    ]


def main() -> int:
    """Print the table and the gaps; return the exit code."""
    reasons = listed(TABLE.read_text())
    tests: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "test").rglob("test_*.py")):
        for behaviour, name in quoted(path.read_text(), reasons):
            tests[behaviour].append(f"{path.relative_to(ROOT / 'test')}::{name}")
    if "--quiet" not in sys.argv:
        for behaviour, reason in reasons.items():
            print(f"{behaviour}  {', '.join(tests[behaviour]) or f'left out: {reason}'}")
    found = gaps(reasons, {behaviour: names for behaviour, names in tests.items() if names})
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        for line, behaviour in dangling(path.read_text(), reasons):
            found.append(f"{behaviour} is quoted by {path.relative_to(ROOT)}:{line} but not listed")
    for gap in found:
        print(f"docs/behaviours.md: {gap}", file=sys.stderr)
    if not found:
        print(
            f"{len(reasons)} behaviours: {sum(map(bool, reasons.values()))} left out with a reason, the others proved"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
