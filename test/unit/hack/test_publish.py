"""Publishing to a registry: artifacts, credentials, tokens. integration/test_publish.py pushes to a real registry."""

import base64
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pytest_mock import MockerFixture

from hack.chart.__main__ import pack as pack_chart
from hack.control_plane.build.commands import ControlPlaneError
from hack.http_server import Handler, serving
from hack.image import build
from hack.publish import artifacts
from hack.publish.__main__ import publish
from hack.publish.artifacts import MANIFEST, Artifact, Manifest, digest_of
from hack.publish.registry import Registry, RegistryError, credentials

TOKEN: Final = "a-token"
BASIC: Final = "Basic " + base64.b64encode(b"user:password").decode()
BLOB: Final = b"content"
ARTIFACT: Final = Artifact("tool", {digest_of(BLOB): BLOB}, (Manifest(MANIFEST, b"{}"),))


class Stored(Handler):
    """A registry that requires a token, and gives one for the right password; its uploads are elsewhere, without a token."""

    storage = "http://localhost"
    requests: list[tuple[str, str, str | None]]
    tagged: bytes | None
    redirects: bool = False
    """Whether it has the blob, and answers with the address of its storage."""

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        given = self.headers["Authorization"]
        self.requests.append((self.command, path, given))
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if path == "/token":
            wanted = "service=registry&scope=repository%3Ateam%2Ftool%3Apull%2Cpush"
            self.answer({"token": TOKEN} if given == BASIC else {}, 200 if given == BASIC and query == wanted else 403)
        elif path.startswith("/storage"):
            self._empty(201 if given is None else 400, {})
        elif self.command == "HEAD" and given and self.redirects:
            self._empty(307, {"Location": "/storage"})
        elif given != f"Bearer {TOKEN}":
            realm = f"http://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
            self._empty(401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="registry",scope="ignored"'})
        elif self.command == "POST":
            self._empty(202, {"Location": f"{self.storage}:{self.server.server_port}/storage?id=7"})  # type: ignore[attr-defined]
        elif self.command == "GET" and self.tagged is not None:
            self.answer(self.tagged)
        else:
            self._empty(201 if self.command == "PUT" else 404, {})

    do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815 - names of the base class

    def _empty(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of the registry, whose user has logged in."""
    monkeypatch.setattr(Stored, "requests", [], raising=False)
    monkeypatch.setattr(Stored, "tagged", None, raising=False)
    with serving(Stored) as port:
        address = f"127.0.0.1:{port}"
        login(monkeypatch, {"auths": {address: {"username": "user", "password": "password"}}})
        yield f"{address}/team"


def login(monkeypatch: pytest.MonkeyPatch, config: object) -> None:
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", json.dumps(config))


def test_a_token_is_requested_once_and_sent_to_the_registry_alone(served: str) -> None:
    """Uploads may be at another host, which gets no credentials. The tag is set last."""
    Registry(served).push(ARTIFACT, "7")
    bearer = f"Bearer {TOKEN}"
    blob = f"/v2/team/tool/blobs/{digest_of(BLOB)}"
    assert Stored.requests == [
        ("HEAD", blob, None),
        ("GET", "/token", BASIC),
        ("HEAD", blob, bearer),
        ("POST", "/v2/team/tool/blobs/uploads/", bearer),
        ("PUT", "/storage", None),
        ("PUT", "/v2/team/tool/manifests/7", bearer),
    ]


def test_a_blob_that_the_registry_has_in_a_storage_is_not_sent(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up with the same method, since a GET would download it, and without the token."""
    monkeypatch.setattr(Stored, "redirects", True)
    Registry(served).push(ARTIFACT, "7")
    assert ("HEAD", "/storage", None) in Stored.requests
    assert [path for method, path, _ in Stored.requests if method in {"POST", "PUT"}] == ["/v2/team/tool/manifests/7"]


def test_an_upload_over_plain_http_to_another_host_is_refused(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stored, "storage", "http://storage.example.com")
    with pytest.raises(RegistryError, match="plain HTTP is used on loopback only"):
        Registry(served).push(ARTIFACT, "7")


def test_a_refused_token_names_the_remedy(served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    login(monkeypatch, {})
    with pytest.raises(RegistryError, match="refused a token: 403 Forbidden; run `docker login "):
        Registry(served).push(ARTIFACT, "7")


def test_nothing_is_pushed_if_one_artifact_has_other_content_under_the_version(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the artifact itself nor those before it."""
    monkeypatch.setattr(Stored, "tagged", b"other")
    with pytest.raises(ControlPlaneError, match=f"exists with other content, {digest_of(b'other')}"):
        publish(Registry(served), [ARTIFACT], force=False)
    assert {method for method, *_ in Stored.requests} == {"GET"}
    monkeypatch.setattr(Stored, "tagged", b"{}")
    (reference,) = publish(Registry(served), [ARTIFACT], force=False)
    assert reference.endswith(f"@{digest_of(b'{}')}")
    assert {method for method, *_ in Stored.requests} == {"GET"}


@pytest.mark.parametrize("address", ["", "https://registry.example.com", "/team", "registry.example.com/Team"])
def test_an_address_is_a_host_and_a_path(address: str) -> None:
    with pytest.raises(RegistryError, match="expected HOST"):
        Registry(address)


@pytest.mark.parametrize(
    ("host", "config", "expected"),
    [
        pytest.param("r.example.com", {}, None, id="none"),
        pytest.param("r.example.com", {"auths": {"other": {"auth": "dTpw"}}}, None, id="of another registry"),
        pytest.param("r.example.com", {"auths": {"r.example.com": {"auth": "dTpwOnE="}}}, ("u", "p:q"), id="encoded"),
        pytest.param("r.example.com", {"auths": {"r.example.com": {}}, "credsStore": "safe"}, ("s", "t"), id="store"),
        pytest.param("r.example.com", {"credHelpers": {"r.example.com": "safe"}}, ("s", "t"), id="helper"),
        pytest.param("other.example.com", {"credHelpers": {"r.example.com": "safe"}}, None, id="another's helper"),
        pytest.param("other.example.com", {"credsStore": "safe"}, None, id="not in the store"),
        pytest.param("docker.io", {"auths": {"https://index.docker.io/v1/": {"auth": "dTpw"}}}, ("u", "p"), id="hub"),
    ],
)
def test_credentials_are_those_of_docker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str, config: Any, expected: tuple[str, str] | None
) -> None:
    """From the variable or the file, which may name a program that has them."""
    helper = tmp_path / "docker-credential-safe"
    helper.write_text('#!/bin/sh\n[ "$1 $(cat)" = "get r.example.com" ] && echo \'{"Username": "s", "Secret": "t"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    login(monkeypatch, config)
    assert credentials(host) == expected
    monkeypatch.delenv("DOCKER_AUTH_CONFIG")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert credentials(host) == expected


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"credsStore": "missing"}', '{"auths": {"h": {"auth": "a"}}}'])
def test_an_unreadable_configuration_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Publishing without credentials would fail with a misleading message."""
    monkeypatch.setenv("DOCKER_AUTH_CONFIG", text)
    with pytest.raises(RegistryError, match="cannot read the credentials of h"):
        credentials("h")


def test_an_image_is_pushed_with_its_blobs_and_its_index_last(tmp_path: Path, mocker: MockerFixture) -> None:
    """The digest of the artifact is that of the build, which the manifests name."""
    mocker.patch.object(build, "output_of", return_value="amd64\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").touch()
    layer = build.pack(tmp_path / "tree", tmp_path / "layer.tar")
    digest = build.write(tmp_path / "image.tar", "example/tool:7", [layer], {})
    found = artifacts.image(tmp_path / "image.tar", tmp_path / "work")
    assert found.digest == digest
    assert [each.media_type for each in found.manifests] == [MANIFEST, build.INDEX]
    (config, blob) = (json.loads(found.manifests[0].data)[key] for key in ("config", "layers"))
    assert found.blobs.keys() == {config["digest"], f"sha256:{layer.digest}"} == {config["digest"], blob[0]["digest"]}


def test_a_chart_and_files_have_the_same_digest_each_time(tmp_path: Path) -> None:
    """Helm takes name and version of a chart from its configuration."""
    chart = pack_chart(tmp_path)
    first, second = (artifacts.chart(chart) for _ in range(2))
    assert first == second
    manifest = json.loads(first.manifests[0].data)
    config = first.blobs[manifest["config"]["digest"]]
    assert isinstance(config, bytes)
    assert (json.loads(config)["name"], first.repository) == ("tf-job-operator-chart", "tf-job-operator-chart")
    assert artifacts.files([chart]).digest == artifacts.files([chart]).digest
    (layer,) = json.loads(artifacts.files([chart]).manifests[0].data)["layers"]
    assert layer["annotations"] == {"org.opencontainers.image.title": chart.name}


def test_a_chart_may_have_its_image_in_a_registry_with_a_port(tmp_path: Path) -> None:
    digest = f"sha256:{'b' * 64}"
    chart = pack_chart(tmp_path, image=f"127.0.0.1:5000/team/tool:7@{digest}")
    with tarfile.open(chart) as packed:
        values = packed.extractfile("tf-job-operator-chart/values.yaml")
        assert values is not None
        image = yaml.safe_load(values)["image"]
    assert (image["repository"], image["tag"]) == ("127.0.0.1:5000/team/tool", f"7@{digest}")
