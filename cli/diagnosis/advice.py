"""Steps of advice, and the commands for a particular job, which depend on whether it has finished. Pure.

A step is text, a command, or text followed by a colon and a command. A command can be pasted into a shell as is; placeholders
for what only the user knows are in capitals, and the text explains them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tfjob_operator.api.v1.constants import CONTAINER_NAME, LABEL_JOB_NAME, LABEL_PREFIX, CleanPodPolicy
from tfjob_operator.cli.diagnosis.causes import ManifestChange, Step, WhileRunning, fill
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.pods import running_since
from tfjob_operator.cli.model.words import safe_name

DESCRIBE_POD: Final = "kubectl -n {namespace} describe pod {pod}"
DESCRIBE_JOB: Final = "kubectl -n {namespace} describe tfjob {job}"
DESCRIBE_NODE: Final = "kubectl describe node {node}"
DESCRIBE_NODES: Final = "kubectl describe nodes"
LINES: Final = "50"
MORE_LINES: Final = "400"
"""How many lines `LOGS` prints if the reason of an exit is far above the end: the value {tail}."""
LOGS: Final = "kubectl -n {namespace} logs {pod} --container={container} --previous={previous} --tail=50"
PODS: Final = "kubectl -n {namespace} get pods --selector=training.kubeflow.org/job-name={job}"
LOGS_OF_JOB: Final = "The logs of the replica that ended first have the cause: kubectl tfjob logs {job} -n {namespace}"
TIMELINE: Final = "See how the replicas failed: kubectl tfjob timeline {job} -n {namespace}"
_LOG_GONE: Final = (
    "The log is deleted with its pod: set terminationMessagePolicy: FallbackToLogsOnError in the container, and the "
    "condition of the job quotes the last lines of the next failure"
)
_PODS_DELETED: Final = "; under spec.runPolicy.cleanPodPolicy: None the pods of a finished job and their logs are kept"
_WHERE: Final = " (OPERATORS is its namespace)"
OPERATOR_LOGS: Final = (
    f"Look for the job in the operator's log{_WHERE}: "
    "kubectl -n {operators} logs --selector=name=tf-job-operator --ignore-errors --tail=500"
)
NEW_CONFIG_MAP: Final = "kubectl -n {namespace} create configmap {name} --from-file"
NEW_KEYS: Final = "kubectl -n {namespace} create secret generic {name} --from-file"
AGAIN: Final = ManifestChange("", recreate=False)
"""The cause is outside the manifest: a failed job is recreated; the kubelet restarts the containers of a running one."""
RESTART: Final = "kubectl tfjob restart {job} -n {namespace}"
RETRIED: Final = "The operator retries by itself, after five minutes at the latest"

_EDIT: Final = "kubectl -n {namespace} edit tfjob {job}"
_RECREATE: Final = "Delete the affected pods, which are recreated from the edited template"
SAVE: Final = "kubectl -n {namespace} get tfjob {job} -o yaml > {job}.saved.yaml"
REPLACE: Final = (
    "Replace the job, which deletes its pods with their logs and starts it anew: "
    "kubectl -n {namespace} replace --force -f {job}.saved.yaml"
)
REPLACED: Final = " replace --force -f "
"""The part of the command by which a step that replaces the job is recognized."""
CREATE_RENAMED: Final = "Create the job under its new name: kubectl -n {namespace} replace --force -f {job}.saved.yaml"
DELETE_RENAMED: Final = "Delete the job of the old name with its pods: kubectl -n {namespace} delete tfjob {job}"
_DELETE_PODS: Final = (
    f"kubectl -n {{namespace}} delete pod --selector={LABEL_PREFIX}{LABEL_JOB_NAME}={{job}} "
    "--field-selector=status.phase!=Succeeded"
)
_MAX_PODS: Final = 30
"""The most pods in one command; the others appear when the job is explained again."""
_V1_LABEL: Final = f"{LABEL_PREFIX}{LABEL_JOB_NAME}="
_NEEDS: Final = (
    (" -n {operators} ", "leases"),
    (" --all-namespaces", "leases"),
    (" -n {operators} ", "deployments"),
    (" --all-namespaces", "deployments"),
    (" describe node", "nodes"),
)
"""Additional permissions that a command needs, and the denied reads that show that the user lacks them."""
_DELETES: Final = re.compile(r"kubectl tfjob restart|kubectl -n \S+ delete (pod|job) ")
NOT_SERVED: Final = "Delete no pods before an operator serves the job: nobody would recreate them"
# training-operator 1.9: pkg/core/status.go, UpdateJobReplicaStatuses, whatever the restartPolicy.
COUNTED: Final = "training-operator serves the job: it may count a deleted pod as failed, and fail the job"
LEFT_TO_PEER: Final = f"Delete no pods that run while {COUNTED}"
ON_HOLD: Final = "Delete no pods while the job is on hold: they would not be recreated"


def steps(
    facts: Facts,
    given: Sequence[Step],
    values: Mapping[str, str],
    affected: Sequence[str],
    *,
    keep_pods: str = "",
    saved: bool = False,
) -> tuple[str, ...]:
    """Return the advice; omit duplicates, steps about deleted pods and, for a finished job, steps for running jobs.

    If the job has no pods, its timeline, which is read from events, takes the place of their list and logs.
    `keep_pods` stands in place of steps that delete pods, while that harms the job. `saved`: the job has finished,
    and an earlier cause has the commands that save and replace it.
    """
    present = {pod.metadata.name for pod in facts.pods}
    remaining = {pod.metadata.name for pod in facts.pods if pod.metadata.deletion_timestamp is None}
    pods = [name for name in affected if name in present]
    lines: list[str] = []
    recreate, keeps_log = False, _keeps_log(facts, values.get("container", ""))
    changes = [step.what for step in given if isinstance(step, ManifestChange)]
    if facts.finished and len(changes) > 1:  # a single file with all changes
        last = max(number for number, step in enumerate(given) if isinstance(step, ManifestChange))
        rest = [step for step in given[:last] if not isinstance(step, ManifestChange)]
        given = [*rest, ManifestChange("; ".join(dict.fromkeys(filter(None, changes)))), *given[last + 1 :]]
    has_pods = bool(facts.pods) or "pods" in facts.evidence.forbidden
    for step in given:
        if isinstance(step, ManifestChange):
            recreate = recreate or step.recreate
            lines += _ended(step, saved=saved) if facts.finished else _running(step)
        elif isinstance(step, WhileRunning):
            lines += [step.text] if facts.pods and not facts.finished else ()
        elif step in {PODS, LOGS_OF_JOB} and not has_pods:
            lines.append(TIMELINE)
        elif ("{pod}" not in step or values.get("pod") in present) and ("{pods}" not in step or pods):
            lines.append(step.replace("{pods}", " ".join(map(_named_in_command, pods[:_MAX_PODS]))))
        if step == LOGS and facts.finished and values.get("pod") not in remaining and not keeps_log:
            lines.append(_LOG_GONE + _PODS_DELETED * (facts.spec.clean_pod_policy != CleanPodPolicy.NONE))
    if recreate and not facts.finished:
        lines += _recreated(facts, pods or affected)
    shown = (keep_pods if keep_pods and _DELETES.search(line) else line for line in lines)
    return tuple(dict.fromkeys(_in_dialect(facts, line, values) for line in shown))


def _keeps_log(facts: Facts, container: str) -> bool:
    """Return True if a failed pod has the end of its log in its status, as the operator sets it for v1 by default."""
    spec = bytes(facts.job.spec)
    by_operator = container == CONTAINER_NAME and not facts.shape.is_alpha and b'"terminationMessagePolicy"' not in spec
    return by_operator or b'"FallbackToLogsOnError"' in spec


def _named_in_command(pod: str) -> str:
    return fill("{pod}", {"pod": pod}, command=True)


def _running(change: ManifestChange) -> Iterator[str]:
    if change.what:
        yield f"{change.what[0].upper()}{change.what[1:]}: {_EDIT}"


def _ended(change: ManifestChange, *, saved: bool) -> Iterator[str]:
    what = change.what.removeprefix("or ")
    is_other = what != change.what  # than the step before
    if saved:
        yield from [f"{'Or in' if is_other else 'In'} the saved manifest, also {what}"] * bool(what)
        return
    yield f"{'Or save' if is_other else 'Save'} the manifest{', then in the file ' * bool(what)}{what}: {SAVE}"
    yield REPLACE


def _recreated(facts: Facts, affected: Sequence[str]) -> Iterator[str]:
    """Yield how an edited template takes effect: by recreating pods or, in the alpha dialect, Jobs."""
    if facts.shape.is_alpha:
        replicas = {pod.metadata.name: facts.shape.replica_of(pod) for pod in facts.pods}
        alpha = facts.evidence.alpha
        jobs = {job.metadata.name for job in (alpha.batch_jobs or ())} if alpha is not None else set()
        names = [name for each in affected if (name := replicas.get(each, each)) in jobs]
        kind = "job"
    else:
        present = {pod.metadata.name for pod in facts.pods}
        names, kind = [name for name in affected if name in present], "pod"
    if names:
        trains = any(pod.metadata.name in names and running_since(pod) is not None for pod in facts.pods)
        volumes = sorted({name for pod in facts.pods if pod.metadata.name in names for name in _empty_dirs(pod)})
        lost = "; work since their last checkpoint is lost" * trains
        lost += f"; the files in their emptyDir {' and '.join(map(safe_name, volumes[:3]))} are lost" * bool(volumes)
        yield f"{_RECREATE}{lost}: kubectl -n {{namespace}} delete {kind} {' '.join(names[:_MAX_PODS])}"


def _empty_dirs(pod: PodDetails) -> list[str]:
    volumes = (volume for volume in pod.spec.volumes or () if volume.empty_dir and volume.empty_dir.medium != "Memory")
    return [volume.name for volume in volumes]


def _in_dialect(facts: Facts, line: str, values: Mapping[str, str]) -> str:
    """Return a step with its values, and with the resource and label of the job's dialect."""
    needs = [] if facts.namespace == values.get("operators") and " -n {operators} " in line else _NEEDS
    refused = [words for command, words in needs if command in line and words in facts.evidence.forbidden]
    if refused and "cluster administrator" not in line:
        verb = "run: " if line.startswith("kubectl ") else ""
        line = f"Ask your cluster administrator to {verb}{line[0].lower()}{line[1:]}"
    if values.get("operators"):
        line = line.replace(_WHERE, "")
    # The alpha dialect cannot restart the whole job; v1's restart would run succeeded replicas again.
    if facts.shape.is_alpha or any(facts.job.status.finished_indices.values()):
        line = line.replace(RESTART, _DELETE_PODS)
    for v1, here in ((" tfjob {job}", f" {facts.shape.resource} {{job}}"), (_V1_LABEL, f"{facts.shape.label}=")):
        line = line.replace(v1, here)
    if values.get("tail") == MORE_LINES:
        line = line.replace(f"--tail={LINES}", f"--tail={MORE_LINES}")
    return fill(line, values, command=True).replace("--previous=true", "--previous").replace(" --previous=false", "")
