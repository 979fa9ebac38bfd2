"""Reading a specification: what is filled in, and what is said about each mistake."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.jobs import good_spec, invalid_spec, job, mistakes, replica, template
from tfjob_operator.api.decoding import truncated_to_levels
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import CleanPodPolicy, RestartPolicy
from tfjob_operator.api.v1.templates import MAX_DEPTH
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, TFJobSpec
from tfjob_operator.api.v1.validation import MAX_REPLICAS, read_spec
from tfjob_operator.controller.tfjob.plan.plan import invalid_message


def containers(*given: dict[str, Any]) -> dict[str, Any]:
    return entries(Worker=replica(template={"spec": {"containers": list(given)}}))


def entries(**replicas: Any) -> dict[str, Any]:
    return {"tfReplicaSpecs": replicas}


VALID = entries(Worker=replica())
TENSORFLOW = {"name": "tensorflow", "image": "i"}
ONE_OF = "Unsupported value: supported values:"

BAD_SPECS: dict[str, tuple[Any, str]] = {
    "no spec": (None, "spec.tfReplicaSpecs: Required value"),
    "empty spec": ({}, "spec.tfReplicaSpecs: Required value"),
    "only unknown keys": ({"foo": 1, "bar": {}}, "the spec has only bar, foo"),
    "null replica specs": ({"tfReplicaSpecs": None}, "spec.tfReplicaSpecs: Required value"),
    "empty replica specs": ({"tfReplicaSpecs": {}}, "spec.tfReplicaSpecs: Required value"),
    "a list of replicas": ({"tfReplicaSpecs": [1]}, "spec.tfReplicaSpecs: must be an object, not a list"),
    "null replica": ({"tfReplicaSpecs": {"Worker": None}}, "spec.tfReplicaSpecs.Worker: must be an object"),
    "no template": ({"tfReplicaSpecs": {"Worker": {}}}, "Worker.template: Required value"),
    "empty template": (entries(Worker=replica(template={})), "containers: Required value: at least one container"),
    "too many": (entries(Worker=replica(10_001)), "requests 10001 replicas; the maximum is 10000"),
    "1 too many": (entries(PS=replica(1), Worker=replica(10_000)), "requests 10001 replicas"),
    "unknown type": (entries(Boss=replica()), f'Boss: {ONE_OF} "Chief", "Master"'),
    "B09": (entries(Worker=replica(), worker=replica()), "Duplicate value: same replica type as Worker"),
    "two chiefs": (entries(Chief=replica(), MASTER=replica()), "Chief and Master are the same role"),
    "2 chiefs": (entries(Chief=replica(2)), "Chief.replicas: must be less than or equal to 1: a job has one chief"),
    "2 masters": (entries(Master=replica(2)), "Master.replicas: must be less than or equal to 1"),
    "negative replicas": (entries(Worker=replica(-1)), "replicas: must be a non-negative integer, not a negative number"),
    "text replicas": (entries(Worker=replica("two")), "replicas: must be a non-negative integer, not a string"),
    "boolean replicas": (entries(Worker=replica(True)), "replicas: must be a non-negative integer"),
    "policy": (entries(Worker=replica(restartPolicy="Sometimes")), f'{ONE_OF} "Always", "OnFailure", "Never", "ExitCode"'),
    "numeric policy": (entries(Worker=replica(restartPolicy=3)), "restartPolicy: must be a string, not a number"),
    "text template": (entries(Worker=replica(template="x")), "template: must be an object, not a string"),
    "pod": (entries(Worker=replica(template=template(restartPolicy="ExitCode"))), f'{ONE_OF} "Always", "OnFailure", "Never"'),
    "no containers": (containers(), "containers: Required value: at least one container"),
    "containers absent": (entries(Worker=replica(template={"spec": {}})), "Required value: at least one container"),
    "name": (containers({"name": "main", "image": "i"}), "one container must be named tensorflow; found main"),
    "no image": (containers({"name": "tensorflow"}), "containers[0].image: Required value"),
    "no name": (containers(TENSORFLOW, {"image": "i"}), "containers[1].name: Required value"),
    "empty container": (containers({}), "containers[0]: must be a container with a name and an image"),
    "env": (containers(TENSORFLOW | {"env": "A=1"}), "containers[0].env: must be a list, not a string"),
    "ports": (containers(TENSORFLOW | {"ports": [2222]}), "ports[0]: must be an object, not a number"),
    "port": (containers(TENSORFLOW | {"ports": [{"name": ["a"]}]}), "ports[0].name: must be a string, not a list"),
    "protocol": (containers(TENSORFLOW | {"ports": [{"protocol": {}}]}), "ports[0].protocol: must be"),
    "env name": (containers(TENSORFLOW | {"env": [{"name": 1}]}), "env[0].name: must be a string, not a number"),
    "list of schedulers": (entries(Worker=replica(template=template(schedulerName=["a"]))), "schedulerName: must be a string"),
    "numeric label": (entries(Worker=replica(template=template() | {"metadata": {"labels": {"a": 1}}})),
        "template.metadata.labels.a: must be a string, not a number"),
    "text run policy": (VALID | {"runPolicy": "x"}, "spec.runPolicy: must be an object, not a string"),
    "clean policy": (VALID | {"runPolicy": {"cleanPodPolicy": "Some"}}, '"All", "Running", "None"'),
    "backoff limit": (VALID | {"backoffLimit": -1}, "spec.backoffLimit: must be a non-negative integer"),
    "success policy": (VALID | {"successPolicy": "Most"}, f'successPolicy: {ONE_OF} "AllWorkers"'),
    "dynamic worker": (VALID | {"enableDynamicWorker": "yes"}, "must be a boolean"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "expected"), BAD_SPECS.values(), ids=BAD_SPECS)
def test_a_mistake_is_named_with_its_place_and_what_to_mend(spec: Any, expected: str) -> None:
    """B02, B09: each malformed specification gets a message that says where and what."""
    text = invalid_message(invalid_spec(job(spec if spec is not None else {})))
    assert "the spec is invalid" in text
    assert expected in text


@pytest.mark.parametrize("depth", [MAX_DEPTH, 5000, 9999, 100_000])
def test_what_is_nested_deeper_than_can_be_read_is_a_mistake(depth: int) -> None:
    """B02: a thousand brackets cause no crash on any Python, not even in a template, which is otherwise not checked."""
    brackets = b"[" * depth + b"]" * depth
    deep = b'{"tfReplicaSpecs":' + brackets + b"}"
    in_template = msgspec.json.encode(entries(Worker=replica(template=template(someField="@")))).replace(
        b'"@"', brackets
    )
    for raw in (deep, in_template, truncated_to_levels(deep)):
        assert read_spec("job", msgspec.Raw(raw)) == InvalidSpec((Mistake("spec", "is nested too deeply"),))


def test_what_is_nested_less_deeply_is_read() -> None:
    """B02: brackets side by side or in a string are not nested."""
    flat = entries(
        Worker=replica(template=template(someField=[[] for _ in range(MAX_DEPTH)], other="[" * MAX_DEPTH * 2))
    )
    deep: list[Any] = []
    for _ in range(MAX_DEPTH - 7):
        deep = [deep]
    assert isinstance(read_spec("job", msgspec.json.encode(flat)), TFJobSpec)
    assert isinstance(
        read_spec("job", msgspec.json.encode(entries(Worker=replica(template=template(someField=deep))))), TFJobSpec
    )


def test_a_job_of_the_largest_size_is_valid() -> None:
    assert good_spec(job(entries(Worker=replica(MAX_REPLICAS)))).too_large is None


def test_what_a_wrong_specification_says_of_limits_and_of_its_controller_is_read_all_the_same() -> None:
    """U4, B44, B75: deadline, TTL, suspension and managedBy still work beside a mistake, in both places for policies."""
    policy = {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue", "backoffLimit": -1, "cleanPodPolicy": "All"}
    wrong = VALID | {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5, "runPolicy": policy}
    read = invalid_spec(job(wrong))
    assert len(read.mistakes) == 1
    assert (read.suspend, read.active_deadline_s, read.ttl_s) == (True, 60, 5)
    assert (read.managed_by, read.clean_pod_policy) == ("kueue.x-k8s.io/multikueue", CleanPodPolicy.ALL)


@pytest.mark.parametrize("policy", [{"cleanPodPolicy": "Sometimes", "ttlSecondsAfterFinished": -1}, "x"])
def test_a_policy_that_can_not_be_read_is_none(policy: Any) -> None:
    """U4: the user may have meant to keep everything."""
    read = invalid_spec(job(VALID | {"runPolicy": policy}))
    assert read.clean_pod_policy is None
    assert (read.ttl_s, read.active_deadline_s, read.suspend) == (None, None, False)


def test_a_wrong_specification_that_names_no_policy_is_cleaned_up_by_the_default() -> None:
    """The mistake is elsewhere, so the default Running applies as for every job."""
    assert invalid_spec(job({"tfReplicaSpecs": {}})).clean_pod_policy == CleanPodPolicy.RUNNING


def test_all_mistakes_are_reported_at_once() -> None:
    spec = entries(Worker=replica(replicas="two", restartPolicy="Sometimes")) | {"runPolicy": "x"}
    assert len(mistakes(job(spec))) == 3


@pytest.mark.parametrize(
    ("key", "meant"),
    [("Workr", "Worker"), ("workers", "Worker"), ("Chieff", "Chief"), ("evaluatr", "Evaluator"), ("Launcher", "")],
)
def test_a_misspelt_replica_type_is_reported_with_what_was_meant_and_all_else_that_is_wrong(
    key: str, meant: str
) -> None:
    """Whoever corrects the key must not learn of the other mistakes of that entry one by one."""
    wrong = replica(-1) | {"restartPolicy": "Sometimes"}
    path = f"spec.tfReplicaSpecs.{key}"
    hint = f"; did you mean {meant}?" if meant else ""
    assert mistakes(job({"tfReplicaSpecs": {key: wrong}})) == (
        f'{path}: Unsupported value: supported values: "Chief", "Master", "PS", "Worker", "Evaluator"{hint}',
        f'{path}.restartPolicy: {ONE_OF} "Always", "OnFailure", "Never", "ExitCode"',
        f"{path}.replicas: must be a non-negative integer, not a negative number",
    )


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("restartPolicy", "an entry of spec.tfReplicaSpecs"),
        ("suspend", "spec.runPolicy"),
        ("failurePolicy", "spec.runPolicy"),
    ],
)
def test_a_field_at_the_wrong_place_is_reported_with_the_right_one(field: str, place: str) -> None:
    """Whoever removes it loses what he meant."""
    warnings = [message for _, message in good_spec(job(VALID | {field: "OnFailure"})).warnings]
    assert f"spec.{field}: unknown field is ignored; it belongs in {place}" in warnings


@pytest.mark.parametrize(
    ("level", "field", "place"),
    [
        ("spec", "volumeMounts", "a container of the template"),
        ("spec", "annotations", "metadata of the template"),
        ("spec.containers[0]", "nodeSelector", "spec of the template"),
        ("", "tolerations", "spec of the template"),
    ],
)
def test_a_field_at_the_wrong_level_of_a_template_is_reported_with_the_right_one(
    level: str, field: str, place: str
) -> None:
    """The API server drops it without a word, and the manifest still shows it."""
    spec = entries(Worker=replica())
    template = spec["tfReplicaSpecs"]["Worker"]["template"]
    levels = {"": template, "spec": template["spec"], "spec.containers[0]": template["spec"]["containers"][0]}
    levels[level][field] = []
    (message,) = [message for _, message in good_spec(job(spec)).warnings]
    path = ".".join(filter(None, ("spec.tfReplicaSpecs.Worker.template", level, field)))
    assert message == f"{path}: unknown field is ignored; it belongs in {place}"


@pytest.mark.parametrize("name", ["1abc", "a.b", "Abc", "a_b", "-a", "a-"])
def test_a_name_that_can_not_name_services_is_refused(name: str) -> None:
    """B05: names of services are DNS-1035 labels, which begin with a letter and have no dot."""
    assert mistakes(job(name=name))[0].startswith("metadata.name: ")


def test_a_name_is_too_long_when_that_of_its_last_replica_is() -> None:
    """B05: the limit is 63 characters, including the type and the highest index."""
    spec = entries(Worker=replica(101))
    fits = "a" * (63 - len("-worker-100"))
    good_spec(job(spec, name=fits))
    (mistake,) = mistakes(job(spec, name=fits + "a"))
    assert f"must be no more than {len(fits)} characters" in mistake


SIZE = {"replicas": 5}
"""What the scale subresource writes."""


@pytest.mark.parametrize("key", ["worker", "WORKER"])
def test_the_scale_subresource_sizes_workers_of_another_spelling(key: str) -> None:
    """U3: kubectl scale and autoscalers know only `Worker`, and add it beside the user's spelling."""
    for entries in ({key: replica(2, "Always"), "Worker": SIZE}, {"Worker": SIZE, key: replica(2, "Always")}):
        worker = good_spec(job({"tfReplicaSpecs": entries})).replicas["Worker"]
        assert (worker.replicas, worker.restart_policy) == (5, RestartPolicy.ALWAYS)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"worker": replica(2), "Worker": {"replicas": -1}}, "Worker.replicas: must be a non-negative integer"),
        ({"worker": replica(2), "Worker": SIZE | {"restartPolicy": "Never"}}, "Duplicate value: same replica type as"),
        ({"worker": SIZE, "Worker": replica(2)}, "Worker: Duplicate value: same replica type as worker"),
        (
            {"worker": replica(2), "WORKER": replica(2), "Worker": SIZE},
            "WORKER: Duplicate value: same replica type as worker",
        ),
        ({"Worker": SIZE}, "Worker.template: Required value"),
    ],
)
def test_any_other_second_entry_of_a_type_is_a_mistake(entries: dict[str, Any], expected: str) -> None:
    """U3: nobody knows which of the two is meant."""
    assert expected in "; ".join(mistakes(job({"tfReplicaSpecs": entries})))


