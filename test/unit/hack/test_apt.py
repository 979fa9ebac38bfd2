"""How apt's own configuration is read to fetch Debian's source packages."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from hack.control_plane import ControlPlaneError
from hack.control_plane.build import apt
from hack.control_plane.build.apt import AptSource, as_root, keyring_of_line, keyring_of_stanza, parse_index_targets
from hack.control_plane.build.binaries import NULL_CHECK, accept_zero_values, upstream_version

DEB822 = """\
# the archive
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /keys/debian.gpg

Types: deb
URIs: http://other.example/apt
Suites: stable
Components: main
"""


def target(origin: str = "Debian", created_by: str = "Packages", release: str = "bookworm", entry: str = "") -> str:
    return f"http://mirror.example/debian/|{release}|main|{origin}|{created_by}|{entry}"


@pytest.fixture(autouse=True)
def _no_keyring(tmp_path: Path, mocker: MockerFixture) -> None:
    mocker.patch.object(apt, "DEBIAN_KEYRING", tmp_path / "none.gpg")


def test_only_debians_own_package_indexes_count_and_each_once() -> None:
    """Third-party repositories and translations are not needed."""
    text = "\n".join(
        [
            target(),
            target(),
            target(created_by="Translations"),
            target(origin="Google"),
            target(origin="$(ORIGIN)"),
            "noise",
            target(release="bookworm-security"),
        ]
    )
    uri = "http://mirror.example/debian/"
    assert parse_index_targets(text) == [
        AptSource(uri, "bookworm", "main"),
        AptSource(uri, "bookworm-security", "main"),
    ]


def test_a_source_gives_a_line_for_binaries_and_one_for_sources() -> None:
    """The machine's own list often has only the first."""
    assert AptSource("http://m.example/debian/", "bookworm", "main", "/k.gpg").lines() == (
        "deb [signed-by=/k.gpg] http://m.example/debian/ bookworm main",
        "deb-src [signed-by=/k.gpg] http://m.example/debian/ bookworm main",
    )
    assert AptSource("http://m.example/debian/", "bookworm", "main").lines()[1].startswith("deb-src http:")


def test_the_keyring_is_that_of_the_entry_and_else_debians_own(tmp_path: Path, mocker: MockerFixture) -> None:
    """A mirror with signatures of its own names its key; all others have Debian's signatures."""
    listed = tmp_path / "debian.sources"
    listed.write_text(DEB822)
    assert parse_index_targets(target(entry=f"{listed}:1"))[0].signed_by == "/keys/debian.gpg"
    own = tmp_path / "debian-archive-keyring.gpg"
    own.touch()
    mocker.patch.object(apt, "DEBIAN_KEYRING", own)
    assert parse_index_targets(target(entry=f"{listed}:2"))[0].signed_by == str(own)
    assert parse_index_targets(target(entry="$(SOURCESENTRY)"))[0].signed_by == str(own)


@pytest.mark.parametrize(
    ("text", "number", "expected"),
    [
        pytest.param(DEB822, 1, "/keys/debian.gpg", id="first stanza"),
        pytest.param(DEB822, 2, "", id="second stanza, without a key"),
        pytest.param(DEB822, 3, "", id="no such stanza"),
        pytest.param("Types: deb\nSigned-By:\n -----BEGIN PGP\n", 1, "", id="a key written out is no path"),
        pytest.param("# alone\n\nTypes: deb\nsigned-by: /k.gpg\n", 1, "/k.gpg", id="a comment is no stanza"),
        pytest.param("", 1, "", id="an empty file"),
    ],
)
def test_the_keyring_of_a_stanza_is_found(text: str, number: int, expected: str) -> None:
    """apt tells the file of an entry and, for this format, which stanza it is."""
    assert keyring_of_stanza(text, number) == expected


@pytest.mark.parametrize(
    ("text", "number", "expected"),
    [
        pytest.param("\ndeb [arch=amd64 signed-by=/k.gpg] http://m.example a b", 2, "/k.gpg", id="named"),
        pytest.param("deb [arch=amd64] http://m.example a b", 1, "", id="options without a key"),
        pytest.param("deb http://m.example a b\ndeb [signed-by=/k.gpg] http://n.example a b", 1, "", id="no options"),
        pytest.param("deb [signed-by=0123ABCD] http://m.example a b", 1, "", id="a fingerprint is no path"),
        pytest.param("", 1, "", id="an empty file"),
    ],
)
def test_the_keyring_of_a_line_is_found(text: str, number: int, expected: str) -> None:
    """apt tells the file of an entry and, for this format, its line."""
    assert keyring_of_line(text, number) == expected


def test_root_runs_a_command_as_it_is_and_others_need_sudo(
    mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user who cannot become root gets a message that says what root would have to do."""
    mocker.patch("os.geteuid", return_value=0)
    assert as_root(["apt-get", "update"], "update") == ["apt-get", "update"]
    mocker.patch("os.geteuid", return_value=1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ControlPlaneError, match="root is needed to install rsync, and there is no sudo"):
        as_root(["apt-get", "install", "rsync"], "install rsync")
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\nexit 1\n")
    sudo.chmod(0o755)
    with pytest.raises(ControlPlaneError, match="sudo wants a password"):
        as_root(["apt-get", "install", "rsync"], "install rsync")
    sudo.write_text("#!/bin/sh\nexit 0\n")
    command = as_root(["apt-get", "install", "rsync"], "install rsync")
    assert command[:3] == ["sudo", "-n", "env"]
    assert command[-3:] == ["apt-get", "install", "rsync"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.20.5+really1.20.2-1.1+deb12u1", "1.20.2"),
        ("1.20.2-1", "1.20.2"),
        ("2:1.32.3+ds-2", "1.32.3"),
        ("1.21.0~rc1-1", "1.21.0"),
    ],
)
def test_the_upstream_version_is_that_of_the_code(version: str, expected: str) -> None:
    """Debian's 1.20.5+really1.20.2 is 1.20.2."""
    assert upstream_version(version) == expected


def test_the_validator_of_custom_resources_is_patched_where_it_takes_zero_values_for_null(tmp_path: Path) -> None:
    """kubernetes#99804; a source without that check is not the one of this recipe."""
    validator = tmp_path / "type.go"
    validator.write_text(f"\tif {NULL_CHECK} {{\n")
    accept_zero_values(validator)
    assert validator.read_text() == "\tif data == nil {\n"
    with pytest.raises(ControlPlaneError, match=r"type\.go does not have the check"):
        accept_zero_values(validator)
