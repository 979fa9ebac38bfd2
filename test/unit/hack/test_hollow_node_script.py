"""What the annotations of a pod mean to the hollow node."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.hollow_node.objects import ContainerSpec, HollowMeta, HollowPod, HollowSpec
from hack.hollow_node.script import (
    DEFAULT_INIT_RUN,
    DEFAULT_RUN,
    DEFAULT_STOP,
    Outcome,
    Run,
    Script,
    parse_images,
    parse_script,
    with_images,
)

PREFIX = "hollow.tfjob.kubeflow.org/"


def script(**annotations: str) -> Script:
    """The script of a pod with an init container `setup` and containers `main` and `side`; `__` in a key means `.`."""
    spec = HollowSpec(
        init_containers=[ContainerSpec(name="setup")],
        containers=[ContainerSpec(name="main"), ContainerSpec(name="side")],
    )
    given_keys = {PREFIX + key.replace("__", ".").replace("_", "-"): text for key, text in annotations.items()}
    return parse_script(HollowPod(metadata=HollowMeta(annotations=given_keys), spec=spec))


def test_without_annotations_every_container_has_its_default() -> None:
    """A pod that says nothing runs 2 s and exits with 0."""
    assert script() == Script({"setup": (DEFAULT_INIT_RUN,), "main": (DEFAULT_RUN,), "side": (DEFAULT_RUN,)})
    assert (DEFAULT_RUN.lasts, DEFAULT_RUN.exit_code) == (2.0, 0)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("1s:0", [Run(1.0)]),
        ("0.25s:255", [Run(0.25, exit_code=255)]),
        ("1s:137, 2s:0", [Run(1.0, exit_code=137), Run(2.0)]),
        (" 1s:1 ,0s:0 ", [Run(1.0, exit_code=1), Run(0.0)]),
        ("forever", [Run(math.inf)]),
        ("3s:oom-killed", [Run(3.0, exit_code=137, reason="OOMKilled")]),
        ("3s:evicted", [Run(3.0, Outcome.EVICTED)]),
        ("3s:node-lost", [Run(3.0, Outcome.NODE_LOST)]),
        ("3s:node-shutdown", [Run(3.0, Outcome.NODE_SHUTDOWN)]),
        ("never-start", [Run(outcome=Outcome.NEVER_START)]),
        ("start-error", [Run(outcome=Outcome.START_ERROR)]),
        ("waiting:InvalidImageName", [Run(outcome=Outcome.WAITING, reason="InvalidImageName")]),
        ("rejected, 1s:0", [Run(outcome=Outcome.REJECTED, reason="OutOfcpu"), Run(1.0)]),
        ("rejected:OutOfmemory", [Run(outcome=Outcome.REJECTED, reason="OutOfmemory")]),
        ("1s:1, image-pull-back-off", [Run(1.0, exit_code=1), Run(outcome=Outcome.IMAGE_PULL_BACK_OFF)]),
    ],
)
def test_a_list_of_runs_reads_as_written(text: str, runs: list[Run]) -> None:
    """`run` is for the first container only."""
    got = script(run=text)
    assert list(got.runs["main"]) == runs
    assert got.runs["side"] == (DEFAULT_RUN,)
    assert got.runs["setup"] == (DEFAULT_INIT_RUN,)


def test_a_container_named_in_the_key_is_the_one_that_is_meant() -> None:
    """That works for init containers too; the specific key wins over `run`."""
    got = script(run="1s:1", run__main="2s:2", run__side="forever", run__setup="3s:0")
    assert got.runs == {"setup": (Run(3.0),), "main": (Run(2.0, exit_code=2),), "side": (Run(math.inf),)}


def test_the_last_run_of_a_list_repeats() -> None:
    """So a list need only have the runs that differ."""
    got = script(run="1s:1, 2s:2")
    assert [got.run("main", index).exit_code for index in range(4)] == [1, 2, 2, 2]


def test_runs_of_predecessors_count() -> None:
    """A re-created pod goes on in the list where the pod before it stopped."""
    got = script(run="1s:1, 1s:2, 1s:3", runs_before='{"main": 1}')
    assert [got.run("main", index).exit_code for index in range(3)] == [2, 3, 3]


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("ignore", Run(math.inf)),
        ("lost", Run(0.0, exit_code=137, reason="ContainerStatusUnknown")),
        ("1s:0", Run(1.0)),
        ("0s:3", Run(0.0, exit_code=3)),
    ],
)
def test_on_stop_says_what_sigterm_does(text: str, run: Run) -> None:
    """The default is a program without a handler: it ends at once with 143."""
    assert script(on_stop=text).on_stop == run
    assert script().on_stop == DEFAULT_STOP
    assert (DEFAULT_STOP.lasts, DEFAULT_STOP.exit_code) == (0.0, 143)


@pytest.mark.parametrize(
    ("key", "text", "hint"),
    [
        ("run", "", "cannot be read"),
        ("run", "soon", "cannot be read"),
        ("run", "1:0", "cannot be read"),
        ("run", "1s:0,", "cannot be read"),
        ("run", "-1s:0", "cannot be read"),
        ("run", "1s:256", "no exit code from 0 to 255"),
        ("run", "1s:late", "no exit code from 0 to 255"),
        ("run", "99999999999s:0", "cannot be read"),
        ("run.worker", "1s:0", "no container 'worker', only setup, main, side"),
        ("runs", "1s:0", "is unknown"),
        ("on-stop", "never-start", "write ignore"),
        ("on-stop", "forever", "write ignore"),
        ("on-stop", "1s:evicted", "write ignore"),
        ("runs-before", "1", "written by the node itself"),
        ("runs-before", '{"main": -1}', "written by the node itself"),
    ],
)
def test_what_can_not_be_read_stops_the_pod_and_names_the_annotation(key: str, text: str, hint: str) -> None:
    """The author of the pod sees it in `kubectl describe pod`; the node goes on."""
    got = script(**{key.replace(".", "__").replace("-", "_"): text})
    for container in ("setup", "main", "side"):
        run = got.run(container, 0)
        assert run.outcome is Outcome.CONFIG_ERROR
        assert run.message.startswith(f"annotation {PREFIX}{key}")
        assert hint in run.message


def test_annotations_of_others_are_not_our_business() -> None:
    """Only our prefix is read."""
    meta = HollowMeta(annotations={"example.com/run": "nonsense"})
    assert parse_script(HollowPod(metadata=meta, spec=HollowSpec(containers=[ContainerSpec(name="main")]))).runs == {
        "main": (DEFAULT_RUN,)
    }


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["run", "run__main", "on_stop", "runs_before", "x"]), st.text(max_size=20)))
def test_whatever_the_annotations_say_a_run_is_in_bounds_or_names_the_one_that_is_wrong(
    annotations: dict[str, str],
) -> None:
    """A malformed script is not raised but returned, for all containers at once."""
    found = script(**annotations)
    runs = [found.run(name, 0) for name in ("setup", "main", "side")]
    if any(run.outcome is Outcome.CONFIG_ERROR for run in runs):
        assert all(run.message.startswith(f"annotation {PREFIX}") for run in runs)
        return
    assert "x" not in annotations
    for run in runs:
        assert run.lasts >= 0.0
        assert 0 <= run.exit_code <= 255
        assert run.message == ""


def test_an_image_says_what_its_containers_do_unless_the_pod_does() -> None:
    """Manifests of documents have no annotations of ours; one with too little memory for the image is OOM-killed."""
    images = parse_images("train:1: {run: '3s:1', log: '1s no data', memory: 700Mi}")

    def script(limit: str, **annotations: str) -> Script:
        resources = {"limits": {"memory": limit}}
        spec = HollowSpec(containers=[ContainerSpec(name="main", image="train:1", resources=resources)])
        given = {PREFIX + key: text for key, text in annotations.items()}
        return parse_script(with_images(HollowPod(metadata=HollowMeta(annotations=given), spec=spec), images))

    assert script("1Gi").runs["main"] == (Run(3.0, exit_code=1),)
    assert script("1Gi").outputs["main"][0].text == "no data"
    assert script("512Mi").runs["main"][0].reason == "OOMKilled"
    assert script("512Mi", run="9s:0").runs["main"] == (Run(9.0),)


@pytest.mark.parametrize("text", ["a: {runs: x}", "a: [", "- a"])
def test_a_file_of_images_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_images(text)
