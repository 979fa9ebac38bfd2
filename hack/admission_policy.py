"""Generates manifests/addons/admission/policy.yaml: a ValidatingAdmissionPolicy for frequent mistakes in TFJobs. Pure.

Each row of `MISTAKES` has a job with one mistake, and a CEL expression that finds it in any job. The message is what the
operator reports for the example. The policy is never stricter than the operator: jobs of other controllers and of v1alpha1
pass, and if an expression fails, the request passes.

The expressions are evaluated for the new object and for the old one. An update is rejected only for mistakes that the old
object does not have, so an invalid job can be suspended, labeled and corrected step by step.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Any, Final

from tfjob_operator.api.core import PodRestartPolicy
from tfjob_operator.api.meta import MAX_NAME_LENGTH, ObjectMeta
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1.validation import BOUNDS, DNS_1035, read_spec

FILE: Final = Path(__file__).parents[1] / "manifests" / "addons" / "admission" / "policy.yaml"
NAME: Final = "tf-job-operator"
_CONTAINER: Final = {"name": c.CONTAINER_NAME, "image": "train:1"}


def errors(name: str, spec: object) -> list[str]:
    """Return what the operator reports for a new job."""
    found = read_spec(name, json.dumps(spec).encode())
    if isinstance(found, InvalidSpec):
        return [str(each) for each in found.mistakes]
    return [str(each) for bound in BOUNDS if (each := bound(ObjectMeta(name=name), found)) is not None]


def spec_of(*containers: Mapping[str, Any], policy: Any = None, **pod: Any) -> dict[str, Any]:
    """Return the spec of a job with one replica type, whose pods have these containers and fields."""
    entry = {"template": {"spec": {"containers": [*containers], **pod}}}
    return {"tfReplicaSpecs": {c.WORKER: entry}} | ({"runPolicy": policy} if policy else {})


def _changed(kind: str = c.WORKER, **fields: Any) -> dict[str, Any]:
    """Return the spec of a job with one replica type that has these fields."""
    entry = spec_of(_CONTAINER)["tfReplicaSpecs"][c.WORKER]
    return {"tfReplicaSpecs": {kind: entry | fields}}


def _text(text: str) -> str:
    """Return a text as a literal of CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake: a job that has no other one, and a CEL expression that lists the messages about this mistake.

    In the expression, `$message` is the operator's message about the example, in which the texts in `markers` are replaced by
    expressions. Its end is left out from `cut` on, because it depends on other fields. `_VARIABLES` has the other names.
    """

    what: str
    spec: Mapping[str, Any]
    cel: str
    markers: Mapping[str, str] = field(default_factory=lambda: {c.WORKER: "t"})
    cut: str = ""
    name: str = "mnist"

    @property
    def words(self) -> str:
        """The operator's message about the example. Raises ValueError unless it is one message."""
        (found,) = errors(self.name, self.spec)
        return found.partition(self.cut)[0] if self.cut else found

    @property
    def expression(self) -> str:
        """The expression with the message."""
        parts = re.split("|".join(f"({re.escape(marker)})" for marker in self.markers) or "$", self.words)
        message = " + ".join(self.markers.get(part) or _text(part) for part in parts if part)
        return self.cel.replace("$message", message)


