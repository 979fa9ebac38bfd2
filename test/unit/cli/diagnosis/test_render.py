"""A diagnosis as lines of text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tfjob_operator.cli.commands.explain_ import MIN_WIDTH, render
from tfjob_operator.cli.diagnosis.causes import ManifestChange, Step, WhileRunning, fill
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.diagnosis.table import GROUPS
from unit.cli.diagnosis.cases import CASES, world_of

PAGE = Path(__file__).parents[4] / "docs" / "design" / "plugin.md"


def lines_of(id_: str, width: int = 80) -> list[str]:
    return render(diagnose(world_of(id_).evidence()), width)


def commands_of(id_: str, width: int) -> list[str]:
    return [line[line.index("kubectl ") :] for line in lines_of(id_, width) if "kubectl " in line]


def test_a_healthy_job_is_two_lines() -> None:
    assert render(diagnose(world_of().evidence()), 80) == [
        "mnist: Running for 1h, 1 of 1 PS ready, 2 of 2 workers ready",
        "Nothing wrong was found.",
    ]


def test_a_job_with_accelerators_shows_the_hours_that_its_ended_pods_held_them() -> None:
    found = replace(
        diagnose(world_of().evidence()), accelerators=("nvidia.com/gpu: 3.60 hours, 36m lost (failed 36m)",)
    )
    assert render(found, 80)[1] == "Ended pods held nvidia.com/gpu: 3.60 hours, 36m lost (failed 36m)"


def test_a_cause_has_its_title_what_was_seen_and_what_to_do() -> None:
    assert lines_of("service-account-missing", 100) == [
        "mnist: Running for 1h, 1 of 1 PS ready, 1 of 2 workers ready",
        "",
        '1. ServiceAccount "trainer" not found (mnist-worker-1 not created) [error: service-account-missing]',
        '   - event of tfjob mnist, 3m ago: FailedCreatePod: Error creating: pods "mnist-worker-1" is',
        '     forbidden: error looking up service account team/trainer: serviceaccount "trainer" not found',
        "   > Create it. The operator retries by itself, after five minutes at the latest:",
        "     kubectl -n team create serviceaccount trainer",
        "   > Or name another one in serviceAccountName of the template:",
        "     kubectl -n team edit tfjob mnist",
    ]


@pytest.mark.parametrize("width", [1, MIN_WIDTH, 40, 80, 200])
def test_prose_keeps_to_the_width_and_a_command_stays_whole(width: int) -> None:
    """Commands are never broken, since people copy them; in prose even a word that is too long is."""
    for id_ in CASES:
        for line in lines_of(id_, width):
            assert len(line) <= max(width, MIN_WIDTH) or "kubectl " in line, line
            assert line == line.rstrip()
        assert commands_of(id_, width) == commands_of(id_, 1000)


def test_the_docs_have_the_table_of_all_troubles(check_generated: Callable[[Path, str], None]) -> None:
    before, begin, rest = PAGE.read_text().partition("<!-- generated: cli/diagnosis/table.py -->\n")
    _, end, after = rest.partition("<!-- end of generated -->")
    assert end
    check_generated(PAGE, f"{before}{begin}\n{markdown()}\n{end}{after}")


def _written(step: Step) -> str:
    if isinstance(step, ManifestChange):
        return fill(f"*change:* {step.what}", {}) if step.what else "*replace the job if it has ended*"
    return fill(step.text if isinstance(step, WhileRunning) else step, {})


def markdown() -> str:
    """Return the table as it stands in the docs: ID, meaning, what to do."""
    lines = []
    for group, problems in GROUPS.items():
        lines += [f"### {group}", "", "| ID | meaning | what to do |", "| --- | --- | --- |"]
        for problem in problems:
            to_do = "; ".join(_written(each).replace("|", "\\|") for each in problem.to_do)
            lines.append(f"| `{problem.id}` | {problem.meaning} | {to_do} |")
        lines.append("")
    return "\n".join(lines)
