"""The model's error responses: the Status objects of kube-apiserver, verbatim where a client may parse them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kit.model.kinds import Kind

FRESH_S: Final = 3.0
"""How long a read waits for the watch cache to reach a version."""
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class Refusal(Exception):  # noqa: N818 - a response, not an error of ours
    """The server rejects a request."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        delay_s: float = 0.0,
        plain: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.delay_s = delay_s
        self.plain = plain
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.status["reason"] = reason
        if details is not None:
            self.status["details"] = details
        self.status["code"] = code

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        headers = {"Content-Type": "text/plain; charset=utf-8" if self.plain else "application/json"}
        retry_after = self.status.get("details", {}).get("retryAfterSeconds")
        return headers if retry_after is None else headers | {"Retry-After": str(retry_after)}

    def body(self) -> bytes:
        """The Status on the wire, or plain text."""
        return f"{self}\n".encode() if self.plain else msgspec.json.encode(self.status)


def details_of(kind: Kind, name: str) -> dict[str, Any]:
    """Return the details: `kind` holds the resource."""
    group = {"group": kind.resource.group} if kind.resource.group else {}
    return {"name": name, **group, "kind": kind.resource.plural}


def not_found(kind: Kind, name: str) -> Refusal:
    """404: no such object."""
    return Refusal(404, "NotFound", f'{kind.resource} "{name}" not found', details_of(kind, name))


def no_such_path() -> Refusal:
    """404: no such resource."""
    return Refusal(404, "NotFound", "the server could not find the requested resource", {})


def no_such_group() -> Refusal:
    """404: unknown group or version; plain text, from a lower layer of the server."""
    return Refusal(404, "", "404 page not found", plain=True)


def already_exists(kind: Kind, name: str, *, going: bool) -> Refusal:
    """409: the name is taken, possibly by an object that is being deleted."""
    message = f'{kind.resource} "{name}" already exists'
    if going:
        message = f"object is being deleted: {message}"
    return Refusal(409, "AlreadyExists", message, details_of(kind, name))


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> Refusal:
    """409: the object has changed since the client's version."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Refusal(409, "Conflict", message, details_of(kind, name))


def other_uid(kind: Kind, namespace: str, name: str, asked: str, found: str) -> Refusal:
    """409 to a PUT with another UID, such as that of a deleted object of the same name."""
    key = f"/registry/{kind.prefix}/{namespace}/{name}"
    why = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
    return conflict(
        kind, name, f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    )


def failed_precondition(kind: Kind, name: str, field: str, asked: str, found: str, *, consequence: str) -> Refusal:
    """409 to a DELETE."""
    resource = kind.resource
    why = f"the {field} in the precondition ({asked}) does not match the {field} in record ({found}). {consequence}"
    message = f'Operation cannot be fulfilled on {_kind_name(resource.kind, resource.group)} "{name}": {why}'
    return Refusal(409, "Conflict", message, _details_by_kind(resource.kind, resource.group, name))


def must_say_version(kind: Kind, name: str, none: str) -> Refusal:
    """422 to a PUT without a version, if the kind requires one (SV-11). `none`: how the message shows the missing value."""
    message = f"Invalid value: {none}: must be specified for an update"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "metadata.resourceVersion"}
    text = f'{kind.resource} "{name}" is invalid: metadata.resourceVersion: {message}'
    return Refusal(422, "Invalid", text, details_of(kind, name) | {"causes": [cause]})


@dataclass(frozen=True, slots=True)
class Mistake:
    """An error in one field."""

    field: str
    reason: str
    message: str


def forbidden(field: str, message: str) -> Mistake:
    """A field that must not be set."""
    return Mistake(field, "FieldValueForbidden", f"Forbidden: {message}")


def wrong(field: str, value: str, message: str) -> Mistake:
    """A field with an invalid value."""
    return Mistake(field, "FieldValueInvalid", f"Invalid value: {msgspec.json.encode(value).decode()}: {message}")


def invalid(kind: Kind, name: str, *mistakes: Mistake, told: int = 1) -> Refusal:
    """422: invalid fields. The causes repeat some of them, the message does not."""
    return _invalid(kind.resource.kind, kind.resource.group, name, mistakes, told)


def invalid_options(*mistakes: Mistake) -> Refusal:
    """422: contradictory parameters of a list or watch."""
    return _invalid("ListOptions", "meta.k8s.io", "", mistakes, 1)


def no_field_manager() -> Refusal:
    """422: an apply without the name of its manager."""
    mistake = Mistake("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
    return _invalid("PatchOptions", "meta.k8s.io", "", [mistake], 1)


def _invalid(kind: str, group: str, name: str, mistakes: Sequence[Mistake], told: int) -> Refusal:
    causes = [{"reason": each.reason, "message": each.message, "field": each.field} for each in mistakes] * told
    texts = ", ".join(f"{each.field}: {each.message}" for each in mistakes)
    message = f'{_kind_name(kind, group)} "{name}" is invalid: {f"[{texts}]" if len(mistakes) > 1 else texts}'
    return Refusal(422, "Invalid", message, _details_by_kind(kind, group, name) | {"causes": causes})


def _kind_name(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind


def _details_by_kind(kind: str, group: str, name: str) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return named | ({"group": group} if group else {}) | {"kind": kind}


def bad_request(message: str) -> Refusal:
    """400: the server cannot parse the request."""
    return Refusal(400, "BadRequest", message)


def expired(message: str, *, token: str = "") -> Refusal:
    """410: the version or continue token is too old. With `token` the client can continue in the latest state."""
    refusal = Refusal(410, "Expired", message)
    if token:
        refusal.status["metadata"] = {"continue": token}
    return refusal


def too_large(asked: int, current: int) -> Refusal:
    """504 after three seconds: the watch cache has not reached that version (SV-02)."""
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    details = {"causes": causes, "retryAfterSeconds": 1}
    return Refusal(504, "Timeout", f"Timeout: {message}", details, delay_s=FRESH_S)


def future_version() -> Refusal:
    """500: etcd's error for a future version."""
    return Refusal(500, "", "etcdserver: mvcc: required revision is a future revision")


def no_number(text: str) -> str:
    """Return the server's message about a resourceVersion that is not a number."""
    shown = msgspec.json.encode(text).decode()
    return f"resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}: invalid syntax"


def initializing() -> Refusal:
    """429: the watch cache is being filled."""
    return Refusal(429, "TooManyRequests", "storage is (re)initializing", {"retryAfterSeconds": 1})
