"""What a configuration file may say, and which mistakes are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.manifests import read_document
from tfjob_operator.controller.config.file import ConfigFileError, parse
from tfjob_operator.controller.config.values import Accelerator, ControllerConfig, HostVolume, Variable

EXAMPLE = Path(__file__).parents[4] / "manifests" / "addons" / "accelerators-azure" / "config.yaml"


def test_the_example_of_the_manifests_is_read() -> None:
    """Three paths of the driver, and a variable."""
    (content,) = read_document(EXAMPLE)["data"].values()
    config = parse(content.encode())
    assert config.accelerators is not None
    gpu = config.accelerators["alpha.kubernetes.io/nvidia-gpu"]
    assert gpu is not None
    assert [volume.name for volume in gpu.volumes or ()] == ["lib", "bin", "libcuda"]
    assert gpu.env_vars == (Variable(name="LD_LIBRARY_PATH", value="/usr/lib/nvidia:/usr/lib/x86_64-linux-gnu"),)


def test_every_key_is_read() -> None:
    """Two of them are for jobs of the alpha dialect alone."""
    content = b"""
grpcServerFilePath: /opt/server.py
tfImage: tensorflow/tensorflow:1.3.0
accelerators:
  a.com/x:
    volumes: [{name: lib, hostPath: /lib/x, mountPath: /x}]
    envVars: [{name: EMPTY}]
"""
    lib = HostVolume(name="lib", host_path="/lib/x", mount_path="/x")
    assert parse(content) == ControllerConfig(
        accelerators={"a.com/x": Accelerator(volumes=(lib,), env_vars=(Variable(name="EMPTY"),))},
        grpc_server_file_path="/opt/server.py",
        tf_image="tensorflow/tensorflow:1.3.0",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        b"# nothing\n",
        b"---\n",
        b"accelerators:\n",
        b"accelerators:\n  a:\n",
        b"accelerators:\n  a:\n    volumes:\n",
    ],
)
def test_what_is_left_empty_says_nothing(content: bytes) -> None:
    """As in the output of a template whose values are not set."""
    config = parse(content)
    assert not any((each.volumes or each.env_vars) for each in (config.accelerators or {}).values() if each is not None)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1]", "got `array`"),
        ("accelerators: 5", "$.accelerators"),
        ("accelerator: {}", "unknown field `accelerator`"),
        ("accelerators: [", "line 2"),
        ("tfImage: 5", "$.tfImage"),
        ("&a [*a]", "got `array`"),
        ("accelerators: &a {x: *a}", "unknown field `x`"),
        ("!!python/object/apply:os.abort []", "python/object"),
        ("accelerators: {'a b': }", "accelerators[a b]: must be the name of a resource"),
        ("accelerators: {a: {volumes: [{name: lib, hostPath: /x}]}}", "missing required field `mountPath`"),
        (
            "accelerators: {a: {volumes: [{name: Lib, hostPath: /x, mountPath: /x}]}}",
            "volumes[0].name: must consist of",
        ),
        ("accelerators: {a: {volumes: [{name: x, hostPath: x, mountPath: /x}]}}", "volumes[0].hostPath: must be"),
        ("accelerators: {a: {volumes: [{name: x, hostPath: /x/../y, mountPath: /x}]}}", "without '..'"),
        ("accelerators: {a: {volumes: [{name: x, hostPath: /x, mountPath: '/x:y'}]}}", "volumes[0].mountPath: must be"),
        (
            "accelerators: {a: {volumes: [{name: x, hostPath: /x, mountPath: /m}, {name: x, hostPath: /y, mountPath: /n}]}}",
            "x has more than one path of the node",
        ),
        (
            "accelerators: {a: {volumes: [{name: x, hostPath: /x, mountPath: /m}, {name: y, hostPath: /y, mountPath: /m/}]}}",
            "/m is mounted twice",
        ),
        ("accelerators: {a: {envVars: [{name: A=B}]}}", "envVars[0].name: must be the name of an environment variable"),
        ("accelerators: {a: {envVars: [{name: TF_CONFIG, value: x}]}}", "TF_CONFIG is set by the operator"),
        ("accelerators: {a: {envVars: [{name: A, value: 1}]}}", "got `int`"),
        ("accelerators: {a: {envVars: [{name: A}, {name: A}]}}", "A is set twice"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(content: str, told: str) -> None:
    """In one line."""
    with pytest.raises(ConfigFileError) as raised:
        parse(content.encode())
    assert told in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00", b"[" * 2_000, b"{a: " * 2_000])
def test_nonsense_is_reported_like_any_mistake(content: bytes) -> None:
    """A crash would end the operator for all jobs."""
    with pytest.raises(ConfigFileError):
        parse(content)


def test_all_mistakes_are_reported_at_once() -> None:
    """Whoever corrects one must not wait a minute to see the next."""
    with pytest.raises(ConfigFileError, match=r"name: must consist of .*; .*hostPath: must be .*; .*TF_CONFIG"):
        parse(b"accelerators: {a: {volumes: [{name: A, hostPath: a, mountPath: /a}], envVars: [{name: TF_CONFIG}]}}")
