"""The life cycle of a job with each SDK, in parallel, each in its own namespace of one control plane, with the role `edit`."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from hack.control_plane import ControlPlane
from hack.matrix.cluster import MANIFESTS, ROOT, at_work
from hack.matrix.environments import SDKS, Sdk, packages_of

PROGRAM_LIMIT_S: Final = 300.0  # half a minute on a quiet machine
ACCOUNT: Final = "notebook"


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The programs of the SDKs that are tried, by client; each was started, and ends with the matrix at the latest."""
    chosen: list[Any] = [
        item.callspec.params["sdk"] for item in request.session.items if isinstance(item, pytest.Function)
    ]
    with ControlPlane.start("sdks") as plane:
        plane.run_kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / "standalone"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        with at_work(plane), contextlib.ExitStack() as stack:
            yield {sdk.client: stack.enter_context(started(sdk, plane)) for sdk in chosen if sdk.runs_here}


@contextlib.contextmanager
def started(sdk: Sdk, plane: ControlPlane) -> Iterator[subprocess.Popen[str]]:
    """Start the program of an SDK."""
    namespace = sdk.client.replace(".", "-")
    plane.create_namespace(namespace)
    # As docs/kubectl-tfjob.md says.
    plane.run_kubectl("-n", namespace, "create", "rolebinding", "notebook", "--clusterrole=edit", f"--user={ACCOUNT}")
    # With -S, Python has no packages but those of PYTHONPATH.
    command = [sys.executable, "-S", "-m", "hack.matrix.programs.life", str(plane.kubeconfig_for(ACCOUNT)), namespace]
    settings = {**os.environ, "PYTHONPATH": f"{packages_of(sdk)}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    settings.pop("KUBECONFIG", None)
    logs = plane.directory / "logs"
    with (
        (logs / f"{namespace}.log").open("w+") as out,
        subprocess.Popen(command, stdout=out, stderr=out, cwd=logs, env=settings, text=True) as process,
    ):
        process.stdout = out
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.client)
def test_the_life_of_a_job(sdk: Sdk, programs: dict[str, subprocess.Popen[str]]) -> None:
    """All its steps, as `programs.life` lists them; numpy 1.23.5 of the oldest SDK has no wheel for Python 3.12."""
    if not sdk.runs_here:
        pytest.skip(f"{sdk.client} needs Python {'.'.join(map(str, sdk.newest_python))} or older")
    process = programs[sdk.client]
    code = process.wait(PROGRAM_LIMIT_S)
    assert process.stdout is not None
    process.stdout.seek(0)
    print(process.stdout.read())
    assert code == 0
