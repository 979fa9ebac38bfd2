"""A large cluster, made quickly: jobs that really ran are cloned, and the clones are written into etcd.

To let the operator and a hollow node make a hundred thousand pods would take most of an hour. The clones are what these would
have made, but for names and UIDs, so an operator that starts on them finds nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from hack.bench_operator.field import Field
from tfjob_operator.api.v1 import constants as c

KINDS: Final = (("configmaps", "configmaps"), ("services", "services/specs"), ("pods", "pods"))
"""The resources of children, and where etcd has them."""
_UID: Final = "uid-of-this-object"


@dataclass(frozen=True, slots=True)
class Sample:
    """A job that came to rest, and its children, as the API server shows them: texts by their places in etcd."""

    namespace: str
    name: str
    uid: str
    objects: tuple[tuple[str, str, str], ...]
    """Place without namespace and name, name, and the text in which the object's own UID is `_UID`."""

    def clones(self, number: int, namespaces: list[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the objects of so many clones, in turns in these namespaces, whose names are as long as the sample's."""
        for job in range(1, number + 1):
            name, namespace = named(self.name, job), namespaces[job % len(namespaces)]
            uids = (str(uuid5(NAMESPACE_URL, f"{name}/{child}")) for child in count())
            uid = next(uids)  # the job is the first of the objects
            own = uid
            for place, own_name, text in self.objects:
                clone = text.replace(self.name, name).replace(self.namespace, namespace).replace(self.uid, uid)
                yield f"{place}/{namespace}/{own_name.replace(self.name, name)}", clone.replace(_UID, own).encode()
                own = next(uids)


def named(name: str, number: int) -> str:
    """Return the name of a clone: that of the sample ends in five digits."""
    return f"{name[:-5]}{number:05}"


def sample(field: Field, namespace: str, name: str) -> Sample:
    """Read a job and its children from the API server."""
    job = field.get(f"{c.TFJOBS.path(namespace)}/{name}")
    uid: str = job["metadata"]["uid"]
    objects = [_stored(f"{c.TFJOBS.group}/{c.TFJOBS.plural}", job)]
    for resource, place in KINDS:
        listed = field.get(f"/api/v1/namespaces/{namespace}/{resource}")
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        objects += [
            _stored(place, head | item)
            for item in listed["items"]
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ()))
        ]
    return Sample(namespace, name, uid, tuple(objects))


def _stored(place: str, item: dict[str, Any]) -> tuple[str, str, str]:
    """Return an object as it is stored, without the version, which is etcd's own."""
    name = item["metadata"]["name"]
    item["metadata"].pop("resourceVersion")
    item["metadata"].pop("selfLink", None)
    item["metadata"]["uid"] = _UID
    return place, name, json.dumps(item)
