"""Reads TFJobs in YAML or JSON files with each field's line, validates them like the operator, converts them to v1."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.resources import parse_quantity
from tfjob_operator.api.text import one_line, quoted
from tfjob_operator.api.v1 import validation as v1
from tfjob_operator.api.v1.constants import TF_CONFIG, TFJOBS, EventReason
from tfjob_operator.api.v1.reader import MAX_REPORTED
from tfjob_operator.api.v1.tensorboard import InvalidTensorBoard, read_tensor_board
from tfjob_operator.api.v1.tf_config import process_count, too_long
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, SpecWarning, TFJobSpec
from tfjob_operator.api.v1.validation import BOUNDS
from tfjob_operator.api.v1alpha1 import validation as v1alpha1
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, TENSORFLOW, Dialect
from tfjob_operator.api.v1alpha1.conversion import Conversion, to_v1
from tfjob_operator.api.v1alpha1.types import is_alpha
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.model.command_lines import ignored_arguments, process_counts
from tfjob_operator.cli.model.facts import listed, mapping
from tfjob_operator.cli.printing import echo
from tfjob_operator.cli.yaml_text import yaml_text

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that reads dates as strings, as JSON does."""

    yaml_implicit_resolvers: Final = {
        first: [(tag, pattern) for tag, pattern in rules if tag != _TIMESTAMP]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    """Read a number of a sane length: in base 60, as `1:30`, YAML reads long ones in quadratic time. Raises ValueError."""
    if len(node.value) > _MAX_DIGITS:
        raise ValueError(_TOO_LONG)
    read = loader.construct_yaml_int if node.tag.endswith(":int") else loader.construct_yaml_float
    number: float = read(node)
    if isinstance(number, int) and not -(2**63) <= number < 2**64:
        raise ValueError(_TOO_LONG)
    return number


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)

VERSIONS: Final = ("v1", "v1beta2", "v1beta1", "v1alpha2", "v1alpha1")
"""The versions of kubeflow.org that the CRD serves; tensorflow.org has only v1alpha1."""
_MAX_DEPTH: Final = 100
"""The nesting levels that are read; deeper specifications are rejected anyway."""
_MAX_DIGITS: Final = 100
"""The most characters of a number."""
_TOO_LONG: Final = "a number has too many digits"
_SUFFIXES: Final = (".json", ".yaml", ".yml")
_KIB: Final = 1024
_LAST_PORT: Final = 65_535
_NO_NAME: Final = "is missing; validate a file for `submit -f` with `submit NAME -f FILE --dry-run=client`"
_MAX_VALUES: Final = 50_000
"""The most values of a job, which has hundreds; with more, reading and writing would take many seconds."""
_MAX_NODES: Final = 1_000_000
"""The most values in a file, including those repeated by aliases. API servers and kubectl accept three megabytes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A job in a file. `lines` are the line numbers of its fields by path; `line` is that of the first line of the job."""

    file: str
    line: int
    group: str
    version: str
    body: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The job's name. A `generateName` alone is padded with as many characters as the server appends."""
        prefix = self.meta.get("generateName")
        return str(self.meta.get("name") or (f"{prefix}xxxxx" if prefix else ""))

    @property
    def meta(self) -> Mapping[str, Any]:
        """The job's metadata, with unvalidated types."""
        found = self.body.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def alpha(self) -> Dialect:
        """The alpha dialect in the API group of this manifest."""
        return TENSORFLOW if self.group == TENSORFLOW.resource.group else KUBEFLOW

    def line_of(self, path: str) -> int:
        """Return the line of a field, or of its nearest existing parent."""
        while path:
            found = self.lines.get(path.casefold())
            if found is not None:
                return found
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.line


def files_of(name: str) -> list[str]:
    """Return the files of a folder that kubectl reads with -f, or the name of a file itself. Raises CliError for none."""
    if not Path(name).is_dir():
        return [name]
    files = sorted(str(path) for path in Path(name).iterdir() if path.suffix in _SUFFIXES)
    if not files:
        raise CliError(f"{name} has no files named {', '.join(f'*{suffix}' for suffix in _SUFFIXES)}")
    return files


