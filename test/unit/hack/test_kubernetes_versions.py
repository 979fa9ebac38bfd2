"""The table of versions: which changes a version has, and that docs/compatibility.md shows the current table."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from hack.kubernetes_versions import (
    CHANGES,
    NEWEST,
    OLDEST,
    ORDINARY_POLICIES_REFUSED,
    STREAMING_LISTS,
    Change,
    Kubernetes,
    markdown,
)
from support.cases import for_each

FOR_PEOPLE_ONLY = {
    *("REJECTED_FOR_VOLUMES", "REJECTED_FOR_FEATURES", "SCHEDULING_GATES"),
    *("SIGNATURES_ARE_CHECKED", "POD_SECURITY", "FIELD_VALIDATION"),
}
"""Rows that no model and no test uses; they are for readers of the table."""
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN = "<!-- generated: hack/kubernetes_versions.csv -->\n\n"
END = "\n<!-- end of generated -->\n"


def test_a_version_is_read_from_what_people_and_servers_write() -> None:
    """The fields `minor` (`27+` with some providers) and `gitVersion` of `/version`, and the values of a flag.

    1.9 is older than 1.20, though as a string it is greater.
    """
    texts = ["1.9", "1.20", "1.27+", "v1.30.4-gke.1129000", "v1.31.0-alpha.2+8b1e", "v1.36.3", str(NEWEST)]
    assert [Kubernetes.parse(text).minor for text in texts] == [9, 20, 27, 30, 31, 36, 36]
    assert Kubernetes.parse("1.9") < OLDEST < NEWEST


@for_each("text", ["", "1", "1.", "v2.1", "36", "kubernetes 1.36", "1.x"])
def test_an_unknown_version_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(ValueError, match=rf"{re.escape(repr(text))} is not a version of Kubernetes such as 1\.33"):
        Kubernetes.parse(text)


@pytest.mark.parametrize(
    ("change", "minors"),
    [
        pytest.param(Change(27, "kubelet", "some", "KEP-1", ("read",)), range(27, 37), id="it is there from then on"),
        pytest.param(
            STREAMING_LISTS, [32, 34, 35, 36], id="WatchList was on in 1.32, off in 1.33, and is on since 1.34"
        ),
        pytest.param(
            ORDINARY_POLICIES_REFUSED, range(28, 34), id="1.27 does not know these policies, and 1.34 drops them"
        ),
    ],
)
def test_a_version_has_a_change(change: Change, minors: Iterable[int]) -> None:
    assert [minor for minor in range(20, 37) if Kubernetes(minor).has(change)] == [*minors]


def test_the_table_is_in_the_order_of_time() -> None:
    late = Change(34, "kubelet", "late", "KEP-2", ("read", "seen"))
    early = Change(21, "kube-apiserver", "early", "KEP-1", ("seen",), without=(22,))
    ended = Change(28, "kube-apiserver", "ended", "KEP-3", ("read",), without=tuple(range(30, 37)))
    assert markdown([late, ended, early]).splitlines()[2:] == [
        "| 1.21, not 1.22 | kube-apiserver | early | KEP-1 | seen |",
        "| 1.28 to 1.29 | kube-apiserver | ended | KEP-3 | read |",
        "| 1.34 | kubelet | late | KEP-2 | read, seen |",
    ]


def test_every_row_is_of_the_versions_that_are_supported() -> None:
    """A change that the oldest supported version already has would make no difference."""
    assert CHANGES
    for name, row in CHANGES.items():
        assert OLDEST.minor < row.since <= NEWEST.minor, name
        assert all(row.since < minor <= NEWEST.minor for minor in row.without), name
        assert row.known
        assert set(row.known) <= {"read", "seen"}, name
        assert not {"|", "\n"} & {*row.what, *row.source}, f"{name} breaks the table"


def test_every_row_is_asked_for_or_is_for_people_only() -> None:
    """A row that no code uses may be wrong unnoticed, so it must be listed as one for people; and only such rows are listed."""
    paths = [path for folder in ("hack", "test") for path in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in paths if path != Path(__file__)]
    named = {name for text in texts for name in re.findall(r"\b[A-Z][A-Z0-9_]+\b", text)}
    assert {name for name in CHANGES if name not in named} == FOR_PEOPLE_ONLY


def test_the_page_shows_the_table_as_it_is(check_generated: Callable[[Path, str], None]) -> None:
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert after
    check_generated(PAGE, f"{before}{begin}{markdown(CHANGES.values())}{end}{after}")
