"""The recipes of CONTRIBUTING.md are complete: a change in the listed places alone passes, and without one of them it does not.

Each recipe has an example, made in a copy of the tree: a text is inserted before the first occurrence of another one. Where
that occurs no more, choose another one.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from hack.package_links import link_packages

ROOT = Path(__file__).parents[2]
COPIED = ("api", "cli", "controller", "informers", "workqueue", "tfjob_operator", "hack", "docs", "manifests", "test")
RENEW = "make renew"
GUARDS = (
    "test_the_manifest_is_what_the_script_makes",
    "test_the_reference_says_what_the_program_has",
    "test_old_kubectls_show_all_fields_in_one_description",
    "test_labels_and_states_are_those_of_the_operator",
    "test_each_limit_is_the_only_cause_and_the_advice_names_its_field",
    "test_a_value_of_each_limit_is_drawn",
    "test_the_page_has_the_names_labels_and_help_texts_that_dashboards_know",
)
"""Tests that find what is missing, beside all of `test_places.py`."""
STALL = '''def stall(draft: StatusDraft) -> None:
    """Say that nothing goes on."""
    draft.set_true(ConditionType.IDLE, ConditionReason.IDLE, "")


'''
RESTART_LIMIT = """    if len(draft.restarts) > 1000:
        return Ending.by_limit(meta.name, EventReason.RESTART_LIMIT_EXCEEDED)
"""
HELLO = '''"""`kubectl tfjob hello`."""

import click


@click.command("hello")
def command() -> None:
    """Say hello."""
'''
LABELLED = """    def labelled(self) -> dict[tuple[str, ...], int]:
        return {(): sum(len(indexer.index_keys("labelled", "labelled")) for indexer in self.indexers)}

"""
EDITED_OFTEN = """    if job.metadata.generation > 1000:
        draft.emit(EventType.WARNING, EventReason.EDITED_OFTEN, "edited often")
