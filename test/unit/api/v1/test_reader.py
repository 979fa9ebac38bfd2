"""What is reported about a wrong specification: the limits of messages, their wording, and typing errors in field names."""

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.jobs import good_spec, invalid_spec, job, mistakes, planned, replica, template
from kit.virtual_loop import EPOCH
from tfjob_operator.api.core import EventType
from tfjob_operator.api.text import MAX_BYTES
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.reader import MAX_REPORTED, TEXT, Fields, Kind, Leaf, ListOf, MapOf, Path, Reader, check
from tfjob_operator.api.v1.templates import MAX_DEPTH, POD_TEMPLATE
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, TFJobSpec
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.tfjob.plan.plan import invalid_message

SECRET = "Hunter2Secret"
TENSORFLOW = {"name": "tensorflow", "image": "i"}


def with_container(**fields: Any) -> dict[str, Any]:
    return with_pod(containers=[TENSORFLOW | fields])


def with_pod(**fields: Any) -> dict[str, Any]:
    return {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [TENSORFLOW]} | fields}}}}


def warnings(spec: dict[str, Any]) -> list[str]:
    return [message for _, message in good_spec(job(spec)).warnings]


@pytest.mark.parametrize(
    "containers",
    [
        [{}] * 15_000,
        [{"name": 5, "command": 5, "args": 5, "env": 5, SECRET * 1000: 5}] * 1000,
        [{"env": [{"name": 5, "value": 5}] * 20_000}],
        [{"name": "n" * 250, "image": "i"}] * 4000,
    ],
    ids=["empty", "wrong in every field", "wrong in every variable", "without tensorflow"],
)
def test_mistakes_without_number_make_a_short_message(containers: list[Any]) -> None:
    """D1: at most twenty are listed, with the number of all; the message fits into a status and into etcd."""
    message = invalid_message(invalid_spec(job(with_pod(containers=containers))))
    assert len(message.encode()) < MAX_BYTES
    assert message.startswith("TFJob has failed because the spec is invalid: ")


def test_the_rest_is_counted() -> None:
    """D1: 15,000 empty containers, none of which is named tensorflow."""
    found = invalid_spec(job(with_pod(containers=[{}] * 15_000)))
    assert len(found.mistakes) == MAX_REPORTED
    assert found.mistakes[0] == (
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0]",
        "must be a container with a name and an image",
    )
    assert found.more == 15_001 - MAX_REPORTED
    assert found.text.endswith(f"; and {15_001 - MAX_REPORTED} more")


def test_keys_of_the_users_choice_are_cut_and_cleaned() -> None:
    """D1: a key may have a megabyte, or an ESC in it."""
    labels = {"\x1b[31mred" + "k" * 100_000: 5}
    spec = {"tfReplicaSpecs": {"Worker": {"template": template() | {"metadata": {"labels": labels}}}}}
    (found,) = mistakes(job(spec))
    assert r".labels.\x1b[31mredkkk" in found
    assert len(found) < 200
    for found in mistakes(job({"tfReplicaSpecs": {"W" * 100_000: {}}})):
        assert len(found) < 300


def test_many_jobs_of_broken_containers_cost_little_memory() -> None:
    """D1: six jobs of 1 MB once took the operator from 67 MB to 1.3 GB, since each kept a message of 1.5 MB."""
    raws = [msgspec.json.encode(with_pod(containers=[{"n" * 20: number}] * 2_000)) for number in range(6)]
    size = len(raws[0])
    assert size > 50_000
    read_spec("warm-up", raws[0])
    tracemalloc.start()
    try:
        kept = [read_spec(f"job-{number}", raw) for number, raw in enumerate(raws)]
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(isinstance(each, InvalidSpec) for each in kept)
    assert now < 2 * MAX_BYTES * len(raws), "of a job's mistakes little is kept"
    assert peak < 14 * size, "one is decoded at a time, and nothing is written out beside it"