def test_a_job_without_workers_can_not_be_scaled_and_suffers_nothing_by_it() -> None:
    """U3: an entry with only a number of workers is a warning if the job was valid before; in a new job it lacks a template."""
    raw = msgspec.json.encode({"tfReplicaSpecs": {"Chief": replica(1), "Worker": SIZE}})
    spec = read_spec("job", raw, was_good=True)
    assert isinstance(spec, TFJobSpec)
    assert list(spec.replicas) == [c.CHIEF]
    ((reason, message),) = spec.warnings
    assert reason == "NoWorkersToScale"
    assert "no workers to scale" in message
    new = read_spec("job", raw)
    assert isinstance(new, InvalidSpec)
    assert new.mistakes == (Mistake("spec.tfReplicaSpecs.Worker.template", "Required value"),)
    alone = read_spec("job", msgspec.json.encode({"tfReplicaSpecs": {"Worker": SIZE}}), was_good=True)
    assert isinstance(alone, InvalidSpec)


def test_what_is_left_out_gets_its_default() -> None:
    spec = good_spec(job({"tfReplicaSpecs": {"Worker": {"template": template()}}}))
    worker = spec.replicas["Worker"]
    assert (worker.replicas, worker.restart_policy) == (1, RestartPolicy.NEVER)
    assert spec.clean_pod_policy == CleanPodPolicy.RUNNING


