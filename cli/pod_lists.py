"""The pods of one job from now on: all that are chosen, and all of them again whenever one changes."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from tfjob_operator.cli.replicas import chosen, find, pods_path, selector_of
from tfjob_operator.cli.session import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from tfjob_operator.cli.replicas import Choice, Found, Replica
    from tfjob_operator.cli.session import Session

RETRY_S: Final = 1.0


def pod_lists(
    session: Session, job: Mapping[str, Any], choice: Choice, *, pause: Callable[[float], None]
) -> Iterator[Sequence[Replica]]:
    """Yield the chosen pods of a job, sorted, as they are and whenever one changes; without end. `pause` sleeps.

    A watch that has ended is begun again with a list, so nothing is missed. Raises CliError when the pods cannot be listed, or
    their watch is refused.
    """
    while True:
        found = find(session, job, choice)
        yield found.replicas
        yield from _watched(session, job, choice, found)
        pause(RETRY_S)


def _watched(session: Session, job: Mapping[str, Any], choice: Choice, found: Found) -> Iterator[Sequence[Replica]]:
    pods = {each.uid: each.pod for each in found.replicas}
    events = session.watch(pods_path(session.namespace), labelSelector=selector_of(job), resourceVersion=found.version)
    with suppress(ConnectionLostError), closing(events):  # then they are listed again
        for event in events:
            if event["type"] == "ERROR":
                return  # too old a version: likewise
            if event["type"] == "BOOKMARK":
                continue
            pod = event["object"]
            if event["type"] == "DELETED":
                pods.pop(pod["metadata"]["uid"], None)
            else:
                pods[pod["metadata"]["uid"]] = pod
            yield chosen(pods.values(), job, choice)
