"""How the page names jobs: NAMESPACE/NAME, and NAMESPACE/tfjob.tensorflow.org/NAME for those of the first API. Pure.

Addresses of the page have the same form. What stands before the last "/" is a *place*, an API and a namespace: what rights to
jobs are about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW

FIRST: Final = TENSORFLOW.resource
"""The resource of the first version, v1alpha1."""
FIRST_NAME: Final = f"tfjob.{FIRST.group}"
"""Before the name of such a job, as kubectl prints it."""


class JobKey(NamedTuple):
    """What the key of a job says."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        middle = f"{FIRST_NAME}/" if self.resource == FIRST else ""
        return f"{self.namespace}/{middle}{self.name}"

    @property
    def full_name(self) -> str:
        """The name by which the verbs of the plugin find this job and no other."""
        return f"tfjob.{self.resource.group}/{self.name}"


def job_key(resource: Resource, namespace: str, name: str) -> str:
    """Return the key of a job."""
    return str(JobKey(resource, namespace, name))


def read_key(key: str) -> JobKey:
    """Return what a key says. Whatever is sent as one: for what is none there is no job."""
    place, _, name = key.rpartition("/")
    namespace, _, kind = place.partition("/")
    return JobKey(FIRST if kind == FIRST_NAME else TFJOBS, namespace, name)


def place_of(key: str) -> str:
    """Return the place of a job."""
    return key.rpartition("/")[0]


def places_of(resource: Resource, namespaces: Iterable[str]) -> frozenset[str]:
    """Return the places of the jobs of one API in these namespaces."""
    return frozenset(place_of(job_key(resource, each, "")) for each in namespaces)


def namespaces_in(places: Iterable[str], resource: Resource) -> frozenset[str]:
    """Return the namespaces of those places that are of one API."""
    found = (read_key(f"{each}/") for each in places)
    return frozenset(each.namespace for each in found if each.resource == resource)
