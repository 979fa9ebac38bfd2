"""The faults of a cluster of three etcds and two API servers: one after the other, without overlap."""

import asyncio
import base64
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from faults.processes import say
from hack.control_plane import ControlPlane, ControlPlaneError
from integration.operator_process import OperatorProcess
from soak.identity import Identity
from support.waiting import until

QUIET_S: Final = 10.0
"""How long nothing happens between two troubles."""
DOWN_S: Final = 5.0
FULL_S: Final = 15.0
ENDED_S: Final = 10.0
"""How long what has ended is not renewed."""
LIFE_S: Final = 75.0
"""Of what is to end: longer than the minute after which operators and API servers read their files again."""
LONG_S: Final = 86400.0
LIMIT_S: Final = 300.0
TICK_S: Final = 0.5
JUNK_BYTES: Final = 1 << 20
JUNK: Final = "junk/"
FULL: Final = "database space exceeded"


class ClusterTroubles:
    """The troubles of one control plane, under one operator. `seen` counts them by name."""

    def __init__(self, plane: ControlPlane, identity: Identity, operator: OperatorProcess) -> None:
        self._plane = plane
        self._identity = identity
        self._operator = operator
        self._renews_token = False
        self.seen: dict[str, int] = {}

    async def run(self, until: Callable[[], bool], only: Sequence[str]) -> None:
        """Make each trouble at least once, or only those of these names, and then go on until told to stop."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.leader_killed,
            self.servers_rolled,
            self.etcd_full,
            self.credentials_ended,
            self.serving_ended,
            self.credentials_ended,
        ]
        chosen = [kind for kind in kinds if not only or kind.__name__ in only]
        assert chosen, f"none of {only} is one of {[kind.__name__ for kind in kinds]}"
        while True:
            for kind in chosen:
                await asyncio.sleep(QUIET_S)
                if until() and len(self.seen) == len({each.__name__ for each in chosen}):
                    return
                await self._make(kind)

    async def _make(self, kind: Callable[[], Awaitable[None]]) -> None:
        began = time.monotonic()
        await kind()
        self.seen[kind.__name__] = self.seen.get(kind.__name__, 0) + 1
        say(f"  {kind.__name__}: {time.monotonic() - began:.0f} s")

    async def leader_killed(self) -> None:
        leader = await asyncio.to_thread(self._leader)
        await asyncio.to_thread(self._plane.kill, leader)
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(self._plane.start_again, leader)

    async def servers_rolled(self) -> None:
        """Each API server is asked to end, and comes back when the other one has served for a while."""
        for server in self._plane.apiservers:
            await asyncio.to_thread(self._plane.end, server)
            await asyncio.sleep(DOWN_S)
            await asyncio.to_thread(self._plane.start_again, server)
            await asyncio.sleep(DOWN_S)

    async def etcd_full(self) -> None:
        """etcd has no room and takes no writes, until somebody makes room and says so."""
        await asyncio.to_thread(self._fill)
        await asyncio.sleep(FULL_S)
        await asyncio.to_thread(self._make_room)

    async def credentials_ended(self) -> None:
        """The operator's certificate and token end; then one of the two is renewed in its file, in turns."""
        await asyncio.to_thread(self._identity.issue_certificate, LIFE_S)
        await asyncio.to_thread(self._identity.issue_token, LIFE_S)
        refused = await asyncio.to_thread(self._refused)
        await self._until("the operator is refused", lambda: self._refused() > refused)
        await asyncio.sleep(ENDED_S)
        renew = self._identity.issue_token if self._renews_token else self._identity.issue_certificate
        self._renews_token = not self._renews_token
        await asyncio.to_thread(renew, LONG_S)
        await self._until("the operator has been let in again", self._is_let_in)

    async def serving_ended(self) -> None:
        """The certificates of both API servers end while all must connect anew; then they are renewed in their files."""
        await asyncio.to_thread(self._plane.issue_serving_certificates, timedelta(seconds=LIFE_S))
        ends = time.monotonic() + LIFE_S
        await self._until("the short certificates are served", self._serve_what_is_in_their_files)
        await asyncio.sleep(max(0.0, ends - time.monotonic()))
        await asyncio.to_thread(self._plane.cut_connections)
        await asyncio.sleep(ENDED_S)
        await asyncio.to_thread(self._plane.issue_serving_certificates)
        await self._until("the new certificates are served", self._serve_what_is_in_their_files)

    def _leader(self) -> str:
        for member in self._plane.etcds:
            said: Any = self._plane.etcd_call("maintenance/status", {}, member=member)
            if said["header"]["member_id"] == said["leader"]:
                return member
        raise AssertionError("etcd has no leader")

    def _fill(self) -> None:
        value = base64.b64encode(bytes(JUNK_BYTES)).decode()
        for number in range(100_000):
            try:
                self._plane.etcd_call("kv/put", {"key": _encoded(f"{JUNK}{number}"), "value": value})
            except ControlPlaneError as error:
                if FULL in str(error):
                    return
                raise

    def _make_room(self) -> None:
        end = JUNK[:-1] + chr(ord(JUNK[-1]) + 1)
        done: Any = self._plane.etcd_call("kv/deleterange", {"key": _encoded(JUNK), "range_end": _encoded(end)})
        revision = int(done["header"]["revision"])
        self._plane.etcd_call("kv/compaction", {"revision": revision, "physical": True})
        for member in self._plane.etcds:
            self._plane.etcd_call("maintenance/defragment", {}, member=member)
        alarms: Any = self._plane.etcd_call("maintenance/alarm", {"action": "GET"})
        assert alarms.get("alarms"), "etcd was not full"
        for alarm in alarms["alarms"]:
            self._plane.etcd_call("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def _refused(self) -> float:
        return sum(
            value
            for (name, labels), value in self._operator.scrape().items()
            if name == "rest_client_requests_total" and ("code", "401") in labels
        )

    def _is_let_in(self) -> bool:
        """Whether it is refused no more."""
        before = self._refused()
        time.sleep(3.0)
        return self._refused() == before

    def _serve_what_is_in_their_files(self) -> bool:
        served = []
        for name, port in zip(self._plane.apiservers, self._plane.ports_of(self._plane.apiservers), strict=True):
            file = self._plane.directory / "pki" / f"{name}.crt"
            with suppress(OSError):
                served.append(ssl.get_server_certificate(("127.0.0.1", port)).split() == file.read_text().split())
        return len(served) == len(self._plane.apiservers) and all(served)

    @staticmethod
    async def _until(what: str, holds: Callable[[], bool]) -> None:
        await until(lambda: asyncio.to_thread(holds), what, limit_s=LIMIT_S, tick_s=TICK_S)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
