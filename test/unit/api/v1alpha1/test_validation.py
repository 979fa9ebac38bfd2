"""Reading a specification of the alpha dialect: its defaults, and the message for each mistake, in the dialect's terms."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.alpha import entry, good, mistakes, read, spec, template
from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.v1.constants import CleanPodPolicy, EventReason
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import DEFAULT_IMAGE, DIALECTS, KUBEFLOW, TENSORFLOW, Dialect, ReplicaType
from tfjob_operator.api.v1alpha1.types import AlphaReplicas, AlphaSpec, Chief
from tfjob_operator.api.v1alpha1.validation import read_spec

BOTH = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.label)


def chief(name: object = None, index: object = None) -> dict[str, Any]:
    found = {"replicaName": name, "replicaIndex": index}
    return {"chief": {key: value for key, value in found.items() if value is not None}}


def containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": "i:1"} for name in names]}}


ONE_OF = "Unsupported value: supported values:"
BAD_SPECS: dict[str, tuple[Any, str]] = {
    "no spec": (None, "spec.replicaSpecs: Required value"),
    "empty spec": ({}, "spec.replicaSpecs: Required value"),
    "no entry": ({"replicaSpecs": []}, "spec.replicaSpecs: Required value"),
    "a map of replicas": ({"replicaSpecs": {}}, "spec.replicaSpecs: must be a list, not an object"),
    "no entry at all": ({"replicaSpecs": [5]}, "spec.replicaSpecs[0]: must be an object, not a number"),
    "two masters": (spec(entry(), entry("MASTER")), "spec.replicaSpecs[1]: Duplicate value: MASTER; keep one"),
    "two PS": (spec(entry(), entry("PS"), entry("PS")), "[2]: Duplicate value: PS; keep one entry"),
    "2 masters in one": (spec(entry("MASTER", 2)), "[0].replicas: The MASTER must have Replicas = 1"),
    "0 masters": (spec(entry("MASTER", 0)), "[0].replicas: The MASTER must have Replicas = 1"),
    "negative replicas": (spec(entry(replicas=-1)), "replicas: must be a non-negative integer"),
    "text replicas": (spec(entry(replicas="x")), "replicas: must be a non-negative integer"),
    "another letter case": (spec(entry("Worker")), f'tfReplicaType: {ONE_OF} "MASTER", "WORKER", "PS"'),
    "unknown type": (spec(entry("CHIEF")), f'tfReplicaType: {ONE_OF} "MASTER", "WORKER", "PS"'),
    "a list for a type": (spec(entry([])), "tfReplicaType: must be a string, not a list"),
    "no template": (spec(entry(template=None)), "[0].template: Replica type MASTER is missing Template"),
    "no worker's": (spec(entry(), entry("WORKER", template=None)), "Replica type WORKER is missing Template"),
    "numeric template": (spec(entry(template=7)), "[0].template: must be an object, not a number"),
    "empty template": (spec(entry(template={})), "containers: Required value: at least one container"),
    "no container of the name": (spec(entry(template=containers("tf"))),
        "Replica type MASTER is missing a container named tensorflow"),
    "no image": (spec(entry(template={"spec": {"containers": [{"name": "tensorflow"}]}})), "[0].image: Required value"),
    "policy": (spec(entry(template=template(restartPolicy="ExitCode"))), '"Always", "OnFailure", "Never"'),
    "a wrong type": (spec(entry(template=template(nodeSelector=5))), "nodeSelector: must be an object"),
    "port 0": (spec(entry(tfPort=0)), "[0].tfPort: must be between 1 and 65535"),
    "no port": (spec(entry(tfPort=65_536)), "tfPort: must be between 1 and 65535"),
    "no chief": (spec(entry("WORKER")), "Missing ReplicaSpec for chief: MASTER"),
    "chief of no entry": (spec(terminationPolicy=chief("WORKER", 0)), "Missing ReplicaSpec for chief: WORKER"),
    "chief beyond the last": (spec(entry(), entry("WORKER", 2), terminationPolicy=chief("WORKER", 2)),
        "spec.terminationPolicy.chief.replicaIndex: must be less than the number of WORKER replicas"),
    "unknown chief": (spec(terminationPolicy=chief("Boss")), f'chief.replicaName: {ONE_OF} "MASTER"'),
    "chief -1": (spec(terminationPolicy=chief(index=-1)), "replicaIndex: must be a non-negative integer"),
    "policy without a chief": (spec(terminationPolicy={}), "spec.terminationPolicy.chief: Required value"),
    "numeric policy": (spec(terminationPolicy=3), "spec.terminationPolicy: must be an object"),
    "clean": (spec(cleanupPodPolicy="Some"), f'spec.cleanupPodPolicy: {ONE_OF} "All", "Running", "None"'),
    "list of clean": (spec(cleanupPodPolicy=[]), "spec.cleanupPodPolicy: must be a string, not a list"),
    "capital letters": (spec(RuntimeId="A1b2"), "spec.RuntimeId: must consist of lowercase letters, digits"),
    "long": (spec(RuntimeId="x" * 52), "spec.RuntimeId: must be no more than 51 characters"),
    "numeric scheduler": (spec(schedulerName=1), "spec.schedulerName: must be a string, not a number"),
    "servers, no image": (spec(entry(), entry("PS"), tfImage=""),
        "spec.tfImage: Required value: the image of parameter servers"),
    "many": (spec(entry(), entry("WORKER", 1_000)), "requests 1001 replicas; the maximum in v1alpha1 is"),
    "both": ({"tfReplicaSpecs": {}, **spec()}, "spec.tfReplicaSpecs: Forbidden: v1 format; this job uses replicaSpecs"),
    "edited into v1": ({"tfReplicaSpecs": {}}, "spec.tfReplicaSpecs: Forbidden: v1 format"),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize(("given", "said"), BAD_SPECS.values(), ids=BAD_SPECS)
def test_a_mistake_is_said_in_the_words_of_the_dialect(given: object, said: str, dialect: Dialect) -> None:
    assert said in mistakes(given, dialect)


def test_a_job_that_says_nothing_but_its_template_is_one_master_on_port_2222() -> None:
    """It was the simplest document in the alpha dialect's time."""
    assert good(spec()) == AlphaSpec(replicas=(AlphaReplicas(ReplicaType.MASTER),), chief=Chief(), image=DEFAULT_IMAGE)


