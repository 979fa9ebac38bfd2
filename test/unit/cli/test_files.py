"""`validate` and `convert`: jobs in files, without a cluster."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tfjob_operator.api.v1.types import format_errors
from tfjob_operator.cli import manifests
from tfjob_operator.cli.manifests import validate
from unit.cli.conftest import run

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "manifests" / "examples"
SHOWN = re.compile(r"```console\n\$ kubectl tfjob ((?:validate|convert|submit Mnist) .*)\n((?:.*\n)*?)```")
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist}
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          containers:
          - name: tensorflow
            image: tf:1
"""


def write(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


def test_a_good_job_prints_nothing_but_the_count(tmp_path: Path) -> None:
    result = run("validate", write(tmp_path, JOB))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "1 job, 0 invalid\n")


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("replicas: 1", "replicas: -1", 7, "spec.tfReplicaSpecs.Worker.replicas: must be a non-negative integer"),
        ("name: tensorflow", "name: trainer", 10, "one container must be named tensorflow"),
        (
            "image: tf:1",
            f"args: [5]\n{' ' * 12}image: tf:1",
            12,
            "spec.tfReplicaSpecs.Worker.template.spec.containers[0].args",
        ),
        ("Worker:", "Trainer:", 6, "spec.tfReplicaSpecs"),
        ("metadata: {name: mnist}", "metadata: {}", 3, "metadata.name: is missing"),
        ("metadata: {name: mnist}", "metadata: {name: Mnist}", 3, "metadata.name"),
        ("spec:\n  tf", "spec: 5\nmore:\n  tf", 4, "spec"),
        ("replicas: 1", "replicas: 4500", 5, "spec.tfReplicaSpecs: TF_CONFIG lists all 4500 replicas"),
        ("replicas: 1", "replicas: 10001", 5, "spec.tfReplicaSpecs: requests 10001 replicas; the maximum is 10000"),
        ("name: mnist", f"name: {'a' * 60}", 3, "metadata.name: must be no more than 54 characters: the pod"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, before: str, after: str, line: int, says: str) -> None:
    path = write(tmp_path, JOB.replace(before, after, 1))
    result = run("validate", path)
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    assert first.startswith(f"{path}:{line}: "), first
    assert says in first


def test_a_warning_is_no_mistake(tmp_path: Path) -> None:
    text = JOB.replace("spec:\n", "spec:\n  tensorBoard: {}\n  cleanPodPolcy: None\n", 1)
    result = run("validate", write(tmp_path, text))
    assert result.exit_code == 0
    assert "warning: " in result.stdout
    assert "cleanPodPolcy" in result.stdout
    assert "the job runs without its TensorBoard: spec.tensorBoard.logDir" in result.stdout
    assert result.stderr == "1 job, 0 invalid, 2 warnings\n"
    assert run("validate", "--strict", "-", stdin=text).exit_code == 1


def test_what_the_operator_does_by_design_is_a_note_which_strict_allows(tmp_path: Path) -> None:
    policy = "  runPolicy:\n    failurePolicy: {rules: [{action: FailJob}]}\n  tfReplicaSpecs:\n"
    text = JOB.replace("  tfReplicaSpecs:\n", policy, 1).replace("replicas: 1", "restartPolicy: OnFailure", 1)
    path = write(tmp_path, text)
    result = run("validate", "--strict", path)
    assert (result.exit_code, result.stderr) == (0, "1 job, 0 invalid\n")
    assert result.stdout.startswith(f"{path}:6: note: pods of Worker are created with restartPolicy Never")


