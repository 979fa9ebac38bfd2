"""The commands in the documentation, as its readers would type them."""

import re
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = (
    "kubectl", "make", "helm", "pip", "pipx", "docker", "tfjob-operator", "python", ".venv/bin/python", "eval", "kill", "git",
    "cd", "curl", "sh", "bash", "source", "export", "npm", "kind", "python3", "mkdir", "tar", "gunzip",
    "openssl", "skopeo", "sed", "oras"
)  # fmt: skip
"""What a block of commands begins with; all other blocks are settings, output, or another language."""
PROMPT: Final = "$ "
"""The mark before each command in a block that also shows output."""
_FENCE: Final = re.compile(r"```(.*)")
_SHELL: Final = frozenset({"", "sh", "bash", "shell", "console"})


class Command(NamedTuple):
    page: str
    line: int
    text: str
    """With its continuation lines, as one line."""
    answer: tuple[str, ...] = ()
    """The lines that the page shows below it."""


def pages() -> list[str]:
    """Every page of the project, by its path from the top."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def blocks(page: str) -> list[list[Command]]:
    found = [_commands(page, line, lines) for line, lines in _code((ROOT / page).read_text().splitlines())]
    return [commands for commands in found if commands]


def below(page: str, heading: str) -> list[Command]:
    """The commands between a heading of a page and the next one."""
    lines = (ROOT / page).read_text().splitlines()
    (start,) = (number for number, line in enumerate(lines, 1) if line.startswith("#") and line.lstrip("# ") == heading)
    end = next(
        (number for number, line in enumerate(lines, 1) if number > start and line.startswith("## ")), len(lines) + 1
    )
    return [command for block in blocks(page) for command in block if start < command.line < end]


def _code(lines: list[str]) -> list[tuple[int, list[str]]]:
    """The blocks of code of a page that may be for a shell, with the number of their first line."""
    found: list[tuple[int, list[str]]] = []
    language: str | None = None  # that of the fenced block that we are in
    is_open = False  # whether the next line may belong to the block that was found last
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence:
            language = None if language is not None else fence[1]
            is_open = False
            continue
        indented = language is None and line.startswith("    ") and (is_open or not lines[number - 2].strip())
        if not indented and language not in _SHELL:
            is_open = False
        elif is_open:
            found[-1][1].append(line[4:] if indented else line)
        else:
            found.append((number, [line[4:] if indented else line]))
            is_open = True
    return found


def _commands(page: str, first: int, lines: list[str]) -> list[Command]:
    start = lines[0]
    if start.startswith(PROMPT):
        starts = [at for at, line in enumerate(lines) if line.startswith(PROMPT)]
        return [
            Command(page, first + at, lines[at][2:], tuple(lines[at + 1 : end]))
            for at, end in zip(starts, [*starts[1:], len(lines)], strict=True)
        ]
    if start.split(" ")[0] not in PROGRAMS:
        return []
    found: list[Command] = []
    goes_on = False
    for at, line in enumerate(lines):
        text = line.strip().removesuffix("\\").strip()
        if goes_on or line.startswith(" "):
            found[-1] = found[-1]._replace(text=f"{found[-1].text} {text}")
        elif text:
            found.append(Command(page, first + at, text))
        goes_on = line.endswith("\\")
    return found
