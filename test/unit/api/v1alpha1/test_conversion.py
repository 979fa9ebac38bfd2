"""Values of the alpha dialect, and how v1 says the same."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from fakes import alpha
from fakes.alpha import entry, job, pod_of, spec, template
from fakes.jobs import good_spec, planned, pod
from fakes.jobs import job as v1_job
from kit.virtual_loop import EPOCH
from support.cases import for_each
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, TENSORFLOW, V1_TYPES, Dialect, Phase
from tfjob_operator.api.v1alpha1.conversion import SERVER, Conversion, to_v1
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaStatus, SetStatus, is_alpha, job_with_unreadable_status
from tfjob_operator.controller.alpha.alpha_plan import keys_of
from tfjob_operator.controller.alpha.alpha_plan import plan as alpha_plan
from tfjob_operator.controller.alpha.batch_jobs import Children
from tfjob_operator.controller.alpha.build import JobBuilder
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.builder import PodBuilder

Found = dict[tuple[str, int], dict[str, Any]]
"""The facts about a job's pods, by v1 type and index."""


def converted(given: dict[str, Any], dialect: Dialect = KUBEFLOW) -> Conversion:
    """The conversion of a specification that must be valid."""
    found = to_v1(dialect, "mnist", msgspec.json.encode(given))
    assert isinstance(found, Conversion), found
    return found


