"""Flags and environment variables: only this module reads them, validates them, and returns them as a frozen value."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from tfjob_operator.api.v1.constants import MIN_NODE_LOST_TIMEOUT_S, RETRYABLE_EXIT_CODES
from tfjob_operator.controller.leaderelection.config import Election, LeaderElectionConfig

PROGRAM: Final = "tfjob-operator"
VERSION: Final = "1.0.0"
"""Must equal the version in setup.cfg. `importlib.metadata` would cost a megabyte, since it parses metadata as an e-mail."""
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LEASE_NAME: Final = "tf-operator"
MONITORING_PORT: Final = 8443
RESYNC_S: Final = 12 * 3600.0
TENSORBOARD_IMAGE: Final = "tensorflow/tensorflow:2.20.0"
"""The last official TensorFlow image that includes TensorBoard. It reads the output of any TensorFlow version."""
GANG_SCHEDULER: Final = "volcano"
SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
V1: Final = "kubeflow.org/v1"
ALPHA_APIS: Final = ("kubeflow.org/v1alpha1", "tensorflow.org/v1alpha1")
"""The APIs whose jobs have `replicaSpecs` and their own controller. All other versions of kubeflow.org are equivalent to v1."""
POD_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_DURATION: Final = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|ms|s|m|h))+")
_DURATION_PART: Final = re.compile(r"([\d.]+)([a-zµ]+)")
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The operator's settings.

    kubeconfig: the file with the API server's address; None to use KUBECONFIG, else the pod's service account, else
        ~/.kube/config.
    master: the URL of the API server; overrides the kubeconfig.
    namespace: the only namespace to serve; empty for all.
    apis: the APIs whose jobs are run; only their resources are watched and require permissions.
    threadiness: the number of jobs synced concurrently. The name is the one used by other operators;
        here the threads are cheap tasks, which mostly wait for the API server.
    resync_s: interval after which every cached job is synced even if nothing changed; 0 for never. Costs no requests.
    qps, burst: the rate limit for requests; qps 0 disables it. Requests for the lease are not limited.
    json_log_format: None for JSON unless standard error is a terminal.
    cluster_domain: appended to the host names in TF_CONFIG.
    enable_gang_scheduling: create a PodGroup for each job, so that its pods are scheduled all together or not at all.
    gang_scheduler_name: `volcano`, or the name of a scheduler with the coscheduling plugin.
    restart_backoff: delay restarts of failed programs, as a kubelet does for containers.
    retryable_exit_codes: after these, the restart policy ExitCode restarts a replica.
    completion_grace_s: how long workers may continue after the job has succeeded.
    node_lost_timeout_s: how long a node may be not ready before it counts as lost, for jobs that do not set this timeout; 0 for
        never.
    fallback_to_logs: if a training container fails without a termination message, use the end of its log as the message.
    backend_variables: set the variables by which Keras 3 and JAX find the other processes of a job.
    quote_log_lines: quote the last log line of a stalled job in its status.
    tensorboard_image: the image of TensorBoards for which the job sets none.
    tensorboard_service_types: the Service types that jobs may request for TensorBoard; ClusterIP is always allowed.
    monitoring_address, monitoring_port: where /metrics, /healthz and /readyz are served; an empty address for all interfaces,
        port 0 to disable them.
    election: None to run without a lease; this process must then be the only one.
    controller_config_file: a file with the volumes and variables of accelerators; "" for none.
    own_namespace, own_deployment: where the operator runs; an invalid controller_config_file is reported there; "" if unknown.
    unused_flags: flags that have no effect, each with the one that they require.
    """

    kubeconfig: str | None = None
    master: str | None = None
    namespace: str = ""
    apis: tuple[str, ...] = (V1,)
    threadiness: int = 16
    resync_s: float = RESYNC_S
    qps: float = 0.0
    burst: int = 10
    json_log_format: bool | None = None
    log_level: str = "info"
    cluster_domain: str = ""
    enable_gang_scheduling: bool = False
    gang_scheduler_name: str = GANG_SCHEDULER
    restart_backoff: bool = True
    retryable_exit_codes: frozenset[int] = RETRYABLE_EXIT_CODES
    completion_grace_s: float = 30.0
    node_lost_timeout_s: float = 0.0
    fallback_to_logs: bool = True
    backend_variables: bool = True
    quote_log_lines: bool = True
    tensorboard_image: str = TENSORBOARD_IMAGE
    tensorboard_service_types: tuple[str, ...] = SERVICE_TYPES
    monitoring_address: str = ""
    monitoring_port: int = MONITORING_PORT
    election: Election | None = field(default_factory=lambda: Election("default", LEASE_NAME))
    controller_config_file: str = ""
    own_namespace: str = ""
    own_deployment: str = ""
    unused_flags: tuple[tuple[str, str], ...] = ()