def test_lists_and_several_documents_are_opened_and_other_objects_skipped(tmp_path: Path) -> None:
    bad = JOB.replace("replicas: 1", "replicas: x")
    indented = "".join(f"  {line}\n" for line in bad.splitlines())
    text = f"kind: Service\napiVersion: v1\n---\n{JOB}---\nkind: List\napiVersion: v1\nitems:\n-{indented[1:]}"
    result = run("validate", "-", stdin=text)
    assert result.stderr == "2 jobs, 1 invalid\n"
    assert result.stdout.startswith("standard input:26: spec.tfReplicaSpecs.Worker.replicas")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", ": not valid YAML: "),
        ("a: b\n\t- c: d", "not valid YAML"),
        (JOB.replace("v1", "v2", 1), "job.yaml:1: kubeflow.org/v2 is not supported: supported versions: v1, v1beta2"),
        ("\x00", "not valid YAML"),
    ],
)
def test_a_file_that_can_not_be_read_is_told_and_the_others_go_on(tmp_path: Path, text: str, says: str) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(JOB)
    result = run("validate", write(tmp_path, text), str(tmp_path / "none"), str(good))
    assert result.exit_code == 1
    assert says in result.stderr
    assert "/none: No such file or directory" in result.stderr
    assert "1 job, 0 invalid" in result.stderr


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_judged_as_the_operator_judges_them(path: Path) -> None:
    for manifest in manifests.read(str(path)):
        judged = validate(manifest)
        assert bool(judged.mistakes) == ("invalid" in path.name), format_errors(judged.mistakes, judged.more)


@pytest.mark.parametrize("path", sorted((EXAMPLES / "migration").rglob("*.yaml")), ids=lambda path: path.name)
def test_what_was_converted_is_a_valid_job_of_v1(path: Path) -> None:
    result = run("convert", str(path))
    assert result.exit_code == 0
    assert result.stdout.startswith("# converted from ")
    before = list(manifests.read(str(path)))
    converted = path.parent / "converted"
    documents = [each for each in yaml.safe_load_all(result.stdout) if each]
    assert [each["metadata"] for each in documents] == [each.body["metadata"] for each in before]
    for each in documents:
        assert list(each) == ["apiVersion", "kind", "metadata", "spec"]
        manifest = manifests.Manifest(str(converted), 1, "kubeflow.org", "v1", each)
        assert not validate(manifest).mistakes


def test_a_job_with_mistakes_is_not_converted(tmp_path: Path) -> None:
    """It would become another job."""
    text = "apiVersion: tensorflow.org/v1alpha1\nkind: TfJob\nmetadata: {name: a}\nspec:\n  replicaSpecs: 5\n"
    result = run("convert", write(tmp_path, text))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path}/job.yaml:5: spec.replicaSpecs")
    assert run("convert", write(tmp_path, "kind: Pod\napiVersion: v1\n")).stderr == "error: no TFJobs found\n"


@pytest.mark.parametrize(("command", "shown"), SHOWN.findall((ROOT / "docs" / "kubectl-tfjob.md").read_text()))
def test_the_page_shows_what_the_plugin_prints(monkeypatch: pytest.MonkeyPatch, command: str, shown: str) -> None:
    monkeypatch.chdir(ROOT)
    beginning, dots, _ = shown.partition("...\n")
    printed = run(*shlex.split(command)).output
    assert printed.startswith(beginning) if dots else printed == beginning


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]
)


def replicas(number: str) -> str:
    return JOB.replace("replicas: 1", f"replicas: {number}")


MANY = range(60_000)
TOO_LONG = "job.yaml:1: not valid YAML: a number has too many digits"
TOO_LARGE = "job.yaml:1: more than 50,000 values in an object"
TOO_MUCH = {
    "aliases": (BOMB, "job.yaml:7: more than 1,000,000 values"),
    "levels": ("[" * 200, "job.yaml:1: more than 100 levels of nesting"),
    "digits": (replicas("9" * 6000), TOO_LONG),
    "hexadecimal digits": (replicas("0x" + "f" * 5000), TOO_LONG),
    "octal digits": (replicas("07" + "7" * 5000), TOO_LONG),
    "base 60": (replicas("1" + ":59" * 100_000), TOO_LONG),
    "fraction in base 60": (replicas("1" + ":59" * 100_000 + ".5"), TOO_LONG),
    "65 bits": (replicas(str(2**64)), TOO_LONG),
    "fields": (JOB + "".join(f"  a{number}: 1\n" for number in MANY), TOO_LARGE),
    "anchors": (JOB + "".join(f"  a{number}: &b{number} 1\n" for number in MANY), TOO_LARGE),
    "merged fields": (JOB + "  a: &a {x: 1}\n  b:\n" + "  - {<<: *a}\n" * len(MANY), TOO_LARGE),
    "an alias of itself": (JOB + "  a: &a [*a, *a]\n", TOO_LARGE),
    "tag": (JOB + "  a: !!bool maybe\n", "job.yaml:1: not valid YAML: a value does not match its tag"),
}


