"""A second kube-apiserver on the same etcd, whose watch cache lags: it shows the past, and accepts writes."""

import asyncio
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from hack.control_plane import ControlPlane
from hack.fault_proxy.etcd import etcd_proxy
from support.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]
SOCKET = "localhost:2380"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with ControlPlane.start("lagging") as started:
        yield started


def names(plane: ControlPlane, server: str, **query: str) -> set[str]:
    path = f"/api/v1/namespaces/kube-system/configmaps?{urlencode(query)}"
    listed = json.loads(plane.run_kubectl(f"--server={server}", "get", "--raw", path).stdout)
    return {item["metadata"]["name"] for item in listed["items"]}


def create(plane: ControlPlane, server: str, name: str) -> None:
    plane.run_kubectl(f"--server={server}", "create", "configmap", name, "--namespace=kube-system")


async def test_a_frozen_api_server_lists_the_past_reads_and_writes_the_present_and_catches_up(
    plane: ControlPlane,
) -> None:
    """A list of resourceVersion 0 comes from the watch cache, a list without one from etcd."""
    async with etcd_proxy(plane.directory / SOCKET, plane.etcd_socket) as etcd:
        second = await asyncio.to_thread(plane.start_another_apiserver, SOCKET)

        def look() -> None:
            create(plane, plane.server, "before")
            eventually(lambda: "before" in names(plane, second, resourceVersion="0"), "the second one is not frozen")

        await asyncio.to_thread(look)
        etcd.freeze(["/secrets/"])

        def look_beside() -> None:
            create(plane, plane.server, "beside")
            eventually(lambda: "beside" in names(plane, second, resourceVersion="0"), "only secrets are frozen")

        await asyncio.to_thread(look_beside)
        etcd.freeze()

        def look_back() -> None:
            create(plane, plane.server, "by-the-first")
            create(plane, second, "by-the-second")
            new = {"by-the-first", "by-the-second"}
            eventually(lambda: new <= names(plane, plane.server, resourceVersion="0"), "the first one is new")
            assert not new & names(plane, second, resourceVersion="0")
            assert new <= names(plane, second)

        await asyncio.to_thread(look_back)
        etcd.thaw()
        wanted = {"before", "by-the-first", "by-the-second"}
        await asyncio.to_thread(
            eventually, lambda: wanted <= names(plane, second, resourceVersion="0"), "it catches up"
        )
        await asyncio.to_thread(plane.stop)  # before the proxy, so that nobody looks for etcd in vain
