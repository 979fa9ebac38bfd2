"""The checker of the coverage table."""

from hack.check_behaviours import dangling, gaps, listed, quoted

TABLE = """
| ID | behaviour | left out, because |
|---|---|---|
| RF-01 | list and watch | |
| RF-27 | streaming | too new |
| B12 | a name used again | |
"""


def test_the_table_is_read_with_its_reasons() -> None:
    """An empty third column means that a test must prove the behaviour."""
    assert listed(TABLE) == {"RF-01": "", "RF-27": "too new", "B12": ""}


def test_ids_are_taken_from_the_docstrings_of_tests_alone() -> None:
    """A helper's docstring or a comment proves nothing."""
    source = '''
def test_one():
    """RF-01, B12: both."""
async def test_two():
    """RF-01, M3, reflector_test.go:TestX; XX-99 is no family of ours."""
def helper():
    """RF-27."""
'''
    assert set(quoted(source, ["RF-01", "B12", "M1", "M10"])) == {
        ("RF-01", "test_one"),
        ("B12", "test_one"),
        ("RF-01", "test_two"),
        ("M3", "test_two"),
    }


def test_defects_and_flows_of_users_are_listed_by_one_digit_or_two_and_perhaps_a_letter() -> None:
    """An ID with a letter differs from the one without it."""
    reasons = listed(
        "| D1 | no bound | |\n| D24 | a lease kept | |\n| U10 | old versions | later |\n| U10b | unknown fields | |"
    )
    assert reasons == {"D1": "", "D24": "", "U10": "later", "U10b": ""}
    source = '''
def test_one():
    """D1, U10b: both; BD24, D245 and D1bc are no IDs of ours."""
'''
    assert set(quoted(source, reasons)) == {("D1", "test_one"), ("U10b", "test_one")}


def test_each_kind_of_gap_is_reported() -> None:
    """Unproved, wrongly excused, unlisted."""
    found = gaps(listed(TABLE), {"RF-27": ["test_a"], "RF-99": ["test_b"], "B12": ["test_c"]})
    assert found == [
        "RF-01 has neither a test nor a reason",
        "RF-27 is tested by test_a, but listed as omitted: too new",
        "RF-99 is quoted by test_b but is not listed",
    ]


def test_an_id_in_the_product_that_nobody_listed_is_reported_with_its_line() -> None:
    """IDs of any family count, listed or not; a longer word or a part of a name is not an ID."""
    source = "# RF-01, and that of A7\nBASE64 = C1  # UTF-16\n# SV-03; B12"
    assert dangling(source, listed(TABLE)) == [(1, "A7"), (3, "SV-03")]