def parse_options(
    arguments: Sequence[str], environ: Mapping[str, str] | None = None, *, pod_namespace_file: Path = POD_NAMESPACE_FILE
) -> Options:
    """Parse the command line, the environment and, in a pod, the pod's namespace.

    For an invalid flag or variable, prints one line and raises SystemExit(2); after --help and --version, SystemExit(0).
    """
    environ = os.environ if environ is None else environ
    parser = _parser()
    known, unknown = parser.parse_known_args(arguments)
    if unknown:  # names only: a value may be a URL with a password
        names = [text.partition("=")[0] for text in unknown if text.startswith("-")]
        parser.error(f"unrecognized arguments: {' '.join(names) or 'only flags are allowed'}")
    given = vars(known)
    domain, home = environ.get("CUSTOM_CLUSTER_DOMAIN", ""), environ.get("KUBEFLOW_NAMESPACE", "")
    if domain and not _SUBDOMAIN.fullmatch(domain):
        parser.error(
            f"environment variable CUSTOM_CLUSTER_DOMAIN: must be a domain such as cluster.local, not {domain!r}"
        )
    if home and not _LABEL.fullmatch(home):
        parser.error(f"environment variable KUBEFLOW_NAMESPACE: must be the name of a namespace, not {home!r}")
    own = environ.get("OPERATOR_DEPLOYMENT", "")
    if own and not _SUBDOMAIN.fullmatch(own):
        parser.error(f"environment variable OPERATOR_DEPLOYMENT: must be the name of a Deployment, not {own!r}")
    home = home or _pod_namespace(pod_namespace_file)
    if given["gang_scheduler_name"] is None:
        given["gang_scheduler_name"] = GANG_SCHEDULER
    elif not given["enable_gang_scheduling"]:  # it is the only flag for this of training-operator
        given["unused_flags"] = (("--gang-scheduler-name", "--enable-gang-scheduling"),)
    elect, lease_namespace, lease_name = (given.pop(key) for key in ("elect", "lease_namespace", "lease_name"))
    duration_s, deadline_s, period_s = (given.pop(key) for key in ("lease_s", "renew_s", "retry_s"))
    election = None
    if elect:
        try:
            times = LeaderElectionConfig(duration_s, deadline_s, period_s)
        except ValueError as error:
            parser.error(f"leader election: {error}")
        # Preferably the served namespace: then a Role there suffices, and operators that serve different namespaces do not
        # compete for the same lease.
        namespace = lease_namespace or given["namespace"] or home or "default"
        election = Election(namespace, lease_name, times)
    return Options(**given, cluster_domain=domain, election=election, own_namespace=home, own_deployment=own)


