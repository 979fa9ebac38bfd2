"""Selectors: the grammar and the meaning."""

from __future__ import annotations

import pytest

from tfjob_operator.informers.errors import SelectorError
from tfjob_operator.informers.listers import EVERYTHING, NOTHING, parse_labels

LABELS = {"app": "web", "tier": "", "example.com/size": "10"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        (" ", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app=db", False),
        ("missing=", False),
        ("tier=", True),
        ("app!=web", False),
        ("app!=db", True),
        ("missing!=x", True),
        ("app", True),
        ("missing", False),
        ("!app", False),
        ("!missing", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("missing in (web)", False),
        ("tier in (,x)", True),
        ("app notin (db)", True),
        ("app notin (web,db)", False),
        ("missing notin (web)", True),
        ("example.com/size>9", True),
        ("example.com/size > 10", False),
        ("example.com/size<11", True),
        ("app>1", False),
        ("missing<1", False),
        ("app=web,!missing,app in (web,db)", True),
        ("app=web,missing", False),
        ("app in (web,db),tier=x", False),
    ],
)
def test_a_label_selector_matches_as_the_api_server_does(text: str, matches: bool) -> None:
    """ST-09, apimachinery labels/selector_test.go:TestSelectorMatches"""
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["a=b=c", "=x", "a in", "a in b", "a in (b", "a,,b", "a>b", "-a", "a=b c", "!", "a in (b c)"]
)
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    """ST-09, apimachinery labels/selector_test.go:TestSelectorParse"""
    with pytest.raises(SelectorError, match="selector"):
        parse_labels(text)


def test_an_object_without_labels_is_as_one_with_none() -> None:
    """ST-09"""
    assert parse_labels("!app").matches(None)
    assert not parse_labels("app").matches(None)


def test_everything_asks_nobody_and_nothing_refuses_all() -> None:
    """ST-09, listers_test.go:TestListAll"""
    assert EVERYTHING.is_everything
    assert parse_labels("").is_everything
    assert not NOTHING.is_everything
    assert not NOTHING.matches(LABELS)
