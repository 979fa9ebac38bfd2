"""`python -m hack.hollow_node`: run a hollow node until SIGTERM or SIGINT.

Exit codes: 0 stopped by a signal, 1 the API server rejects requests or is unreachable, 2 invalid flags or kubeconfig.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import structlog

from hack.hollow_node.node import HollowNode, parse_nodes
from hack.hollow_node.script import DEFAULT_SCALE, Timing, parse_images
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from tfjob_operator.api.client import AccessError, HttpTransport, RestClient, Settings, load_settings
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.client.http.messages import Origin
from tfjob_operator.informers import InformerError


def flags() -> argparse.ArgumentParser:
    """Return the flags of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m hack.hollow_node", description="Simulate scheduler and kubelet on an API server without nodes."
    )
    add = parser.add_argument
    add("--kubeconfig", required=True, help="kubeconfig of the API server")
    add("--name", default="hollow-node", help="name of the Node object (default: %(default)s)")
    nodes = (
        "YAML file with nodes (name, count, labels, taints, allocatable); default: one node with room for everything"
    )
    add("--nodes", type=_with_message(_read(parse_nodes)), default=(), metavar="FILE", help=nodes)
    images = "YAML file with scripts of images (run, log, memory), for pods without annotations"
    add("--images", type=_with_message(_read(parse_images)), default={}, metavar="FILE", help=images)
    add("--namespace", default="", help="only run pods in this namespace (default: all)")
    scale = "factor for the kubelet's delays such as back-off, not for the runs of containers (default: %(default)s)"
    add("--time-scale", type=float, default=DEFAULT_SCALE, help=scale)
    version = f"simulate the kubelet of this version, from {OLDEST} to {NEWEST} (default: %(default)s)"
    add("--kubernetes", type=_with_message(_version), default=NEWEST, metavar="VERSION", help=version)
    return parser


def _with_message(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Wrap a parser so that argparse shows its error message; argparse hides the message of a ValueError."""

    def parsed(text: str) -> object:
        try:
            return parse(text)
        except (OSError, ValueError) as error:
            raise argparse.ArgumentTypeError(f"{text}: {error}") from None

    return parsed


def _read(parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda file: parse(Path(file).read_text(encoding="utf-8"))


def _version(text: str) -> Kubernetes:
    kubernetes = Kubernetes.parse(text)
    if not OLDEST <= kubernetes <= NEWEST:
        raise ValueError(f"kubelets are known from {OLDEST} to {NEWEST}")
    return kubernetes


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
            timing=Timing(options.time_scale),
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
    """Run the command line; return the exit code."""
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
