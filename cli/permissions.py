"""Permissions to read objects, as the API server's authorizer names them."""

from __future__ import annotations

from typing import NamedTuple

from tfjob_operator.api.meta import Resource


class ResourceAttributes(NamedTuple):
    """An action that requires permission. Without a namespace: in all namespaces; without a name: on all objects."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """Return the path of a read."""
        name = None if self.verb == "list" else self.name
        return self.resource.path(self.namespace, name, self.subresource or None)

    def is_granted(self, granted: frozenset[ResourceAttributes] | None) -> bool:
        """Return True if these permissions, None for all, contain this one or the same one on all objects."""
        return granted is None or not granted.isdisjoint({self, self._replace(name="")})

    def refusal(self, user: str) -> str:
        """Return the message for a denial, which is the API server's."""
        plural = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        named = f' "{self.name}"' if self.name else ""
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return (
            f'{self.resource}{named} is forbidden: User "{user}" cannot {self.verb} resource "{plural}" '
            f'in API group "{self.resource.group}" {where}'
        )
