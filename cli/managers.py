"""Refuses changes that would be undone, or ignored, because Kueue or another controller manages the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.model.queues import Wait, deactivated_by_kueue, waits_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.cli.session import Session
    from tfjob_operator.cli.target import Target

_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
_KUEUE: Final = "kueue.x-k8s.io"
_WORKLOADS: Final = f"workloads.{_KUEUE}"
_DEACTIVATED: Final = frozenset({Wait.DEACTIVATED, Wait.CHECK_REJECTED})
_UNREADABLE: Final[Mapping[str, Any]] = {"metadata": {"name": "WORKLOAD"}}


def check_managed_here(name: str, job: Mapping[str, Any], hint: str = "") -> None:
    """Raise CliError with a hint if another controller manages the job, so that the operator ignores it."""
    from tfjob_operator.api.v1.constants import MANAGED_BY_US

    manager = (facts.spec_of(job).get("runPolicy") or {}).get("managedBy") or ""
    if manager not in MANAGED_BY_US:
        raise CliError(f"{name} is managed by {manager}, and the operator ignores it{hint}")


def check_suspend(target: Target, session: Session, name: str, job: Mapping[str, Any]) -> None:
    """Raise CliError, with what to do instead, if Kueue would resume the suspended job."""
    _check_original(name, job, ". To suspend it all the same, use --force")
    workload = workload_of(session, job)
    if workload is None or (is_suspended(job) and waits_for(workload)[0] in _DEACTIVATED):
        return
    does, so, but = "would resume it at once", "delete its pods", " (Kueue gives its quota away before they end)"
    if is_suspended(job):
        does, so, but = "has suspended it, and resumes it when it is admitted", "keep it suspended", ""
    instead = f"To {so}, deactivate its Workload{but}: {_activate(target, job, workload, to='false')}"
    raise CliError(f"{name} not suspended: Kueue {does}. {instead}")


def check_resume(target: Target, session: Session, name: str, job: Mapping[str, Any]) -> None:
    """Raise CliError, with what to do instead, if Kueue would suspend the resumed job again."""
    _check_original(name, job, ". To resume it all the same, use --force")
    workload = workload_of(session, job) if is_suspended(job) else None
    if workload is None:
        return
    (wait, message), space = waits_for(workload), job["metadata"]["namespace"]
    if wait not in _DEACTIVATED:
        seen = f"it waits in its queue, and Kueue would suspend it again ({wait}{message and ': '}{message})"
        raise CliError(f"{name} not resumed: {seen}. Details: {target.command(space, 'tfjob', 'explain', name)}")
    if wait is Wait.CHECK_REJECTED or deactivated_by_kueue(workload):
        delete = target.command(space, "delete", _WORKLOADS, workload["metadata"]["name"])
        again = f"To queue it again, delete its Workload, which Kueue creates anew: {delete}"
        raise CliError(f"{name} not resumed: Kueue would suspend it again ({message}). {again}")
    instead = f"Activate its Workload instead: {_activate(target, job, workload, to='true')}"
    raise CliError(f"{name} not resumed: Kueue would suspend it again, because its Workload is deactivated. {instead}")


def check_scale(session: Session, name: str, job: Mapping[str, Any]) -> None:
    """Raise CliError if scaling the job stops it. Kueue takes the new size of a job that waits in its queue."""
    force = ". To scale it all the same, use --force"
    _check_original(name, job, force)
    if not is_suspended(job) and workload_of(session, job) is not None:
        does = "Kueue would delete all its pods and queue it again, for ever if the new size exceeds the quota of its queue"
        raise CliError(f"{name} not scaled: {does}{force}")


def workload_of(session: Session, job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the Workload of a job; None if Kueue does not queue it as a whole. Raises CliError.

    Without permission to read it, a queue label counts: the result then has only a placeholder as name.
    """
    meta = job["metadata"]
    if not has_queue(job):
        return None
    try:
        version = session.get(f"/apis/{_KUEUE}")["preferredVersion"]["groupVersion"]
        for page in session.pages(f"/apis/{version}/namespaces/{meta['namespace']}/workloads"):
            for each in page["items"]:
                if any(owner["uid"] == meta["uid"] for owner in each["metadata"].get("ownerReferences") or ()):
                    found: Mapping[str, Any] = each
                    return found
    except ApiServerError as error:
        if error.is_denied:
            return _UNREADABLE
        if not error.is_not_found:
            raise
    return None


def _check_original(name: str, job: Mapping[str, Any], force: str) -> None:
    """Raise CliError if another controller manages the job, or MultiKueue keeps it as a copy."""
    check_managed_here(name, job, force)
    origin = (job["metadata"].get("labels") or {}).get(_ORIGIN)
    if origin is not None:
        raise CliError(f"{name} is a copy of a job in the cluster {origin}, made by MultiKueue: change that job{force}")


def has_queue(job: Mapping[str, Any]) -> bool:
    """Return True if the job has a queue of Kueue, which need not exist."""
    return facts.QUEUE_LABEL in (job["metadata"].get("labels") or {})


def is_suspended(job: Mapping[str, Any]) -> bool:
    """Return True if the spec suspends the job."""
    return bool((facts.spec_of(job).get("runPolicy") or {}).get("suspend"))


def _activate(target: Target, job: Mapping[str, Any], workload: Mapping[str, Any], *, to: str) -> str:
    words = ("patch", _WORKLOADS, workload["metadata"]["name"], "--type=merge", f'--patch={{"spec":{{"active":{to}}}}}')
    return target.command(job["metadata"]["namespace"], *words)
