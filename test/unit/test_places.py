"""What is declared in one place has its other places. CONTRIBUTING.md lists them, and these tests name what is missing."""

import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from fakes.manifests import read_document
from hack.crd_schema.__main__ import CRD
from mutants import rows
from tfjob_operator.api.v1 import constants, validation
from tfjob_operator.api.v1.constants import (
    LIMITS,
    CleanPodPolicy,
    ConditionReason,
    ConditionType,
    EventReason,
    Network,
    RestartPolicy,
    SuccessPolicy,
)
from tfjob_operator.api.v1.types import (
    AvoidedNode,
    IndexRestarts,
    JobAnnotations,
    JobAttempt,
    JobStatus,
    StartRecord,
    TFJobSpec,
)
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1.types import AlphaStatus
from tfjob_operator.cli.main import _IN_MODULE_OF, COMMANDS
from tfjob_operator.controller.jobs.children import ChildLabels
from tfjob_operator.controller.options import _parser as options_parser
from tfjob_operator.controller.tensorboard.desired import HASH_ANNOTATION
from tfjob_operator.controller.tfjob.plan.status import StatusDraft, merged_status

ROOT = Path(__file__).parents[2]
FACTS: dict[str, Any] = {
    "finished_indices": {"Worker": "0,2-4"},
    "restarts": (IndexRestarts(type="Worker", index=1, pod="uid", carried=1),),
    "avoided_nodes": (AvoidedNode("node-1", 1),),
    "begun": StartRecord(1, {"Worker": 5}, ""),
}
"""Fields of the status that outlive pods, with an example: they survive a write by an operator whose view was older."""
FACTS_OF_AN_ATTEMPT: dict[str, Any] = {
    "attempt": 2,
    "counted_restarts": 2,
    "observed_restart_request": "2026-11-26T09:15:00Z",
    "attempt_history": (JobAttempt(number=1),),
    "execution_attempt": 3,
}
"""Those that change with the number of the attempt: of two statuses the one with the higher number has them all."""
COMPUTED = {
    "conditions", "replica_statuses", "worker_selector", "start_time", "completion_time", "last_reconcile_time",
    "observed_generation", "phase", "next_restart_time"
}  # fmt: skip
"""Fields that each sync computes anew, from the job and its pods."""
OF_THE_WRITTEN_STATUS = {"accelerator_seconds", "accelerator_pods"}
"""Sums: what another process has written stays, and what was not written is computed again."""
IN_THE_RELEASE_BEFORE = {
    "conditions", "replica_statuses", "finished_indices", "restarts", "begun", "worker_selector", "start_time",
    "completion_time", "last_reconcile_time", "observed_generation", "phase"
}  # fmt: skip
SPEC_OF_THE_RELEASE_BEFORE = {
    "tfReplicaSpecs", "runPolicy", "successPolicy", "enableDynamicWorker", "tensorBoard", "cleanPodPolicy",
    "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend", "managedBy", "schedulingPolicy",
    "network"
}  # fmt: skip
"""Fields that a roll-back keeps. Those of a tagged release belong here; what `docs/operations.md` says of them goes then."""


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def sources(*folders: str) -> str:
    return "\n".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))


