"""The addon `admission` on a real API server: it rejects frequent mistakes in the operator's words, and nothing else."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from fakes.manifests import read_documents
from hack.admission_policy import FILE, MISTAKES, NAME, Mistake, errors, spec_of
from hack.control_plane import ControlPlane
from hack.crd_schema.__main__ import CRD
from hack.kubernetes_versions import ADMISSION_POLICIES
from hack.objects import an_object
from integration.cluster import Namespace, replica, specs, tfjob
from support.waiting import eventually
from tfjob_operator.api.v1.constants import MANAGED_BY_US, TFJOBS

CREATED, INVALID = 201, 422
SEED: Final = 16
"""Any number will do."""
SPECS: Final = 2000
JOBS: Final = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "manifests" / "examples"
GUIDE: Final = ROOT / "docs" / "install.md"
DENIED: Final = f"ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request: "
TOO_MANY: Final = "too many mistakes"
TOO_LONG: Final = "metadata.name: must be no more than"
UNKNOWN: Final = "Sometimes"


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server of this module's own, since the policy applies to all namespaces."""
    if not control_plane.version.has(ADMISSION_POLICIES):
        pytest.skip(f"Kubernetes {control_plane.version} does not serve ValidatingAdmissionPolicy as v1")
    with ControlPlane.start("admission") as plane:
        plane.run_kubectl("apply", "--server-side", "-f", str(CRD))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        turn_on(plane)
        yield plane


def turn_on(plane: ControlPlane) -> None:
    plane.run_kubectl("apply", "-k", str(FILE.parent))
    eventually(lambda: denial(plane, "probe", {}), "the policy is in force")


def turn_off(plane: ControlPlane) -> None:
    plane.run_kubectl("delete", "-k", str(FILE.parent))
    eventually(lambda: not denial(plane, "probe", {}), "the policy is gone")


def denial(plane: ControlPlane, name: str, spec: object, version: str = "v1") -> str:
    """The words of the policy about a new job, or "" if it is accepted."""
    body = tfjob(name, spec) | {"apiVersion": f"kubeflow.org/{version}"}
    code, found = plane.request("POST", f"{JOBS.replace('v1', version)}?dryRun=All", body)
    return words(code, found)


def words(code: int, found: Any) -> str:
    if code < 300:
        return ""
    before, denied, after = found["message"].partition(DENIED)
    assert denied, before
    assert code == INVALID
    return str(after)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_each_mistake_is_rejected_in_the_words_of_the_operator(plane: ControlPlane, mistake: Mistake) -> None:
    """In every version of the API; kubectl prints them, and a valid job is created."""
    assert denial(plane, mistake.name, mistake.spec) == mistake.words
    assert denial(plane, mistake.name, mistake.spec, "v1beta1") == mistake.words
    document = json.dumps(tfjob(mistake.name, mistake.spec))
    assert mistake.words in plane.run_kubectl("create", "-f", "-", input=document, check=False).stderr
    assert denial(plane, "mnist", specs(Worker=replica())) == ""


def test_all_mistakes_are_reported_at_once(plane: ControlPlane) -> None:
    spec = specs(Worker=replica(policy=UNKNOWN), Launcher=replica(), PS={}) | {"runPolicy": {"cleanPodPolicy": UNKNOWN}}
    assert {*denial(plane, "mnist", spec).split("; ")} == {*errors("mnist", spec)}


Drawn = Callable[[Random], Any]


def mostly(usual: Any, *others: Any, often: int = 19) -> Drawn:
    """The usual value `often` times as often as another one; `...` stands for an absent field."""
    return lambda random: drawn(usual if random.randrange(often + 1) else random.choice(others), random)


def drawn(value: Any, random: Random) -> Any:
    return value(random) if callable(value) else value


def fields(**values: Any) -> Drawn:
    def draw(random: Random) -> dict[str, Any]:
        found = {name: drawn(value, random) for name, value in values.items()}
        return {name: value for name, value in found.items() if value is not ...}

    return draw