class _Parser(argparse.ArgumentParser):
    """Reports errors in one line, without the long usage text."""

    def error(self, message: str) -> NoReturn:
        print(f"{PROGRAM}: {message} (see --help)", file=sys.stderr)  # noqa: T201 - logs come later
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Runs TFJobs (kubeflow.org/v1) on Kubernetes.",
        epilog="Environment variables: KUBECONFIG; CUSTOM_CLUSTER_DOMAIN, appended to host names in TF_CONFIG;"
        " KUBEFLOW_NAMESPACE, the namespace of the operator and its Lease; OPERATOR_DEPLOYMENT, the Deployment of the operator,"
        " for events. Durations have the form 15s, 500ms or 1h30m.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    # A flag with an optional value, as in --flag=false.
    switch: dict[str, Any] = {"type": _boolean, "nargs": "?", "const": True, "metavar": "BOOL"}
    add(
        "--kubeconfig",
        metavar="FILE",
        help="path to a kubeconfig (default: $KUBECONFIG, else the pod's service account)",
    )
    add("--master", metavar="URL", help="URL of the API server; overrides the kubeconfig")
    add("--namespace", type=_namespace, default="", metavar="NAME", help="watch this namespace only (default: all)")
    add("--apis", type=_list_of(V1, *ALPHA_APIS), default=(V1,), metavar="LIST",
        help=f"APIs to serve: one or more of {V1},{','.join(ALPHA_APIS)} (default {V1})")  # fmt: skip
    add("--threadiness", type=_positive, default=16, metavar="N",
        help="number of jobs to sync concurrently (default 16)")  # fmt: skip
    add("--resync-period", "--resyc-period", dest="resync_s", type=_duration, default=RESYNC_S, metavar="DURATION",
        help="interval of full resyncs; 0 disables them (default 12h)")  # fmt: skip
    add("--qps", type=_rate, default=0.0, metavar="N",
        help="maximum requests per second to the API server; 0 means no limit (default 0)")  # fmt: skip
    add("--burst", type=_positive, default=10, metavar="N", help="maximum burst of requests with --qps (default 10)")
    add("--controller-config-file", default="", metavar="FILE",
        help="file with the volumes and variables of accelerators")  # fmt: skip
    add("--json-log-format", help="log as JSON (default true unless standard error is a terminal)", **switch)
    add("--log-level", choices=LOG_LEVELS, default="info", help="minimum level of log messages (default info)")
    add("--enable-gang-scheduling", default=False, help="create a PodGroup for each job (default false)", **switch)
    add("--gang-scheduler-name", type=_subdomain, metavar="NAME",
        help=f"name of the gang scheduler, with --enable-gang-scheduling (default {GANG_SCHEDULER})")  # fmt: skip
    add("--restart-backoff", default=True, help="delay restarts of failed programs (default true)", **switch)
    add("--retryable-exit-codes", type=_exit_codes, default=RETRYABLE_EXIT_CODES, metavar="LIST",
        help=f"exit codes and ranges after which restartPolicy ExitCode restarts a replica, such as 130,137-143 "
        f"(default {','.join(map(str, sorted(RETRYABLE_EXIT_CODES)))})")  # fmt: skip
    add("--completion-grace-period", dest="completion_grace_s", type=_duration, default=30.0, metavar="DURATION",
        help="how long workers may run after the job has succeeded, and sidecars after the training of their pod has "
        "ended; 0 deletes them at once (default 30s)")  # fmt: skip
    add("--node-lost-timeout", dest="node_lost_timeout_s", type=_node_timeout, default=0.0, metavar="DURATION",
        help="force-delete pods of a node that is not ready for so long; at least 1m, 0 disables it (default 0)")  # fmt: skip
    add("--fallback-to-logs", default=True,
        help="set terminationMessagePolicy FallbackToLogsOnError where a job sets none (default true)", **switch)  # fmt: skip
    add("--backend-variables", default=True,
        help="set the variables by which Keras 3 and JAX find the other processes (default true)", **switch)  # fmt: skip
    add("--quote-log-lines", default=True,
        help="quote the last log line of a stalled job in its status (default true)", **switch)  # fmt: skip
    add("--tensorboard-image", type=_image, default=TENSORBOARD_IMAGE, metavar="IMAGE",
        help=f"image of a TensorBoard whose job specifies none (default {TENSORBOARD_IMAGE})")  # fmt: skip
    add("--tensorboard-service-types", type=_list_of(*SERVICE_TYPES), default=SERVICE_TYPES, metavar="LIST",
        help="Service types that jobs may request for TensorBoard; ClusterIP is always allowed (default: all)")  # fmt: skip
    add("--monitoring-address", default="", metavar="ADDRESS",
        help="address of metrics and probes (default: all interfaces)")  # fmt: skip
    add("--monitoring-port", type=_port, default=MONITORING_PORT, metavar="PORT",
        help="port of metrics and probes; 0 disables them (default 8443)")  # fmt: skip
    add("--leader-elect", default=True, dest="elect", help="use leader election (default true)", **switch)
    add("--leader-elect-lease-duration", dest="lease_s", type=_duration, default=15.0, metavar="DURATION",
        help="how long a lease that is not renewed is respected (default 15s)")  # fmt: skip
    add("--leader-elect-renew-deadline", dest="renew_s", type=_duration, default=10.0, metavar="DURATION",
        help="how long the leader retries to renew the lease (default 10s)")  # fmt: skip
    add("--leader-elect-retry-period", dest="retry_s", type=_duration, default=2.0, metavar="DURATION",
        help="interval between attempts to acquire or renew the lease (default 2s)")  # fmt: skip
    add("--leader-elect-resource-name", dest="lease_name", type=_subdomain, default=LEASE_NAME, metavar="NAME",
        help=f"name of the Lease (default {LEASE_NAME})")  # fmt: skip
    add("--leader-elect-resource-namespace", dest="lease_namespace", type=_namespace, default="", metavar="NAME",
        help="namespace of the Lease (default: --namespace, KUBEFLOW_NAMESPACE, the pod's or `default`)")  # fmt: skip
    add("--version", action="version", version=f"{PROGRAM} {VERSION}")
    return parser