def test_replicas_keep_the_order_of_their_author() -> None:
    found = good(spec(entry("PS", 2), entry(), entry("WORKER", 3, tfPort=4000)))
    assert found.sizes == {"PS": 2, "MASTER": 1, "WORKER": 3}
    assert [each.port for each in found.replicas] == [2222, 2222, 4000]
    assert list(found.sizes) == ["PS", "MASTER", "WORKER"]


@pytest.mark.parametrize("given", [None, {}, containers("sidecar")], ids=["none", "empty", "others"])
def test_parameter_servers_without_a_container_named_tensorflow_get_the_operators(given: object) -> None:
    """As the dialect's documentation says; templates of other types must have such a container."""
    found = good(spec(entry(), entry("PS", template=given)))
    assert [each.gets_server for each in found.replicas] == [False, True]
    assert found.has_servers


def test_parameter_servers_with_a_container_of_their_own_keep_it() -> None:
    found = good(spec(entry(), entry("PS", template=template()), tfImage=""))
    assert not found.has_servers


@pytest.mark.parametrize(
    ("policy", "used", "warned"),
    [
        ("OnFailure", PodRestartPolicy.ON_FAILURE, False),
        ("Never", PodRestartPolicy.NEVER, False),
        (None, PodRestartPolicy.ON_FAILURE, False),
        ("Always", PodRestartPolicy.ON_FAILURE, True),
    ],
)
def test_a_job_takes_no_pods_that_always_restart(policy: str | None, used: PodRestartPolicy, warned: bool) -> None:
    """Kubernetes refuses a Job with policy Always, so there is a warning; without a policy it is OnFailure, as documented."""
    found = good(spec(entry(template=template(restartPolicy=policy))))
    assert found.replicas[0].restart_policy == used
    assert [each.reason for each in found.warnings] == [EventReason.RESTART_POLICY_OVERWRITTEN] * warned


def test_the_chief_may_be_any_replica() -> None:
    found = good(spec(entry(), entry("WORKER", 3), terminationPolicy=chief("WORKER", 2)))
    assert found.chief == Chief(ReplicaType.WORKER, 2)


def test_unknown_fields_are_reported_with_what_was_meant() -> None:
    found = good(spec(entry(tfport=1), cleanPodPolicy="All", schedulername="x"))
    assert [each.message for each in found.warnings] == [
        "spec.cleanPodPolicy: unknown field is ignored; did you mean cleanupPodPolicy?",
        "spec.schedulername: unknown field is ignored; did you mean schedulerName?",
        "spec.replicaSpecs[0].tfport: unknown field is ignored; did you mean tfPort?",
    ]


