"""Flags and environment: read in this one place, checked, and handed on as a frozen value."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Options:
    """How the operator runs.

    kubeconfig: file to find the API server by; None means the pod's service account, else the default kubeconfig.
    master: URL of the API server, over the one in the kubeconfig.
    namespace: the only namespace to serve; empty means all.
    threadiness: how many jobs are synced at once. The name is the peers'; here these are tasks, which cost next to nothing,
        and each of them mostly waits for the API server.
    json_log_format: None means JSON unless standard error is a terminal.
    cluster_domain: appended to the host names in TF_CONFIG.
    enable_gang_scheduling: make a PodGroup for each job, so that its pods are placed together or not at all.
    gang_scheduler_name: `volcano`, or the name of a scheduler that has the coscheduling plugin.
    """

    kubeconfig: str | None = None
    master: str | None = None
    namespace: str = ""
    threadiness: int = 16
    json_log_format: bool | None = None
    log_level: str = "info"
    cluster_domain: str = ""
    enable_gang_scheduling: bool = False
    gang_scheduler_name: str = "volcano"


def parse_options(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> Options:
    """Read the command line. Prints what is wrong and raises SystemExit(2) for a bad one, SystemExit(0) after --help."""
    environ = os.environ if environ is None else environ
    parser = argparse.ArgumentParser(prog="tfjob-operator", description="Runs TFJobs (kubeflow.org/v1) on Kubernetes.")
    parser.add_argument("--kubeconfig", metavar="FILE", default=environ.get("KUBECONFIG") or None)
    parser.add_argument("--master", metavar="URL", help="the API server, over the one in the kubeconfig")
    parser.add_argument("--namespace", default="", help="serve this namespace only (default: all)")
    parser.add_argument("--threadiness", type=_positive, default=16, metavar="N", help="jobs synced at once")
    parser.add_argument("--json-log-format", type=_boolean, nargs="?", const=True, default=None, metavar="BOOL")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    parser.add_argument("--version", action="version", version=f"tfjob-operator {_version()}")
    given = parser.parse_args(arguments)
    return Options(**vars(given), cluster_domain=environ.get("CUSTOM_CLUSTER_DOMAIN", ""))


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return number


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise argparse.ArgumentTypeError(f"must be true or false, not {text!r}")


def _version() -> str:
    try:
        return version("tfjob-operator")
    except PackageNotFoundError:
        return "(not installed)"
