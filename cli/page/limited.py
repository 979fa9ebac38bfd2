"""Requests for somebody else: only of resources that they may read themselves, and in one namespace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from tfjob_operator.cli.errors import ApiError
from tfjob_operator.cli.session import Session

if TYPE_CHECKING:
    import http.client
    from collections.abc import Mapping
    from typing import Any

    from tfjob_operator.cli.kubeconfig import Access

_FORBIDDEN: Final = 403
_PATH: Final = re.compile(
    r"/(?:api/[^/]+|apis/(?P<group>[^/]+)/[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[a-z]+)(?:/[^/]+(?:/(?P<sub>[a-z]+))?)?"
)


class LimitedSession(Session):
    """A session that sends nothing about other resources than these, and refuses such requests as the API server would."""

    def __init__(self, access: Access, readable: frozenset[str]) -> None:
        """`readable` names resources in the namespace of `access`: `pods`, `pods/log`, `tfjobs.kubeflow.org`."""
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
        if method != "GET" or resource_of(path, self.namespace) not in self._readable:
            raise ApiError("the page does not read this for its viewer", code=_FORBIDDEN, reason="Forbidden")
        return super()._send(method, path, query, headers, body, **how)


def resource_of(path: str, namespace: str) -> str:
    """Return the resource that a path in a namespace is about, such as `pods/log`, and "" for a path elsewhere."""
    found = _PATH.fullmatch(path)
    if found is None or unquote(found["namespace"]) != namespace:
        return ""
    resource = f"{found['plural']}.{found['group']}" if found["group"] else found["plural"]
    return f"{resource}/{found['sub']}" if found["sub"] else resource