"""
Change = dict[str, list[tuple[str, str]]]
"""By path: what is inserted, and before what. A file that does not exist is made."""

CHANGES: dict[str, Change] = {
    "a spec field": {
        "manifests/base/crd.yaml": [
            ("startAfterSeconds, ", "network (shared: one"),
            (
                "                    startAfterSeconds: {type: integer, format: int32}\n",
                "                    suspend:\n",
            ),
        ],
        "api/v1/types.py": [("    start_after_s: int | None = None\n", "    suspend: bool = False\n")],
        "api/v1/validation.py": [
            ('"startAfterSeconds", ', '"suspend",'),
            ("    start_after_s: int | None = None\n", '    suspend: bool = False\n    managed_by: str = ""\n'),
            ('        start_after_s=number("startAfterSeconds"),\n', "        suspend=reader.boolean("),
            ("        start_after_s=policy.start_after_s,\n", "        dynamic_workers=dynamic_workers,\n"),
        ],
        "controller/tfjob/plan/plan.py": [
            ("    if spec.start_after_s is not None:\n        draft.start()\n", "    if spec.suspend:\n")
        ],
        "docs/tfjob.md": [("| `runPolicy.startAfterSeconds` | | when pods are made |\n", "| `runPolicy.suspend` |")],
        "docs/operations.md": [("| `runPolicy.startAfterSeconds` | is ignored |\n", "| `status.attempt`")],
    },
    "a status field": {
        "api/v1/types.py": [("    resumes: int = 0\n", "    last_reconcile_time: datetime | None = None\n")],
        "controller/tfjob/plan/status.py": [
            ("    resumes: int\n", "    worker_selector: str\n"),
            ("        resumes=max(status.resumes, observed.resumes),\n", "        restarts=records,\n"),
        ],
        "manifests/base/crd.yaml": [
            (
                "                resumes: {type: integer, format: int32, description: Resumptions.}\n",
                "                workerSelector:\n",
            )
        ],
        "docs/tfjob.md": [("`status.resumes` counts resumptions.\n\n", "| time | meaning |")],
        "docs/design/status.md": [
            ("- `resumes`: how often the job was resumed.\n", "- `begun`:"),
            ("| `resumes` | nothing | recreate the job |\n", "| `begun` | an invalid"),
        ],
        "docs/operations.md": [("| `status.resumes` | begins at zero again |\n", "| `status.attempt`")],
        "test/unit/test_places.py": [('    "resumes": 3,\n', '    "begun": StartRecord(')],
    },
    "a condition": {
        "api/v1/constants.py": [
            ('    IDLE = "Idle"\n', '    HELD = "Held"\n'),
            ('    IDLE = "TFJobIdle"\n', '    SUSPENDED = "TFJobSuspended"\n'),
        ],
        "api/v1/states.py": [('"Idle", ', '"Succeeded", "Failed")')],
        "controller/tfjob/plan/status.py": [(STALL, "def report_spec(")],
        "docs/tfjob.md": [
            ("| `Idle` | `TFJobIdle` | nothing goes on |\n", "| `Suspended` | `TFJobSuspended`"),
            ("| `TFJobIdle` | nothing goes on |\n", "| `TFJobSuspended`, `TFJobResumed` | the job"),
        ],
    },
    "a limit": {
        "api/v1/constants.py": [
            (
                '    RESTART_LIMIT_EXCEEDED = "RestartLimitExceeded"\n',
                '    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"\n',
            ),
            ('        ("RestartLimitExceeded", "runPolicy.network"),\n', '        ("DeadlineExceeded", '),
        ],
        "api/v1/states.py": [
            ('    "RestartLimitExceeded": "it has restarted too fast",\n', '    "DeadlineExceeded": '),
        ],
        "controller/tfjob/plan/plan.py": [(RESTART_LIMIT, "    return past_deadline(draft, spec.active_deadline_s)\n")],
        "docs/tfjob.md": [
            (
                "| `runPolicy.network` | `RestartLimitExceeded` | too fast | no |\n",
                "| `runPolicy.activeDeadlineSeconds` | `D",
            )
        ],
        "test/unit/controller/tfjob/plan/test_plan_properties.py": [
            ('    "network": (None,),\n', '    "backoffLimit": (')
        ],
    },
    "a policy": {
        "api/v1/constants.py": [('    ONCE = "Once"\n', '    EXIT_CODE = "ExitCode"\n')],
        "controller/tfjob/plan/ending.py": [("_ONCE: Final = RestartPolicy.ONCE\n\n\n", "def until_deadline(")],
        "docs/tfjob.md": [("`Once` restarts a replica one time.\n\n", "## The status")],
    },
    "a metric": {
        "controller/jobs/job_metrics.py": [
            ('    "suspended": "Number of times a job was suspended",\n', '    "restarted": "Number'),
            ('    ConditionType.SUSPENDED: "suspended",\n', '    ConditionType.RESTARTING: "restarted",\n'),
        ],
        "docs/operations.md": [
            ("suspended,", "restarted}_total` | | "),
            ("suspended,", "restarted}_total` | `job_namespace`"),
        ],
    },
    "a gauge of jobs": {
        "controller/jobs/job_metrics.py": [
            ('LABELLED: Final = Metric("tf_operator_jobs_labelled", "Number of jobs with labels")\n', "JOBS: Final = "),
            ('"labelled": lambda job: ["labelled"] if job.metadata.labels else [], ', "STATE_INDEX: index_by_state}"),
            (LABELLED, "    def count(self"),
        ],
        "controller/composition.py": [
            ("LABELLED, ", "JobMetrics\n"),
            (
                "    metrics.gauges(LABELLED, lambda: parts.counted.labelled() if manager.is_leading else {})\n",
                "    return manager",
            ),
        ],
        "docs/operations.md": [("| `tf_operator_jobs_labelled` | | jobs with labels |\n", "| `tf_operator_jobs` |")],
    },
    "a verb": {
        "cli/commands/hello_.py": [(HELLO, "")],
        "cli/main.py": [('    "hello": "Say hello.",\n', '    "version": "Print')],
        "docs/kubectl-tfjob.md": [("| `hello` | says hello |\n", "| `validate FILE...` |")],
    },
    "an event reason": {
        "api/v1/constants.py": [('    EDITED_OFTEN = "EditedOften"\n', '    NO_REPLICAS = "NoReplicas"\n')],
        "controller/tfjob/plan/status.py": [(EDITED_OFTEN, "    is_new = conditions.find(")],
        "docs/tfjob.md": [("| `EditedOften` | edited often |\n", "| `NoReplicas` |")],
    },
}


def recipes() -> dict[str, list[str]]:
    """The places of each recipe, as CONTRIBUTING.md lists them."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Recipes\n")[2].partition("\n## ")[0]
    parts = re.split(r"^\*\*Add (.*?)\*\*", text, flags=re.MULTILINE)[1:]
    return {
        name: re.findall(r"^\d+\. `(.*?)`", part, re.MULTILINE)
        for name, part in zip(parts[::2], parts[1::2], strict=True)
    }


