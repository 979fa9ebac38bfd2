"""Folders to layers, layers to an OCI archive."""

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from pytest_mock import MockerFixture

from hack.image import build


def a_tree(folder: Path, *, modified: float) -> Path:
    """Create a folder with a program and a link; `modified` is the program's time."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "tool").write_text("#!/bin/sh\n")
    (folder / "bin" / "tool").chmod(0o755)
    (folder / "bin" / "alias").symlink_to("tool")
    os.utime(folder / "bin" / "tool", (modified, modified))
    return folder


def test_the_same_content_is_the_same_layer(tmp_path: Path) -> None:
    """Whenever and by whomever it was packed: a layer's name is its digest, so nodes can reuse layers that they have."""
    first = build.pack(a_tree(tmp_path / "a", modified=1.0), tmp_path / "a.tar")
    second = build.pack(a_tree(tmp_path / "b", modified=2e9), tmp_path / "b.tar")
    assert (first.digest, first.size) == (second.digest, second.size)
    with tarfile.open(first.path) as packed:
        tool = packed.getmember("bin/tool")
        assert (tool.uid, tool.gid, tool.mtime, tool.mode & 0o777) == (0, 0, 0, 0o755)
        assert packed.getmember("bin/alias").linkname == "tool"


def test_every_blob_of_an_archive_is_named_by_its_digest(tmp_path: Path, mocker: MockerFixture) -> None:
    """OCI image specification 1.0: from the index to the manifest of the platform, then to configuration and layers."""
    mocker.patch.object(build, "output_of", return_value="amd64\n")
    layer = build.pack(a_tree(tmp_path / "a", modified=1.0), tmp_path / "a.tar")
    target = tmp_path / "image.tar"
    build.write(target, "example/tool:7", [layer], {"User": "65532:65532"})
    with tarfile.open(target) as packed:

        def read(name: str) -> bytes:
            file = packed.extractfile(name)
            assert file is not None
            return file.read()

        def blob(described: dict[str, Any]) -> bytes:
            algorithm, _, digest = described["digest"].partition(":")
            content = read(f"blobs/{algorithm}/{digest}")
            assert hashlib.sha256(content).hexdigest() == digest
            assert len(content) == described["size"]
            return content

        assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        described, by_digest = json.loads(read("index.json"))["manifests"]
        assert described["annotations"]["io.containerd.image.name"] == "example/tool:7"
        assert by_digest["annotations"] == {"io.containerd.image.name": f"example/tool@{described['digest']}"}
        assert by_digest["digest"] == described["digest"]
        (listed,) = json.loads(blob(described))["manifests"]
        assert listed["platform"] == {"architecture": "amd64", "os": "linux"}
        manifest = json.loads(blob(listed))
        config = json.loads(blob(manifest["config"]))
        assert config["config"] == {"User": "65532:65532"}
        assert config["architecture"] == "amd64"
        assert [f"sha256:{hashlib.sha256(blob(x)).hexdigest()}" for x in manifest["layers"]] == config["rootfs"][
            "diff_ids"
        ]
        (docker,) = json.loads(read("manifest.json"))
        assert docker["RepoTags"] == ["example/tool:7"]
        assert json.loads(read(docker["Config"])) == config
        assert [read(path) for path in docker["Layers"]] == [blob(x) for x in manifest["layers"]]