@pytest.mark.parametrize(("text", "says"), TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize("verb", ["validate", "convert"])
def test_a_file_that_would_exhaust_the_plugin_is_refused_before_it_is_read(
    tmp_path: Path, verb: str, text: str, says: str
) -> None:
    """Half a kilobyte of aliases stands for gigabytes."""
    result = run(verb, write(tmp_path, text))
    assert (result.exit_code, result.stderr.rpartition("/")[2].strip()) == (1, says)


@pytest.mark.parametrize("verb", ["validate", "convert"])
def test_a_file_whose_levels_would_overflow_the_stack_of_libyaml_is_refused(tmp_path: Path, verb: str) -> None:
    """PyYAML before 6.0.4 did not limit them; since then libyaml reports them itself."""
    result = run(verb, write(tmp_path, "[" * 50_000))
    assert result.exit_code == 1
    own, of_libyaml = "more than 100 levels of nesting", "not valid YAML: exceeded maximum nesting depth"
    assert result.stderr.rpartition("/")[2].strip() in {f"job.yaml:1: {own}", f"job.yaml:1: {of_libyaml}"}


def test_dates_stay_text_also_where_no_calendar_has_them(tmp_path: Path) -> None:
    """As in JSON: an annotation is what is written."""
    file = write(tmp_path, JOB.replace("{name: mnist}", "{name: mnist, annotations: {a: 2026-13-45, b: 2026-01-02}}"))
    (manifest,) = manifests.read(file)
    assert manifest.body["metadata"]["annotations"] == {"a": "2026-13-45", "b": "2026-01-02"}


def test_what_is_not_seen_is_written_as_an_escape(tmp_path: Path) -> None:
    """U+202E turns around what follows it; other letters stay as they are."""
    old = JOB.replace("kubeflow.org/v1", "kubeflow.org/v1alpha1").replace(
        "{name: mnist}", "{name: mnist, annotations: {a: %s}}"
    )
    assert "naïve" in run("convert", write(tmp_path, old % "naïve")).stdout
    hidden = run("convert", write(tmp_path, old % "'naïve\u202egp.exe'")).stdout
    assert "\\u202E" in hidden
    assert "\u202e" not in hidden


def test_a_warning_has_the_line_of_its_field_and_is_an_error_only_where_that_is_asked_for(tmp_path: Path) -> None:
    """In a pipeline a misspelt field must not pass."""
    typos = JOB.replace("spec:\n  tf", "spec:\n  runPolcy: {}\n  tf", 1).replace(
        "image:", "comand: [a]\n            image:"
    )
    file = write(tmp_path, typos)
    lines = run("validate", file).stdout.splitlines()
    assert [line.removeprefix(file).partition(": unknown field is ignored")[0] for line in lines] == [
        ":5: warning: spec.runPolcy",
        ":13: warning: spec.tfReplicaSpecs.Worker.template.spec.containers[0].comand",
    ]
    assert [run("validate", *strict, file).exit_code for strict in ([], ["--strict"])] == [0, 1]
    assert run("validate", "--strict", write(tmp_path, JOB)).exit_code == 0


def test_memory_in_the_wrong_unit_is_a_warning(tmp_path: Path) -> None:
    """The API server accepts it, and no container starts with it. `m` is milli."""
    amounts = "resources: {limits: {memory: 512m, cpu: 500m}, requests: {memory: 200m, ephemeral-storage: 1k}}"
    file = write(tmp_path, JOB.replace("image:", f"{amounts}\n            image:"))
    units = "the units are Ki, Mi, Gi and Ti, or k, M, G and T"
    path = "spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources"
    assert [line.removeprefix(file) for line in run("validate", file).stdout.splitlines()] == [
        f":12: warning: {path}.requests.memory: 200m is less than a byte: {units}",
        f":12: warning: {path}.requests.ephemeral-storage: 1k is 1000 bytes: {units}",
        f":12: warning: {path}.limits.memory: 512m is less than a byte: {units}",
    ]
    assert run("validate", "--strict", file).exit_code == 1
    assert not run(
        "validate", write(tmp_path, JOB.replace("image:", "resources: {limits: {memory: 64Mi}}\n            image:"))
    ).stdout


@pytest.mark.parametrize(("replicas", "warns"), [(1, False), (2, True)])
def test_one_tf_config_for_several_replicas_is_a_warning(tmp_path: Path, replicas: int, warns: bool) -> None:
    """Each would train a model of its own, and the job would succeed."""
    text = JOB.replace("replicas: 1", f"replicas: {replicas}").replace(
        "image:", "env: [{name: TF_CONFIG, value: '{}'}]\n            image:"
    )
    file = write(tmp_path, text)
    said = (
        "spec.tfReplicaSpecs.Worker.template.spec.containers: env sets TF_CONFIG, so all 2 replicas have the same task "
    )
    told = run("validate", file)
    assert (told.exit_code, f": warning: {said}" in told.stdout) == (0, warns)


def test_a_template_of_which_no_pod_can_be_created_is_an_error(tmp_path: Path) -> None:
    """The API server accepts the job, and rejects its pods; the operator then fails the job."""
    amounts = "resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi, cpu: 1}}"
    mounts = "volumeMounts: [{name: data, mountPath: /data}]"
    file = write(tmp_path, JOB.replace("image:", f"{amounts}\n            {mounts}\n            image:"))
    path = "spec.tfReplicaSpecs.Worker.template.spec.containers[0]"
    result = run("validate", file)
    assert [line.removeprefix(file) for line in result.stdout.splitlines()] == [
        f":12: {path}.resources.requests.memory: 2Gi is more than its limit 1Gi: no pod can be created",
        f":13: {path}.volumeMounts[0].name: data is not in volumes: no pod can be created",
    ]
    assert (result.exit_code, result.stderr) == (1, "1 job, 1 invalid\n")
    submitted = run("submit", "mnist", "-f", file, "--dry-run=client")
    assert (submitted.exit_code, submitted.stdout) == (1, "")
    assert "job not created: " in submitted.stderr
    text = (
        Path(file).read_text().replace("containers:", "volumes: [{name: data, emptyDir: {}}]\n          containers:", 1)
    )
    Path(file).write_text(text.replace("2Gi", "1024Mi"))
    assert run("validate", file).stdout == ""


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("resources: {limits: {memory: 1GB}}", "resources.limits.memory: 1GB is not a quantity such as 2, 500m or 4Gi"),
        ("resources: {requests: {cpu: abc}}", "resources.requests.cpu: abc is not a quantity such as 2, 500m or 4Gi"),
        ("ports: [{containerPort: 70000}]", "ports[0].containerPort: 70000 is not between 1 and 65535"),
        ("ports: [{containerPort: 0}]", "ports[0].containerPort: 0 is not between 1 and 65535"),
        ('resources: {limits: {memory: " 1Gi "}}', ""),
        ("resources: {limits: {nvidia.com/gpu: 1, cpu: 0.5, memory: 1e9}}", ""),
        ("ports: [{containerPort: 65535}]", ""),
        (
            "resources: {limits: {nvidia.com/gpu: 0.5}}",
            "resources.limits.nvidia.com/gpu: 0.5 is not a whole number: no pod can be created",
        ),
        (
            "resources: {requests: {nvidia.com/gpu: 1}}",
            "resources.requests.nvidia.com/gpu: 1 has no limit in limits: no pod can be created",
        ),
        (
            "resources: {requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}",
            "resources.requests.nvidia.com/gpu: 1 is not equal to its limit 2: no pod can be created",
        ),
        ("resources: {requests: {nvidia.com/gpu: 1000m}, limits: {nvidia.com/gpu: 1}}", ""),
    ],
)
def test_what_the_api_server_rejects_is_an_error(tmp_path: Path, field: str, says: str) -> None:
    """The schema of the CRD rejects other quantities; pods with other ports are rejected later, which fails the job."""
    file = write(tmp_path, JOB.replace("image:", f"{field}\n            image:"))
    told = f":12: spec.tfReplicaSpecs.Worker.template.spec.containers[0].{says}\n" if says else ""
    result = run("validate", file)
    assert (result.exit_code, result.stdout.removeprefix(file)) == (1 if says else 0, told)


