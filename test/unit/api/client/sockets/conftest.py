"""Tests of the client on real sockets of this machine: they need a real loop, and no API server."""

import ssl
from pathlib import Path

import pytest

from fakes.loopback import server_context
from hack.control_plane.run.pki import Authority

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: test/conftest.py runs it on a real loop."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.sockets)


@pytest.fixture
def server_tls(authority: Authority) -> ssl.SSLContext:
    return server_context(authority)
