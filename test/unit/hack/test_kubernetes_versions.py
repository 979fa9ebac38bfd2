"""The table of versions: which changes a version has, and that docs/compatibility.md shows the current table."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import kubernetes
import msgspec
import pytest

from fakes.manifests import read_document
from hack.kubernetes_versions import (
    CHANGES,
    NEWEST,
    OLDEST,
    OLDEST_SUPPORTED,
    ORDINARY_POLICIES_REFUSED,
    STREAMING_LISTS,
    SUPPORTED,
    TESTED,
    UNTESTED,
    Change,
    Kubernetes,
    markdown,
    support,
)
from kit.model import versions
from support.cases import for_each
from tfjob_operator.api import core
from tfjob_operator.api.meta import Resource, Struct

FOR_PEOPLE_ONLY = {
    *("REJECTED_FOR_VOLUMES", "REJECTED_FOR_FEATURES", "SCHEDULING_GATES"),
    *("SIGNATURES_ARE_CHECKED", "FIELD_VALIDATION"),
    *(name for name, row in CHANGES.items() if row.since == UNTESTED.minor),
}
"""Rows that no model and no test uses; they are for readers of the table."""
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "compatibility.md"
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
    once = Change(32, "kube-apiserver", "once", "KEP-4", ("seen",), without=tuple(range(33, 37)))
    assert markdown([late, once, ended, early]).splitlines()[2:] == [
        "| 1.21, not 1.22 | kube-apiserver | early | KEP-1 | seen |",
        "| 1.28 to 1.29 | kube-apiserver | ended | KEP-3 | read |",
        "| 1.32 only | kube-apiserver | once | KEP-4 | seen |",
        "| 1.34 | kubelet | late | KEP-2 | read, seen |",
    ]


def test_every_row_is_of_the_versions_that_are_supported() -> None:
    """A change that the oldest version already has would make no difference. Of 1.37 only notes were read."""
    assert CHANGES
    for name, row in CHANGES.items():
        assert OLDEST.minor < row.since <= UNTESTED.minor, name
        assert row.since <= NEWEST.minor or row.known == ("read",), name
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


def test_the_page_shows_the_tables_as_they_are(check_generated: Callable[[Path, str], None]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (
        ("hack/kubernetes_versions.csv", markdown(CHANGES.values())),
        ("supported-versions", support()),
    ):
        before, begin, rest = text.partition(f"<!-- generated: {name} -->\n\n")
        _, end, after = rest.partition(END)
        assert after
        text = f"{before}{begin}{table}{end}{after}"
    check_generated(PAGE, text)


def test_the_model_of_the_api_server_has_the_rows_that_it_asks_for(
    check_generated: Callable[[Path, str], None],
) -> None:
    """The kit is published without `hack`, so it has these rows as constants."""
    folder = ROOT / "test" / "kit" / "model"
    table = folder / "versions.py"
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.py") if path != table]
    named = {name for text in texts for name in re.findall(r"\b[A-Z][A-Z0-9_]+\b", text)}
    rows = [
        f"{name}: Final = Change({row.since}{f', {row.without}' if row.without else ''})\n"
        for name, row in CHANGES.items()
        if name in named
    ]
    before, begin, _ = table.read_text(encoding="utf-8").partition(
        "# generated: test/unit/hack/test_kubernetes_versions.py\n"
    )
    assert (OLDEST.minor, NEWEST.minor) == (versions.OLDEST, versions.NEWEST)
    check_generated(table, f"{before}{begin}{''.join(rows)}")


@for_each("page", ["README.md", "docs/compatibility.md", "manifests/chart/README.md"])
def test_all_pages_name_the_same_supported_versions(page: str) -> None:
    """No page promises "1.20 or newer" while another one promises less."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert SUPPORTED in text
    assert not re.search(r"Kubernetes 1\.\d+ or newer", text)


def test_the_tested_versions_are_the_recorded_ones_and_the_ends_of_the_models() -> None:
    minors = [Kubernetes.parse(version) for version in TESTED]
    assert minors == sorted({*minors})
    assert (minors[0], minors[-1]) == (OLDEST, NEWEST)
    assert OLDEST < OLDEST_SUPPORTED < NEWEST < UNTESTED
    recorded = {path.name for path in (ROOT / "test" / "data" / "recordings").glob("1.*")}
    assert recorded == {*TESTED}
    chart = read_document(ROOT / "manifests" / "chart" / "Chart.yaml")
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"


def test_the_page_has_a_row_of_each_tested_version_and_says_that_the_others_were_not_run() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("### What ran where\n")[2].partition("\n#")[0]
    rows = dict(re.findall(r"^\| (1\.[\d.]+) \| (.*) \|$", section, re.MULTILINE))
    ran = {version for version, row in rows.items() if "not run" not in row}
    assert ran == {*TESTED}
    minors = {Kubernetes.parse(version) for version in rows} - {OLDEST}
    assert minors == {Kubernetes(minor) for minor in range(OLDEST_SUPPORTED.minor, UNTESTED.minor + 1)}


def test_the_untested_version_has_the_fields_and_resources_that_the_operator_uses() -> None:
    """The `kubernetes` package is generated from the OpenAPI document of the version with its number."""
    assert int(kubernetes.__version__.partition(".")[0]) == UNTESTED.minor
    structs = [each for each in vars(core).values() if isinstance(each, type) and issubclass(each, Struct)]
    models = {each: getattr(kubernetes.client, f"V1{each.__name__}", None) for each in structs}
    models |= {core.Event: kubernetes.client.CoreV1Event}
    known = {each: set(model.attribute_map.values()) for each, model in models.items() if model is not None}
    assert {core.PodSpec, core.PodStatus, core.ContainerStatus, core.Node, core.Event, core.Lease} <= known.keys()
    fields = {each: {field.encode_name for field in msgspec.structs.fields(each)} for each in known}
    assert {each.__name__: names - known[each] for each, names in fields.items() if names - known[each]} == {}
    resources = [each for each in vars(core).values() if isinstance(each, Resource) and "x-k8s" not in each.group]
    builtin = [each for each in resources if "volcano" not in each.group]
    assert len(builtin) == 8
    for each in builtin:
        group = each.group.partition(".")[0].title() or "Core"
        api = getattr(kubernetes.client, f"{group}{each.version.title()}Api")
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", each.kind).lower()
        assert hasattr(api, f"patch_namespaced_{snake}") or hasattr(api, f"patch_{snake}"), each