def test_volumes_and_mounts_that_are_there_twice_are_errors(tmp_path: Path) -> None:
    volumes = "volumes: [{name: data, emptyDir: {}}, {name: data, emptyDir: {}}]\n          containers:"
    mounts = "volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /data}]\n            image:"
    file = write(tmp_path, JOB.replace("containers:", volumes, 1).replace("image:", mounts))
    path = "spec.tfReplicaSpecs.Worker.template.spec"
    assert [line.partition(": ")[2] for line in run("validate", file).stdout.splitlines()] == [
        f"{path}.volumes[1].name: data is there twice: no pod can be created",
        f"{path}.containers[0].volumeMounts[1].mountPath: /data is there twice: no pod can be created",
    ]


@pytest.mark.parametrize(
    ("version", "kind"), [("batch/v1", "TFJob"), ("kubeflow.org/v1", "TfJob"), ("tensorflow.org/v1alpha1", "TFJob")]
)
def test_a_job_of_a_wrong_group_or_kind_is_an_error(tmp_path: Path, version: str, kind: str) -> None:
    """It was passed over, as objects of other kinds in the same file are."""
    file = write(tmp_path, JOB.replace("kubeflow.org/v1", version).replace("TFJob", kind))
    result = run("validate", file)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        1, f"error: {file}:1: {kind} of {version} does not exist: write TFJob of kubeflow.org/v1",
    )  # fmt: skip


