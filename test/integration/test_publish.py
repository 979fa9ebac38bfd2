"""`make publish` with a real registry, Debian's: clients install what it pushed from nothing but the registry's address."""

import base64
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hack.chart.__main__ import pack as pack_chart
from hack.control_plane import ControlPlane
from hack.control_plane.build.binaries import find_or_build_programs
from hack.control_plane.build.commands import output_of
from hack.image import build
from hack.image.build import PROJECT, VERSION
from hack.matrix.releases import HELMS, cached
from hack.plugin import archive
from hack.publish import __main__ as publish
from hack.publish.artifacts import digest_of
from hack.release import PUBLIC_KEY, SIGNATURE, SUMS, checksums, new_key, sign, with_image
from support.machine import lacks
from support.registry import USER, registry

LIMIT_S: Final = 120.0

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason=lacks("openssl", "apt-get install openssl"))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """An empty registry, and the path below which the repositories are."""
    with registry(tmp_path) as host:
        yield f"{host}/team"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane for one test: the objects of a release have cluster-wide names."""
    with ControlPlane.start("publish") as plane:
        yield plane


def kubectl() -> Path:
    """The program itself, without the kubeconfig of a control plane."""
    return find_or_build_programs(["kubectl"])["kubectl"]


def write_release(folder: Path, address: str, *, text: str = "") -> str:
    """Write a small release, whose image has one file, and sign it; return the reference of the image."""
    shutil.rmtree(folder, ignore_errors=True)
    tree = folder / "tree"
    tree.mkdir(parents=True)
    (tree / "file").write_text(text)
    layer = build.pack(tree, folder / "layer.tar")
    name = f"{address}/tfjob-operator:{VERSION}"
    reference = f"{name}@{build.write(folder / 'image.tar', name, [layer], build.CONFIG)}"
    shutil.rmtree(tree)
    layer.path.unlink()
    packed = folder / f"tfjob-operator-image-{VERSION}-{build.architecture()}.tar.gz"
    subprocess.run(["gzip", "--no-name", str(folder / "image.tar")], check=True)
    (folder / "image.tar.gz").rename(packed)
    pack_chart(folder, image=reference)
    (folder / f"tfjob-operator-manifests-{VERSION}.tar.gz").write_bytes(archive.pack({"text": (text.encode(), 0o644)}))
    manifests = output_of(str(kubectl()), "kustomize", str(PROJECT / "manifests" / "overlays" / "standalone"))
    (folder / "install.yaml").write_text(with_image(manifests, reference))
    key = new_key(folder.with_name("release.key"))
    sign(folder, key)
    return reference


def published(monkeypatch: pytest.MonkeyPatch, folder: Path, address: str, *options: str) -> int:
    """Run the command for a release in this folder; return its exit code."""
    monkeypatch.setattr(publish, "OUTPUT", folder)
    monkeypatch.setattr(sys, "argv", ["hack.publish", f"--registry={address}", *options])
    return publish.main()


def digests(folder: Path) -> dict[str, str]:
    """The digest of each repository, from the file that the command writes."""
    lines = (folder / publish.PUBLISHED).read_text().splitlines()
    return {line.partition(f":{VERSION}@")[0].rpartition("/")[2]: line.rpartition("@")[2] for line in lines}


def get(address: str, path: str) -> bytes:
    """Get something from the repositories as anybody may, such as `tfjob-operator/manifests/0.2.1`."""
    host, _, team = address.partition("/")
    url = f"http://{host}/v2/{team}/{path}"
    accepted = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accepted}), timeout=30.0) as answer:
        return bytes(answer.read())


@pytest.mark.skipif(os.geteuid() != 0, reason=lacks("root, who can use chroot", "sudo"))
@pytest.mark.parametrize(
    "helm", [None, *(each.helm for each in HELMS)], ids=lambda helm: f"helm-{helm}" if helm else "kubectl"
)
def test_helm_and_kubectl_install_a_release_from_the_address_of_the_registry_alone(
    address: str, plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helm: str | None
) -> None:
    """In a chroot with one program and a kubeconfig, and nothing else. Both name the image by the digest that was pushed."""
    program = cached("helm", helm) if helm else kubectl()
    if program is None:
        pytest.skip(lacks(f"helm {helm}", "make chart"))
    folder, root = tmp_path / "release", tmp_path / "root"
    reference = write_release(folder, address)
    assert published(monkeypatch, folder, address) == 0
    assert reference.rpartition("@")[2] == digests(folder)["tfjob-operator"]
    (root / "tmp").mkdir(parents=True)
    shutil.copy(program, root / "program")
    shutil.copy(plane.kubeconfig, root / "kubeconfig")
    if helm:
        plain = [] if helm.startswith("3.9") else ["--plain-http"]  # which the older one does on loopback anyway
        chart = f"oci://{address}/tf-job-operator-chart"
        command = ["install", "tf-job", chart, f"--version={VERSION}", *plain, "-n=kubeflow", "--create-namespace"]
    else:
        host, _, team = address.partition("/")
        blob = f"sha256:{checksums(folder)['install.yaml']}"
        command = ["apply", "--server-side", "-f", f"http://{host}/v2/{team}/tfjob-operator-release/blobs/{blob}"]
    environment = {"HOME": "/tmp", "KUBECONFIG": "/kubeconfig"}
    output_of("chroot", str(root), "/program", *command, limit_s=LIMIT_S, env=environment)
    where = ("-n", "kubeflow", "get", "deployment", "tf-job-operator")
    image = plane.run_kubectl(*where, "-o=jsonpath={.spec.template.spec.containers[0].image}").stdout
    assert image == reference


def test_every_signed_file_of_a_release_can_be_downloaded_again(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the title of each, as oras does; the image and the chart by their manifests."""
    folder = tmp_path / "release"
    write_release(folder, address)
    signed = checksums(folder)
    assert published(monkeypatch, folder, address) == 0
    found: dict[str, bytes] = {}
    for repository in ("tfjob-operator-release", "tf-job-operator-chart"):
        manifest = json.loads(get(address, f"{repository}/manifests/{VERSION}"))
        for layer in manifest["layers"]:
            title = layer.get("annotations", {}).get("org.opencontainers.image.title", f"{repository}-{VERSION}.tgz")
            found[title] = get(address, f"{repository}/blobs/{layer['digest']}")
    (image,) = (name for name in signed if name.startswith("tfjob-operator-image-"))
    assert {SUMS, SIGNATURE, PUBLIC_KEY} < found.keys()
    assert found.keys() == signed.keys() - {image}
    assert all((folder / name).read_bytes() == data for name, data in found.items())
    index = json.loads(get(address, f"tfjob-operator/manifests/{VERSION}"))
    assert [each["platform"] for each in index["manifests"]] == [{"architecture": build.architecture(), "os": "linux"}]
    manifest = json.loads(get(address, f"tfjob-operator/manifests/{index['manifests'][0]['digest']}"))
    for blob in (manifest["config"], *manifest["layers"]):
        assert len(get(address, f"tfjob-operator/blobs/{blob['digest']}")) == blob["size"]