def test_a_status_that_names_twenty_mistakes_stays_under_4_kb() -> None:
    """D1, D5: in the condition and in the event of the plan."""
    tfjob = job(with_pod(containers=[{"name": "é" * 60, "image": "", "é" * 60: 1, "env": 5}] * 3000))
    spec = read_spec("mnist", tfjob.spec)
    assert isinstance(spec, InvalidSpec)
    message = invalid_message(spec)
    assert len(message.encode()) < MAX_BYTES
    assert message.endswith(" more")


WRONG_TYPES = [
    (with_container(args=[SECRET, 5]), "containers[0].args[1]: must be a string, not a number"),
    (with_container(args=SECRET), "containers[0].args: must be a list, not a string"),
    (with_container(command={"run": SECRET}), "containers[0].command: must be a list, not an object"),
    (with_container(env=[{"name": "PASSWORD", "value": SECRET}, {"name": "A", "value": 3}]),
        "containers[0].env[1].value: must be a string, not a number"),
    (with_container(env=[{"name": "A", "value": {"a": SECRET}}]), "env[0].value: must be a string, not an object"),
    (with_container(env=[{"name": "A", "valueFrom": SECRET}]), "env[0].valueFrom: must be an object, not a string"),
    (with_container(env=[None]), "env[0]: must be an object, not null"),
    (with_container(env={"PASSWORD": SECRET}), "env: must be a list, not an object"),
    (with_container(envFrom=[SECRET]), "envFrom[0]: must be an object, not a string"),
    (with_container(ports=[{"containerPort": SECRET}]), "ports[0].containerPort: must be an integer, not a string"),
    (with_container(ports=[{"containerPort": 2.5}]), "ports[0].containerPort: must be an integer, not a decimal number"),
    (with_container(ports=[{"name": True}]), "ports[0].name: must be a string, not a boolean"),
    (with_container(resources={"limits": {"cpu": [SECRET]}}), "limits.cpu: must be a string or a number, not a list"),
    (with_container(resources={"requests": SECRET}), "resources.requests: must be an object, not a string"),
    (with_container(resources=5), "resources: must be an object, not a number"),
    (with_container(volumeMounts=[{"mountPath": 5}]), "volumeMounts[0].mountPath: must be a string, not a number"),
    (with_container(volumeMounts=[{"readOnly": SECRET}]), "readOnly: must be a boolean, not a string"),
    (with_container(imagePullPolicy=5), "imagePullPolicy: must be a string, not a number"),
    (with_container(workingDir=[SECRET]), "workingDir: must be a string, not a list"),
    (with_container(tty=SECRET), "tty: must be a boolean, not a string"),
    (with_container(stdin=1), "stdin: must be a boolean, not a number"),
    (with_container(securityContext=SECRET), "securityContext: must be an object, not a string"),
    (with_container(securityContext={"runAsUser": SECRET}), "runAsUser: must be an integer, not a string"),
    (with_container(livenessProbe={"exec": {"command": SECRET}}), "exec.command: must be a list, not a string"),
    (with_container(image=5), "containers[0].image: must be a string, not a number"),
    (with_pod(initContainers=[{"name": "a", "args": [5]}]), "initContainers[0].args[0]: must be a string"),
    (with_pod(initContainers=SECRET), "initContainers: must be a list, not a string"),
    (with_pod(nodeSelector={"password": SECRET, "a": 5}), "nodeSelector.a: must be a string, not a number"),
    (with_pod(tolerations=SECRET), "tolerations: must be a list, not a string"),
    (with_pod(tolerations=[{"tolerationSeconds": SECRET}]), "tolerationSeconds: must be an integer, not a string"),
    (with_pod(volumes=[SECRET]), "volumes[0]: must be an object, not a string"),
    (with_pod(volumes=[{"name": 5}]), "volumes[0].name: must be a string, not a number"),
    (with_pod(serviceAccountName=5), "serviceAccountName: must be a string, not a number"),
    (with_pod(terminationGracePeriodSeconds=SECRET), "must be an integer, not a string"),
    (with_pod(hostNetwork=SECRET), "hostNetwork: must be a boolean, not a string"),
    (with_pod(restartPolicy=SECRET),
        'template.spec.restartPolicy: Unsupported value: supported values: "Always", "OnFailure", "Never"'),
    (with_pod() | {"successPolicy": SECRET}, 'spec.successPolicy: Unsupported value: supported values: "AllWorkers"'),
    (with_pod() | {"runPolicy": SECRET}, "spec.runPolicy: must be an object, not a string"),
    (with_pod() | {"runPolicy": {"backoffLimit": SECRET}}, "must be a non-negative integer, not a string"),
    (with_pod(activeDeadlineSeconds=2**63), "activeDeadlineSeconds: must be an integer, not a number out of range"),
    (with_pod() | {"runPolicy": {"schedulingPolicy": {"minResources": {"cpu": [SECRET]}}}},
        "minResources.cpu: must be a string or a number, not a list"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "told"), WRONG_TYPES)
