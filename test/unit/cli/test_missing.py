"""What is known about a job that does not exist."""

import re
from typing import Any

import pytest

from hack.objects import ago
from unit.cli.conftest import EVENTS, JOBS, Server

NOT_FOUND = {"reason": "NotFound", "message": 'tfjobs.kubeflow.org "mnist" not found', "code": 404}
FAILED = "TFJob team/mnist has failed because 1 Worker replica(s) failed."


def event(ago_s: float, reason: str, message: str, *, uid: str = "2", kind: str = "TFJob") -> dict[str, Any]:
    about = {"kind": kind, "name": "mnist", "uid": uid}
    return {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": ago(ago_s)}


def told(server: Server, *events: dict[str, Any], verb: str = "explain", code: int = 1) -> str:
    """Run a verb for a job that is gone; return what stands behind `not found`, with one age for all."""
    server.answers(f"{JOBS}/mnist", NOT_FOUND, code=404)
    server.answers(EVENTS, {"items": list(events)})
    result = server.run(verb, "mnist")
    assert (result.exit_code, result.stdout) == (code, "")
    known, _, rest = result.stderr.partition(" not found")
    assert known == 'Error from server (NotFound): tfjobs.kubeflow.org "mnist"'
    return re.sub(r"\d+s ago", "AGO", rest.strip())


@pytest.mark.parametrize(
    ("verb", "code"),
    [("explain", 1), ("status", 1), ("wait", 4), ("watch", 4), ("logs", 1), ("timeline", 1), ("top", 1)],
)
def test_a_job_that_its_ttl_deleted_is_told_so_with_how_it_ended(server: Server, verb: str, code: int) -> None:
    events = [
        event(40, "SuccessfulDeleteJob", "Deleted job: mnist"),
        event(50, "SuccessfulDeletePod", "Deleted pod: mnist-worker-0"),
        event(60, "TFJobFailed", FAILED),
        event(90, "TFJobCreated", "TFJob mnist is created."),
        event(5, "TFJobFailed", "another", kind="Pod"),
    ]
    ended = f": it was deleted AGO by its TTL (ttlSecondsAfterFinished), after TFJobFailed: {FAILED}"
    assert told(server, *events, verb=verb, code=code) == ended
    assert sum(EVENTS in path or path.startswith(f"{JOBS}?") for _, path, *_ in server.asked) == 1


def test_a_job_that_somebody_deleted_is_told_its_last_event(server: Server) -> None:
    """Of two jobs of the name it is the later one: the other's end is not its end."""
    before = event(900, "SuccessfulDeleteJob", "Deleted job: mnist", uid="1")
    running = event(30, "TFJobRunning", "TFJob mnist is running.")
    assert (
        told(server, before, running)
        == ": it was deleted after its event of AGO, TFJobRunning: TFJob mnist is running."
    )


@pytest.mark.parametrize(("name", "hint"), [("mnist-2", ": did you mean mnist-2?"), ("bert", "")])
def test_a_name_without_events_is_a_typing_error(server: Server, name: str, hint: str) -> None:
    server.answers(JOBS, {"items": [{"metadata": {"name": name}}]})
    assert told(server) == hint


def test_without_permission_nothing_is_added(server: Server) -> None:
    server.answers(JOBS, {"reason": "Forbidden", "message": "no"}, code=403)
    assert told(server) == ""
    server.answers(f"{JOBS}/mnist", NOT_FOUND, code=404)
    server.answers(EVENTS, {"reason": "Forbidden", "message": "no"}, code=403)
    assert server.run("status", "mnist").stderr.endswith("not found\n")
