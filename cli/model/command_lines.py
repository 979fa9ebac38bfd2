"""Commands and variables of containers in templates, from raw JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tfjob_operator.api.v1.constants import BACKEND_VARIABLES, CONTAINER_NAME, TF_CONFIG
from tfjob_operator.cli.model.facts import listed, mapping

_SHELL: Final = re.compile(r"(/\S*/)?(ba|da|a)?sh")
_SCRIPT: Final = re.compile(r"-[a-z]*c")
_INTERPRETER: Final = re.compile(r"(/\S*/)?(python[\d.]*|(ba)?sh|torchrun|accelerate)")


_LOOPBACK: Final = re.compile(r"\"(?:localhost|127\.[\d.]{1,11})(?::\d{1,5})?\"")
_PRINTS: Final = re.compile(
    r"\b(?:echo|printf)\b((?:[ \t]|\"(?:[^\"\\]|\\.)*\"|'[^']*'|`[^`]*`|\$\([^()]*\)|[^\s;|&<>()\"'\\`]|\\.)+)",
    re.DOTALL,
)
_EXPANDED: Final = re.compile(
    r"\$\([^()]*\)|\$\{[^}]*\}|\$\w+|\$[@*#?!-]|`[^`]*`|%[-+.\d]*[a-z]|\\(?:t|e|033)(?:\[[\d;]*m)?"
)
_LEAST_PRINTED: Final = 4
"""As many letters of a script tell a line that it prints from others."""


class IgnoredArguments(NamedTuple):
    """Words after the script of `sh -c`, which are no part of it, and the program that therefore runs without them."""

    type: str
    number: int
    container: Mapping[str, Any]
    shell: str
    program: str
    arguments: str


class ProcessCount(NamedTuple):
    """A variable with the number of processes that a template sets for its container `tensorflow`."""

    type: str
    path: str
    variable: str
    value: str


def command_of(container: Mapping[str, Any]) -> list[str]:
    """Return command and arguments of a container in a template, without entries that are no strings."""
    lists = (given for key in ("command", "args") if isinstance(given := container.get(key), list))
    return [word for given in lists for word in given if isinstance(word, str)]


def script_of(container: Mapping[str, Any]) -> str:
    """Return the script that a container passes to its shell with -c, "" if there is none."""
    shell, option, script, *_ = [*command_of(container), "", "", ""]
    return script if _SHELL.fullmatch(shell) and _SCRIPT.fullmatch(option) else ""


def runs_script(container: Mapping[str, Any]) -> bool:
    """Return True if the command of a container is a script in a file."""
    words = command_of(container) if container.get("command") else []
    script = script_of(container).strip()
    first, *others = script.split() if script else words or [""]
    return first.endswith(".sh") or bool(_SHELL.fullmatch(first) and others and not others[0].startswith("-"))


def printed_by(script: str) -> list[tuple[str, ...]]:
    """Return the lines that a script of a shell prints with echo and printf, each in the parts between what is expanded."""
    texts = (re.sub(r"^(?:\s*-[neE]+\b)+|[\"']", "", match[1]) for match in _PRINTS.finditer(script))
    lines = (line for text in texts for line in re.split(r"\n|\\n", text))
    parted = (tuple(" ".join(part.split()) for part in _EXPANDED.split(line)) for line in lines)
    return [parts for parts in parted if sum(map(str.isalpha, "".join(parts))) >= _LEAST_PRINTED]


def is_printed(line: str, parts: tuple[str, ...]) -> bool:
    """Return True if a line consists of these parts, with anything between them."""
    line, (first, *others) = " ".join(line.split()), parts
    if not others:
        return line == first
    if not (line.startswith(first) and line.endswith(others[-1])):
        return False
    at, end = len(first), len(line) - len(others[-1])
    for part in others[:-1]:
        at = line.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return at <= end


def ignored_arguments(spec: Mapping[str, Any]) -> Iterator[IgnoredArguments]:
    """Yield the containers of a v1 specification whose shell runs an interpreter alone."""
    for key, replica in mapping(spec.get("tfReplicaSpecs")).items():
        containers = listed(mapping(mapping(mapping(replica).get("template")).get("spec")).get("containers"))
        for number, container in enumerate(containers):
            shell, option, script, *rest = [*command_of(container), "", "", ""]
            arguments = " ".join(filter(None, rest))
            if arguments and _SHELL.fullmatch(shell) and _SCRIPT.fullmatch(option) and _INTERPRETER.fullmatch(script):
                yield IgnoredArguments(key, number, container, shell.rpartition("/")[2], script, arguments)


def loopback_clusters(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the replica types of a v1 specification whose template sets a TF_CONFIG with several addresses of localhost.

    Processes of one pod can reach each other by them, and no other replica.
    """
    for key, replica in mapping(spec.get("tfReplicaSpecs")).items():
        for container in listed(mapping(mapping(mapping(replica).get("template")).get("spec")).get("containers")):
            own = listed(container.get("env")) if container.get("name") == CONTAINER_NAME else []
            values = (each.get("value") for each in own if each.get("name") == TF_CONFIG)
            if any(isinstance(value, str) and len(_LOOPBACK.findall(value)) > 1 for value in values):
                yield key


def process_counts(spec: Mapping[str, Any]) -> Iterator[ProcessCount]:
    """Yield the numbers of processes in the templates of a v1 specification, except beside an address of process 0.

    With the address, the program may be a part of a larger group.
    """
    for key, replica in mapping(spec.get("tfReplicaSpecs")).items():
        containers = listed(mapping(mapping(mapping(replica).get("template")).get("spec")).get("containers"))
        for number, container in enumerate(containers):
            given = {name: each for each in listed(container.get("env")) if isinstance(name := each.get("name"), str)}
            for address, variable, _ in BACKEND_VARIABLES if container.get("name") == CONTAINER_NAME else ():
                value = given.get(variable, {}).get("value")
                if isinstance(value, str) and address not in given:
                    path = f"spec.tfReplicaSpecs.{key}.template.spec.containers[{number}].env"
                    yield ProcessCount(key, path, variable, value)