def facts(pod_spec: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in both pods; the command of servers without a container of their own differs on purpose."""
    containers = [
        (each["name"], each["image"], each.get("command") if "python" not in (each.get("command") or []) else "server")
        for each in pod_spec["containers"]
    ]
    own = next(each for each in pod_spec["containers"] if each["name"] == "tensorflow")
    config = next((json.loads(each["value"]) for each in own.get("env", []) if each["name"] == "TF_CONFIG"), None)
    return {"containers": containers, "config": config, "scheduler": pod_spec.get("schedulerName")}


def of_alpha(given: dict[str, Any]) -> Found:
    """The pods that the controller of the alpha dialect lets the Job controller make."""
    read_as = alpha.good(given)
    builder = JobBuilder(KUBEFLOW, alpha.job(given), read_as, "76no")
    types = {kind.value: name for kind, name in V1_TYPES.items()}
    return {
        (types[key.type], key.index): facts(builder.build(key)["spec"]["template"]["spec"])
        for key in keys_of(read_as, "76no")
    }


def of_v1(given: dict[str, Any]) -> Found:
    """The pods that the v1 controller makes from the conversion."""
    found = v1_job(dict(converted(given).spec))
    spec = good_spec(found)
    builder = PodBuilder(found, spec)
    return {
        (name, index): facts(builder.build(ReplicaKey.of("mnist", name, index))["spec"])
        for name, size in spec.sizes.items()
        for index in range(size)
    }


def ports(config: dict[str, Any]) -> dict[str, list[str]]:
    return {kind: [host.rpartition(":")[2] for host in hosts] for kind, hosts in config["cluster"].items()}


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """A template with a training container, and perhaps another."""
    training: dict[str, Any] = {"name": "tensorflow", "image": draw(st.sampled_from(["a:1", "b:2"]))}
    if draw(st.booleans()):
        training["command"] = ["train", draw(st.sampled_from(["--fast", "--slow"]))]
    if draw(st.booleans()):
        training["ports"] = [{"name": draw(st.sampled_from(["tfjob-port", "web"])), "containerPort": 8080}]
    others = [{"name": "logger", "image": "l:1"}] if draw(st.booleans()) else []
    policy = draw(st.sampled_from([{}, {"restartPolicy": "OnFailure"}, {"restartPolicy": "Never"}]))
    return {"spec": {"containers": [*others, training], **policy}}


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A valid specification of more than one replica."""
    found = []
    for kind in draw(st.permutations(["MASTER", "WORKER", "PS"])):
        own: dict[str, Any] = {"tfReplicaType": kind}
        if kind != "PS" or draw(st.booleans()):
            own["template"] = draw(templates())
        if kind != "MASTER":
            own["replicas"] = draw(st.integers(1, 3))
        if draw(st.booleans()):
            own["tfPort"] = draw(st.sampled_from([2222, 3000]))
        found.append(own)
    given: dict[str, Any] = {"replicaSpecs": found}
    if draw(st.booleans()):
        given["schedulerName"] = "other"
    if draw(st.booleans()):
        given["tfImage"] = "tf:2"
    return given


@settings(deadline=None)
@drawn(specs())
def test_both_make_replicas_of_the_same_images_commands_and_addresses_by_type_and_index(given: dict[str, Any]) -> None:
    """Host names come from the job's name in v1, from the RuntimeId in the alpha dialect; everything else is the same."""
    before, after = of_alpha(given), of_v1(given)
    assert before.keys() == after.keys()
    for place, one in before.items():
        other = after[place]
        assert one["containers"] == other["containers"]
        assert one["scheduler"] == other["scheduler"]
        assert one["config"]["task"] == other["config"]["task"]
        assert ports(one["config"]) == ports(other["config"])


@for_each("code", range(256))
def test_both_end_alike_for_the_same_exit_of_the_chief(code: int) -> None:
    given = alpha.spec(entry("MASTER", template=template(restartPolicy="Never")), entry("WORKER", 1), RuntimeId="76no")
    read_as = alpha.good(given)
    there = alpha.children(read_as, "76no")
    phase = "Failed" if code else "Succeeded"
    pods = [pod_of(there.jobs[0], phase, code, policy="Never"), pod_of(there.jobs[1])]
    one = alpha_plan(KUBEFLOW, alpha.job(given), read_as, Children(there.jobs, there.services, (), pods), EPOCH)
    found = v1_job(dict(converted(given).spec))
    other = planned(found, good_spec(found), [pod("Master", 0, phase, code), pod("Worker", 0)], (), EPOCH)
    assert one.status is not None
    assert other.status is not None
    for end in (ConditionType.SUCCEEDED, ConditionType.FAILED):
        before = conditions.find(one.status.conditions or (), end)
        assert (before is not None) == (conditions.find(other.status.conditions, end) is not None)


@pytest.mark.parametrize("code", [1, 137])
def test_workers_that_fail_are_started_again_by_both(code: int) -> None:
    given = alpha.spec(entry("MASTER"), entry("WORKER", 1))
    found = v1_job(dict(converted(given).spec))
    pods = [pod("Master", 0), pod("Worker", 0, "Failed", code, policy="OnFailure")]
    decided = planned(found, good_spec(found), pods, (), EPOCH)
    assert decided.status is not None
    assert conditions.find(decided.status.conditions, ConditionType.FAILED) is None
    assert [each.pod.metadata.name for each in decided.delete_pods] == ["mnist-worker-0"]


def test_what_goes_with_the_end_and_who_manages_a_job_are_said_in_v1s_words() -> None:
    given = alpha.spec(cleanupPodPolicy="All", runPolicy={"managedBy": "somebody.io/else"})
    policy = converted(given).spec["runPolicy"]
    assert policy == {"cleanPodPolicy": "All", "managedBy": "somebody.io/else"}
    assert converted(alpha.spec()).spec["runPolicy"] == {"cleanPodPolicy": "Running"}


def test_a_tensorboard_goes_along_with_its_image() -> None:
    given = {"ReplicaSpecs": [entry()], "TensorBoard": {"LogDir": "/logs"}, "tfImage": "tf:1"}
    assert converted(given, TENSORFLOW).spec["tensorBoard"] == {"image": "tf:1", "logDir": "/logs"}


def test_the_restart_policy_of_a_template_is_not_converted() -> None:
    """The operator of v1 overwrites it, and reports that with a warning."""
    replicas: Any = converted(alpha.spec(entry(template=template(restartPolicy="Never")))).spec["tfReplicaSpecs"]
    assert "restartPolicy" not in replicas["Master"]["template"]["spec"]


def test_servers_of_their_own_find_their_place_in_tf_config() -> None:
    """In v1 a template cannot have a replica's index."""
    replicas: Any = converted(alpha.spec(entry(), entry("PS", 2))).spec["tfReplicaSpecs"]
    (server,) = replicas["PS"]["template"]["spec"]["containers"]
    assert server["command"] == ["python", "-c", SERVER]
    compile(SERVER, "server", "exec")


def test_what_v1_can_not_express_is_reported() -> None:
    chief = {"chief": {"replicaName": "WORKER", "replicaIndex": 1}}
    two = alpha.spec(entry("WORKER", 2), terminationPolicy=chief, RuntimeId="76no")
    told = " | ".join(converted(two).differences)
    assert "the outcome of worker 0 decides about the job, not that of worker 1" in told
    assert "any Worker that fails permanently fails the job" in told
    assert "named after the job, not after its RuntimeId" in told
    first = alpha.spec(entry("WORKER", 2), terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 0}})
    assert "outcome of worker 0" not in " | ".join(converted(first).differences)
    both = alpha.spec(entry(), entry("WORKER", 2), terminationPolicy=chief)
    assert "the outcome of the Master decides" in converted(both).differences[0]
    assert any("single replica has no TF_CONFIG" in each for each in converted(alpha.spec()).differences)