def test_the_letter_case_of_keys_is_free_in_tensorflow_org() -> None:
    """Go's encoding/json read these jobs including the template; of two spellings of a field the later one counts."""
    pod = {"Spec": {"Containers": [{"NAME": "tensorflow", "Image": "i:1", "ENV": [{"Name": "TF_CONFIG"}]}]}}
    given = {
        "ReplicaSpecs": [{"TFReplicaType": "MASTER", "Replicas": 1, "TfPort": 3000, "Template": pod}],
        "runtimeid": "i0x6",
        "TensorBoard": {"LogDir": "/logs", "Volumes": [{"Name": "v", "EmptyDir": {}}], "VolumeMounts": []},
        "TFIMAGE": "first:1",
        "tfimage": "second:1",
    }
    found = good(given, TENSORFLOW)
    assert found == AlphaSpec(
        replicas=(AlphaReplicas(ReplicaType.MASTER, 1, 3000, sets_tf_config=True),),
        runtime_id="i0x6",
        image="second:1",
        tensorboard={"logDir": "/logs", "volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": []},
    )


def test_the_letter_case_of_keys_counts_in_kubeflow_org() -> None:
    assert "replicaSpecs: Required value" in mistakes({"ReplicaSpecs": [entry()]}, KUBEFLOW)


def test_keys_that_are_the_users_keep_their_letter_case_everywhere() -> None:
    labels = {"App": "a", "app": "b"}
    pod = {"metadata": {"labels": labels}, **template()}
    raw = msgspec.json.encode(spec(entry(Template=pod, template=pod)))
    assert isinstance(read_spec(TENSORFLOW, "j", raw), AlphaSpec)


def test_mistakes_of_a_tensorboard_are_none_of_the_jobs() -> None:
    """They must not keep a job from training; the TensorBoard's controller reports them."""
    assert good(spec(tensorboard={"volumes": 5})).tensorboard == {"volumes": 5}
    assert good(spec(tensorboard="x")).tensorboard is None


def test_a_name_that_is_too_long_for_a_label_is_reported() -> None:
    assert "metadata.name: must be no more than 63 characters" in mistakes(spec(), name="x" * 64)
    assert isinstance(read(spec(), name="x" * 63), AlphaSpec)


def test_who_manages_a_job_is_known_in_spite_of_mistakes_and_a_broken_policy_cleans_nothing_up() -> None:
    managed, kept = read({"runPolicy": {"managedBy": "somebody.io/else"}}), read(spec(cleanupPodPolicy="Al"))
    assert isinstance(managed, InvalidSpec)
    assert managed.managed_by == "somebody.io/else"
    assert isinstance(kept, InvalidSpec)
    assert kept.clean_pod_policy == CleanPodPolicy.NONE


KEYS = st.sampled_from(
    "replicaSpecs tfReplicaType template spec containers name image replicas terminationPolicy chief "  # noqa: SIM905
    "replicaName replicaIndex tfPort tfImage RuntimeId cleanupPodPolicy runPolicy managedBy Spec ENV env".split()
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["MASTER", "PS", "WORKER", "tensorflow", "", "secret-value"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))


@BOTH
@settings(deadline=None)
@given(value=VALUES)
def test_whatever_stands_in_a_specification_is_read_or_told_and_never_quoted(dialect: Dialect, value: object) -> None:
    for each in (value, {"replicaSpecs": value}, {"replicaSpecs": [value]}, {"replicaSpecs": [{"template": value}]}):
        found = read(each, dialect)
        if isinstance(found, InvalidSpec):
            assert found.mistakes
            assert "secret-value" not in found.text


@settings(deadline=None)
@given(value=VALUES)
def test_the_letter_case_of_keys_changes_nothing_of_what_is_read(value: object) -> None:
    def shouted(part: object) -> object:
        if isinstance(part, dict):
            return {key.upper(): shouted(each) for key, each in part.items()}
        return [shouted(each) for each in part] if isinstance(part, list) else part

    def plain(part: object) -> object:
        """The value with only the last of keys that differ only in case."""
        if isinstance(part, dict):
            last = {key.lower(): (key, each) for key, each in part.items()}
            return {key: plain(each) for key, each in last.values()}
        return [plain(each) for each in part] if isinstance(part, list) else part

    one = plain({"replicaSpecs": [value]})
    same, other = read(one, TENSORFLOW), read(shouted(one), TENSORFLOW)
    assert isinstance(same, AlphaSpec) == isinstance(other, AlphaSpec)
    if isinstance(same, AlphaSpec):
        assert isinstance(other, AlphaSpec)
        assert (same.replicas, same.chief, same.image) == (other.replicas, other.chief, other.image)
