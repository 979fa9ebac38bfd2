"""The pages for people: no link leads nowhere, and the page that is read first stays short."""

import re
import shlex
from pathlib import Path

import click

from fakes.manifests import read_documents
from hack.weight import trace_job
from hack.yaml_text import document
from support.cases import for_each
from support.pages import blocks, pages
from tfjob_operator.api.v1.constants import TFJOBS, EventReason
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.cli.main import app
from tfjob_operator.controller.config import file

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
PATH = re.compile(r"`((?:api|controller|docs|hack|informers|manifests|test|workqueue)/[\w./-]+)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FIRST_PAGE = ROOT / "docs" / "architecture.md"
LEDGER = (ROOT / "docs" / "design" / "by-hand.md").read_text()
SECURITY = (ROOT / "SECURITY.md").read_text()
NAMED_TEST = re.compile(r"`(test/[\w/]+\.py)::(\w+)`")
PAGES = [ROOT / name for name in pages()]
MOST_WORDS = 1200
MOST_TERMS = 14


def anchors(page: Path) -> set[str]:
    """The anchors that a forge makes of the page's headings."""
    return {
        "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(page.read_text())
    }


def section(title: str) -> str:
    return FIRST_PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


@for_each("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """Files and headings that links name exist; addresses of other sites are not asked."""
    for target, anchor in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(found), f"{target}{anchor} is no heading"


@for_each("page", PAGES)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    """A file that was moved is named by its new path."""
    missing = [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()]
    assert page.name == "CHANGELOG.md" or not missing


def test_the_ledger_counts_the_lines_of_every_part() -> None:
    """docs/design/by-hand.md names files and folders that exist, and their lines within a tenth."""
    rows = re.findall(r"^\| [^|`]+: ((?:`[\w./-]+` ?)+) \| ([\d,]+) \|", LEDGER, re.MULTILINE)
    kept = LEDGER.partition("\n## Kept")[2]
    assert len(rows) == kept.count("\n| ") - kept.count("| part |")
    for paths, told in rows:
        parts = [ROOT / path for path in re.findall(r"`([^`]+)`", paths)]
        files = [file for part in parts for file in ([part] if part.is_file() else part.rglob("*.py"))]
        lines = sum(len(file.read_bytes().splitlines()) for file in files)
        assert all(part.exists() for part in parts), paths
        assert 0.9 < lines / int(told.replace(",", "")) < 1.1, f"{paths}: {lines} lines"


def test_the_log_of_all_replicas_is_printed_while_one_of_them_has_not_started() -> None:
    """Else `kubectl logs --selector` prints the error of that one (ErrImagePull) in place of the others' lines."""
    texts = [ROOT / "manifests/chart/templates/NOTES.txt", *(page for page in PAGES if page.name != "CHANGELOG.md")]
    commands = [
        each for text in texts for each in re.findall(r"logs --selector=name=tf-job-operator.*", text.read_text())
    ]
    assert len(commands) >= 5
    assert not [each for each in commands if " --ignore-errors " not in each]


def test_the_first_page_is_one_page() -> None:
    """docs/architecture.md is read in the first hour; details belong to docs/design/."""
    assert len(FIRST_PAGE.read_text().split()) <= MOST_WORDS


def test_the_glossary_has_under_fifteen_terms() -> None:
    """A language of our own must be learned by everybody, so it stays small."""
    rows = [line for line in section("Glossary").splitlines() if line.startswith("| ")]
    assert 0 < len(rows) - 1 <= MOST_TERMS


def test_the_first_page_links_every_page_of_the_docs() -> None:
    """A page that is not linked is not found."""
    linked = {target for target, _ in LINK.findall(FIRST_PAGE.read_text())}
    docs = ROOT / "docs"
    missing = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - linked - {FIRST_PAGE.name}
    assert not missing


def test_the_first_page_follows_a_job_through_every_file_that_it_enters() -> None:
    """In the order of a trace of the code, so that the page is a way into it."""
    assert tuple(PATH.findall(section("Follow one TFJob"))) == trace_job().files


def test_no_event_has_a_reason_that_was_renamed() -> None:
    """docs/migration.md names old and new; the operator writes the new ones alone."""
    text = (ROOT / "docs" / "migration.md").read_text().split("\n### Event reasons\n")[1].split("\n### ")[0]
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `") and " on a job " not in line]
    old, new = ({name for row in rows for name in re.findall(r"`(\w+)`", row[side])} for side in (0, 1))
    reasons = {*EventReason, *alpha.AlphaEventReason, file.REASON}
    assert old
    assert not old & reasons
    assert new <= reasons


KUEUE_FRAMEWORKS = [
    *("batch/job", "kubeflow.org/mpijob", "ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"),
    *("jobset.x-k8s.io/jobset", "workload.codeflare.dev/appwrapper", "trainer.kubeflow.org/trainjob"),
    *("pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"),
]
"""The integrations that Kueue 0.19.2 enables by default: pasting a shorter list switches others off."""


def test_the_page_on_queues_names_the_kinds_rights_and_commands_that_there_are() -> None:
    """Kueue ignores a mistyped entry without a word; with its own commands nothing of the page is typed in another test."""
    settings = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "queues.md").read_text(), re.DOTALL)
    (own, external) = (document(each)["integrations"] for each in settings)
    kinds = [f"{each.kind}.{each.version}.{each.group}" for each in (TFJOBS, alpha.TENSORFLOW.resource)]
    assert external == {"externalFrameworks": kinds}
    assert own["frameworks"] == [*KUEUE_FRAMEWORKS, f"{TFJOBS.group}/{TFJOBS.kind.lower()}"]
    role, binding = read_documents(ROOT / "manifests" / "addons" / "kueue" / "role.yaml")
    assert role["rules"] == [
        {"apiGroups": [alpha.TENSORFLOW.resource.group], "resources": ["tfjobs"], "verbs": ["get", "list", "watch"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    typed = [shlex.split(command.text) for block in blocks("docs/queues.md") for command in block]
    ours = [words[2:] for words in typed if words[:2] == ["kubectl", "tfjob"]]
    assert ours
    for verb, *words in ours:
        # A command keeps the help option of whoever parses it first.
        parent = click.Context(app, **app.context_settings)
        command = app.get_command(parent, verb)
        assert command is not None
        command.make_context(verb, words, parent)


def test_the_readme_shows_a_session_of_the_plugin_that_needs_nothing_from_elsewhere() -> None:
    """`make picture` draws it; code forges refuse pictures that load fonts or styles."""
    picture = (ROOT / "docs" / "images" / "terminal.svg").read_text()
    assert "docs/images/terminal.svg" in (ROOT / "README.md").read_text().partition("make demo")[0]
    words = re.sub(r"<[^>]*>|&#160;", " ", picture)
    assert "$ kubectl tfjob list" in words
    assert "$ kubectl tfjob explain " in words
    assert set(re.findall(r"https?://[^\"')\s]*", picture)) <= {
        "http://www.w3.org/2000/svg",
        "https://www.textualize.io",
    }


def test_every_line_of_the_threat_model_names_tests_that_are_there() -> None:
    """Below its heading on CI; a renamed test has to be renamed there too."""
    checked = SECURITY.partition("\n## What CI checks\n")[2]
    lines = [line for line in checked.splitlines() if line.startswith("- ")]
    assert len(lines) >= checked.count("\n### ") > 0
    for line in lines:
        named = NAMED_TEST.findall(line)
        assert named, f"no test: {line}"
        for path, test in named:
            source = (ROOT / path).read_text()
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{path} has no {test}"


def test_every_test_that_the_threat_model_names_has_a_path() -> None:
    """So the check above sees all of them."""
    assert len(NAMED_TEST.findall(SECURITY)) == SECURITY.count("::")