def test_a_size_limit_that_is_no_quantity_is_an_error_beside_the_others(tmp_path: Path) -> None:
    volumes = "volumes: [{name: shm, emptyDir: {sizeLimit: 1GB}}]\n          containers:"
    text = JOB.replace("containers:", volumes, 1).replace(
        "  tfReplicaSpecs:", "  successPolicy: Some\n  tfReplicaSpecs:", 1
    )
    lines = run("validate", write(tmp_path, text)).stdout.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        'spec.successPolicy: Unsupported value: supported values: "AllWorkers"',
        "spec.tfReplicaSpecs.Worker.template.spec.volumes[0].emptyDir.sizeLimit: 1GB is not a quantity such as 2, 500m or 4Gi",
    ]


def test_unknown_fields_are_warnings_also_beside_errors(tmp_path: Path) -> None:
    text = JOB.replace("spec:\n  tf", "spec:\n  runPolcy: {}\n  successPolicy: Some\n  tf", 1)
    file = write(tmp_path, text)
    lines = run("validate", file).stdout.splitlines()
    assert [line.removeprefix(file).partition(": unknown field")[0] for line in lines][1:] == [
        ":5: warning: spec.runPolcy"
    ]


def test_a_base_for_submit_is_told_how_to_be_validated(tmp_path: Path) -> None:
    file = write(tmp_path, JOB.replace("metadata: {name: mnist}\n", ""))
    assert "validate a file for `submit -f` with `submit NAME -f FILE --dry-run=client`" in run("validate", file).stdout
    assert run("submit", "mnist", "-f", file, "--dry-run=client").exit_code == 0


