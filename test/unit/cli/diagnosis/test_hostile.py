"""Whatever objects, messages and logs contain: a diagnosis never raises, and nothing harmful reaches a terminal or a shell."""

import copy
import json
from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.cases import for_each
from tfjob_operator.cli.commands.explain_ import render
from tfjob_operator.cli.diagnosis.causes import fill
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.model import objects
from unit.cli.diagnosis.cases import CASES, world_of

HOSTILE = "\x1b[31m$(rm -rf ~)\u202e`id`\n\r\x00\ud800"


def _spoiled(value: Any, replace: str) -> Any:
    """Add hostile text to all strings that people write; what the server checks (times, kinds, names) stays."""
    if isinstance(value, dict):
        kept = {"kind", "apiVersion", "name", "namespace", "uid", "phase", "type", "status", "reason", "time"}
        return {
            key: each
            if (key in kept and isinstance(each, str)) or key.endswith(("Timestamp", "Time", "At"))
            else _spoiled(each, replace)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_spoiled(each, replace) for each in value]
    return f"{value}{replace}" if isinstance(value, str) else value


@for_each("id_", CASES)
def test_hostile_words_are_cleaned(id_: str) -> None:
    world = world_of(id_)
    world.pods = {name: _spoiled(pod, HOSTILE[:-1]) for name, pod in world.pods.items()}
    world.events = [_spoiled(event, HOSTILE[:-1]) for event in world.events]
    world.job["status"] = _spoiled(world.status, HOSTILE[:-1])
    world.workload = _spoiled(world.workload, HOSTILE[:-1])
    world.pod_group = _spoiled(world.pod_group, HOSTILE[:-1])
    world.logs = {key: log + HOSTILE for key, log in world.logs.items()}
    for line in render(diagnose(world.evidence()), 100):
        assert line.isprintable(), line
        command = line.partition("kubectl ")
        assert "$(" not in command[2].partition("   # ")[0] or not command[1], line


@given(st.text(max_size=30))
def test_a_value_that_a_shell_would_read_is_not_put_into_a_command(text: str) -> None:
    filled = fill("kubectl get pod {pod} -n x", {"pod": text}, command=True)
    assert filled.count(" ") == 5
    assert not set(filled) & set("$`;&|<>()'\"\\*?[]#~!\n")


_JUNK: st.SearchStrategy[Any] = st.one_of(
    st.none() | st.booleans() | st.integers(-5, 2**63 - 1) | st.text(max_size=20) | st.just({}),
    st.lists(st.text(max_size=5), max_size=2),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_odd_objects_never_raise(id_: str, data: st.DataObject) -> None:
    world = world_of(id_)
    world = copy.deepcopy(world)  # cases share objects, and what is changed here must not be changed for others
    lists = (*world.pods.values(), *world.nodes.values(), *world.events, *world.claims)
    targets: list[Any] = [*lists, world.workload, world.pod_group]
    target = data.draw(st.sampled_from([each for each in targets if each] or [world.job["spec"]]))
    place = target
    while True:
        key: Any = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not (isinstance(place[key], (dict, list)) and place[key]) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(_JUNK)
    try:
        evidence = world.evidence()
    except msgspec.ValidationError:
        return
    diagnose(evidence)


_SPEC_KEYS = st.sampled_from(["tfReplicaSpecs", "Worker", "replicas", "runPolicy", "suspend"])
_SPECS = st.recursive(_JUNK, lambda inner: st.dictionaries(_SPEC_KEYS, inner, max_size=3), max_leaves=6)


@given(st.sampled_from(sorted(CASES)), _SPECS)
@settings(max_examples=200, deadline=None)
def test_odd_specifications_never_raise(id_: str, spec: Any) -> None:
    """They are read by the operator's own reader, which takes anything."""
    world = world_of(id_)
    world.job["spec"] = spec
    diagnose(world.evidence())


@given(st.text(max_size=3000))
@settings(max_examples=100, deadline=None)
def test_any_log_and_any_message_may_come(text: str) -> None:
    world = world_of()
    world.exited(1, message="x", log=text)
    world.refuse("x", "mnist-worker-0")
    world.events[-1]["message"] = json.loads(json.dumps(text.encode("utf-8", "ignore").decode()))
    diagnose(world.evidence())


@pytest.mark.parametrize(
    "text",
    ["mount: " * 5000, "TF_CONFIG" * 3000, "requested: , used: " * 3000, "pods a" * 5000, "a" * 2**20, "a " * 2**17],
)
def test_no_message_costs_seconds(text: str) -> None:
    world = world_of()
    world.exited(1, message=text[:4096], log=text)
    world.refuse(f"exceeded quota: q, {text}", "mnist-worker-0")
    world.creating("mnist-ps-0")
    world.pod_event("FailedMount", text, "mnist-ps-0")
    evidence = world.evidence()
    begun = process_time()
    diagnose(evidence)
    assert process_time() - begun < 1.0


def test_the_slices_know_events_of_both_apis() -> None:
    """Those of events.k8s.io are core/v1 events with only `eventTime` and `series`."""
    new: dict[str, Any] = {"metadata": {"name": "e"}, "eventTime": "2026-11-22T11:00:00.123456Z"}
    new |= {"firstTimestamp": None, "lastTimestamp": None, "reportingComponent": "default-scheduler"}
    series = new | {"series": {"count": 4, "lastObservedTime": "2026-11-22T11:07:00.000000Z"}}
    for each, minute in ((new, 0), (series, 7)):
        event = msgspec.json.decode(json.dumps(each), type=objects.EventDetails)
        assert event.at is not None
        assert event.at.minute == minute