def schema() -> dict[str, Any]:
    found: dict[str, Any] = read_document(CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def rows_of_roll_backs() -> str:
    tables = re.split(r"\| new (?:in|since) ", page("operations.md"))[1:]
    return "\n".join(table.partition("\n\n")[0] for table in tables)


def test_each_status_field_is_a_fact_or_computed_and_a_fact_survives_an_older_view() -> None:
    """A fact is merged by `merged_status`; it would be lost where another operator process has written since."""
    fields = FACTS.keys() | FACTS_OF_AN_ATTEMPT.keys() | COMPUTED | OF_THE_WRITTEN_STATUS
    assert fields == set(JobStatus.__struct_fields__)
    for name, value in (FACTS | FACTS_OF_AN_ATTEMPT).items():
        known = JobStatus(**({"attempt": 1} if name in FACTS_OF_AN_ATTEMPT else {}) | {name: value})
        assert getattr(merged_status(JobStatus(), known), name) == value, name
        assert getattr(merged_status(known, JobStatus()), name) == value, name


def test_each_fact_of_a_status_stays_in_a_draft_and_has_a_type_there() -> None:
    """The plan changes it in the draft; what it leaves alone is written as it was."""
    declared = StatusDraft.__annotations__.keys()
    assert declared >= FACTS.keys() | FACTS_OF_AN_ATTEMPT.keys()
    assert declared <= set(JobStatus.__struct_fields__)
    assert declared <= set(StatusDraft.__slots__)


def test_each_status_field_is_in_the_crd_the_docs_and_the_table_of_roll_backs() -> None:
    """The API server prunes a field that the CRD lacks; a release that does not know a field drops it.

    Users look up in the guide what a field means, and of a time in its table of times.
    """
    names = {field.name: field.encode_name for field in msgspec.structs.fields(JobStatus)}
    declared = schema()["status"]["properties"]
    assert not [name for name in names.values() if "description" not in declared.get(name, {})]
    for each in ("design/status.md", "tfjob.md"):
        assert not [name for name in names.values() if not re.search(rf"\b{name}\b[^`\n]*`", page(each))], each
    times = [name for name in names.values() if declared[name].get("format") == "date-time"]
    table = page("tfjob.md").partition("| time | meaning |")[2].partition("\n\n")[0]
    assert not [name for name in times if f"\n| `{name}` |" not in table], "the table of times in docs/tfjob.md"
    rows, new = rows_of_roll_backs(), names.keys() - IN_THE_RELEASE_BEFORE
    assert not [names[name] for name in new if f"`status.{names[name]}`" not in rows]


def test_each_spec_field_is_in_the_crd_the_docs_and_the_validation_and_something_follows_it() -> None:
    """A field that validation does not know is a warning; one that nothing reads does nothing."""
    spec = schema()["spec"]["properties"]
    policy = spec["runPolicy"]["properties"].keys()
    assert spec.keys() == validation.SPEC_FIELDS
    assert policy == validation.RUN_POLICY_FIELDS
    assert not [
        name for name in {*policy, *spec} - {"tfReplicaSpecs"} if not re.search(rf"[`.]{name}`", page("tfjob.md"))
    ]
    new = {*policy, *spec} - SPEC_OF_THE_RELEASE_BEFORE
    assert not [name for name in new if not re.search(rf"[`.]{name}\b", rows_of_roll_backs())]
    read, followed = sources("api/v1", "controller/tfjob"), sources("controller/tfjob")
    properties = inspect.getsource(TFJobSpec)
    names = [field.name for field in fields(TFJobSpec)]
    assert not [name for name in names if not re.search(rf"\b{name}=", read)]
    left = [name for name in names if not re.search(rf"\bspec\.{name}\b", followed)]
    assert not [name for name in left if not re.search(rf"\bself\.{name}\b", properties)]
    pod = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    raw = msgspec.Raw(msgspec.json.encode({"tfReplicaSpecs": {"Worker": {"template": pod}}}))
    assert isinstance(validation.read_spec("job", raw, was_good=False), TFJobSpec)


def reasons_in(heading: str) -> set[str]:
    """The names in the rows of a table of the user's guide, and in the text after it."""
    text = page("tfjob.md").split(f"\n{heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`(\w+)`", text))


def test_every_condition_and_every_reason_that_the_operator_writes_is_documented() -> None:
    """In the user's guide: whoever sees an event can look up what it means."""
    assert {*ConditionType, *ConditionReason} <= reasons_in("## The status")
    events = {*EventReason, *alpha.AlphaEventReason, *ConditionReason} - {
        ConditionReason.CREATED,
        ConditionReason.RUNNING,
    }
    assert events <= reasons_in("## Events") | reasons_in("## Limits")


