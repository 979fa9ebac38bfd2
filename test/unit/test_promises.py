"""Every public name, as docs/compatibility.md promises it: none is removed or renamed unless somebody decides so.

`test/data/promises.txt` has the names. `make renew` adds new ones, and never removes one. When a deprecation has ended, delete
the line by hand, and list it in CHANGELOG.md under Removed.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import click
import msgspec

from fakes.manifests import read_document, read_documents
from hack.chart.documents import leaves
from support.cases import for_each
from support.library import NAME, PUBLIC
from support.pages import ROOT
from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1.tensorboard import tensor_board_name
from tfjob_operator.api.v1.types import child_name
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1 import validation as dialect
from tfjob_operator.cli.commands import migrate_, top_, watch_
from tfjob_operator.cli.diagnosis.causes import Diagnosis
from tfjob_operator.cli.errors import UNKNOWN
from tfjob_operator.cli.main import COMMANDS, app
from tfjob_operator.cli.migration import CheckedJob, Difference
from tfjob_operator.cli.options import camel
from tfjob_operator.cli.status import JobSummary
from tfjob_operator.cli.timelines.values import Timeline
from tfjob_operator.controller.config import file
from tfjob_operator.controller.jobs.job_metrics import JOBS, WAITING_SINCE
from tfjob_operator.controller.options import LEASE_NAME, MONITORING_PORT
from tfjob_operator.controller.options import _parser as options_parser
from tfjob_operator.controller.tensorboard.desired import HASH_ANNOTATION
from tfjob_operator.controller.tfjob.build.builder import config_map_name

FILE: Final = ROOT / "test" / "data" / "promises.txt"
CHART: Final = ROOT / "manifests" / "chart"
Names = dict[str, set[str]]
"""Public names, each with its parts, such as a metric with its labels."""
VARIABLE: Final = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def values(*enums: type[Enum]) -> Names:
    return {each.__name__: {str(value.value) or '""' for value in each} for each in enums}


@cache
def crds() -> list[Any]:
    return [read_document(ROOT / "manifests" / each / "crd.yaml")["spec"] for each in ("base", "addons/alpha")]


def api_versions() -> Names:
    return {
        f"{crd['names']['plural']}.{crd['group']}": {each["name"] for each in crd["versions"] if each["served"]}
        | {f"scope={crd['scope']}", f"kind={crd['names']['kind']}"}
        | {f"shortName={each}" for each in crd["names"].get("shortNames", ())}
        for crd in crds()
    }


def fields_of(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a schema as (parent, name), except those of Kubernetes' own types."""
    for name, field in schema.get("properties", {}).items():
        yield path, name
        if name not in {"template", "metadata", "volumes", "volumeMounts"}:
            yield from fields_of(field, f"{path}.{name}" if path else name)
    for key, step in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(inner := schema.get(key), dict):
            yield from fields_of(inner, f"{path}{step}")


def grouped(pairs: Iterator[tuple[str, str]]) -> Names:
    found: Names = {}
    for name, part in pairs:
        found.setdefault(name or "(root)", set()).add(part)
    return found


def fields() -> Names:
    """The fields of the stored versions: all versions of a CRD have the same, except the spec of the alpha dialect."""
    found: Names = {}
    for crd in crds():
        for each in crd["versions"]:
            api = f"{crd['group']}/{each['name']}"
            found[f"{api} columns"] = {column["name"] for column in each.get("additionalPrinterColumns", ())}
            if each["storage"]:
                pairs = fields_of(each["schema"]["openAPIV3Schema"])
                found |= {f"{api} {path}": names for path, names in grouped(pairs).items()}
    parts = {
        "spec": dialect.SPEC,
        "spec.replicaSpecs[]": dialect.REPLICA,
        "spec.runPolicy": dialect.RUN_POLICY,
        "spec.tensorboard": dialect.TENSORBOARD,
        "spec.terminationPolicy": dialect.TERMINATION_POLICY,
        "spec.terminationPolicy.chief": dialect.CHIEF,
    }
    return found | {f"v1alpha1 {path}": {*part.known} for path, part in parts.items()}


def labels() -> Names:
    names = {HASH_ANNOTATION, v1.QUEUE_GATE, v1.TOPOLOGY_GATE, *v1.TOPOLOGY_ANNOTATIONS}
    for module in (v1, alpha):
        names |= {text for name, text in vars(module).items() if name.startswith(("LABEL_", "ANNOTATION_"))}
    values = {v1.LABEL_OPERATOR_NAME: {v1.OPERATOR_NAME, alpha.OPERATOR_NAME}, v1.LABEL_GROUP_NAME: {v1.GROUP_NAME}}
    return {name: set() for name in names - {v1.LABEL_PREFIX}} | values