def test_the_files_of_a_folder_are_read_as_kubectl_reads_them(tmp_path: Path) -> None:
    """One that cannot be read does not hide the others."""
    assert "has no files named *.json, *.yaml, *.yml" in run("validate", str(tmp_path)).output
    write(tmp_path, JOB)
    (tmp_path / "a.yml").write_text("a: [")
    (tmp_path / "notes.md").write_text("# notes")
    result = run("validate", str(tmp_path))
    assert "1 job, 0 invalid" in result.output
    assert "a.yml:2: not valid YAML" in result.output


def test_words_that_a_shell_ignores_are_a_warning(tmp_path: Path) -> None:
    file = write(tmp_path, JOB.replace("image:", "command: [sh, -c, python3, train.py]\n            image:"))
    where = "spec.tfReplicaSpecs.Worker.template.spec.containers[0].command"
    what = "sh -c runs python3 without arguments, and ignores train.py: write the script as one string"
    assert run("validate", file).stdout.removeprefix(file) == f":12: warning: {where}: {what}\n"
    assert not run(
        "validate", write(tmp_path, JOB.replace("image:", 'command: [sh, -c, "python3 train.py"]\n            image:'))
    ).stdout


def test_a_number_of_processes_that_the_job_does_not_have_is_a_warning(tmp_path: Path) -> None:
    of_two = JOB.replace("replicas: 1", "replicas: 2")
    for count in "42":
        env = f'env: [{{name: JAX_NUM_PROCESSES, value: "{count}"}}]'
        file = write(tmp_path, of_two.replace("image:", f"{env}\n            image:"))
        said = run("validate", file).stdout
        assert ("JAX_NUM_PROCESSES is 4, but the job has 2 processes: remove it from env" in said) == (count == "4")


def test_all_mistakes_of_a_failure_policy_are_told_at_once_and_the_alpha_dialect_has_none(tmp_path: Path) -> None:
    """Each with its line, and so is a rule that never applies."""
    rules = "rules: [{name: bad-gpu, action: RestartAll}, {action: Retry}]"
    policy = f"  runPolicy:\n    startDeadlineSeconds: -1\n    nodeLostTimeoutSeconds: 5\n    failurePolicy:\n      {rules}\n"
    file = write(tmp_path, JOB.replace("spec:\n", f"spec:\n{policy}", 1))
    found = {line.removeprefix(file).partition(": ")[0::2] for line in run("validate", file).stdout.splitlines()}
    assert {(line, said.partition(": ")[0]) for line, said in found} == {
        (":6", "spec.runPolicy.startDeadlineSeconds"),
        (":7", "spec.runPolicy.nodeLostTimeoutSeconds"),
        (":8", "spec.runPolicy.failurePolicy.maxRestarts"),
        (":9", "spec.runPolicy.failurePolicy.rules[0].name"),
        (":9", "spec.runPolicy.failurePolicy.rules[1].action"),
    }
    unreachable = policy.replace("bad-gpu, action: RestartAll", "first, action: FailJob").replace(
        "Retry", "FailJob, name: b"
    )
    valid = unreachable.replace("-1", "60").replace("5\n", "60\n")
    warned = run("validate", write(tmp_path, JOB.replace("spec:\n", f"spec:\n{valid}", 1))).stdout
    assert warned.endswith(
        ":9: warning: spec.runPolicy.failurePolicy.rules: rule b never applies: first matches all that it matches\n"
    )
    entry = "  replicaSpecs:\n  - template: {spec: {containers: [{name: tensorflow, image: x}]}}\n"
    alpha = JOB.replace("kubeflow.org/v1", "kubeflow.org/v1alpha1").partition("  tfReplicaSpecs")[0] + policy + entry
    assert (
        ":8: warning: spec.runPolicy.failurePolicy: unknown field is ignored"
        in run("validate", write(tmp_path, alpha)).stdout
    )