def test_a_wrong_type_is_reported_in_our_words_and_its_value_is_not(spec: dict[str, Any], told: str) -> None:
    """U5: a value that an API server would refuse to decode is reported with its path."""
    text = invalid_message(invalid_spec(job(spec)))
    assert told in text
    assert SECRET not in text


@settings(deadline=None)
@given(st.recursive(st.just(SECRET) | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
    st.sampled_from(["name", "value", "env", "spec", "containers", "template", "limits", "replicas", "command"]),
    inner, max_size=3), max_leaves=15))  # fmt: skip
def test_no_value_is_ever_quoted(broken: Any) -> None:
    """U5: wherever in the specification it is."""
    for spec in (
        with_container(env=broken, args=broken, resources=broken),
        with_pod(containers=[TENSORFLOW, broken], volumes=broken),
        with_pod() | {"runPolicy": broken},
        {"tfReplicaSpecs": {"Worker": broken}},
    ):
        found = read_spec("job", msgspec.json.encode(spec))
        told = (
            [*map(str, found.mistakes)]
            if isinstance(found, InvalidSpec)
            else [message for _, message in found.warnings]
        )
        assert SECRET not in "".join(told)


@pytest.mark.parametrize(
    "spec",
    [
        with_container(args=None, command=[None, "a"], env=None, ports=None, resources=None, tty=None),
        with_container(resources={"limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 0.5}, "requests": None}),
        with_container(env=[{"name": "A", "value": None, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        with_container(livenessProbe={"httpGet": {"port": "http"}}, readinessProbe={"tcpSocket": {"port": 80}}),
        with_pod(aFieldOfTomorrow={"a": [1]}, resizeStrategy=5, volumes=[{"name": "a", "newDisk": {"size": 5}}]),
    ],
)
def test_what_go_takes_is_taken(spec: dict[str, Any]) -> None:
    """U5: null anywhere, quantities in both forms, ports by name, and fields that only a newer Kubernetes knows."""
    assert warnings(spec) == []


@pytest.mark.parametrize("raw", [b'{"a":1' + b"0" * 5000 + b"}", b'{"a":"\xff"}', b'{"a":1e999}'])
def test_what_can_not_be_read_at_all_is_a_mistake(raw: bytes) -> None:
    """D20: a number of five thousand digits."""
    found = read_spec("job", raw)
    assert isinstance(found, InvalidSpec)
    assert found.mistakes == (Mistake("spec", "contains a number or character that cannot be decoded"),)


def test_no_field_that_is_known_lies_deeper_than_a_specification_may() -> None:
    """D1: otherwise a valid job would be refused for its depth."""
    level: list[Kind] = [POD_TEMPLATE]
    deepest = len(["spec", "tfReplicaSpecs", "Worker"])
    while level:
        deepest += 1
        level = [child for kind in level if not isinstance(kind, Leaf) for child in _parts(kind)]
    assert 10 < deepest < MAX_DEPTH / 2


def _parts(kind: ListOf | MapOf | Fields) -> list[Kind]:
    return list(kind.known.values()) if isinstance(kind, Fields) else [kind.item]


POD = "tfReplicaSpecs.Worker.template.spec."


@pytest.mark.parametrize(
    ("spec", "field", "like"),
    [
        ({"tfReplicaSpecs": {"Worker": replica() | {"replcas": 2}}}, "tfReplicaSpecs.Worker.replcas", "replicas"),
        (with_pod() | {"runPolicy": {"backofflimit": 1}}, "runPolicy.backofflimit", "backoffLimit"),
        (with_pod() | {"runPolicy": {"foo": 1}}, "runPolicy.foo", ""),
        (with_pod() | {"foo": 1}, "foo", ""),
        (
            with_pod() | {"runPolicy": {"schedulingPolicy": {"minavailable": 1}}},
            "runPolicy.schedulingPolicy.minavailable",
            "minAvailable",
        ),
        (with_container(comand=["a"]), f"{POD}containers[0].comand", "command"),
        (with_container(Args=["a"]), f"{POD}containers[0].Args", "args"),
        (with_container(prots=[]), f"{POD}containers[0].prots", "ports"),
        (with_container(resources={"limit": {}}), f"{POD}containers[0].resources.limit", "limits"),
        (with_pod(restartpolicy="Never"), f"{POD}restartpolicy", "restartPolicy"),
    ],
)
def test_a_slip_of_the_finger_is_a_warning_that_names_the_field(spec: dict[str, Any], field: str, like: str) -> None:
    """U6: an API server drops the field silently; in TFJob's own objects every unknown field is reported."""
    hint = f"; did you mean {like}?" if like else ""
    assert good_spec(job(spec)).warnings == (
        (EventReason.UNKNOWN_FIELD, f"spec.{field}: unknown field is ignored{hint}"),
    )


def test_at_most_twenty_unknown_fields_are_listed() -> None:
    """U6: and comparing them with known fields takes a bounded time, however many there are."""
    fields = {f"replica{number}": 1 for number in range(30_000)}
    told = warnings({"tfReplicaSpecs": {"Worker": replica() | fields}})
    assert len(told) == MAX_REPORTED + 1
    assert told[-1] == f"and {30_000 - MAX_REPORTED} more"
    assert warnings(with_container(**{f"{'x' * 40}{number}": 1 for number in range(30_000)})) == []


def test_a_job_without_any_replica_is_warned_of() -> None:
    """U16: otherwise it would stay Created for ever without a hint."""
    spec = good_spec(job({"tfReplicaSpecs": {"Worker": replica(0), "PS": replica(0)}}))
    assert [reason for reason, _ in spec.warnings] == [EventReason.NO_REPLICAS]
    assert good_spec(job({"tfReplicaSpecs": {"Worker": replica(0), "PS": replica(1)}})).warnings == ()


def told(tfjob: Any) -> tuple[list[str], Any]:
    """The Warnings of a plan, and the job with its status written."""
    spec = read_spec("mnist", tfjob.spec)
    assert isinstance(spec, TFJobSpec)
    decided = planned(tfjob, spec, [], [], EPOCH)
    written = tfjob if decided.status is None else msgspec.structs.replace(tfjob, status=decided.status)
    return [event.reason for event in decided.events if event.type == EventType.WARNING], written


@pytest.mark.parametrize("policy", [{}, {"suspend": True}], ids=["running", "suspended"])
def test_warnings_are_reported_once_for_each_generation(policy: dict[str, Any]) -> None:
    """U6, U16: not at each sync, nor after a restart of the operator, but again after an edit."""
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(0)}, "runPolicy": policy, "foo": 1})
    first, tfjob = told(tfjob)
    assert first == [EventReason.UNKNOWN_FIELD, EventReason.NO_REPLICAS]
    again, tfjob = told(msgspec.json.decode(msgspec.json.encode(tfjob), type=type(tfjob)))
    assert again == []
    edited = msgspec.structs.replace(tfjob, metadata=msgspec.structs.replace(tfjob.metadata, generation=2))
    assert told(edited)[0] == [EventReason.UNKNOWN_FIELD, EventReason.NO_REPLICAS]


def test_a_path_is_written_as_users_write_it() -> None:
    path = Path(Path(Path("spec", "containers"), 3), "env")
    assert str(path) == "spec.containers[3].env"
    reader = Reader()
    check(reader, {"a": {"b": [1]}}, Fields({"a": MapOf(TEXT)}), "x")
    assert reader.mistakes == [Mistake("x.a.b", "must be a string, not a list")]
