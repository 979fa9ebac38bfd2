"""What the status of a pod says of one of its containers, as far as its log is concerned. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_STARTED: Final = -1


class Standing(NamedTuple):
    """`run` counts starts of the container from 0, and is `NOT_STARTED` before the first.

    `over` says that this run has ended, `pod_over` that there will be no other, `gone` that the pod is not there any more.
    `why` is what it waits for, or how its last run ended.
    """

    run: int
    over: bool = False
    pod_over: bool = False
    gone: bool = False
    why: str = ""


def standing_of(pod: Mapping[str, Any], container: str) -> Standing:
    """Return how a container stands."""
    status = pod.get("status") or {}
    pod_over = status.get("phase") in {"Succeeded", "Failed"}
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    told: Mapping[str, Any] = next((each for each in every if each.get("name") == container), {})
    state, last = told.get("state") or {}, told.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated")
    waiting = (state.get("waiting") or {}).get("reason")
    if "running" not in state and not ended:
        why = waiting or status.get("reason") or _unscheduled(status) or status.get("phase") or "Pending"
        return Standing(NOT_STARTED, pod_over=pod_over, why=str(why))
    why = _exit(ended) if ended else ""
    return Standing(int(told.get("restartCount") or 0), "running" not in state, pod_over, why=why)


def _unscheduled(status: Mapping[str, Any]) -> str:
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("reason", ""))
    return ""


def _exit(ended: Mapping[str, Any]) -> str:
    reason = ended.get("reason")
    return f"exit code {ended.get('exitCode', '?')}{f', {reason}' if reason else ''}"
