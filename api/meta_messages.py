"""The fields that objects of all kinds have in common, and those of lists and failures, by their numbers in protobuf. Pure.

From `generated.proto` of k8s.io/apimachinery/pkg/apis/meta/v1 (July 2026). A number is never given to another field, so the
tables hold for all versions.
"""

from __future__ import annotations

from typing import Final

from tfjob_operator.api.protobuf import Message, many, number, one, pairs, text, time, truth

LIST_META: Final = Message({2: text("resourceVersion"), 3: text("continue")})
META, ITEMS = 1, 2
"""The fields of a list of any kind: its metadata, and an item."""

_OWNER: Final = Message({1: text("kind"), 3: text("name"), 4: text("uid"), 6: truth("controller")}, alike=True)
OBJECT_META: Final = Message(
    {
        1: text("name"),
        3: text("namespace"),
        5: text("uid"),
        6: text("resourceVersion"),
        7: number("generation"),
        8: time("creationTimestamp"),
        9: time("deletionTimestamp"),
        10: number("deletionGracePeriodSeconds"),
        11: pairs("labels"),
        13: many("ownerReferences", _OWNER),
    }
)

METADATA: Final = Message({1: one("metadata", OBJECT_META)})
"""An object of any kind, of which only the metadata is read."""

_CAUSE: Final = Message({1: text("reason"), 2: text("message"), 3: text("field")})
_DETAILS: Final = Message({1: text("name"), 3: text("kind"), 4: many("causes", _CAUSE), 5: number("retryAfterSeconds")})
STATUS: Final = Message({3: text("message"), 4: text("reason"), 5: one("details", _DETAILS), 6: number("code")})
"""What an API server answers instead of a list, in the encoding of the list."""
