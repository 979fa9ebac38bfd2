"""Requests for somebody else: only those that they may send themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from tfjob_operator.cli.errors import ApiError
from tfjob_operator.cli.session import Session

if TYPE_CHECKING:
    import http.client
    from collections.abc import Mapping
    from typing import Any

    from tfjob_operator.cli.kubeconfig import Access
    from tfjob_operator.cli.page.reviews import Question

_FORBIDDEN: Final = 403
_BY_NAME: Final = "metadata.name="


class LimitedSession(Session):
    """A session that sends nothing but these reads, and refuses other requests as the API server would."""

    def __init__(self, access: Access, readable: frozenset[Question]) -> None:
        """`readable` is what its user may do: `get` and `list` of resources."""
        super().__init__(access)
        self._readable = readable

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: bytes | None = None,
        **how: Any,
    ) -> http.client.HTTPResponse:
        read = read_of(path, query) if method == "GET" else None
        if read is None or not any(read.is_allowed_by(each) for each in self._readable):
            raise ApiError("the page does not read this for its viewer", code=_FORBIDDEN, reason="Forbidden")
        return super()._send(method, path, query, headers, body, **how)


class Read(NamedTuple):
    """What a request reads, as the API server's authorizer sees it. `resource` is like `tfjobs.kubeflow.org`."""

    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str

    def is_allowed_by(self, question: Question) -> bool:
        """Whether a yes to this question allows the request."""
        asked = question.verb, str(question.resource), question.namespace, question.subresource
        return asked == (self.verb, self.resource, self.namespace, self.subresource) and question.name in {
            "",
            self.name,
        }


def read_of(path: str, query: Mapping[str, Any]) -> Read | None:
    """Return what a path with a query is about; None for a watch, and for a path of no resource."""
    kind, *parts = [unquote(each) for each in path.strip("/").split("/")]
    if kind not in {"api", "apis"} or "watch" in query or any("/" in part or part in {".", ".."} for part in parts):
        return None
    group = parts.pop(0) if kind == "apis" and parts else ""
    parts = parts[1:]  # the version
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    elif parts[:1] == ["namespaces"] and len(parts) == 2:
        namespace = parts[1]  # RBAC finds a namespace itself in that namespace
    if not 1 <= len(parts) <= 3 or not all(parts):
        return None
    plural, name, subresource = (*parts, "", "")[:3]
    selected = str(query.get("fieldSelector", ""))
    if not name and selected.startswith(_BY_NAME) and "," not in selected:
        return Read("list", _dotted(plural, group), namespace, selected.removeprefix(_BY_NAME), "")
    return Read("get" if name else "list", _dotted(plural, group), namespace, name, subresource)


def _dotted(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural
