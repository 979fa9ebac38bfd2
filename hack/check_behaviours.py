"""Check docs/behaviours.md against tests and product.

Each behavior needs a test that quotes its ID, or a reason why it has none. No file may quote an unlisted ID.

Prints the table ID -> tests. Exit codes: 0 complete, 1 gaps (one line each).
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
"""Matches an ID of a behavior, even of an unlisted family."""


def listed(table: str) -> dict[str, str]:
    """Return the IDs of the table, each with the reason why it has no test, or "" if it needs one."""
    return {match[1]: match[3] for line in table.splitlines() if (match := _ROW.fullmatch(line))}


def quoted(source: str, listed_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (ID, test) for each ID of a listed family in a test's docstring, even if the ID itself is unlisted."""
    families = {_family(each) for each in listed_ids}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            for found in set(_LIKE_AN_ID.findall(ast.get_docstring(node) or "")):
                if _family(found) in families:
                    yield found, node.name


def _family(behaviour: str) -> str:
    return re.split(r"\d", behaviour)[0]


def gaps(reasons: Mapping[str, str], tests: Mapping[str, list[str]]) -> list[str]:
    """Return the gaps: behaviors without a test, reasons that no longer apply, unlisted IDs."""
    found = []
    for behaviour, reason in reasons.items():
        if not tests.get(behaviour) and not reason:
            found.append(f"{behaviour} has neither a test nor a reason")
        if tests.get(behaviour) and reason:
            found.append(f"{behaviour} is tested by {tests[behaviour][0]}, but listed as omitted: {reason}")
    found += [
        f"{behaviour} is quoted by {tests[behaviour][0]} but is not listed"
        for behaviour in sorted(tests.keys() - reasons)
    ]
    return found


def dangling(source: str, reasons: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return (line number, ID) for each unlisted ID in a product file."""
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
            print(f"{behaviour}  {', '.join(tests[behaviour]) or f'omitted: {reason}'}")
    found = gaps(reasons, {behaviour: names for behaviour, names in tests.items() if names})
    for path in sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")):
        for line, behaviour in dangling(path.read_text(), reasons):
            found.append(f"{behaviour} is quoted by {path.relative_to(ROOT)}:{line} but is not listed")
    for gap in found:
        print(f"docs/behaviours.md: {gap}", file=sys.stderr)
    if not found:
        print(f"{len(reasons)} behaviours: {sum(map(bool, reasons.values()))} omitted with a reason, all others tested")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
