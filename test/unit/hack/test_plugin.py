"""The packaged plugin: reproducible archives, and krew's manifest."""

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from hack.plugin import archive
from hack.plugin.archive import PLATFORMS, PYTHONS, ROOT, Packed
from tfjob_operator.cli.yaml_text import yaml_text

SEMVER = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    """Wheels for two Pythons: a module that is compiled for each, and this project's own, which prints who imported it."""
    made = []
    for tag in ("cp311", "cp312"):
        made.append(tmp_path / f"fast-1.0-{tag}-none-any.whl")
        with zipfile.ZipFile(made[-1], "w") as wheel:
            wheel.writestr("fast/__init__.py", "")
            wheel.writestr(f"fast/_core.{tag}.so", tag)
            wheel.writestr("fast-1.0.data/scripts/fast", "not wanted")
    made.append(tmp_path / "tfjob_operator-0.1.0-py3-none-any.whl")
    with zipfile.ZipFile(made[-1], "w") as wheel:
        wheel.writestr("tfjob_operator/__init__.py", "")
        wheel.writestr("tfjob_operator/cli/__init__.py", "")
        for module in ("__main__", "complete"):
            wheel.writestr(
                f"tfjob_operator/cli/{module}.py", f"import sys, fast\ndef main(): print({module!r}, *sys.argv[1:])\n"
            )
    return made


def test_an_archive_has_the_modules_of_every_python_beside_each_other(wheels: list[Path]) -> None:
    """Their file names differ; scripts of other packages are left out, and the licence is included."""
    files = archive.contents(wheels)
    assert {name for name in files if "fast" in name} == {
        "lib/fast/__init__.py",
        "lib/fast/_core.cp311.so",
        "lib/fast/_core.cp312.so",
    }
    assert files["LICENSE"][0] == (ROOT / "LICENSE").read_bytes()


def test_the_same_files_make_the_same_archive(wheels: list[Path]) -> None:
    """In whichever order they are packed: krew's manifest has the archive's digest."""
    files = archive.contents(wheels)
    packed = archive.pack(files)
    assert packed == archive.pack(dict(reversed(files.items())))
    assert packed[4:8] == bytes(4), "gzip's header has no time"
    with tarfile.open(fileobj=io.BytesIO(packed)) as read:
        modes = {member.name: member.mode for member in read}
        assert all(not member.mtime and not member.uid and not member.uname for member in read)
    assert {name for name, mode in modes.items() if mode == 0o755} == set(archive.PROGRAMS)


@pytest.mark.parametrize(("program", "module"), list(archive.PROGRAMS.items()))
def test_an_unpacked_program_finds_its_modules_through_a_link(
    wheels: list[Path], tmp_path: Path, program: str, module: str
) -> None:
    """As krew makes one; and it does not use modules of the user's environment."""
    with tarfile.open(fileobj=io.BytesIO(archive.pack(archive.contents(wheels)))) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        packed.extractall(tmp_path / "store")
    (tmp_path / program).symlink_to(tmp_path / "store" / program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [tmp_path / program, "list"], env={"PATH": path}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{module} list\n"


def test_a_single_file_is_the_same_program_and_is_packed_alike_each_time(wheels: list[Path], tmp_path: Path) -> None:
    """It unpacks itself where it is told to, and does not start on a Python that it has no modules for."""
    files = archive.contents(wheels)
    for name in ("kubectl-tfjob", "again"):
        archive.pack_file(files, tmp_path / name)
    program = tmp_path / "kubectl-tfjob"
    assert program.read_bytes() == (tmp_path / "again").read_bytes()
    with zipfile.ZipFile(program) as packed:
        assert {entry.external_attr >> 16 for entry in packed.infolist()} == {0o100644}
    environ = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "SHIV_ROOT": str(tmp_path)}
    done = subprocess.run([program, "list"], env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "__main__ list\n"
    old = "import sys; sys.version_info = (3, 10); exec(compile(sys.argv[1], 'preamble', 'exec'))"
    refused = subprocess.run([sys.executable, "-c", old, archive.CHECK], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: kubectl tfjob needs Python 3.11")


def test_an_archive_needs_what_setup_cfg_says_but_for_what_only_the_operator_needs() -> None:
    """And it is for the Pythons that setup.cfg names."""
    names = {re.split(r"[ <>=]", each)[0] for each in archive.requirements()}
    assert {"aiohttp", "click", "msgspec", "PyYAML"} <= names
    assert not names & set(archive.NOT_NEEDED)
    config = (ROOT / "setup.cfg").read_text()
    assert re.findall(r"Python :: (3\.\d+)", config) == list(PYTHONS)
    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/install.md", "docs/kubectl-tfjob.md")]
    for text in (archive.CHECK, archive.CAVEATS, *pages):
        assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in text


def test_the_manifest_is_as_krew_wants_it() -> None:
    """Name, semantic version, archives with digests, each system once; at most fifty characters in the list of plugins."""
    made = [Packed(platform, [], hashlib.sha256(platform.archive.encode()).hexdigest()) for platform in PLATFORMS]
    written = archive.manifest("0.1.0", "https://example.com/v0.1.0/", made)
    read = yaml.safe_load(yaml_text(written, sort_keys=False))
    assert read == written
    assert (read["apiVersion"], read["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert read["metadata"] == {"name": "tfjob"}
    spec = read["spec"]
    assert SEMVER.fullmatch(spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    selectors = [each["selector"]["matchLabels"] for each in spec["platforms"]]
    assert {(each["os"], each["arch"]) for each in selectors} == {
        (system, arch) for system in ("linux", "darwin") for arch in ("amd64", "arm64")
    }
    for each in spec["platforms"]:
        assert re.fullmatch(r"https://example\.com/v0\.1\.0/[\w.-]+\.tar\.gz", each["uri"])
        assert re.fullmatch(r"[0-9a-f]{64}", each["sha256"])
        assert each["bin"] in archive.PROGRAMS