def _list_of(*known: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        given = text.split(",")
        if any(each not in known for each in given):
            raise argparse.ArgumentTypeError(f"must be a list of {', '.join(known)}, not {text!r}")
        return tuple(each for each in known if each in given)

    return read


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be between 0 and 65535, not {text!r}")
    return int(text)


def _rate(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"must be a non-negative number, not {text!r}")
    return float(text)


def _duration(text: str) -> float:
    """Return the seconds of a duration in Go's format, such as 12h0m0s."""
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be a duration such as 15s, 500ms or 1h30m, not {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def _node_timeout(text: str) -> float:
    found = _duration(text)
    if 0 < found < MIN_NODE_LOST_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"must be 0 or at least 1m, not {text!r}")
    return found


def _exit_codes(text: str) -> frozenset[int]:
    """Return the exit codes in a list of numbers and ranges, such as 130,137-143."""
    found: set[int] = set()
    for each in text.split(","):
        first, dash, last = each.partition("-")
        ends = [int(number) for number in (first, last if dash else first) if re.fullmatch(r"[0-9]{1,3}", number)]
        if len(ends) != 2 or not 1 <= ends[0] <= ends[1] <= 255:
            raise argparse.ArgumentTypeError(f"must be a list of exit codes or ranges from 1 to 255, not {text!r}")
        found.update(range(ends[0], ends[1] + 1))
    return frozenset(found)


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise argparse.ArgumentTypeError(f"must be true or false, not {text!r}")


def _namespace(text: str) -> str:
    if text and not _LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be the name of a namespace, not {text!r}")
    return text


def _subdomain(text: str) -> str:
    if not _SUBDOMAIN.fullmatch(text) or len(text) > 253:
        raise argparse.ArgumentTypeError(f"must consist of lowercase letters, digits, - and ., not {text!r}")
    return text


def _image(text: str) -> str:
    if not text or text != "".join(text.split()):
        raise argparse.ArgumentTypeError(f"must be the name of an image, not {text!r}")
    return text


def _pod_namespace(file: Path) -> str:
    """Return the namespace of the pod in which this process runs; empty outside a pod."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