def test_each_limit_has_a_field_and_a_row_in_the_guide() -> None:
    """The row says whether the limit applies to a job on hold."""
    fields_of_spec = {f"runPolicy.{name}" for name in validation.RUN_POLICY_FIELDS} | validation.SPEC_FIELDS
    assert {limit.field.removesuffix(".maxRestarts") for limit in LIMITS.values()} <= fields_of_spec
    rows = re.findall(r"^\| `(\S+)` \| `(\w+)` \|.*\|.*\|$", page("tfjob.md").split("\n## Limits\n")[1], re.MULTILINE)
    assert dict(rows[: len(LIMITS)]) == {limit.field: str(reason) for reason, limit in LIMITS.items()}


def test_each_condition_reason_and_policy_is_used_and_each_policy_documented() -> None:
    """By the operator: what is only declared never happens."""
    used = sources("controller", "api/v1").replace((ROOT / "api" / "v1" / "constants.py").read_text(), "")
    used += " RestartPolicy.ALWAYS RestartPolicy.ON_FAILURE "  # the kubelet follows these
    for kind in (ConditionType, ConditionReason, EventReason, RestartPolicy, CleanPodPolicy, SuccessPolicy, Network):
        named = set(re.findall(rf"\b(?:{kind.__name__}|Reason)\.([A-Z_]+)\b", used))
        assert not [each.name for each in kind if each.name not in named], kind
    declared = {*EventReason.__members__, *alpha.AlphaEventReason.__members__}
    assert set(re.findall(r"\bEventReason\.([A-Z_]+)\b", used)) <= declared
    values = {*RestartPolicy, *CleanPodPolicy, *SuccessPolicy, *Network} - {SuccessPolicy.DEFAULT}
    assert not [each for each in values if f"`{each}`" not in page("tfjob.md")]


def spelled_out(name: str) -> list[str]:
    """The names that `a_{b,c}_d` stands for."""
    before, brace, rest = name.partition("{")
    choices, _, after = rest.partition("}")
    return [each for choice in choices.split(",") for each in spelled_out(before + choice + after)] if brace else [name]


def test_each_metric_is_documented_and_each_documented_metric_exists() -> None:
    """`make renew` writes the list of metrics; a dashboard is made from the docs."""
    exported = set(re.findall(r"^# TYPE (\S+)", (ROOT / "test" / "data" / "metrics.txt").read_text(), re.MULTILINE))
    table = page("operations.md").partition("| metric | labels |")[2].partition("\n\n")[0]
    cells = "".join(row.split("|")[1] for row in table.splitlines()[2:])
    names = itertools.chain.from_iterable(spelled_out(each) for each in re.findall("`(.*?)`", cells))
    patterns = {each.replace("...", "*").replace("*", ".*") for each in names}
    elsewhere = "process_.*|python_.*|tf_operator_config_file_wrong|tf_operator_log_lines_dropped_total"
    assert not [name for name in exported if not any(re.fullmatch(each, name) for each in patterns)]
    assert not [
        each
        for each in patterns
        if not (re.fullmatch(elsewhere, each) or any(re.fullmatch(each, name) for name in exported))
    ]


def test_the_flags_and_exit_codes_of_the_operator_are_those_in_the_guide() -> None:
    """Manifests and scripts of administrators name them."""
    text = page("operations.md")
    table = text.partition("| flag |")[2].partition("\n\n")[0]
    cells = "".join(row.split("|")[1] for row in table.splitlines()[2:])
    options = {name for action in options_parser()._actions for name in action.option_strings if name.startswith("--")}
    assert set(re.findall(r"--[a-z-]+", cells)) == options - {"--help", "--version"}
    codes = set(re.findall(r"^\| (\d+) \|", text.partition("| exit code |")[2].partition("\n\n")[0], re.MULTILINE))
    assert codes == set(
        re.findall(r"^ +return (\d+)$", (ROOT / "controller" / "__main__.py").read_text(), re.MULTILINE)
    )


