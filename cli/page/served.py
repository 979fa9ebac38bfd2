"""Which APIs of TFJobs a cluster serves, by its discovery: every user may ask, and it does not fail for what is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.client.errors import DecodeError
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.page.keys import FIRST

if TYPE_CHECKING:
    from tfjob_operator.api.client.rest import RestClient
    from tfjob_operator.api.meta import Resource

APIS: Final = (TFJOBS, FIRST)
"""Those of which the page shows jobs."""


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    name: str = ""
    versions: list[_Version] | None = None


class _Groups(msgspec.Struct):
    groups: list[_Group] | None = None


async def served(client: RestClient) -> frozenset[Resource]:
    """Return those of `APIS` that are served. Raises ApiError."""
    try:
        found = msgspec.json.decode(await client.get_page("/apis"), type=_Groups)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"not a list of API groups: {error}") from error
    there = {(group.name, each.version) for group in found.groups or () for each in group.versions or ()}
    return frozenset(each for each in APIS if (each.group, each.version) in there)
