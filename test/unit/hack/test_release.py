"""The files of a release: one version, reproducible packages, checksums and their signature."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from hack import release
from hack.control_plane.build.commands import ControlPlaneError
from hack.image.build import IMAGE, PROJECT, VERSION
from hack.library import build_wheel as build_library
from hack.plugin.archive import build_sdist, build_wheel
from hack.release import Source, checksums, new_key, provenance, sign, source, versioned, with_image
from support.machine import lacks
from support.pages import below
from tfjob_operator.controller.options import VERSION as PROGRAM_VERSION

COMMIT = "a" * 40
TAG = f"v{VERSION}"


@pytest.mark.parametrize("file", versioned(), ids=lambda path: path.name)
def test_each_file_that_names_the_version_names_that_of_setup_cfg(
    file: Path, check_generated: Callable[[Path, str], None]
) -> None:
    """`make renew` copies the version after it was raised."""
    text = versioned()[file]
    assert VERSION in text, "it does not name the version"
    check_generated(file, text)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("README.md", f"export RELEASE={release.URL}/{VERSION}"),
        ("docs/install.md", f"URL={release.URL}/{VERSION}"),
        ("docs/install.md", f"export REGISTRY={release.REGISTRY or release.EXAMPLE_REGISTRY}"),
    ],
)
def test_pages_name_the_addresses_of_setup_cfg(page: str, text: str) -> None:
    """`make renew` copies them after a release was published for the first time."""
    file = PROJECT / page
    assert text in versioned()[file]
    assert text in file.read_text()


def test_the_programs_and_the_image_have_the_version_of_setup_cfg() -> None:
    """e2e/test_readme.py compares what the installed programs report."""
    shown = subprocess.run(
        [sys.executable, "-m", "tfjob_operator.cli", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert shown == f"kubectl-tfjob {VERSION}\n"
    assert PROGRAM_VERSION == VERSION == IMAGE.rpartition(":")[2]


def test_the_wheels_and_the_source_distribution_are_the_same_bytes_when_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the files have other times, and the user another umask."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    made = []
    for name, mask in (("first", 0o022), ("second", 0o077)):
        scratch = tmp_path / name
        scratch.mkdir()
        before = os.umask(mask)
        try:
            made.append([build(scratch).read_bytes() for build in (build_wheel, build_sdist, build_library)])
        finally:
            os.umask(before)
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("version", "status", "tags", "error"),
    [
        pytest.param(VERSION, "", TAG, "", id="clean and tagged"),
        pytest.param("9.9.9", "", "v9.9.9", "setup.cfg has version", id="another version"),
        pytest.param(VERSION, " M setup.cfg", TAG, "not committed", id="changed"),
        pytest.param(VERSION, "", "", f"does not have the tag {TAG}", id="not tagged"),
        pytest.param(VERSION, "", f"{TAG}-rc1 v9.9.9", f"does not have the tag {TAG}", id="another tag"),
    ],
)
def test_a_release_is_built_from_the_clean_commit_of_its_tag(
    mocker: MockerFixture, version: str, status: str, tags: str, error: str
) -> None:
    answers = {"status": status, "tag": tags, "log": f"{COMMIT} 1700000000\n"}
    mocker.patch.object(release, "output_of", side_effect=lambda *command: answers[command[3]])
    if error:
        with pytest.raises(ControlPlaneError, match=error):
            source(version, dry_run=False)
    else:
        assert source(version, dry_run=False) == Source(COMMIT, "1700000000")


def test_a_dry_run_needs_no_tag_and_a_release_needs_a_key(
    mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"status": " M setup.cfg", "tag": "", "log": f"{COMMIT} 1700000000\n"}
    mocker.patch.object(release, "output_of", side_effect=lambda *command: answers[command[3]])
    assert source(VERSION, dry_run=True).commit == COMMIT
    for argument, error in (f"--version={VERSION}", "--key=FILE"), ("--key=/nowhere", "--key=/nowhere: no such file"):
        monkeypatch.setattr(sys, "argv", ["hack.release", argument])
        with pytest.raises(SystemExit, match="2"):
            release.main()
        assert error in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("openssl") is None, reason=lacks("openssl", "apt-get install openssl"))
@pytest.mark.parametrize(("algorithm", "fits"), [("RSA", True), ("ED25519", False)])
def test_a_key_that_cannot_sign_is_refused_before_anything_is_built(
    tmp_path: Path, algorithm: str, *, fits: bool
) -> None:
    """`openssl dgst`, which is in the README, supports no Ed25519."""
    key = tmp_path / "key"
    subprocess.run(["openssl", "genpkey", "-algorithm", algorithm, "-out", str(key)], check=True, capture_output=True)
    if fits:
        release.check(key)
    else:
        with pytest.raises(ControlPlaneError, match="key cannot sign a release, which needs an RSA or ECDSA key"):
            release.check(key)


def test_manifests_of_a_release_name_the_image_by_digest() -> None:
    """Other images stay."""
    text = f"image: tfjob-operator:{VERSION} # ours\nimage: busybox:1.36\n"
    reference = f"tfjob-operator:{VERSION}@sha256:{'b' * 64}"
    assert with_image(text, reference) == f"image: {reference} # ours\nimage: busybox:1.36\n"


def test_the_commands_of_the_guide_put_the_image_into_a_registry_and_remove_its_digest(tmp_path: Path) -> None:
    """docs/install.md: for a registry, and for runtimes that find a loaded image by tag alone. Other images stay."""
    digest = f"@sha256:{'b' * 64}"
    text = f"- image: tfjob-operator:{VERSION}{digest}\n- image: busybox:1.36{digest}\n"
    file = tmp_path / "install.yaml"
    file.write_text(text)
    typed = [command.text for command in below("docs/install.md", "An image in a registry")]
    registry, without_digest = (command for command in typed if command.startswith("sed "))
    subprocess.run(["bash", "-c", registry], cwd=tmp_path, check=True)
    text = text.replace("tfjob-operator:", "registry.example.com/team/tfjob-operator:")
    assert file.read_text() == text
    subprocess.run(["bash", "-c", without_digest], cwd=tmp_path, check=True)
    assert file.read_text() == text.replace(f"{VERSION}{digest}", VERSION)


def test_the_provenance_names_the_commit_and_every_file_by_its_digest() -> None:
    """A statement of in-toto with SLSA's predicate."""
    made = provenance({"install.yaml": "c" * 64}, Source(COMMIT, "1700000000"))
    assert (made["_type"], made["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    assert made["subject"] == [{"name": "install.yaml", "digest": {"sha256": "c" * 64}}]
    definition = made["predicate"]["buildDefinition"]
    assert [each["digest"] for each in definition["resolvedDependencies"]] == [{"gitCommit": COMMIT}]
    assert definition["externalParameters"] == {"version": VERSION}


@pytest.mark.skipif(shutil.which("openssl") is None, reason=lacks("openssl", "apt-get install openssl"))
def test_the_signature_covers_every_file(tmp_path: Path) -> None:
    """By the commands of the README: one for the checksums, one for the files."""
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "install.yaml").write_text("a: 1\n")
    sign(folder, new_key(tmp_path / "key"))

    def works(*command: str) -> bool:
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0

    verify = ("openssl", "dgst", "-sha256", "-verify", "release.pub", "-signature", "SHA256SUMS.sig", "SHA256SUMS")
    check = ("sha256sum", "--check", "SHA256SUMS")
    assert works(*verify)
    assert works(*check)
    (folder / "install.yaml").write_text("a: 2\n")
    assert not works(*check)
    (folder / "SHA256SUMS").write_text(f"{checksums(folder)['install.yaml']}  install.yaml\n")
    assert works(*check)
    assert not works(*verify)
