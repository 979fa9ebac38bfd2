"""The certificate authority of these tests."""

import pytest

from hack.control_plane.run.pki import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("pki"))