@pytest.mark.parametrize("key", ["MASTER", "Master", "master", "mAsTeR"])
def test_replica_types_are_taken_in_any_letter_case(key: str) -> None:
    """Older documents write MASTER, Ps or chief."""
    assert list(good_spec(job({"tfReplicaSpecs": {key: replica()}})).replicas) == [c.MASTER]


def test_the_restart_policy_of_the_pod_template_counts_when_the_replica_has_none() -> None:
    """A user who sets it only in the template means it."""
    spec = good_spec(job(entries(Worker=replica(template=template(restartPolicy="OnFailure")))))
    assert spec.replicas["Worker"].restart_policy == RestartPolicy.ON_FAILURE
    assert not spec.replicas["Worker"].overrides_template_policy


@pytest.mark.parametrize(
    ("own", "in_template", "overrides"),
    [
        ("OnFailure", "OnFailure", False),
        ("OnFailure", "Always", True),
        ("ExitCode", "Never", False),
        ("ExitCode", "OnFailure", True),
    ],
)
def test_the_replicas_restart_policy_wins_over_the_templates(own: str, in_template: str, overrides: bool) -> None:
    spec = good_spec(job(entries(Worker=replica(restartPolicy=own, template=template(restartPolicy=in_template)))))
    assert spec.replicas["Worker"].restart_policy == own
    assert spec.replicas["Worker"].overrides_template_policy is overrides