def read(name: str) -> Iterator[Manifest]:
    """Yield the TFJobs in a file or `-`, including items of Lists. Raises CliError for invalid files and unknown versions."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {name}: {getattr(error, 'strerror', None) or 'not valid UTF-8'}") from error
    file = "standard input" if name == "-" else name
    try:
        _check_size(file, text)
        for node in yaml.compose_all(text, Loader=_Loader):
            if node is not None:
                yield from _jobs(file, node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise CliError(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise CliError(f"{file}: not valid YAML") from error


def _check_size(file: str, text: str) -> None:
    """Raise CliError before reading nesting that would exhaust the stack, or aliases that would exhaust memory."""
    nodes = 0
    sizes: dict[str, int] = {}
    inside: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            nodes += sizes.get(event.anchor or "", 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            inside.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = inside.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if len(inside) > _MAX_DEPTH or nodes > _MAX_NODES:
            why = (
                f"more than {_MAX_DEPTH} levels of nesting"
                if len(inside) > _MAX_DEPTH
                else f"more than {_MAX_NODES:,} values"
            )
            line = event.start_mark.line + 1 if event.start_mark is not None else 1
            raise CliError(f"{file}:{line}: {why}")


def _jobs(file: str, node: yaml.Node) -> Iterator[Manifest]:
    if not isinstance(node, yaml.MappingNode):
        return
    fields = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
    if "kind" in fields and fields["kind"].value == "List":
        items = fields.get("items")
        for item in items.value if isinstance(items, yaml.SequenceNode) else ():
            yield from _jobs(file, item)
        return
    if _is_large(node):
        raise CliError(f"{file}:{node.start_mark.line + 1}: more than {_MAX_VALUES:,} values in an object")
    body = _value(node)
    group, _, version = str(body.get("apiVersion", "")).partition("/")
    kinds = {TFJOBS.group: TFJOBS.kind, TENSORFLOW.resource.group: TENSORFLOW.resource.kind}
    line = node.start_mark.line + 1
    if kinds.get(group) != body.get("kind"):
        if str(body.get("kind")).casefold() == TFJOBS.kind.casefold():
            found = f"{quoted(str(body['kind']))} of {quoted(str(body.get('apiVersion')))}"
            raise CliError(
                f"{file}:{line}: {found} does not exist: write {TFJOBS.kind} of {TFJOBS.group}/{TFJOBS.version}"
            )
        return
    served = VERSIONS if group == TFJOBS.group else (TENSORFLOW.resource.version,)
    if version not in served:
        raise CliError(
            f"{file}:{line}: {group}/{quoted(version)} is not supported: supported versions: {', '.join(served)}"
        )
    lines = {path.casefold(): place for path, place in _lines(node, "")}
    yield Manifest(file, line, group, version, body, lines)


def _is_large(node: yaml.Node) -> bool:
    """Return True for more than `_MAX_VALUES`, including those repeated by aliases."""
    left, count = [node], 0
    while left and count <= _MAX_VALUES:
        found = left.pop()
        count += 1
        if isinstance(found, yaml.MappingNode):
            left += (each for pair in found.value for each in pair)
        elif isinstance(found, yaml.SequenceNode):
            left += found.value
    return count > _MAX_VALUES


def _value(node: yaml.Node) -> Any:
    """Return the value of a node. Raises YAMLError for a value that does not have the type of its tag, or too many digits."""
    loader = _Loader("")
    try:
        return _plain(loader.construct_document(node))
    except (ValueError, KeyError) as error:
        problem = _TOO_LONG if str(error) == _TOO_LONG else "a value does not match its tag"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error
    finally:
        loader.dispose()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key).lower(): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _lines(node: yaml.Node, path: str, depth: int = 0) -> Iterator[tuple[str, int]]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            own_path = f"{path}.{quoted(str(key.value))}" if path else str(key.value)
            yield own_path, key.start_mark.line + 1
            yield from _lines(value, own_path, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            own_path = f"{path}[{index}]"
            yield own_path, value.start_mark.line + 1
            yield from _lines(value, own_path, depth + 1)


class ValidationResult(NamedTuple):
    """The result of validating a job: the first errors, how many `more` there are, warnings, and notes.

    A note describes intended behavior of the operator, such as restarts that the operator itself does; the job needs no change.
    """

    mistakes: tuple[Mistake, ...] = ()
    more: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def validate(manifest: Manifest) -> ValidationResult:
    """Validate a job like the operator, and like the API server, which rejects some jobs and some pods of others."""
    if not manifest.name:
        return ValidationResult((Mistake("metadata.name", _NO_NAME),))
    if "spec" not in manifest.body:
        return ValidationResult((Mistake("spec", "is missing"),))
    raw = msgspec.json.encode(manifest.body["spec"])
    alpha = manifest.group == TENSORFLOW.resource.group or is_alpha(raw)
    if alpha:
        spec = v1alpha1.read_spec(manifest.alpha, manifest.name, raw)
        found = _wrong(spec) if isinstance(spec, InvalidSpec) else _good(spec.warnings, *_tiny_amounts(manifest.body))
    else:
        found = _judge_v1(manifest, raw)
    every = (*found.mistakes, *_rejected(manifest.body.get("spec")))
    return found._replace(mistakes=every[:MAX_REPORTED], more=found.more + len(every[MAX_REPORTED:]))


def check(job: Mapping[str, Any], done: str) -> None:
    """Validate a v1 job like the operator: print warnings and notes or, if invalid, raise CliError: job not `done`."""
    result = validate(Manifest("", 1, TFJOBS.group, TFJOBS.version, job))
    if result.mistakes:
        more = f"; and {result.more} more" if result.more else ""
        raise CliError(f"job not {done}: {'; '.join(map(str, result.mistakes))}{more}")
    for kind, messages in (("warning", result.warnings), ("note", result.notes)):
        for message in messages:
            echo(f"{kind}: {message}", err=True)


def _judge_v1(manifest: Manifest, raw: bytes) -> ValidationResult:
    name = manifest.name
    spec = v1.read_spec(name, raw)
    if isinstance(spec, InvalidSpec):
        return _wrong(spec)
    meta = ObjectMeta(name=name, namespace=str(manifest.meta.get("namespace") or ""))
    beyond = next((mistake for bound in (*BOUNDS, too_long) if (mistake := bound(meta, spec)) is not None), None)
    if beyond is not None:
        return ValidationResult((beyond,))
    labels = manifest.meta.get("labels")
    warnings = (*spec.warnings, *v1.queue_warnings(labels if isinstance(labels, dict) else None, spec))
    board = read_tensor_board(name, raw).board
    if isinstance(board, InvalidTensorBoard):
        return _good(warnings, f"the job runs without its TensorBoard: {board.text}")
    more = (*(board.unknown_fields if board is not None else ()), *_ignored_arguments(manifest.body))
    more = (*more, *_other_process_counts(manifest.body, spec), *_equal_tf_configs(spec))
    return _good(warnings, *more, *_tiny_amounts(manifest.body))


def _ignored_arguments(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about words of a command line that its shell ignores."""
    for ignored in ignored_arguments(mapping(body.get("spec"))):
        where = f"spec.tfReplicaSpecs.{ignored.type}.template.spec.containers[{ignored.number}].command"
        what = f"{ignored.shell} -c runs {ignored.program} without arguments, and ignores {ignored.arguments}"
        yield f"{where}: {what}: write the script as one string"