CONTAINER: Final = fields(name=mostly("tensorflow", "main", "", ..., None), image=mostly("train:1", "", ..., None))
POD: Final = fields(
    containers=mostly(
        lambda random: [drawn(mostly(CONTAINER, {}, None), random) for _ in range(random.randint(1, 3))], [], None, ...
    ),
    restartPolicy=mostly(..., "Never", "ExitCode", "", None, UNKNOWN),
)
ENTRY: Final = fields(
    replicas=mostly(..., 1, 2, 0, -1, 11, 9999, 10001, None, often=3),
    restartPolicy=mostly(..., "ExitCode", "Always", "", None, UNKNOWN, "never", often=4),
    template=mostly(fields(spec=mostly(POD, None, {}, ...)), None, {}, ...),
)
KELVIN: Final = "Wor\u212aer"
"""A spelling of Worker: the lower case of its K, the sign for kelvins, is that of the letter."""
USUAL_TYPES: Final = ("Worker", "Worker", "Worker", "PS", "PS", "Chief", "Master", "Evaluator")
ODD_TYPES: Final = (
    *("worker", "chief", "ps", "WORKER", KELVIN),
    *("Launcher", "", "Workers", "P\u017f", "it's", "a\\b", "a\nb", "\u00e9"),
)


def entries(random: Random) -> dict[str, Any]:
    kinds = [random.choice(ODD_TYPES if random.random() < 0.1 else USUAL_TYPES) for _ in range(random.randint(1, 3))]
    return {kind: drawn(mostly(ENTRY, None, {}, {"replicas": 3}), random) for kind in kinds}


SPEC: Final = fields(
    tfReplicaSpecs=mostly(entries, {}, None, ...),
    runPolicy=mostly(
        ...,
        *(None, {}),
        *({"cleanPodPolicy": each} for each in ("All", "Running", "None", "", None, UNKNOWN)),
        *({"managedBy": each, "cleanPodPolicy": UNKNOWN} for each in (*MANAGED_BY_US, None, "example.com/other")),
        often=3,
    ),
    replicaSpecs=mostly(..., [], None, [{"tfReplicaType": "MASTER"}]),
    cleanPodPolicy=mostly(..., "All", UNKNOWN),
)
LENGTHS: Final = (46, *range(50, 57), 63, 64, 253)
NAME_OF_JOB: Final = mostly("mnist", "1st", "a.b", "a-", *("m" * length for length in LENGTHS), often=2)


