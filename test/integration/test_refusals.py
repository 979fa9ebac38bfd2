"""How a real API server rejects pods, and which parts of its message appear in a status, an event or a log.

With `--record` the server's messages are written into `test/data/recordings`, under its version.
"""

import json
from typing import Any

import pytest

from fakes.recordings import texts_file
from fakes.refusals import SECRET, refused_pods
from hack.control_plane import ControlPlane
from tfjob_operator.api.client import HttpTransport, Request, load_settings
from tfjob_operator.api.client.errors import error_from_response
from tfjob_operator.api.client.http import Transport
from tfjob_operator.api.text import MAX_BYTES


async def _answer(
    transport: Transport, method: str, path: str, body: Any = None, dry_run: str = ""
) -> tuple[int, bytes]:
    sent = None if body is None else json.dumps(body).encode()
    response = await transport.send(Request(method, path, {"dryRun": dry_run} if dry_run else {}, sent))
    try:
        return response.status, await response.body()
    finally:
        response.close()


async def test_what_the_api_server_says_of_a_refused_pod_is_reported_without_its_values(
    control_plane: ControlPlane, namespace: str, pytestconfig: pytest.Config
) -> None:
    """U5, D5: the server's decode and validation errors quote what users wrote; the operator does not, however long it is."""
    said: dict[str, str] = {}
    pods = refused_pods() | {"label of 800 KB": {"metadata": {"name": "a", "labels": {"a": "x" * 800_000}}, "spec": {}}}
    async with HttpTransport(load_settings(str(control_plane.kubeconfig))) as transport:
        version = str(json.loads((await _answer(transport, "GET", "/version"))[1])["gitVersion"]).removeprefix("v")
        for what, pod in pods.items():
            code, body = await _answer(transport, "POST", f"/api/v1/namespaces/{namespace}/pods", pod, "All")
            if code < 300:
                continue
            error = error_from_response(code, body, request="POST /pods")
            assert SECRET.lower() not in str(error).lower(), what
            assert len(str(error).encode()) <= MAX_BYTES + 100, what
            said[what] = json.loads(body)["message"]
    assert len(said) > 30
    if pytestconfig.getoption("--record", default=False):
        del said["label of 800 KB"]
        texts_file(version, "refusals").write_text(json.dumps(said, indent=1) + "\n")
