"""Status fields that an API server drops, because its CRD does not have them (D3).

The CRD of another operator, or an older one of ours, makes the API server drop unknown fields without a word. Then the
fields as they were sent replace what the server shows; otherwise each sync would find the status incomplete and write it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.types import JobStatus
from tfjob_operator.controller.tfjob.build.references import reference_to
from tfjob_operator.controller.tfjob.crd_check import TO_DO

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.events.recorder import EventRecorder

log = structlog.get_logger(__name__)


class UnkeptStatus:
    """Remembers, by the UID of a job, the fields that the server dropped, as they were last sent.

    If that is lost, each job's status is written once more.
    """

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._sent: dict[str, dict[str, Any]] = {}
        self._logged = False

    def compare(self, job: TFJob, sent: JobStatus, kept: JobStatus) -> None:
        """Remember what the server dropped; log it once, and record an event once for each job."""
        uid = job.metadata.uid
        lost = {
            name: getattr(sent, name) for name in sent.__struct_fields__ if getattr(sent, name) != getattr(kept, name)
        }
        if not lost:
            self._sent.pop(uid, None)
            return
        fields = _json_names(lost)
        if not self._logged:
            self._logged = True
            log.error("status_not_kept", fields=fields, to_do=TO_DO)
        if uid not in self._sent:
            message = (
                f"The API server drops {', '.join(fields)} of the status: its CRD is another operator's, or an old one"
            )
            self._recorder.event(reference_to(job), EventType.WARNING, EventReason.STATUS_NOT_KEPT, message)
        self._sent[uid] = lost

    def as_sent(self, job: TFJob) -> TFJob:
        """Return the job with the fields that the server dropped, as they were sent."""
        lost = self._sent.get(job.metadata.uid)
        if lost is None:
            return job
        return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, **lost))

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job that is gone."""
        self._sent.pop(uid, None)


def _json_names(names: Iterable[str]) -> list[str]:
    by_name = {field.name: field.encode_name for field in msgspec.structs.fields(JobStatus)}
    return [by_name[name] for name in names]