def _other_process_counts(body: Mapping[str, Any], spec: TFJobSpec) -> Iterator[str]:
    """Yield warnings about numbers of processes in templates that are not that of the job."""
    processes = process_count(spec)
    for each in process_counts(mapping(body.get("spec"))) if processes else ():
        if each.value != str(processes):
            yield f"{each.path}: {each.variable} is {each.value}, but the job has {processes} processes: remove it from env"


def _equal_tf_configs(spec: TFJobSpec) -> Iterator[str]:
    """Yield warnings about templates that give all replicas of a type the same TF_CONFIG."""
    for kind, size in spec.sizes.items():
        if size > 1 and TF_CONFIG in spec.replicas[kind].template.sets:
            where = f"spec.tfReplicaSpecs.{kind}.template.spec.containers"
            yield f"{where}: env sets {TF_CONFIG}, so all {size} replicas have the same task index: remove it from env"


def _tiny_amounts(body: Mapping[str, Any]) -> list[str]:
    """Return warnings about memory and storage below a KiB. The API server accepts them, and no container starts with them."""
    return [
        f"{path}.{kind}.{name}: {amount} is {'less than a byte' if number < 1 else f'{number:f} bytes'}: "
        "the units are Ki, Mi, Gi and Ti, or k, M, G and T"
        for path, resources in _resources(body.get("spec"), "spec")
        for kind in ("requests", "limits")
        for name, amount in mapping(resources.get(kind)).items()
        if name in {"memory", "ephemeral-storage"} or str(name).startswith("hugepages-")
        if (number := parse_quantity(amount)) is not None and 0 < number < _KIB
    ]


