"""What is to be done about the TensorBoard of one job. Pure: a function of what the job asks for and of what there is.

Invariants:

- Nothing is changed or deleted that the job does not control, nor while the job itself is being deleted.
- A mistake in the field takes nothing down: what ran before runs on.
- From whatever there is, carrying out plan after plan ends with one Deployment and one Service as the job asks for them, or
  with none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.core import DEPLOYMENTS, SERVICES
from tfjob_operator.api.owners import controller_reference
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.tensorboard.build import build_deployment, build_service, must_be_anew, patch_of
from tfjob_operator.controller.tensorboard.wish import LeftAlone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfjob_operator.api.meta import Meta, Resource
    from tfjob_operator.controller.tensorboard.children import Deployment, Found, Service
    from tfjob_operator.controller.tensorboard.wish import Wish


@dataclass(frozen=True, slots=True)
class Warned:
    """A Warning for the job: it is recorded once, for as long as it is the same."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Creation:
    """A child that is missing."""

    resource: Resource
    name: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A child that is not what it should be, and the merge patch that makes it so."""

    resource: Resource
    meta: Meta
    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A child that nobody asks for any more."""

    resource: Resource
    meta: Meta


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order, and what to warn of."""

    steps: tuple[Creation | Change | Deletion, ...] = ()
    warnings: tuple[Warned, ...] = ()


NOTHING: Final = Plan()


def plan(owner: Resource, job: Meta, wish: Wish | LeftAlone | None, found: Found, default_image: str) -> Plan:
    """Return what to do for a job of the kind `owner` that asks for `wish` and controls what was `found`."""
    if job.deletion_timestamp is not None:
        return NOTHING  # the garbage collector takes what there is
    if isinstance(wish, LeftAlone):
        return Plan(warnings=_mistakes(wish))
    if wish is None:
        # The Service first, then the Deployment that it leads to.
        return Plan((*_steps(SERVICES, found.services, None), *_steps(DEPLOYMENTS, found.deployments, None)))
    reference = controller_reference(owner, job)
    deployment, service = build_deployment(reference, wish, default_image), build_service(reference, wish)
    steps = (*_steps(DEPLOYMENTS, found.deployments, deployment), *_steps(SERVICES, found.services, service))
    return Plan(steps, (*_unknown_fields(wish), *_troubles(wish, found.deployments)))


def _steps(
    resource: Resource, children: Sequence[Deployment | Service], body: dict[str, Any] | None
) -> Iterator[Creation | Change | Deletion]:
    """Yield the steps that turn these children into the one of `body`, or into none."""
    name = None if body is None else body["metadata"]["name"]
    for child in children:
        if child.metadata.deletion_timestamp is not None:
            continue  # its end brings the next sync
        if body is None or child.metadata.name != name or must_be_anew(child, body):
            yield Deletion(resource, child.metadata)
        elif (patch := patch_of(child, body)) is not None:
            yield Change(resource, child.metadata, patch)
    if body is not None and all(child.metadata.name != name for child in children):
        yield Creation(resource, body["metadata"]["name"], body)


def _mistakes(wish: LeftAlone) -> tuple[Warned, ...]:
    return (Warned(EventReason.INVALID_TENSOR_BOARD, wish.mistakes),) if wish.mistakes else ()


def _unknown_fields(wish: Wish) -> Iterator[Warned]:
    for sentence in wish.board.unknown_fields:
        yield Warned(EventReason.UNKNOWN_FIELD, sentence)


def _troubles(wish: Wish, deployments: Sequence[Deployment]) -> Iterator[Warned]:
    """Yield why the pod of a TensorBoard is not made, or does not become ready, by the conditions of its Deployment."""
    for deployment in deployments:
        if deployment.metadata.name != wish.name:
            continue
        for condition in deployment.status.conditions or ():
            fails = condition.type == "ReplicaFailure" and condition.status == "True"
            if fails or (condition.type == "Progressing" and condition.status == "False"):
                text = f"deployment {wish.name} does not get on: {condition.message or condition.reason}"
                yield Warned(EventReason.FAILED_TENSOR_BOARD, text)
