"""Tests of the client on real sockets of this machine: they need a real loop, and no API server."""

import ssl
from pathlib import Path

import pytest

from hack.control_plane.run.pki import Authority

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: test/conftest.py runs it on a real loop."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.sockets)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def server_tls(authority: Authority) -> ssl.SSLContext:
    """The context of a server for 127.0.0.1 that asks for a client certificate and also accepts clients without one."""
    made = authority.server("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