def state_rows() -> dict[str, list[str]]:
    """The rows of the tables of state in docs/design/status.md, by name. `.b` after `a[].x` stands for `a[].b`."""
    section = page("design/status.md").split("\n## State that outlives a sync\n")[1].split("\n## ")[0]
    rows: dict[str, list[str]] = {}
    for line in section.splitlines():
        if not line.startswith("| ") or line.startswith("| ---"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        prefix = ""
        for name in re.findall(r"`(.*?)`", cells[0]):
            full = prefix + name[1:] if name.startswith(".") else name
            prefix = full[: full.rindex(".") + 1] if "." in full else f"{full}."
            assert full not in rows, f"two rows of {full}"
            rows[full] = cells[1:]
    return rows


def status_names(*kinds: type[msgspec.Struct]) -> Iterator[str]:
    """The paths of all fields of a status. The fields of a struct are named where it has the shortest path."""
    places, seen = [(kind, "") for kind in kinds], {*kinds}
    for kind, prefix in places:
        for each in msgspec.structs.fields(kind):
            yield (name := f"{prefix}{each.encode_name}")
            new = [(found, between) for found, between in structs_in(each.type) if found not in seen]
            seen.update(found for found, _ in new)
            places += [(found, f"{name}{between}.") for found, between in new]


def structs_in(kind: Any, between: str = "") -> Iterator[tuple[type[msgspec.Struct], str]]:
    """The structs in a type, and what stands for the way to them in a path: `[]` for a list, `.*` for a map."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind, between
    step = {tuple: "[]", dict: ".*"}.get(get_origin(kind), "")
    for inner in get_args(kind):
        yield from structs_in(inner, between + step)


def test_all_state_that_outlives_a_sync_has_a_row_with_who_may_forge_it_and_a_way_out() -> None:
    """A new field, label or annotation without a row fails, and so does a row that nobody can get out of.

    Only the operator writes statuses; of a label or an annotation the row has who else does.
    """
    of_status = {*status_names(JobStatus, AlphaStatus)}
    rows, names = state_rows(), {*of_status}
    for module in (constants, alpha):
        found = {name: value for name, value in vars(module).items() if name.startswith(("LABEL_", "ANNOTATION_"))}
        names |= {value for name, value in found.items() if name != "LABEL_PREFIX"}
    for kind in (ChildLabels, JobAnnotations):
        names |= {*kind.__struct_encode_fields__}
    names |= {*constants.TOPOLOGY_ANNOTATIONS, HASH_ANNOTATION}
    assert names == rows.keys()
    for name, (steers, way_out, *forged) in rows.items():
        assert steers, name
        assert way_out not in {"", "none"}, name
        assert name in of_status if not forged else forged[0] in {"job", "pod"}, name


def test_each_label_and_annotation_is_documented() -> None:
    """Scripts select by labels."""
    text = page("tfjob.md")
    names = {value for name, value in vars(constants).items() if name.startswith(("LABEL_", "ANNOTATION_"))}
    ours = {name for name in names if "kueue" not in name} - {constants.LABEL_PREFIX}
    assert not [name for name in ours if f"`{name}`" not in text]


def test_each_verb_has_its_module_and_its_place_in_the_guide() -> None:
    """The reference and the help are made from the table of commands."""
    modules = {
        path.stem.removesuffix("_") for path in (ROOT / "cli" / "commands").glob("*_.py") if path.stem != "__init__"
    }
    assert modules == COMMANDS.keys() - _IN_MODULE_OF.keys()
    assert not [name for name in COMMANDS if not re.search(rf"`(kubectl tfjob )?{name}\b", page("kubectl-tfjob.md"))]


def test_each_mutant_applies_to_the_product() -> None:
    """`make nightly` runs them. Change the row of a line that was rewritten to the same mistake in the new line.

    If no line can have this mistake any more, take a similar mistake, so that the number of mutants stays the same.
    """
    for mutant in rows.read():
        mutant.applied((ROOT / mutant.file).read_text())