_RESTART_POLICIES, _POD_POLICIES, _CLEAN_POLICIES = (
    _list(["", *kinds]) for kinds in (c.RestartPolicy, PodRestartPolicy, c.CleanPodPolicy)
)
_CONTAINERS: Final = "$replicas[t].template.spec.containers"
MISTAKES: Final = (
    Mistake(
        "the name is not that of a Service",
        _changed(),
        f"[$object.metadata.name].map(n, !n.matches('^({DNS_1035.pattern})$$'), $message)",
        {"1st": "n"},
        name="1st",
    ),
    Mistake("no replica type is set", {}, "(size($replicas) == 0 ? [$message] : [])", {}),
    Mistake(
        "a replica type has an unknown name",
        _changed("Launcher"),
        f"$replicas.map(t, !t.matches('^(?i:{'|'.join(c.REPLICA_TYPES)})$$'), $message)",
        {"Launcher": "t"},
    ),
    Mistake(
        "a replica type has no template",
        {"tfReplicaSpecs": {c.WORKER: {"replicas": 1}}},
        "$entries.map(t, $replicas[t].?template.orValue(null) == null, $message)",
    ),
    Mistake("a template has no containers", spec_of(), "$templates.filter(t, !(t in $filled)).map(t, $message)"),
    Mistake(
        "a container has no image",
        spec_of({"name": c.CONTAINER_NAME}),
        # CEL has no function that joins the lists of a list
        f"$filled.map(t, {_CONTAINERS}.filter(c, c != null && size(c) > 0)"
        ".map(c, c.?image.orValue(null) == null || c.image == '', $message).join('\\n'))"
        ".join('\\n').split('\\n').filter(m, m != '')",
        {c.WORKER: "t", "0": f"string({_CONTAINERS}.indexOf(c))"},
    ),
    Mistake(
        "no container has the name of the training container",
        spec_of({"name": "main", "image": "train:1"}),
        f"$filled.map(t, !{_CONTAINERS}.exists(c, c != null && c.?name.orValue('') == {_text(c.CONTAINER_NAME)}), $message)",
        cut="; found",
    ),
    Mistake(
        "there are several chiefs",
        _changed(c.CHIEF, replicas=2),
        f"{_list(c.CHIEF_TYPES)}.filter(t, t in $replicas && $replicas[t] != null)"
        ".map(t, $replicas[t].?replicas.orValue(1) > 1, $message)",
        {c.CHIEF: "t"},
    ),
    Mistake(
        "a restart policy has an unknown value",
        _changed(restartPolicy="Sometimes"),
        "$entries.filter(t, $replicas[t].?restartPolicy.orValue(null) != null)"
        f".map(t, !($replicas[t].restartPolicy in {_RESTART_POLICIES}), $message)",
    ),
    Mistake(
        "a template has a restart policy that pods do not have",
        spec_of(_CONTAINER, restartPolicy=c.RestartPolicy.EXIT_CODE),
        "$filled.filter(t, $replicas[t].template.spec.?restartPolicy.orValue(null) != null)"
        f".map(t, !($replicas[t].template.spec.restartPolicy in {_POD_POLICIES}), $message)",
    ),
    Mistake(
        "the clean-up policy has an unknown value",
        spec_of(_CONTAINER, policy={"cleanPodPolicy": "Completed"}),
        f"[$object.?spec.?runPolicy.?cleanPodPolicy.orValue('')].map(p, p != null && !(p in {_CLEAN_POLICIES}), $message)",
        {},
    ),
    Mistake(
        "the names of pods are too long",
        _changed(),
        # such a limit does not fail a job that has started; 253 is the longest name of an object
        f"(oldObject != null ? [] : [{_list(c.REPLICA_TYPES)}.filter(t, t in $entries)"
        f".map(t, {MAX_NAME_LENGTH - 2} - size(t) - ($replicas[t].?replicas.orValue(1) > 1"
        " ? size(string($replicas[t].replicas - 1)) : 1)) + [253]]"
        ".map(l, l.min()).map(n, size(object.metadata.name) > n, $message))",
        {"54": "string(n)"},
        cut=": the pod",
        name="m" * 60,
    ),
)
_VARIABLES: Final = {
    "objects": "[object, oldObject]",
    "replicas": "variables.objects.map(o, o.?spec.?tfReplicaSpecs.orValue(null) == null ? {} : o.spec.tfReplicaSpecs)",
    # without an entry that the scale subresource may have written: it has only replicas
    "entries": f"[0, 1].map(i, $replicas.filter(t, $replicas[t] != null && (t != {_text(c.WORKER)} || size($replicas) == 1"
    " || $replicas[t].exists(f, f != 'replicas'))))",
    "templates": "[0, 1].map(i, $entries.filter(t, $replicas[t].?template.orValue(null) != null))",
    "filled": "[0, 1].map(i, $templates.filter(t, $replicas[t].template.?spec.?containers.orValue(null) != null"
    f" && size({_CONTAINERS}) > 0))",
    "errors": "[0, 1].map(i, $object == null ? [] :\n" + "\n+ ".join(mistake.expression for mistake in MISTAKES) + ")",
}
"""Variables with two items each, for the new object and for the old one: the replica types with their entries, and the names of
those whose entries, templates and containers are checked. In expressions, `$entries` is the item `i` of `variables.entries`."""


def policy() -> str:
    """Return the manifest of the policy and its binding."""
    variables = "".join(
        f"    - name: {name}\n      expression: >-\n" + indent(_substituted(expression), " " * 8) + "\n"
        for name, expression in _VARIABLES.items()
    )
    return f"""\
# Generated from hack/admission_policy.py by `make renew`. Rejects new TFJobs, and edits, with one of these mistakes:
#
{"".join(f"# - {mistake.what}{chr(10)}" for mistake in MISTAKES)}#
# The operator finds all mistakes; the policy tells people about these at once. If an expression fails, the request passes.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {NAME}
  labels:
    app.kubernetes.io/name: tfjob-operator
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
      - apiGroups: [kubeflow.org]
        apiVersions: [v1] # requests for other versions are converted
        operations: [CREATE, UPDATE]
        resources: [tfjobs] # without subresources: status, scale
  matchConditions:
    - name: is-not-v1alpha1
      expression: "!object.?spec.?replicaSpecs.hasValue()"
    - name: is-managed-by-this-operator
      expression: object.?spec.?runPolicy.?managedBy.orValue('') in {_list(c.MANAGED_BY_US)}
  variables:
{variables}  validations:
    # An update is rejected only for mistakes that the old object does not have.
    - expression: variables.errors[0].all(e, e in variables.errors[1])
      messageExpression: variables.errors[0].filter(e, !(e in variables.errors[1])).join('; ')
      message: "the spec has too many mistakes to list; `kubectl tfjob validate FILENAME` prints them"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {NAME}
  labels:
    app.kubernetes.io/name: tfjob-operator
spec:
  policyName: {NAME}
  validationActions: [Deny]
"""


def _substituted(expression: str) -> str:
    return Template(expression).substitute(
        {"object": "variables.objects[i]"} | {name: f"variables.{name}[i]" for name in _VARIABLES}
    )