def place_of(path: str, places: list[str]) -> str | None:
    return next((place for place in places if path == place or (place.endswith("/") and path.startswith(place))), None)


def passes(tree: Path, names: Iterable[str], left_out: str = "") -> bool:
    """Make the examples of recipes in a copy of the tree, but for one place, and return whether the guards pass."""
    for folder in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "recordings", "images")
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
    shutil.copy(ROOT / "setup.cfg", tree)
    link_packages(tree, tree)
    for path, edits in itertools.chain.from_iterable(CHANGES[name].items() for name in names):
        if path != left_out:
            file = tree / path
            text = file.read_text() if file.exists() else ""
            for inserted, before in edits:
                assert before in text, (
                    f"change the example in CHANGES of test/unit/test_recipes.py: {path} has no {before!r} any more"
                )
                text = text.replace(before, inserted + before, 1)
            file.write_text(text)
    renews = left_out != RENEW and any(RENEW in recipes()[name] for name in names)
    return (not renews or run(tree, "--renew")) and run(tree)


def guards() -> list[str]:
    """The tests that find what is missing, wherever they stand, as arguments of pytest.

    They are selected by `-k`: with `file::name`, pytest reports a file that fails to import as a wrong command line.
    """
    found = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("test/unit/**/test_*.py"))
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
        if name in GUARDS
    ]
    assert len(found) == len(GUARDS), found
    return ["test/unit/test_places.py", *found, "-k", " or ".join(("test_places", *GUARDS))]


def run(tree: Path, *options: str) -> bool:
    command = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, *guards())
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout[-5000:] + done.stderr[-2000:])
    assert done.returncode not in {4, 5}, "a wrong command line, or no tests"
    return done.returncode == 0


def each_place() -> list[tuple[str, str]]:
    """Each place of each recipe, or the example's path in it."""
    return [
        (name, next((path for path in CHANGES[name] if place_of(path, [place])), place))
        for name, listed in recipes().items()
        for place in listed
    ]


@pytest.mark.parametrize("name", CHANGES)
def test_the_example_of_a_recipe_is_in_all_of_its_places_and_no_others(name: str) -> None:
    """An engineer who is new here needs no other file."""
    listed = recipes()[name]
    found = [place_of(path, listed) for path in CHANGES[name]]
    assert sorted(map(str, found)) == sorted({*listed} - {RENEW})


def test_changes_by_all_recipes_at_once_pass(tmp_path: Path) -> None:
    """Their places are enough; each recipe alone is tried nightly."""
    assert passes(tmp_path, CHANGES)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_the_places_of_its_recipe_passes(name: str, tmp_path: Path) -> None:
    assert passes(tmp_path, [name])


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "left_out"), each_place())
def test_a_change_without_one_of_its_places_fails(name: str, left_out: str, tmp_path: Path) -> None:
    assert not passes(tmp_path, [name], left_out)
