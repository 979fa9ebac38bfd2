"""How apt's own configuration is read to fetch Debian's source packages."""

from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from hack import debian, packages
from hack.control_plane import ControlPlaneError
from hack.control_plane.build import apt
from hack.control_plane.build.apt import DEBIAN_KEYRING, AptSource, as_root, parse_index_targets, sources_of
from hack.control_plane.build.binaries import NULL_CHECK, accept_zero_values, upstream_version


def test_only_debians_own_package_indexes_count_and_each_once() -> None:
    """Third-party repositories and translations are not needed. The machine's own list often lacks sources."""

    def target(origin: str = "Debian", created_by: str = "Packages", release: str = "bookworm") -> str:
        return f"http://mirror.example/debian/|{release}|main|{origin}|{created_by}"

    others = (target(created_by="Translations"), target("Google", release="stable"), target("$(ORIGIN)"), "noise")
    found = parse_index_targets("\n".join((target(), target(), *others, target(release="bookworm-security"))))
    uri = "http://mirror.example/debian/"
    assert found == [AptSource(uri, "bookworm", "main"), AptSource(uri, "bookworm-security", "main")]
    assert found[0].lines() == (
        f"deb [signed-by={DEBIAN_KEYRING}] {uri} bookworm main",
        f"deb-src [signed-by={DEBIAN_KEYRING}] {uri} bookworm main",
    )


MAIN, SECURITY = "http://mirror.example/debian/", "http://mirror.example/debian-security/"


@pytest.mark.parametrize("own", ["bookworm", "trixie", "stable", "sid"])
def test_programs_come_from_the_named_release_whatever_the_machine_has(own: str) -> None:
    """From the archives of the machine, with the updates that it uses; its backports and testing releases add nothing."""
    found = sources_of("bookworm", [AptSource(MAIN, own, "main")])
    assert found == [AptSource(MAIN, "bookworm", "main")]
    more = [AptSource(MAIN, f"{own}-updates", "main"), AptSource(SECURITY, f"{own}-security", "main")]
    others = [AptSource(MAIN, "forky", "main"), AptSource(MAIN, f"{own}-backports", "main")]
    assert sources_of("bookworm", [AptSource(MAIN, own, "main"), *more, *others]) == [
        AptSource(MAIN, "bookworm", "main"),
        AptSource(MAIN, "bookworm-updates", "main"),
        AptSource(SECURITY, "bookworm-security", "main"),
    ]


APT_GET = """#!/bin/sh
case "$*" in
*indextargets*) echo 'http://mirror.example/debian/|trixie|main|Debian|Packages' ;;
*download*) echo "$*" >>"$CALLS"; touch "${*##* }_1_amd64.deb" ;;
*) echo "$*" >>"$CALLS" ;;
esac
for option; do
    case "$option" in Dir::Etc::sourcelist=*) cat "${option#*=}" >>"$CALLS" ;; esac
done
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is asked of apt-get on a machine with Debian 13, and its source lists; dpkg-deb unpacks nothing."""
    for name, script in {
        "apt-get": APT_GET,
        "dpkg-deb": '#!/bin/sh\nmkdir "$3"\n',
        "dpkg-query": "#!/bin/sh\nexit 1\n",
    }.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_an_unpacked_program_is_that_of_its_release_even_if_a_newer_one_is_installed(calls: Path) -> None:
    """apt must not know of installed packages: it would choose the newer version, which no archive here has."""
    folder = packages.unpack("etcd-server")
    assert folder.parts[-2:] == (debian.PROGRAMS, "etcd-server")
    *_, download, _, _ = calls.read_text().splitlines()
    assert download.endswith("download etcd-server")
    assert "Dir::State::status=" in download
    assert f" {debian.PROGRAMS} main\n" in calls.read_text()
    assert " trixie main" not in calls.read_text()


def test_tools_are_installed_from_the_release_of_the_machine(calls: Path, mocker: MockerFixture) -> None:
    """Those of another release would replace libraries of the machine."""
    mocker.patch("os.geteuid", return_value=0)
    packages.install(["golang-go", "patch"])
    *_, install, source, _ = calls.read_text().splitlines()
    assert install.endswith("install golang-go patch")
    assert "Dir::State::status=" not in install
    assert source.endswith(f"{MAIN} trixie main")
    assert "bookworm" not in calls.read_text()


def test_tools_that_are_there_need_no_index(calls: Path, mocker: MockerFixture) -> None:
    """Neither network nor root."""
    mocker.patch.object(apt, "is_installed", return_value=True)
    packages.install(["golang-go", "patch"])
    assert not calls.exists()


def test_root_runs_a_command_as_it_is_and_others_need_sudo(
    mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user who cannot become root gets a message that says what root would have to do."""
    mocker.patch("os.geteuid", return_value=0)
    assert as_root(["apt-get", "update"], "update") == ["apt-get", "update"]
    mocker.patch("os.geteuid", return_value=1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ControlPlaneError, match="root is required to install rsync, and sudo is missing"):
        as_root(["apt-get", "install", "rsync"], "install rsync")
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\nexit 1\n")
    sudo.chmod(0o755)
    with pytest.raises(ControlPlaneError, match="sudo needs a password"):
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
    """kubernetes#99804; a source without that check is rejected."""
    validator = tmp_path / "type.go"
    validator.write_text(f"\tif {NULL_CHECK} {{\n")
    accept_zero_values(validator)
    assert validator.read_text() == "\tif data == nil {\n"
    with pytest.raises(ControlPlaneError, match=r"type\.go does not contain the check"):
        accept_zero_values(validator)