def _rejected(spec: object) -> Iterator[Mistake]:
    """Yield the values that the schema of the CRD rejects, and those for which the API server rejects every pod."""
    yield from _invalid_quantities(spec)
    yield from _beyond_limits(spec)
    yield from _of_devices(spec)
    yield from _in_templates(spec, "spec")


def _invalid_quantities(spec: object) -> Iterator[Mistake]:
    amounts = [
        (f"{path}.{kind}.{name}", amount)
        for path, resources in _resources(spec, "spec")
        for kind in ("requests", "limits")
        for name, amount in mapping(resources.get(kind)).items()
    ]
    for path, amount in (*amounts, *_size_limits(spec, "spec")):
        if isinstance(amount, str) and parse_quantity(amount.strip(" ")) is None:
            yield Mistake(path, f"{quoted(amount)} is not a quantity such as 2, 500m or 4Gi")


def _beyond_limits(spec: object) -> Iterator[Mistake]:
    for path, resources in _resources(spec, "spec"):
        limits = mapping(resources.get("limits"))
        for name, amount in mapping(resources.get("requests")).items():
            wanted, most = parse_quantity(amount), parse_quantity(limits.get(name))
            if wanted is not None and most is not None and wanted > most:
                why = f"{amount} is more than its limit {limits[name]}: no pod can be created"
                yield Mistake(f"{path}.requests.{name}", why)


def _of_devices(spec: object) -> Iterator[Mistake]:
    """Yield the amounts of extended resources, such as GPUs, that the API server rejects: it wants equal whole numbers."""
    for path, resources in _resources(spec, "spec"):
        requests, limits = mapping(resources.get("requests")), mapping(resources.get("limits"))
        for name in sorted({*requests, *limits}):
            if "/" not in name or "kubernetes.io/" in name:
                continue
            for kind, amounts in (("requests", requests), ("limits", limits)):
                amount = parse_quantity(amounts.get(name))
                if amount is not None and amount % 1:
                    yield Mistake(
                        f"{path}.{kind}.{name}", f"{amounts[name]} is not a whole number: no pod can be created"
                    )
            wanted, most = parse_quantity(requests.get(name)), parse_quantity(limits.get(name))
            # More than the limit is rejected for all resources.
            if wanted is not None and (most is None or wanted < most):
                why = f"is not equal to its limit {limits[name]}" if name in limits else "has no limit in limits"
                yield Mistake(f"{path}.requests.{name}", f"{requests[name]} {why}: no pod can be created")