def pods() -> Names:
    variables = {v1.TF_CONFIG, v1.CLUSTER_VARIABLE, v1.ATTEMPT_VARIABLE, v1.EXECUTION_VARIABLE}
    children = {child_name("job", "Worker", 0), tensor_board_name("job"), config_map_name("job", "hash")}
    return {
        "children": children,
        "variables": variables.union(*v1.BACKEND_VARIABLES),
        "container": {v1.CONTAINER_NAME},
        "ports": {f"{v1.PORT_NAME}={v1.DEFAULT_PORT}", f"{alpha.PORT_NAME}={alpha.DEFAULT_PORT}"},
    }


def metrics() -> Names:
    text = (ROOT / "test" / "data" / "metrics.txt").read_text()
    found: Names = {name: set() for name in re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)}
    for name, labels in re.findall(r"^(\w+)\{(.*)\}$", text, re.MULTILINE):
        family = name if name in found else re.sub("_(bucket|count|sum)$", "", name)
        found[family] |= {*re.findall(r'(\w+)="', labels)} - {"le"}
    return found | {each.name: {*each.labels} for each in (JOBS, WAITING_SINCE)}  # empty on that page


def flags() -> Names:
    names = {name for action in options_parser()._actions for name in action.option_strings}
    read = re.findall(r'environ\.get\("(\w+)"', (ROOT / "controller" / "options.py").read_text())
    pages = {"/metrics", "/healthz", "/readyz", f"port={MONITORING_PORT}"}
    return {"flags": names, "environment": {*read, "KUBECONFIG"}, "pages": pages, "lease": {LEASE_NAME}}


def exit_codes() -> Names:
    source = (ROOT / "controller" / "__main__.py").read_text()
    return {
        "operator": set(re.findall(r"^ +return (\d+)$", source, re.MULTILINE)),
        "kubectl tfjob": {"0=success", "1=error", "2=usage", f"{UNKNOWN}=unknown", "130=interrupted"},
        "wait": {f"{watch_.GONE}=deleted", f"{watch_.TIMED_OUT}=timed-out"},
        "migrate --check": {f"{migrate_.DIFFERENT}=different"},
    }


def commands() -> Names:
    context = app.make_context("kubectl tfjob", [], resilient_parsing=True)
    found = {"(global)": options_of(app)}
    for verb in COMMANDS:
        command = app.get_command(context, verb)
        assert command is not None
        found[verb] = options_of(command) - found["(global)"]
    return found


def options_of(command: click.Command) -> set[str]:
    options = (each for each in command.params if isinstance(each, click.Option))
    return {name for each in options for name in (*each.opts, *each.secondary_opts)}