def test_a_wrong_specification_is_not_converted() -> None:
    found = to_v1(KUBEFLOW, "mnist", msgspec.json.encode(alpha.spec(entry("MASTER", 2))))
    assert not isinstance(found, Conversion)
    assert [each.message for each in found] == ["The MASTER must have Replicas = 1"]


V1_SPEC: dict[str, Any] = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {}}}}}


def wire(given: object, **status: Any) -> bytes:
    return msgspec.json.encode({"kind": "TFJob", "metadata": {"name": "j"}, "spec": given, "status": status})


def decoded(given: object, **status: Any) -> AlphaJob:
    return msgspec.json.decode(wire(given, **status), type=AlphaJob)


CONDITIONS = [{"type": "Created", "status": "True"}]


BOTH = V1_SPEC | spec()
OWNERS = {
    "alpha": (spec(), {}, True),
    "v1": (V1_SPEC, {}, False),
    "nothing": (None, {}, False),
    "no object": (5, {}, False),
    "began as v1": (spec(), {"conditions": CONDITIONS}, False),
    "began as alpha": (spec(), {"phase": "Running", "conditions": CONDITIONS}, True),
    "began as alpha, edited into v1": (V1_SPEC, {"phase": "Running", "conditions": CONDITIONS}, True),
    "both": (BOTH, {}, True),
    "began as v1, now both": (BOTH, {"begun": {"generation": 1}}, False),
}


@pytest.mark.parametrize(("given", "status", "ours"), OWNERS.values(), ids=OWNERS)
def test_a_job_stays_with_the_controller_that_began_it_and_else_its_shape_decides(
    given: object, status: dict[str, Any], ours: bool
) -> None:
    """The phase, which no other controller writes, tells that the alpha controller began it."""
    assert decoded(given, **status).is_of(KUBEFLOW) == ours


def test_all_jobs_of_tensorflow_org_are_of_its_dialect() -> None:
    assert decoded(None).is_of(TENSORFLOW)


def test_nothing_is_kept_of_a_job_of_another_dialect_but_its_metadata() -> None:
    """One list has the jobs of all dialects of kubeflow.org."""
    found = decoded(V1_SPEC, conditions=CONDITIONS)
    assert bytes(found.spec) == b"null"
    assert found.status == AlphaStatus()


SERVERS = {"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 1}}


@pytest.mark.parametrize("statuses", [None, [SERVERS], {"Worker": {"active": 1}}], ids=["null", "array", "map"])
def test_a_status_is_read_in_every_form_that_it_had(statuses: object) -> None:
    status = {"phase": "Done", "conditions": None, "controlPaused": False, "replicaStatuses": statuses}
    assert decoded(spec(), **status).status.phase == Phase.DONE


def test_a_job_that_is_done_stays_done_when_the_rest_of_its_status_can_not_be_read() -> None:
    raw = wire(spec(), phase="Done", runtimeId="76no", conditions=5)
    found = job_with_unreadable_status(raw, ValueError())
    assert (found.status.phase, found.status.runtime_id) == ("Done", "76no")
    assert job_with_unreadable_status(wire(spec(), phase=5), ValueError()).status == AlphaStatus()


def test_a_status_is_written_with_the_spellings_of_the_time() -> None:
    states = SetStatus(tf_replica_type="MASTER", state="Running", replicas_states={"Running": 1})
    status = AlphaStatus(phase="Running", state="Running", alpha_replica_statuses=(states,), runtime_id="76no")
    assert msgspec.json.decode(msgspec.json.encode(status.to_wire())) == {
        "phase": "Running",
        "state": "Running",
        "reason": "",
        "controlPaused": False,
        "runtimeId": "76no",
        "alphaReplicaStatuses": [{"tf_replica_type": "MASTER", "state": "Running", "ReplicasStates": {"Running": 1}}],
    }


def test_the_word_in_a_template_makes_no_alpha_job() -> None:
    pod = {"spec": {"containers": [{"name": "tensorflow", "env": [{"name": "X", "value": '"replicaSpecs"'}]}]}}
    assert not is_alpha(msgspec.json.encode({"tfReplicaSpecs": {"Worker": {"template": pod, "replicaSpecs": []}}}))
    assert is_alpha(msgspec.json.encode({"REPLICASPECS": []}))
    assert not is_alpha(b'{"replicaSpecs": ' + b"[" * 1000 + b"]" * 1000 + b"}")


def test_the_bytes_of_a_job_are_its_own() -> None:
    """A view into a list page would keep the whole page in memory."""
    found = job(spec(entry("MASTER")))
    assert msgspec.json.decode(found.spec) == spec(entry("MASTER"))
