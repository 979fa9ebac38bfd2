"""A client that records writes, and fails as requested."""

from collections.abc import Callable
from typing import Any

import msgspec

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.decoding import decode_response
from tfjob_operator.api.client.encoding import encode, encode_change
from tfjob_operator.api.client.errors import AlreadyExistsError, Status, StatusError
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.meta import Resource

Failure = Callable[[], Exception | None]


class _NoTransport:
    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        raise AssertionError(f"the fake client must not reach the wire: {request}")


class FakeClient(RestClient):
    """Records actions as ("create", "pods", "name"). `fail` maps an action to the error it raises.

    `bodies` has the request bodies by action. `get` returns from `objects`, a list from `listed` by its resource, with the
    version `list_version`. A patch of a status prunes the fields in `drops` and responds with the version `given_version`, a
    create with `created_version`. Subclasses that respond differently override `answer`.
    """

    def __init__(self) -> None:
        super().__init__(_NoTransport())
        self.actions: list[tuple[str, str, str]] = []
        self.bodies: dict[tuple[str, str, str], Any] = {}
        self.fail: dict[tuple[str, str, str], Exception] = {}
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.list_version = "1"
        self.listed: dict[str, list[dict[str, Any]]] = {}
        self.drops: frozenset[str] = frozenset()
        self.given_version = "2"
        self.created_version = ""
        self.before: Callable[[tuple[str, str, str]], None] = lambda _action: None

    def has(self, resource: str, name: str, /, **metadata: Any) -> None:
        """Add an object with this name, so that a create fails."""
        self.fail["create", resource, name] = status_error(AlreadyExistsError, 409)
        self.objects[resource, name] = {"metadata": {"name": name, "namespace": "ns", "uid": "x"} | metadata}

    async def answer(self, verb: str, resource: Resource, namespace: str, name: str, body: Any, **options: Any) -> Any:
        """Return the object or list with which the API server responds. `verb` is `patch status` for a status."""
        sent: Any = msgspec.json.decode(encode_change(body) if verb.startswith("patch") else encode(body))
        action = (verb, resource.plural, sent["metadata"]["name"] if verb == "create" else name)
        self.before(action)
        self.actions.append(action)
        self.bodies[action] = sent
        if action in self.fail:
            raise self.fail[action]
        match verb:
            case "get":
                return self.objects[resource.plural, name]
            case "list":
                return {
                    "metadata": {"resourceVersion": self.list_version},
                    "items": self.listed.get(resource.plural, []),
                }
            case "create":
                return sent | {"metadata": sent["metadata"] | {"resourceVersion": self.created_version}}
            case "delete":
                return {}
        metadata = {"name": name, "namespace": namespace, "resourceVersion": self.given_version}
        statuses = [each["value"] for each in (sent if isinstance(sent, list) else ()) if each["path"] == "/status"]
        kept = [{key: value for key, value in each.items() if key not in self.drops} for each in statuses]
        return {"metadata": metadata} | ({"status": kept[0]} if kept else {})

    async def get(self, resource: Resource, namespace: str, name: str, into: Any = None, **options: Any) -> Any:
        return _decoded(await self.answer("get", resource, namespace, name, None), into)

    async def list_page(self, resource: Resource, options: ListOptions, into: Any = None, **how: Any) -> Any:
        query = options.query() | {"namespace": options.namespace}
        return _decoded(await self.answer("list", resource, options.namespace, "", query), into)

    async def create(self, resource: Resource, namespace: str, body: object, into: Any = None, **options: Any) -> Any:
        return _decoded(await self.answer("create", resource, namespace, "", body), into)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: object, into: Any = None, **options: Any
    ) -> Any:
        verb = f"patch {options['subresource']}" if options.get("subresource") else "patch"
        return _decoded(await self.answer(verb, resource, namespace, name, body, **options), into)

    async def delete(self, resource: Resource, namespace: str, name: str, **options: Any) -> bytes:
        return msgspec.json.encode(await self.answer("delete", resource, namespace, name, options))


def _decoded(answer: Any, into: Any) -> Any:
    raw = msgspec.json.encode(answer)
    return raw if into is None else decode_response(raw, into, request="a fake's answer")


def status_error(kind: type[StatusError], code: int, message: str = "no") -> StatusError:
    return kind(Status(kind="Status", code=code, message=message))
