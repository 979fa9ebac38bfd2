"""`python -m hack.hollow_node`: run a hollow node until SIGTERM or SIGINT.

Exit codes: 0 stopped as asked, 1 the API server refuses us or is not there, 2 wrong flags or an unusable kubeconfig.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

import structlog

from hack.hollow_node import HollowNode, Timing
from hack.hollow_node.node import NodeSpec, parse_nodes
from hack.hollow_node.script import DEFAULT_SCALE, ImageScript, parse_images
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from tfjob_operator.api.client import AccessError, HttpTransport, RestClient, Settings, load_settings
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.client.http.messages import Origin
from tfjob_operator.informers import InformerError


def flags() -> argparse.ArgumentParser:
    """Return the flags of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m hack.hollow_node", description="Play scheduler and kubelet for pods that nobody runs."
    )
    parser.add_argument("--kubeconfig", required=True, help="how to reach the API server")
    parser.add_argument("--name", default="hollow-node", help="name of the Node object (default: %(default)s)")
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=(),
        metavar="FILE",
        help="YAML: play these nodes (name, count, labels, taints, allocatable), not one with room for everything",
    )
    parser.add_argument(
        "--images",
        type=_images,
        default={},
        metavar="FILE",
        help="YAML: what images do (run, log, memory), for pods without annotations about it",
    )
    parser.add_argument("--namespace", default="", help="only pods of this namespace (default: all)")
    parser.add_argument("--label-selector", default="", help="only pods with these labels (default: all)")
    parser.add_argument(
        "--time-scale",
        type=float,
        default=DEFAULT_SCALE,
        help="scales the kubelet's back-off and the like, but not the runs of containers (default: %(default)s)",
    )
    parser.add_argument(
        "--starting",
        type=float,
        default=0.0,
        help="seconds of each stage of a pod's start, scaled; 0: the first status says Running (default: %(default)s)",
    )
    parser.add_argument(
        "--kubernetes",
        type=_version,
        default=NEWEST,
        metavar="VERSION",
        help=f"behave as the kubelet of this version, from {OLDEST} to {NEWEST} (default: %(default)s)",
    )
    return parser


def _version(text: str) -> Kubernetes:
    """Parse the version; argparse would not show the message of a ValueError."""
    try:
        kubernetes = Kubernetes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not OLDEST <= kubernetes <= NEWEST:
        raise argparse.ArgumentTypeError(f"kubelets are known from {OLDEST} to {NEWEST}, not {kubernetes}")
    return kubernetes


def _nodes(file: str) -> tuple[NodeSpec, ...]:
    """Read the file of nodes; argparse would not show the messages."""
    try:
        return parse_nodes(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{file}: {error}") from None


def _images(file: str) -> dict[str, ImageScript]:
    """Read the file of images; argparse would not show the messages."""
    try:
        return parse_images(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{file}: {error}") from None


async def _run(options: argparse.Namespace, settings: Settings) -> None:
    async with (
        HttpTransport(settings, user_agent="hollow-node") as writes,
        HttpTransport(settings, user_agent="hollow-node") as watches,
    ):
        node = HollowNode(
            RestClient(writes, field_manager="hollow-node"),
            watch_client=RestClient(watches),
            name=options.name,
            nodes=options.nodes,
            images=options.images,
            namespace=options.namespace,
            label_selector=options.label_selector,
            timing=Timing(options.time_scale, options.starting),
            kubernetes=options.kubernetes,
        )
        names = ", ".join(node.name for node in options.nodes) or options.name
        line = f"hollow node {names} ({options.kubernetes}) runs the pods of {Origin.of(settings.server)}"
        running = asyncio.create_task(node.run(lambda: print(line, flush=True)), name="hollow-node")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running


def main() -> int:
    """Run the command line; returns the exit code."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    options = flags().parse_args()
    try:
        settings = load_settings(options.kubeconfig)
    except AccessError as error:
        print(f"hollow-node: {error}", file=sys.stderr)
        return 2
    exit_code = 0
    try:
        asyncio.run(_run(options, settings))
    except* (ApiError, InformerError) as group:
        print(f"hollow-node: {'; '.join(map(str, group.exceptions))}", file=sys.stderr)
        exit_code = 1
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