def test_a_version_is_pushed_once_and_replaced_only_by_force(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refusal changes nothing, not even repositories that would be compared later."""
    folder = tmp_path / "release"
    write_release(folder, address, text="first")
    assert published(monkeypatch, folder, address) == 0
    first = digests(folder)
    assert "note: " not in capsys.readouterr().out
    assert published(monkeypatch, folder, address) == 0
    assert capsys.readouterr().err.count("unchanged: ") == len(first)
    assert digests(folder) == first

    write_release(folder, address, text="second")
    assert published(monkeypatch, folder, address) == 1
    assert f"tfjob-operator:{VERSION} exists with other content, {first['tfjob-operator']}" in capsys.readouterr().err
    current = {name: digest_of(get(address, f"{name}/manifests/{VERSION}")) for name in first}
    assert current == first

    assert published(monkeypatch, folder, address, "--force") == 0
    assert digests(folder).keys() == first.keys()
    assert not digests(folder).items() & first.items()
    current = {name: digest_of(get(address, f"{name}/manifests/{VERSION}")) for name in first}
    assert current == digests(folder)


def test_files_that_differ_from_the_signed_ones_are_not_published(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "release"
    assert published(monkeypatch, folder, address) == 1
    assert "has no signed release: build one with `make release`" in capsys.readouterr().err
    write_release(folder, address)
    with (folder / "install.yaml").open("a") as file:
        file.write("# edited\n")
    assert published(monkeypatch, folder, address) == 1
    assert "not as signed: install.yaml" in capsys.readouterr().err


def test_a_registry_with_a_login_takes_the_credentials_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without credentials and with wrong ones nothing is pushed, and the error names the remedy."""
    folder = tmp_path / "release"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_AUTH_CONFIG", raising=False)
    with registry(tmp_path, login=True) as host:
        write_release(folder, host)
        assert published(monkeypatch, folder, host) == 1
        assert f"{host} requires credentials; run `docker login {host}`" in capsys.readouterr().err
        for password, code in (("wrong", 1), (USER[1], 0)):
            auth = base64.b64encode(f"{USER[0]}:{password}".encode()).decode()
            (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
            assert published(monkeypatch, folder, host) == code
        assert "401 Unauthorized" in capsys.readouterr().err
