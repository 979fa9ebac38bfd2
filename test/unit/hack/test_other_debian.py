"""Which release `make other-debian` installs, and how commands run there; the runs themselves are part of `make nightly`."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from hack import debian
from hack.control_plane.build.commands import Progress
from hack.other_debian import CERTIFICATE_VARIABLES, CERTIFICATES, COMMANDS, environment, other_release, run


@pytest.mark.parametrize(("own", "other"), [("bookworm", "trixie"), ("trixie", "bookworm")])
def test_the_other_release_is_the_supported_one_that_the_machine_does_not_have(own: str, other: str) -> None:
    """Both directions, so neither release is tested by its own users alone."""
    assert set(debian.MACHINES) == {own, other}
    text = f'PRETTY_NAME="Debian GNU/Linux"\nID=debian\nVERSION_CODENAME={own}\n'
    assert other_release(text) == other


def test_commands_there_get_the_network_of_this_machine_and_nothing_else_of_it() -> None:
    """A variable of this machine, such as KUBEBUILDER_ASSETS, would hide what a new machine lacks."""
    own = {"PATH": "/opt/bin", "KUBEBUILDER_ASSETS": "/assets", "https_proxy": "http://proxy.example:3128"}
    settings = (
        "global.cert='/etc/ssl/company.pem'\nglobal.constraint='/etc/pip.txt'\nuser.index-url='https://index.example'\n"
    )
    found = environment(settings, own)
    certificates = {"PIP_CERT", *CERTIFICATE_VARIABLES}
    assert found.keys() == {"PATH", "HOME", "LANG", "https_proxy", "PIP_INDEX_URL", *certificates}
    assert "/opt" not in found["PATH"]
    assert {found[name] for name in certificates} == {f"/{CERTIFICATES}"}
    assert found["PIP_INDEX_URL"] == "https://index.example"


@pytest.mark.parametrize(("codes", "ran"), [((0, 0), 2), ((0, 3), 2), ((2, 0), 1)])
def test_the_first_command_that_fails_ends_the_run_with_its_code(
    codes: Sequence[int], ran: int, mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """And each is reported with its minutes."""
    done = [mocker.Mock(returncode=code) for code in codes]
    called = mocker.patch("subprocess.run", side_effect=done)
    assert run(COMMANDS, Path("/root-of-it"), {}, Progress("debian")) == next((code for code in codes if code), 0)
    assert called.call_count == ran
    assert capsys.readouterr().err.count("minutes") == ran
