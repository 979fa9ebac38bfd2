"""Tells people of a wrong configuration file, by an event on the operator's own Deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client.errors import ApiError, ServerError, TooManyRequestsError, TransportError
from tfjob_operator.api.core import DEPLOYMENTS, EventType, object_reference
from tfjob_operator.api.meta import PartialObjectMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.controller.events import EventRecorder

REASON: Final = "ConfigFileWrong"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OwnDeployment:
    """The Deployment `name` in `namespace`, of which this process is a replica; only the leader reports."""

    client: RestClient
    recorder: EventRecorder
    namespace: str
    name: str
    is_leading: Callable[[], bool]

    async def tell(self, wrong: str) -> bool:
        """Record a Warning with what is wrong. Return False when it is to be tried again later."""
        if not self.is_leading():
            return False
        if not self.name or not self.namespace:
            return True  # only the log and the metric tell
        try:
            # `kubectl describe` finds events by the UID of what they are about.
            found = await self.client.get(DEPLOYMENTS, self.namespace, self.name, PartialObjectMetadata)
        except (TransportError, ServerError, TooManyRequestsError):
            return False
        except ApiError as error:
            log.warning("config_file_event_not_written", error=str(error))
            return True
        regarding = object_reference(DEPLOYMENTS, found.metadata)
        message = f"The configuration file is wrong, and what it said before is in force: {wrong}"
        self.recorder.event(regarding, EventType.WARNING, REASON, message)
        return True
