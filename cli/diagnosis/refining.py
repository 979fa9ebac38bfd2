"""Advice about exits that depends on the pod's template and the size of the job. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tfjob_operator.api.v1.constants import BACKEND_VARIABLES, CHIEF, CONTAINER_NAME, EVALUATOR, MASTER, WORKER
from tfjob_operator.cli.diagnosis.advice import LOGS
from tfjob_operator.cli.diagnosis.causes import ManifestChange, Problem
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.log_rules import host_in
from tfjob_operator.cli.diagnosis.log_symptoms import ECHOES_OF_FILE, Launch
from tfjob_operator.cli.diagnosis.reading import ECHOES
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.model.command_lines import (
    ProcessCount,
    command_of,
    printed_by,
    process_counts,
    runs_script,
    script_of,
)
from tfjob_operator.cli.model.facts import listed, mapping, text
from tfjob_operator.cli.model.replica_names import replica_of
from tfjob_operator.cli.model.words import join_some, safe_name

FAULT_HANDLER: Final = ManifestChange(
    "set PYTHONFAULTHANDLER to 1 in env, so that the log shows where a Python program crashes", recreate=False
)
_FAULT: Final = ("Fatal Python error: ", "crashed in ")
"""How the words of a crash begin if the log has the output of faulthandler."""
_MODULE: Final = re.compile(r"No module named '?(?P<name>[\w.]+)")
_OF_COMMAND: Final = re.compile(r"\S*python[\d.]*: (No module named|Error while finding module specification for) ")
"""What Python prints, without an exception, of a module that its option -m names."""
_ACCELERATOR: Final = re.compile(r"gpu|tpu|neuron|gaudi", re.IGNORECASE)
_TIMEOUT: Final = re.compile(r"(?:^|[\s;&|/])timeout(?:\s|$)")
_SEVERAL: Final = re.compile(r"[;\n]\s*\S")
_AFTER_OTHERS: Final = (
    "finished before, and will not run again: if the program waits for it, correct how data are divided, and recreate the "
    "job"
)
_BACKGROUND: Final = re.compile(r"(?<![>&|<])&(?![&>\d])")
_COMMANDS: Final = re.compile(r"[;\n]|&&|\|\|")
_SAYS: Final = re.compile(r"[\s)]*(?:#|(?:echo|printf|exit|true|date|disown|sleep|:)(?:\s|$)|$)")
"""A command that waits for nothing."""
_PYTHON: Final = re.compile(r"(/\S*/)?python[\d.]*")
_SINGLE: Final = (
    "A job with a single replica gets no TF_CONFIG",
    ManifestChange("let the program run without TF_CONFIG, or set it in env of the template"),
)
_NO_LIMIT: Final = ManifestChange(
    "use smaller batches, or set resources.requests.memory in the template to what the job uses, so that it gets a node with "
    "enough: the container has no memory limit"
)
_ROLES: Final = ManifestChange(
    "add the replica types that the program needs, or correct how it reads TF_CONFIG, which the operator sets"
)
_ENDS_THE_JOB: Final = (
    "A failed Evaluator ends the whole job. With restartPolicy OnFailure it is restarted instead; as a separate job it cannot "
    "end the training"
)


_SERVICE: Final = re.compile(r"^(?P<name>[a-z0-9-]{1,63})\.(?P<namespace>[a-z0-9-]{1,63})\.svc(?:\.|$)")
_OTHER_SERVICE: Final = ManifestChange(
    "correct the host in command, args or env if the Service has another name or namespace"
)
_ADDRESSES: Final = tuple(address for address, *_ in BACKEND_VARIABLES)
_CLUSTER_DNS: Final = ManifestChange(
    "remove dnsPolicy: Default from the template: with it, pods do not use cluster DNS"
)
_SHM: Final = "/dev/shm"  # noqa: S108 - the mount path
_SHM_TITLES: Final = {
    "shared-memory-full": "Shared memory exhausted ({who}): the volume at /dev/shm is full",
    "bus-error": "Exit code 135 (SIGBUS), usually because the volume at /dev/shm is full ({who}){words}",
}
_SHM_LARGER: Final = ManifestChange(
    "raise sizeLimit of the emptyDir at /dev/shm and the memory limit, which counts its files, or use fewer data loaders"
)


def pod_spec_of(facts: Facts, pod: str) -> Mapping[str, Any]:
    """Return the pod spec in the template of a replica, by the name of its pod, which may be gone; empty if unknown."""
    return mapping(mapping(replica_spec_of(facts, pod).get("template")).get("spec"))


def replica_spec_of(facts: Facts, pod: str) -> Mapping[str, Any]:
    """Return the specification of a replica type, by the name of a pod of it; empty if unknown."""
    kind = replica_of(None, facts.name, pod).type.lower()
    replicas = mapping(mapping((facts.evidence.body or {}).get("spec")).get("tfReplicaSpecs"))
    return next((mapping(each) for key, each in replicas.items() if kind and key.lower() == kind), {})


def never_restarts(facts: Facts, pod: str) -> bool:
    """Return True if the restartPolicy of a replica is Never, the default, or if it is unknown."""
    return replica_spec_of(facts, pod).get("restartPolicy") in {None, "", "Never"}


def runs_python(facts: Facts, pod: str, container: str) -> bool:
    """Return True if the process of a container is Python itself, by the template of its replica, and no script."""
    own = (each for each in listed(pod_spec_of(facts, pod).get("containers")) if each.get("name") == container)
    return any(_PYTHON.fullmatch(word) for each in own for word in command_of(each)[:1] if each.get("command"))


def runs_timeout(facts: Facts, pod: str, container: str) -> bool:
    """Return True if the command of a container in the template of a replica names timeout(1)."""
    own = (each for each in listed(pod_spec_of(facts, pod).get("containers")) if each.get("name") == container)
    return any(_TIMEOUT.search(word) for each in own for word in command_of(each))


def launch_of(facts: Facts, pod: str, container: str) -> Launch:
    """Return how a container starts its program, by the template of its replica."""
    own = [each for each in listed(pod_spec_of(facts, pod).get("containers")) if each.get("name") == container]
    scripts = [script_of(each).strip() for each in own]
    return Launch(
        by_shell=not runs_python(facts, pod, container),
        is_several=any(map(_SEVERAL.search, scripts)),
        printed=[parts for script in scripts for parts in printed_by(script)],
        echoes=ECHOES_OF_FILE if any(map(runs_script, own)) else ECHOES,
    )


def finished_before(facts: Facts) -> str:
    """Return what a training that waits should know of the replicas that have finished; "" if none has."""
    done = {kind: indices for kind, indices in facts.job.status.finished_indices.items() if indices}
    names = " and ".join(f"{safe_name(kind)} {safe_name(indices)}" for kind, indices in done.items())
    return f"{names} {_AFTER_OTHERS}" if names else ""


def left_behind(facts: Facts, pod: str, container: str) -> str:
    """Return the command that the script of a container starts in the background as its last work; "" if it waits for it."""
    own = (each for each in listed(pod_spec_of(facts, pod).get("containers")) if each.get("name") == container)
    for script in map(script_of, own):
        *before, after = _BACKGROUND.split(script)
        if before and all(map(_SAYS.match, _COMMANDS.split(after))):
            command = _COMMANDS.split(before[-1])[-1].strip(" \t\n(")
            is_cut = command.count("'") % 2 or command.count('"') % 2
            return before[-1].strip() if is_cut else command
    return ""


def refined(facts: Facts, problem: Problem, pod: str, container: str, words: str) -> Problem:
    """Return the problem of an exit with the advice for this job. `words` is the deciding line of the log."""
    if problem.id == "port-in-use":
        return _port_in_use(facts, problem, pod, container)
    if problem.id in {"peer-unreachable", "peer-name-unresolved"}:
        return _peer_missing(facts, problem, pod)
    if problem.id in _SHM_TITLES and _mounts_shm(pod_spec_of(facts, pod), container):
        problem = replace(problem, title=_SHM_TITLES[problem.id], to_do=(LOGS, _SHM_LARGER))
    is_outside = problem.id in {"external-host-unreachable", "external-name-unresolved"}
    if is_outside and (match := _SERVICE.match(host_in(words)[0])) is not None:
        title = problem.title.replace("an external host", "a Service").replace("external host", "Service")
        look = f"Look for the Service: kubectl -n {match['namespace']} get service {match['name']}"
        problem = replace(problem, title=title, to_do=(LOGS, look, _OTHER_SERVICE, *problem.to_do[1:-1]))
    if problem.id == "python-module-missing":
        return _module_missing(problem, words)
    if problem.id == "segmentation-fault" and words.startswith(_FAULT):
        problem = replace(problem, to_do=tuple(step for step in problem.to_do if step != FAULT_HANDLER))
    if problem.id == "segmentation-fault" and not _has_accelerator(pod_spec_of(facts, pod)):
        change = ManifestChange(
            "use an image whose packages with native code fit together, such as TensorFlow and NumPy"
        )
        return replace(problem, to_do=(*problem.to_do[:-1], change))
    if problem.id in {"python-out-of-memory", "child-killed"} and not _limits_memory(
        facts, pod_spec_of(facts, pod), container
    ):
        return replace(problem, to_do=(LOGS, _NO_LIMIT))
    if problem.id == "tf-config-misread" and not _sets_tf_config(pod_spec_of(facts, pod)):
        return replace(problem, to_do=(LOGS, _ROLES))
    if problem.id == "tf-config-missing" and container == CONTAINER_NAME and sum(facts.sizes.values()) == 1:
        return replace(problem, to_do=(LOGS, *_SINGLE))
    return problem


def _peer_missing(facts: Facts, problem: Problem, pod: str) -> Problem:
    """Return the problem with the advice about what the template itself sets: its name servers, or variables of processes."""
    spec = pod_spec_of(facts, pod)
    if "{processes}" in problem.title and (
        counts := list(process_counts(mapping((facts.evidence.body or {}).get("spec"))))
    ):
        return replace(problem, to_do=(*problem.to_do[:-1], ManifestChange(without_counts(counts))))
    if problem.id == "peer-name-unresolved" and spec.get("dnsPolicy") == "Default":
        return replace(problem, to_do=(LOGS, _CLUSTER_DNS))
    own = (each for each in listed(spec.get("containers")) if each.get("name") == CONTAINER_NAME)
    names = {text(variable.get("name")) for each in own for variable in listed(each.get("env"))}
    name = next((each for each in _ADDRESSES if each in names), "")
    what = f"remove {name} from env of the template, unless it names a host outside of the job: the operator sets it"
    return replace(problem, to_do=(*problem.to_do[:1], ManifestChange(what), *problem.to_do[1:])) if name else problem


def without_counts(counts: Sequence[ProcessCount]) -> str:
    """Return the change of a manifest that removes numbers of processes."""
    names = " and ".join(dict.fromkeys(each.variable for each in counts))
    return (
        f"remove {names} from env of the template: the operator sets them, and the address and number of each process"
    )


def of_end(facts: Facts, problem: Problem, pod: str) -> Problem:
    """Return the problem that ended a job, with the reason why it did if the replica does not train."""
    trains = any(facts.sizes.get(kind) for kind in (CHIEF, MASTER, WORKER))
    is_evaluator = replica_of(None, facts.name, pod).type == EVALUATOR
    return replace(problem, to_do=(*problem.to_do, _ENDS_THE_JOB)) if trains and is_evaluator else problem


def _port_in_use(facts: Facts, problem: Problem, pod: str, container: str) -> Problem:
    spec = pod_spec_of(facts, pod)
    if not spec or spec.get("hostNetwork") is True:
        return problem
    others = [name for each in listed(spec.get("containers")) if (name := text(each.get("name"))) != container]
    beside = (
        f"let containers {container} and {value(join_some(others))} listen on different ports: a pod has one set of ports"
        if others
        else "let each process of the container listen on a port of its own, which no other process of the pod uses"
    )
    return replace(problem, to_do=(LOGS, ManifestChange(beside)))


def _module_missing(problem: Problem, words: str) -> Problem:
    """Return the problem with other advice than to install a package that is there: Python names the package alone if not."""
    name = match["name"].rstrip(".") if (match := _MODULE.search(words)) is not None else ""
    if "is not a package" in words:
        change = "use an image in which no script or folder has the name of the package"
    elif "cannot be directly executed" in words:
        change = "name a module of the package in the command, such as python -m PACKAGE.MODULE"
    elif _OF_COMMAND.match(words):
        change = "correct the module after -m in command and args of the template, or use an image with the module"
    elif "." in name:
        change = "use an image with a version of the package that has the module; the package itself is there"
    else:
        return problem
    return replace(problem, to_do=(LOGS, ManifestChange(change)))


def _mounts_shm(spec: Mapping[str, Any], container: str) -> bool:
    own = (each for each in listed(spec.get("containers")) if each.get("name") == container)
    return any(
        text(mount.get("mountPath")).rstrip("/") == _SHM for each in own for mount in listed(each.get("volumeMounts"))
    )


def _limits_memory(facts: Facts, spec: Mapping[str, Any], container: str) -> bool:
    """Return True if a container, or its pod, has a memory limit, or if that is unknown."""
    own = [each for each in listed(spec.get("containers")) if each.get("name") == container]
    limits = [mapping(mapping(each.get("resources")).get("limits")) for each in (*own, spec)]
    return not own or bool(facts.evidence.limit_ranges) or any("memory" in limit for limit in limits)


def _sets_tf_config(spec: Mapping[str, Any]) -> bool:
    """Return True if a container of a template sets TF_CONFIG, or if that is unknown."""
    names = [variable.get("name") for one in listed(spec.get("containers")) for variable in listed(one.get("env"))]
    return not spec or "TF_CONFIG" in names


def requests_accelerator(spec: Mapping[str, Any]) -> bool:
    """Return True if a container of a template requests a GPU or the like."""
    return bool(spec) and _has_accelerator(spec)


def _has_accelerator(spec: Mapping[str, Any]) -> bool:
    """Return True if a container requests a GPU or the like, or if that is unknown."""
    resources = [mapping(container.get("resources")) for container in listed(spec.get("containers"))]
    amounts = [
        name for resource in resources for kind in ("limits", "requests") for name in mapping(resource.get(kind))
    ]
    has_claims = bool(spec.get("resourceClaims"))
    return not spec or has_claims or any(map(_ACCELERATOR.search, amounts))
