"""A separate network for each operator, which iptables can cut: packets are dropped silently."""

import asyncio
import os
import re
import shutil
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Final, Self

from fakes.loopback import forward, serving
from faults.field import Field
from faults.leaders import NAMES, Harm, Operator, Place
from support.machine import lacks

PORT: Final = 6443
LOOPBACK: Final = "127.0.0.1"
TOOLS: Final = {"ip": "iproute2", "iptables": "iptables", "sysctl": "procps"}
"""The programs that it calls, and their packages."""


def why_not() -> str:
    """Return why networks cannot be created here, or ""."""
    if os.geteuid() != 0:
        return lacks("root, who can create networks", "sudo")
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    return lacks("tools of networks", f"apt-get install {' '.join(missing)}") if missing else ""


class CannotError(Exception):
    """The machine does not allow the creation of networks."""


class Cut(Harm):
    """Cuts the leader's network. Each operator has a network namespace, connected to this one by a veth pair.

    An operator connects to the API server on loopback, as the certificate requires. In its namespace, that address is forwarded
    through the veth pair to a server here, which passes on all bytes.
    """

    def __init__(self, field: Field) -> None:
        found = re.search(rf"https://{LOOPBACK}:(\d+)", field.plane.kubeconfig.read_text())
        assert found is not None
        self._port = int(found[1])
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            for number, name in enumerate(NAMES):
                await self._connect(number, name)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def place(self, name: str) -> Place:
        return Place(("ip", "netns", "exec", _space(name)))

    async def do(self, operator: Operator) -> None:
        for chain in ("INPUT", "OUTPUT"):
            await _within(operator.name, "iptables", "--insert", chain, "--jump", "DROP")

    async def undo(self, operator: Operator) -> None:
        await _within(operator.name, "iptables", "--flush")

    async def _connect(self, number: int, name: str) -> None:
        space, here, there = _space(name), f"{_space(name)}-0", f"{_space(name)}-1"
        ours, theirs = f"10.213.{number}.1", f"10.213.{number}.2"
        with suppress(CannotError):
            await _run("ip", "netns", "delete", space)  # left by a killed run
        await _run("ip", "netns", "add", space)
        self._stack.push_async_callback(_run, "ip", "netns", "delete", space)  # removes both ends of the pair
        await _run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
        await _run("ip", "address", "add", f"{ours}/24", "dev", here)
        await _run("ip", "link", "set", here, "up")
        for command in (
            f"ip address add {theirs}/24 dev {there}",
            f"ip link set {there} up",
            "ip link set lo up",
            f"sysctl --quiet --write net.ipv4.conf.{there}.route_localnet=1",
            f"iptables -t nat -A OUTPUT -d {LOOPBACK} -p tcp --dport {self._port} -j DNAT --to-destination {ours}:{PORT}",
            f"iptables -t nat -A POSTROUTING -o {there} -j SNAT --to-source {theirs}",
        ):
            await _within(name, *command.split())
        pass_on = partial(forward, host=LOOPBACK, port=self._port)
        await self._stack.enter_async_context(serving(pass_on, host=ours, port=PORT))


def _space(name: str) -> str:
    return f"tf-{name[-1]}"


async def _within(name: str, *command: str) -> None:
    await _run("ip", "netns", "exec", _space(name), *command)


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=asyncio.subprocess.STDOUT)
    said, _ = await process.communicate()
    if process.returncode:
        raise CannotError(f"{' '.join(command)}: {said.decode()}")
