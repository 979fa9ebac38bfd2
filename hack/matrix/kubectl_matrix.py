"""The life of each kubectl: install, use, remove, on a control plane of its own."""

from __future__ import annotations

import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from hack.control_plane import ControlPlaneError
from hack.kubernetes_versions import Kubernetes
from hack.matrix import installing, jobs, releases
from hack.matrix.cluster import at_work, control_plane
from hack.matrix.errors import CheckError
from hack.matrix.installing import Check, Session
from hack.matrix.kubectl import Kubectl
from hack.matrix.releases import Release
from hack.matrix.report import Report, Result

TOGETHER: Final = 2
"""How many kubectls are tried at once: each is one process at a time that waits little, and CI machines have two cores."""


class _StoppedError(Exception):
    """The life of another kubectl was interrupted, or failed: this one ends after its present check."""


def run(chosen: Sequence[Release], report: Report) -> None:
    """Run the lives of these releases. Raises FetchError before any of them when a program cannot be had.

    A life that breaks off is reported as a failed result: its control plane or operator does not start, or does not end well.
    """
    programs = {release: releases.program_of(release) for release in chosen}
    stop = threading.Event()
    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="kubectl-matrix") as pool:
        lives = [pool.submit(_live, release, programs[release], report, stop) for release in chosen]
        try:
            for life in as_completed(lives):
                life.result()
        except BaseException:  # a Ctrl-C too: every life ends after its present check, and leaves nothing behind
            stop.set()
            for life in lives:
                life.cancel()
            raise


def _live(release: Release, program: Path, report: Report, stop: threading.Event) -> None:
    start = time.monotonic()
    try:
        with (
            control_plane(f"kubectl-{release.minor}") as (plane, server),
            tempfile.TemporaryDirectory(prefix="kubectl-home-") as home,
        ):
            session = Session(Kubectl(program, plane.kubeconfig, Path(home)), plane, release)
            try:
                run_checks(session, installing.CHECKS, server, report, stop)
                with at_work(plane):
                    run_checks(session, jobs.CHECKS, server, report, stop)
                run_checks(session, installing.REMOVING, server, report, stop)
            except ControlPlaneError as error:
                report.add(_broken(release, error, start), server)
    except ControlPlaneError as error:
        report.add(_broken(release, error, start), None)
    except _StoppedError:
        pass  # the one that stopped us reports why


def _broken(release: Release, error: ControlPlaneError, start: float) -> Result:
    return Result(release.client, "control plane and operator", str(error), str(error), time.monotonic() - start)


def run_checks(
    session: Session, checks: Iterable[Check], server: Kubernetes, report: Report, stop: threading.Event
) -> None:
    """Run these checks one after the other. An exception of a check is reported as its problem. Raises ControlPlaneError."""
    for check in checks:
        if stop.is_set():
            raise _StoppedError
        session.kubectl.transcript.clear()
        start = time.monotonic()
        problem, transcript = "", session.kubectl.transcript
        try:
            check.run(session)
        except CheckError as error:
            problem = str(error)
        except ControlPlaneError:  # the life is over, not this check alone
            raise
        except Exception as error:  # noqa: BLE001 - what a kubectl prints may be anything, and each is a finding
            problem = f"{type(error).__name__}: {error}"
            transcript += traceback.format_exc().splitlines()
        report.add(
            Result(session.release.client, check.name, problem, "\n".join(transcript), time.monotonic() - start), server
        )