def keys(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of the JSON of a type, as (path, key)."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = {each.name: each.encode_name for each in msgspec.structs.fields(kind)}
    else:
        names = {name: name for name in getattr(kind, "__annotations__", ())} if isinstance(kind, type) else {}
    hints = get_type_hints(kind) if names else {}
    for name, key in names.items():
        yield path, key
        yield from keys(hints[name], f"{path}.{key}")
    for each in get_args(kind):
        yield from keys(each, path)


def outputs() -> Names:
    kinds = {"status": JobSummary, "migrate jobs": CheckedJob, "migrate differences": Difference}
    pairs = (pair for name, kind in kinds.items() for pair in keys(kind, name))
    cased = (pair for name, kind in {"explain": Diagnosis, "timeline": Timeline}.items() for pair in keys(kind, name))
    camels = grouped((camel(path), camel(key)) for path, key in cased)
    return grouped(pairs) | camels | {"top": {*top_._KEYS}}


def chart_values() -> Names:
    schema = json.loads((CHART / "values.schema.json").read_text())
    return {path: set() for path, _ in leaves(schema)}


def objects() -> Names:
    found: Names = {}
    for path in sorted((ROOT / "manifests").rglob("*.yaml")):
        folder = path.relative_to(ROOT / "manifests").parts
        if folder[0] in {"base", "cluster-wide", "addons", "overlays"} and path.name != "kustomization.yaml":
            for each in read_documents(path):
                if "metadata" in each:
                    found.setdefault(each["kind"], set()).add(each["metadata"]["name"])
    return found


def alerts() -> Names:
    text = "\n".join(path.read_text() for path in (ROOT / "manifests").rglob("*.yaml") if "chart" not in path.parts)
    return {name: set() for name in re.findall(r"^ *- alert: (\w+)$", text, re.MULTILINE)}


def python_names() -> Names:
    """The public names, each class with its public members, each function with its parameters."""
    return {
        f"{module}.{name}": set(parts_of(getattr(import_module(f"{NAME}.{module}"), name)))
        for module in PUBLIC
        for name in PUBLIC[module].split()
    }


def parts_of(value: Any) -> Iterator[str]:
    if not isinstance(value, type):
        yield from signature(value, "")
        return
    bases = [each for each in value.__mro__ if each.__module__.startswith(NAME)]
    names = {name for base in bases for name in (*vars(base), *getattr(base, "__annotations__", {}), *attributes(base))}
    public = {name for name in names if not name.startswith("_")}
    own = any({"__init__", "__new__"} & vars(base).keys() for base in bases) or issubclass(value, msgspec.Struct)
    if own and not issubclass(value, Enum):  # other constructors depend on the version of Python
        optional = {f"({name}=)" for name in public}  # fields are parameters, too
        yield from set(signature(value, "")) - optional
    for name in public:
        yield from signature(inspect.getattr_static(value, name, None), name)


def attributes(base: type) -> list[str]:
    """Return the attributes that the constructor of a class sets."""
    constructor = vars(base).get("__init__")
    source = inspect.getsource(constructor) if inspect.isfunction(constructor) and not is_dataclass(base) else ""
    return re.findall(r"^ +self\.(\w+)(?:: [^=]+)? = ", source, re.MULTILINE)


def signature(value: Any, name: str) -> Iterator[str]:
    """Yield a name with its required parameters, and one part for each optional parameter."""
    inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    if not (inspect.isfunction(inner) or isinstance(inner, type)):
        yield from [name] if name else []
        return
    parameters = [each for each in inspect.signature(inner).parameters.values() if each.name not in {"self", "cls"}]
    required = [each for each in parameters if each.default is each.empty and each.kind not in VARIABLE]
    yield f"{name}({','.join(('*' if each.kind is each.KEYWORD_ONLY else '') + each.name for each in required)})"
    yield from (f"{name}({each.name}=)" for each in parameters if each.default is not each.empty)


class Surface(NamedTuple):
    """A surface of the product: its names, and what breaks, for whom, if one is removed."""

    names: Callable[[], Names]
    breaks: str


SURFACES: Final = {
    "API versions": Surface(api_versions, "the API server rejects manifests and clients of users that name it"),
    "fields": Surface(fields, "the API server prunes it from jobs of users; scripts and SDKs read it"),
    "values": Surface(
        lambda: values(
            v1.RestartPolicy, v1.CleanPodPolicy, v1.Network, v1.SuccessPolicy, v1.RuleAction, v1.FailureReason,
            v1.FinishedReplicaPolicy, v1.AcceleratorOutcome, v1.AttemptReason, alpha.ReplicaType, alpha.Phase, alpha.AlphaState,
        ),
        "jobs of users with it fail as invalid; scripts compare it",
    ),
    "conditions": Surface(
        lambda: values(v1.ConditionType, v1.ConditionReason), "`kubectl wait`, SDKs and scripts of users wait for it"
    ),
    "event reasons": Surface(
        lambda: values(v1.EventReason, alpha.AlphaEventReason) | {"config": {file.REASON}},
        "alerts and scripts of users select events by it",
    ),
    "labels and annotations": Surface(labels, "SDKs, Kueue, Services and scripts select pods and jobs by it"),
    "pods": Surface(pods, "training programs read it, pod templates and scripts of users name it"),
    "metrics": Surface(metrics, "alert rules and dashboards of users query it"),
    "alerts": Surface(alerts, "routes and silences of Alertmanager name it"),
    "operator": Surface(flags, "Deployments, probes and scrape settings of administrators name it"),
    "exit codes": Surface(exit_codes, "scripts of users and Deployments decide by it"),
    "commands": Surface(commands, "scripts of users call `kubectl tfjob` with it"),
    "JSON": Surface(outputs, "scripts of users read it from `kubectl tfjob COMMAND -o json`"),
    "chart values": Surface(chart_values, "`helm upgrade` with the values file of an administrator fails"),
    "objects": Surface(objects, "kustomize patches of administrators name it, and an upgrade leaves the old object behind"),
    "Python": Surface(python_names, "controllers of other projects import, call or implement it"),
}  # fmt: skip


def promised() -> dict[str, Names]:
    found: dict[str, Names] = {}
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            surface = found.setdefault(line[1:-1], {})
        elif line and not line.startswith("#"):
            name, _, parts = line.partition(": ")
            surface[name.removesuffix(":")] = set(parts.split())
    return found


@cache
def present(name: str) -> Names:
    return SURFACES[name].names()


@for_each("name", SURFACES)
def test_no_public_name_is_removed(name: str) -> None:
    names = present(name)
    missing = [
        f"{each} {part}".strip()
        for each, parts in promised()[name].items()
        for part in (sorted(parts - names[each]) if each in names else [""])
    ]
    assert not missing, (
        f"{name}: {', '.join(missing)}: {SURFACES[name].breaks}. docs/compatibility.md says how long it stays after its "
        f"deprecation; when that is over, delete it in {FILE.relative_to(ROOT)} and list it in CHANGELOG.md under Removed"
    )


def test_every_public_name_is_promised(check_generated: Callable[[Path, str], None]) -> None:
    """A new name is public from its first release on: give it a second look before `make renew`."""
    before = promised() if FILE.exists() else {}
    lines = ["# The public names that docs/compatibility.md promises: `name: parts`. `make renew` adds new ones."]
    for title in SURFACES:
        names, known = present(title), before.get(title, {})
        lines += ["", f"[{title}]"]
        for each in sorted({*names, *known}):
            lines.append(f"{each}: {' '.join(sorted(names.get(each, set()) | known.get(each, set())))}".rstrip())
    check_generated(FILE, "\n".join(lines) + "\n")
