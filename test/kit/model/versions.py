"""The differences between the versions of the API server that the model imitates.

The constants are a part of hack/kubernetes_versions.csv, which describes each and names its source.
"""

from typing import Final, NamedTuple

OLDEST: Final = 20
NEWEST: Final = 36
"""The minor versions that the model imitates: these and all between them."""


class Change(NamedTuple):
    """A change in behavior: the first minor version that has it, and later ones that lack it."""

    since: int
    without: tuple[int, ...] = ()

    def is_in(self, minor: int) -> bool:
        """Return True if this minor version has the change."""
        return minor >= self.since and minor not in self.without


# generated: test/unit/hack/test_kubernetes_versions.py
DELETION_TIMESTAMP_MOVES: Final = Change(33)
NATIVE_SIDECARS: Final = Change(29)
POD_GENERATION: Final = Change(33)
CONTAINER_RESTART_RULES: Final = Change(35)
NAMESPACE_NAME_LABEL: Final = Change(21)
SERVICE_DELETE_ANSWERS_OBJECT: Final = Change(23)
SERVICES_ARE_GENERIC: Final = Change(23)
DELETE_ANSWERS_LAST_VERSION: Final = Change(26)
REFUSALS_ARE_REWORDED: Final = Change(32)
LIST_VERSION_IS_CHECKED: Final = Change(33)
PUT_OF_GONE_IS_NOT_FOUND: Final = Change(34)
VALUES_ARE_PRINTED_AS_JSON: Final = Change(34)
LABELS_ARE_MEASURED_IN_BYTES: Final = Change(35)
SERVICE_NAMES_ARE_RELAXED: Final = Change(36)
INITIAL_EVENTS_ARE_CHECKED: Final = Change(27)
IDLE_BOOKMARKS: Final = Change(31)
CACHES_KNOW_PROGRESS: Final = Change(31)
WATCH_REFUSED_WHILE_INITIALISING: Final = Change(31)
STREAMING_LISTS: Final = Change(32, (33,))
STREAMED_LISTS_HAVE_A_BLUEPRINT: Final = Change(32, (33, 34, 35, 36))
LISTS_FROM_SNAPSHOTS: Final = Change(34)
FUTURE_LISTS_TIME_OUT: Final = Change(34)
