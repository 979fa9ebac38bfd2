"""The network of a job: a service for each replica, or one for all. It stays as it was when the job began. Pure.

Pods are told each other's names when they start, and a name is that of a service. So with another network the pods that run
and those that are made later could not find each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfjob_operator.api.v1.constants import EventReason, Network
from tfjob_operator.api.v1.types import SpecWarning
from tfjob_operator.controller.tfjob.decide.facts import has_begun

if TYPE_CHECKING:
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec


def with_network_of(job: TFJob, spec: TFJobSpec) -> TFJobSpec:
    """Return the specification with the network with which the job began, and a warning if it asks for another.

    Operators that did not record it knew only one.
    """
    if not has_begun(job.status, has_pods=False):
        return spec
    begun = job.status.begun
    is_shared = begun is not None and begun.network == Network.SHARED
    network = Network.SHARED if is_shared else Network.PER_REPLICA
    if spec.network is network:
        return spec
    text = f"spec.runPolicy.network stays {network}, with which the job began; another network takes a new job"
    return replace(spec, network=network, warnings=(*spec.warnings, SpecWarning(EventReason.NETWORK_STAYS, text)))
