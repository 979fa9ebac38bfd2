"""Request options: the queries of lists and logs, and the body of a delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""The `accept` header of `kubectl get`: columns and rows rendered by the server. Servers without tables return the objects."""


class ReadOptions(TypedDict, total=False):
    """Options of a read: the `subresource` ("scale"), additional `query` parameters, the `accept` header (`TABLE`)."""

    subresource: str | None
    query: Mapping[str, str]
    accept: str


class ListReadOptions(TypedDict, total=False):
    """Options of a list.

    `gzip`, meant for slow networks, compresses lists over 128 KB: 50 MB shrink to a few MB in 1 s of CPU time.
    """

    accept: str
    gzip: bool


class WriteOptions(TypedDict, total=False):
    """Options of a write: `dry_run` only validates; `query` has additional parameters (`fieldValidation`)."""

    subresource: str | None
    query: Mapping[str, str]
    dry_run: bool


class CreateOptions(WriteOptions, total=False):
    """Options as in `WriteOptions`; `name` is the object whose `subresource` is created (`binding`, `eviction`, `token`)."""

    name: str | None


class PatchOptions(WriteOptions, total=False):
    """Options as in `WriteOptions`; `content_type` is the patch type, by default `MERGE_PATCH`."""

    content_type: str


class ApplyOptions(WriteOptions, total=False):
    """Options as in `WriteOptions`; `force` takes over fields that another manager owns."""

    force: bool


class DeleteOptions(TypedDict, total=False):
    """Options of a delete: `propagation` is Background, Foreground or Orphan. A grace period of 0 s is sent as such."""

    propagation: str | None
    grace_s: int | None
    dry_run: bool


def delete_body(
    uid: str | None = None,
    resource_version: str | None = None,
    *,
    propagation: str | None = None,
    grace_s: int | None = None,
    dry_run: bool = False,
) -> dict[str, object]:
    """Return the body of a delete. Even an empty `uid` or version is sent as a precondition; no object meets it.

    Raises ValueError for a negative grace period.
    """
    if grace_s is not None and grace_s < 0:
        raise ValueError(f"a grace period of {grace_s} s is negative: pass None for that of the object")
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    options: dict[str, object] = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {name: value for name, value in preconditions.items() if value is not None} or None,
        "propagationPolicy": propagation,
        "gracePeriodSeconds": grace_s,
        "dryRun": ["All"] if dry_run else None,
    }
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query of a list or watch. Empty values are omitted; `limit` 0 requests everything in one response."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_s: int = 0
    allow_bookmarks: bool = False
    send_initial_events: bool = False
    """The watch starts with the whole collection: see `informers.intake`."""

    def query(self) -> dict[str, str]:
        """Return the query parameters."""
        named = {
            "labelSelector": self.label_selector,
            "fieldSelector": self.field_selector,
            "resourceVersion": self.resource_version,
            "resourceVersionMatch": self.resource_version_match,
            "limit": str(self.limit) if self.limit else "",
            "continue": self.continue_token,
            "timeoutSeconds": str(self.timeout_s) if self.timeout_s else "",
            "allowWatchBookmarks": "true" if self.allow_bookmarks else "",
            "sendInitialEvents": "true" if self.send_initial_events else "",
        }
        return {name: value for name, value in named.items() if value}


def with_page(options: ListOptions, *, continue_token: str) -> ListOptions:
    """Return the options for the next page.

    The continue token includes the resourceVersion, so resourceVersion and resourceVersionMatch are cleared.
    """
    return replace(options, continue_token=continue_token, resource_version="", resource_version_match="")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The query of a pod's log.

    If `container` is empty, the pod must have exactly one container. `follow` streams the log until the container terminates.
    `previous` requests the log from before the last restart. `since` is an RFC 3339 time, and overrides `since_s`.
    """

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_s: int | None = None
    since: str = ""

    def query(self) -> dict[str, str]:
        """Return the query parameters. The API server accepts only one of `since` and `since_s`."""
        since_s = None if self.since else self.since_s
        named = {
            "container": self.container,
            "follow": "true" if self.follow else "",
            "previous": "true" if self.previous else "",
            "timestamps": "true" if self.timestamps else "",
            "tailLines": "" if self.tail_lines is None else str(self.tail_lines),
            "limitBytes": "" if self.limit_bytes is None else str(self.limit_bytes),
            "sinceSeconds": "" if since_s is None else str(since_s),
            "sinceTime": self.since,
        }
        return {name: value for name, value in named.items() if value}