def test_a_policy_in_the_spec_itself_counts_and_one_in_run_policy_wins() -> None:
    """B08: kubeflow.org/v1 has both places; if they differ, there is a warning."""
    inline = good_spec(job(VALID | {"cleanPodPolicy": "None"}))
    assert (inline.clean_pod_policy, inline.warnings) == (CleanPodPolicy.NONE, ())
    both = good_spec(job(VALID | {"cleanPodPolicy": "None", "runPolicy": {"cleanPodPolicy": "All"}}))
    assert both.clean_pod_policy == CleanPodPolicy.ALL
    assert both.warnings[0][1] == "spec.cleanPodPolicy and spec.runPolicy.cleanPodPolicy differ; the latter is used"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
known_keys = st.sampled_from(
    ["tfReplicaSpecs", "Worker", "template", "spec", "containers", "replicas", "runPolicy", "env", "ports", "metadata"]
)
nested = st.recursive(json_values, lambda inner: st.dictionaries(known_keys, inner, max_size=4), max_leaves=12)


@given(st.dictionaries(known_keys, nested, max_size=4), nested)
def test_no_specification_makes_the_reader_raise(spec: dict[str, Any], broken: Any) -> None:
    """B02: whatever JSON a user writes, the result is a specification or a list of mistakes."""
    for body in (
        spec,
        entries(Worker=replica(template=broken)),
        containers(TENSORFLOW, broken if isinstance(broken, dict) else {}),
    ):
        answer = read_spec("job", msgspec.Raw(msgspec.json.encode(body)))
        assert isinstance(answer, TFJobSpec) or len(answer.mistakes) > 0


def test_a_job_may_have_several_evaluators() -> None:
    """B06: the Go operators refused them in one release and took them in the next."""
    spec = good_spec(job(entries(Worker=replica(1), Evaluator=replica(2))))
    assert spec.replicas["Evaluator"].replicas == 2
