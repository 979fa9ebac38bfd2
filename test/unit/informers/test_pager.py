"""Paging against scripted responses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fakes.source import FakeSource, expired, pod, status_error
from tfjob_operator.api.client.errors import ApiError, ExpiredError
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.core import Pod
from tfjob_operator.informers.codec import Page, Skipped
from tfjob_operator.informers.listwatch import Pager


class Script(FakeSource[Pod]):
    """Responds to lists with what it was given, in order."""

    def __init__(self, *answers: Page[Pod] | ApiError) -> None:
        super().__init__()
        self.answers = [*answers]

    async def list(self, options: ListOptions) -> Page[Pod]:
        self.lists.append(options)
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def asked(script: Script) -> Sequence[tuple[str, str, str, int]]:
    """What each request asked for: version, match, token, limit."""
    return [(o.resource_version, o.resource_version_match, o.continue_token, o.limit) for o in script.lists]


AT_7 = ListOptions(resource_version="7", resource_version_match="NotOlderThan")


async def test_a_list_in_one_page_is_answered_as_it_is() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(Page([pod("a")], "9"))
    page, in_pages = await Pager(script).list(AT_7, 500)
    assert (page.items, page.resource_version, in_pages) == ([pod("a")], "9", False)
    assert asked(script) == [("7", "NotOlderThan", "", 500)]


async def test_pages_are_followed_without_version_and_match_and_the_list_has_the_version_of_the_first() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List, TestListPager_EachListItem"""
    lost = Skipped(TypeError("bad"), "ns/x")
    script = Script(Page([pod("a")], "9", "t1"), Page([pod("b")], "10", "t2", [lost]), Page([pod("c")], "11"))
    page, in_pages = await Pager(script).list(AT_7, 1)
    assert [item.metadata.name for item in page.items] == ["a", "b", "c"]
    assert (page.resource_version, page.continue_token, page.skipped, in_pages) == ("9", "", [lost], True)
    assert asked(script) == [("7", "NotOlderThan", "", 1), ("", "", "t1", 1), ("", "", "t2", 1)]


async def test_a_token_that_expires_is_answered_by_one_full_list_at_the_version_first_asked_for() -> None:
    """RF-08, SV-05, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(Page([pod("a")], "9", "t1"), expired(), Page([pod("a"), pod("b")], "12"))
    page, in_pages = await Pager(script).list(AT_7, 1)
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert (page.resource_version, in_pages) == ("12", True)
    assert asked(script)[-1] == ("7", "NotOlderThan", "", 0)


async def test_a_full_list_that_expires_too_is_the_callers_problem() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(Page([pod("a")], "9", "t1"), expired(), expired())
    with pytest.raises(ExpiredError):
        await Pager(script).list(AT_7, 1)


async def test_a_first_page_that_expires_is_the_callers_problem() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_List"""
    script = Script(expired())
    with pytest.raises(ExpiredError):
        await Pager(script).list(AT_7, 1)
    assert len(script.lists) == 1


async def test_any_other_failure_on_any_page_is_raised() -> None:
    """RF-08, tools/pager/pager_test.go:TestListPager_eachListPageBuffered. No producer runs ahead here"""
    script = Script(Page([pod("a")], "9", "t1"), status_error(403, "Forbidden"))
    with pytest.raises(ApiError):
        await Pager(script).list(AT_7, 1)
    assert len(script.lists) == 2
