"""What kept replicas from running when a job reached its active deadline or its start deadline. Pure.

The operator records one of them. An older one does not, and none is recorded if a replica that crashes ran just then: events
tell, if they still exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from tfjob_operator.api.v1.constants import EventReason, PodExit, exit_of
from tfjob_operator.api.v1.types import JobAttempt
from tfjob_operator.cli.diagnosis import admission, exits, images, starting
from tfjob_operator.cli.diagnosis.causes import Finding
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rules import first_match, shorten, value
from tfjob_operator.cli.model.objects import EventDetails
from tfjob_operator.cli.model.words import safe_name, seconds_between

_RECENT_S: Final = 300.0
"""The kubelet and the operator delay a restart by up to this long."""
_AGAIN: Final = 2
"""A replica that was restarted only once may have run well from then on."""
_WAITS: Final = re.compile(
    r"Error pod (?P<pod>\S{1,253}) container (?P<container>\S{1,63}) waiting message: (?P<words>.*)", re.DOTALL
)
"""The operator's Warning about a container that does not start: controller/jobs/pods.py."""
_IMAGE: Final = re.compile(r'image "(?P<image>[^"]{1,500})"')


def trouble(facts: Facts, failure: JobAttempt | None, proof: str) -> Iterator[tuple[Finding | None, str]]:
    """Yield each cause that is known, and the words about it for the title; no cause if only the words are known.

    `failure` is the recorded one; with an exit code, it is reported by `crashing`. `proof` is the line about the condition.
    """
    if failure is None:
        yield from _by_events(facts)
    elif failure.exit_code is None:
        pod = failure.pod_name or facts.shape.child(facts.name, failure.replica_type, failure.replica_index or 0)
        for event, pod_exit in _exits(facts, pod) if not failure.pod_name else ():
            yield exits.of_exit_event(facts, event, pod_exit, loops=0), ""
        if not failure.pod_name:
            yield from ((refused, "") for refused in admission.why_not_created(facts, pod))
        yield _start(pod, failure.message, proof), ""


def _by_events(facts: Facts) -> Iterator[tuple[Finding | None, str]]:
    times = {
        facts.shape.child(facts.name, restart.type, restart.index): restart.total
        for restart in facts.job.status.restarts
    }
    for pod in (pod for pod, total in times.items() if total >= _AGAIN):
        for event, pod_exit in _exits(facts, pod):
            finding = exits.of_exit_event(facts, event, pod_exit, loops=times[pod])
            yield finding, f"({safe_name(pod)}, exit code {pod_exit.code})"
    for kind, size in facts.sizes.items():
        for index in range(size):
            pod = facts.shape.child(facts.name, kind, index)
            for event in facts.events_of("Pod", pod)[-1:] if not times.get(pod) else ():
                if event.reason == "BackOff" and "restarting" in event.message and _is_recent(facts, event.at):
                    yield None, f"({safe_name(pod)}: {shorten(value(event.message))}, {max(event.count, 1)} times)"
    for event in facts.job_events(*_REASONS):
        waits = _WAITS.match(event.message)
        if waits is not None and not _started_since(facts, waits["pod"], event.at):
            words = f"container {waits['container']}: {waits['words']}"
            yield (
                _start(waits["pod"], words, facts.line(event)),
                f"({safe_name(waits['pod'])}, {shorten(value(words))})",
            )


_REASONS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


def _exits(facts: Facts, pod: str) -> Iterator[tuple[EventDetails, PodExit]]:
    """Yield the last failure of a deleted pod, if that was shortly before the end."""
    found = [
        (event, end) for event in facts.job_events(EventReason.EXITED_WITH_CODE) if (end := exit_of(event.message))
    ]
    last = [(event, end) for event, end in found if end.pod == pod and end.code][-1:]
    yield from ((event, end) for event, end in last if _is_recent(facts, event.at))


def _start(pod: str, words: str, proof: str) -> Finding | None:
    """Return what keeps a container from starting, by its message; None if that is unknown."""
    found, image = first_match(starting.REASONS_OF_START, words), _IMAGE.search(words)
    values = {"pod": pod}
    if found is None and image is not None:
        found, values["image"] = first_match(images.RULES, words.replace(image[0], "image")), image["image"]
    return None if found is None else Finding(found[0], pod, (proof,), values | found[1])


def _is_recent(facts: Facts, at: datetime | None) -> bool:
    end = facts.job.status.completion_time
    return at is not None and end is not None and seconds_between(at, end) <= _RECENT_S


def _started_since(facts: Facts, pod: str, at: datetime | None) -> bool:
    """Return True if a container of a pod of this name started after that."""
    started = [event.at for event in facts.events_of("Pod", pod) if event.reason == "Started"]
    return at is None or any(moment is not None and seconds_between(at, moment) > 0 for moment in started)