def _in_templates(value: object, path: str) -> Iterator[Mistake]:
    """Yield mounts of volumes that the pod spec beside them does not have, ports out of range, and what exists twice."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _in_templates(each, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            if key == "template":
                spec = mapping(mapping(each).get("spec"))
                volumes = listed(spec.get("volumes"))
                names = {volume.get("name") for volume in volumes}
                yield from _repeated(volumes, "name", f"{path}.template.spec.volumes")
                for kind in ("initContainers", "containers"):
                    for number, container in enumerate(listed(spec.get(kind))):
                        own_path = f"{path}.template.spec.{kind}[{number}]"
                        yield from _without_volume(container, names, own_path)
                        yield from _ports_out_of_range(container, own_path)
                        yield from _repeated(
                            listed(container.get("volumeMounts")), "mountPath", f"{own_path}.volumeMounts"
                        )
            else:
                yield from _in_templates(each, f"{path}.{key}")


def _without_volume(container: Mapping[str, Any], volumes: Collection[object], path: str) -> Iterator[Mistake]:
    for place, mount in enumerate(listed(container.get("volumeMounts"))):
        name = mount.get("name")
        if isinstance(name, str) and name not in volumes:
            yield Mistake(
                f"{path}.volumeMounts[{place}].name", f"{quoted(name)} is not in volumes: no pod can be created"
            )


def _repeated(entries: Iterable[Mapping[str, Any]], key: str, path: str) -> Iterator[Mistake]:
    """Yield the entries of a list whose key has the value of an earlier one."""
    seen = set[str]()
    for place, entry in enumerate(entries):
        found = entry.get(key)
        if isinstance(found, str) and found in seen:
            yield Mistake(f"{path}[{place}].{key}", f"{quoted(found)} is there twice: no pod can be created")
        elif isinstance(found, str):
            seen.add(found)


def _ports_out_of_range(container: Mapping[str, Any], path: str) -> Iterator[Mistake]:
    for place, port in enumerate(listed(container.get("ports"))):
        number = port.get("containerPort")
        if isinstance(number, int) and not isinstance(number, bool) and not 0 < number <= _LAST_PORT:
            yield Mistake(f"{path}.ports[{place}].containerPort", f"{number} is not between 1 and {_LAST_PORT}")


def _size_limits(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield the `sizeLimit` of all emptyDirs in a specification, with their paths."""
    pairs = value.items() if isinstance(value, dict) else ()
    for key, each in pairs:
        if key == "emptyDir" and isinstance(each, dict):
            yield f"{path}.{key}.sizeLimit", each.get("sizeLimit")
        else:
            yield from _size_limits(each, f"{path}.{key}")
    for index, each in enumerate(value if isinstance(value, list) else ()):
        yield from _size_limits(each, f"{path}[{index}]")


def _resources(value: object, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the `resources` of all containers and pods in a specification, with their paths."""
    if isinstance(value, dict):
        for key, each in value.items():
            own_path = f"{path}.{key}"
            if key == "resources" and isinstance(each, dict):
                yield own_path, each
            else:
                yield from _resources(each, own_path)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _resources(each, f"{path}[{index}]")


def _wrong(spec: InvalidSpec) -> ValidationResult:
    return ValidationResult(spec.mistakes, spec.more)


def _good(warnings: Iterable[SpecWarning], *more: str) -> ValidationResult:
    found: dict[bool, list[str]] = {False: [], True: []}
    for reason, message in warnings:
        found[reason == EventReason.RESTARTED_BY_OPERATOR].append(message)
    return ValidationResult(warnings=(*found[False], *more), notes=tuple(found[True]))


def convert(manifest: Manifest) -> str:
    """Return the job as YAML of kubeflow.org/v1, with comments on differences in behavior. Raises CliError."""
    body: dict[str, Any] = dict(manifest.body)
    comments = []
    if manifest.version != TFJOBS.version or manifest.group != TFJOBS.group:
        comments.append(f"converted from {manifest.group}/{manifest.version}")
    raw = msgspec.json.encode(body.get("spec") or {})
    if manifest.group == TENSORFLOW.resource.group or is_alpha(raw):
        done = to_v1(manifest.alpha, manifest.name, raw)
        if not isinstance(done, Conversion):
            raise CliError(f"{manifest.file}:{manifest.line_of(done[0].path)}: {done[0]}; fix it first")
        body["spec"] = done.spec
        comments += done.differences
    body |= {"apiVersion": f"{TFJOBS.group}/{TFJOBS.version}", "kind": TFJOBS.kind}
    body.pop("status", None)
    ordered = {key: body[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in body}
    document = yaml_text(ordered, sort_keys=False)
    return "".join(f"# {one_line(line)}\n" for line in comments) + document
