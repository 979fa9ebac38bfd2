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


def answered(raw: bytes, into: Any) -> Any:
    """Return the result of a verb of `RestClient`: the bytes of the response, or decoded as `into`."""
    return raw if into is None else decode_response(raw, into, request="a fake's answer")


class _NoTransport:
    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        raise AssertionError(f"the fake client must not reach the wire: {request}")


class FakeClient(RestClient):
    """Records actions as ("create", "pods", "name"). `fail` maps an action to the error it raises.

    `bodies` has the request bodies by action. `get` returns from `objects`, a list from `listed` by its resource, with the
    version `list_version`. A patch of a status prunes the fields in `drops` and responds with the version `given_version`, a
    create with `created_version`.
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

    def _act(self, verb: str, resource: Resource, name: str, body: object = None) -> None:
        action = (verb, resource.plural, name)
        self.before(action)
        self.actions.append(action)
        self.bodies[action] = msgspec.json.decode(encode_change(body) if verb.startswith("patch") else encode(body))
        if action in self.fail:
            raise self.fail[action]

    async def get(self, resource: Resource, namespace: str, name: str, into: Any = None, **options: Any) -> Any:
        self._act("get", resource, name)
        return answered(msgspec.json.encode(self.objects[resource.plural, name]), into)

    async def list_page(self, resource: Resource, options: ListOptions, into: Any = None, **how: Any) -> Any:
        self._act("list", resource, "", options.query() | {"namespace": options.namespace})
        page = {"metadata": {"resourceVersion": self.list_version}, "items": self.listed.get(resource.plural, [])}
        return answered(msgspec.json.encode(page), into)

    async def create(self, resource: Resource, namespace: str, body: object, into: Any = None, **options: Any) -> Any:
        built: Any = msgspec.json.decode(encode(body))
        self._act("create", resource, built["metadata"]["name"], body)
        made = built | {"metadata": built["metadata"] | {"resourceVersion": self.created_version}}
        return answered(msgspec.json.encode(made), into)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: object, into: Any = None, **options: Any
    ) -> Any:
        verb = f"patch {options['subresource']}" if options.get("subresource") else "patch"
        self._act(verb, resource, name, body)
        metadata = {"name": name, "namespace": namespace, "resourceVersion": self.given_version}
        operations = self.bodies[verb, resource.plural, name]
        changed = operations if isinstance(operations, list) else []
        statuses = [each["value"] for each in changed if each["path"] == "/status"]
        kept = [{key: value for key, value in each.items() if key not in self.drops} for each in statuses]
        answer = {"metadata": metadata} | ({"status": kept[0]} if kept else {})
        return answered(msgspec.json.encode(answer), into)

    async def delete(self, resource: Resource, namespace: str, name: str, **options: Any) -> bytes:
        self._act("delete", resource, name, options)
        return b"{}"


def status_error(kind: type[StatusError], code: int, message: str = "no") -> StatusError:
    return kind(Status(kind="Status", code=code, message=message))