def test_the_policy_rejects_no_job_that_the_operator_accepts(plane: ControlPlane) -> None:
    """Of 2,000 jobs; what it reports is the beginning of what the operator reports."""
    said: Counter[str] = Counter()
    random = Random(SEED)
    with contextlib.closing(plane.connect()) as connection:
        for _ in range(SPECS):
            name, spec = drawn(NAME_OF_JOB, random), drawn(mostly(SPEC, None, {}), random)
            body = json.dumps(tfjob(name, spec))
            connection.request("POST", f"{JOBS}?dryRun=All", body, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                answer, code = json.load(response), response.status
            expected = errors(name, spec)
            if code == CREATED:
                said["found by the operator alone" if expected else "accepted by both"] += 1
                continue
            denied = answer["message"].partition(DENIED)[2]
            said["rejected by both" if denied else "rejected by the schema"] += 1
            assert expected or not denied, (name, spec, denied)
            # the operator reads one of two entries for a replica type, and measures the names of jobs without other errors
            is_listed = TOO_MANY not in denied and not any("Duplicate value" in each for each in expected)
            for line in denied.split("; ") if is_listed else ():
                assert any(each.startswith(line) for each in expected) or line.startswith(TOO_LONG), (spec, line)
    assert min(said["accepted by both"], said["rejected by both"]) > SPECS / 8, said
    assert said["found by the operator alone"] < SPECS / 4, said


@pytest.mark.parametrize(
    "change",
    [
        {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue", "cleanPodPolicy": UNKNOWN}},
        {"replicaSpecs": [{"tfReplicaType": "MASTER"}]},
        {"tfReplicaSpecs": {"Chief": replica(), "Worker": {"replicas": 3}}},
    ],
    ids=["of another controller", "of v1alpha1", "scaled without workers"],
)
def test_what_the_operator_does_not_judge_passes(plane: ControlPlane, change: dict[str, Any]) -> None:
    assert denial(plane, "mnist", change) == ""


def test_a_job_that_is_invalid_already_can_be_changed_in_all_other_ways(plane: ControlPlane) -> None:
    """Labels, status, scale, suspension, and one correction after the other; only new mistakes are rejected."""
    turn_off(plane)
    space = Namespace(plane, "default")
    spec = specs(Worker=replica(policy=UNKNOWN), PS=replica(policy=UNKNOWN), Chief=replica(2))
    space.post(an_object(TFJOBS, "old", spec, finalizers=["example.com/hold"]))
    turn_on(plane)
    space.patch("tfjobs", "old", {"metadata": {"labels": {"team": "a"}}})
    space.patch("tfjobs", "old", {"spec": {"runPolicy": {"suspend": True}}})
    space.patch("tfjobs", "old/status", {"status": {"startTime": "2026-11-30T00:00:00Z"}})
    space.kubectl("scale", "tfjob", "old", "--replicas=3")
    entries: dict[str, Any] = {"Worker": {"restartPolicy": "Never"}}
    space.patch("tfjobs", "old", {"spec": {"tfReplicaSpecs": entries}})
    entries["PS"] = {"template": None}
    answer = plane.request(
        "PATCH", f"{JOBS}/old", {"spec": {"tfReplicaSpecs": entries}}, content_type="application/merge-patch+json"
    )
    assert words(*answer) == "spec.tfReplicaSpecs.PS.template: Required value"
    space.kubectl("delete", "tfjob", "old", "--wait=false")
    space.patch("tfjobs", "old", {"metadata": {"finalizers": None}})
    eventually(lambda: space.find("tfjobs", "old") is None, "the job is gone")


def test_a_limit_of_new_jobs_does_not_reject_an_edit(plane: ControlPlane) -> None:
    """A started job keeps its size instead of failing."""
    space = Namespace(plane, "default")
    name = "m" * 54
    space.post(tfjob(name, specs(Worker=replica())))
    space.patch("tfjobs", name, {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 11}}}})
    assert denial(plane, f"{name}x", specs(Worker=replica(10))) == f"{TOO_LONG} 54 characters"
    space.kubectl("delete", "tfjob", name)


def test_large_jobs_stay_within_the_cost_limits_of_cel(plane: ControlPlane) -> None:
    """If the cost exceeded a limit, the mistake would pass: 10,000 replicas, and the most containers that the server stores."""
    assert denial(plane, "many", specs(Worker=replica(9000), PS=replica(1000))) == ""
    assert denial(plane, "many", specs(Worker=replica(9000, UNKNOWN), PS=replica(1000)))
    containers = [{"name": f"sidecar-{number}", "image": "sidecar:1"} for number in range(20_000)]
    assert (
        denial(plane, "large", spec_of(*containers)) == errors("large", spec_of(*containers))[0].partition("; found")[0]
    )


def test_a_generated_name_is_judged_when_it_is_known(plane: ControlPlane) -> None:
    body = tfjob("", specs(Worker=replica()))
    body["metadata"] = {"generateName": "nightly-"}
    code, found = plane.request("POST", f"{JOBS}?dryRun=All", body)
    assert code == CREATED, found
    body["metadata"] = {"generateName": "1st-"}
    assert words(*plane.request("POST", f"{JOBS}?dryRun=All", body)).startswith('metadata.name: Invalid value: "1st-')


def test_the_examples_pass(plane: ControlPlane) -> None:
    """All but the one that shows a mistake."""
    for file in sorted(EXAMPLES.rglob("*.yaml")):
        for document in read_documents(file):
            if document.get("kind") == "TFJob" and document["apiVersion"].startswith("kubeflow.org/"):
                name = document["metadata"].get("name", "generated")
                found = denial(plane, name, document["spec"], document["apiVersion"].partition("/")[2])
                assert bool(found) == (file.name == "06-invalid.yaml"), (file, found)


def test_the_guide_shows_what_kubectl_prints(plane: ControlPlane) -> None:
    plane.create_namespace("kubeflow")
    command, shown = re.findall(r"^```console\n\$ kubectl (create .*)\n(.*)\n```$", GUIDE.read_text(), re.MULTILINE)[0]
    assert (
        plane.run_kubectl(*command.replace("manifests/", f"{ROOT}/manifests/").split(), check=False).stderr
        == f"{shown}\n"
    )
