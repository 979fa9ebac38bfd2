"""Generates docs/kubectl-tfjob-reference.md: the commands and options of the plugin."""

import inspect
from collections.abc import Iterator
from typing import Final

import click

from hack.plugin.archive import ROOT
from tfjob_operator.cli.commands.submit_ import only_one
from tfjob_operator.cli.main import COMMANDS, NAME, app
from tfjob_operator.cli.options import GLOBAL_KEYS

PAGE: Final = ROOT / "docs" / "kubectl-tfjob-reference.md"
TARGET: Final = frozenset(GLOBAL_KEYS)
"""The global options, which are described once."""


def page() -> str:
    """Return the page."""
    # A command caches the context of its first help request, so the first one is made with the program's settings.
    context = app.make_context(NAME, [], resilient_parsing=True)
    commands = {verb: app.get_command(context, verb) for verb in COMMANDS}
    lines = [
        "<!-- generated: cli/main.py -->",
        "",
        f"# {NAME}: reference",
        "",
        "Made from the code by `make renew`. [kubectl-tfjob.md](kubectl-tfjob.md) describes what the commands are for.",
        "",
        "Exit codes: 0 when all went well, 1 for an error, 2 for invalid usage, 130 after Ctrl-C; others as commands describe.",
        "",
        "Global options stand before or after the command:",
        "",
        *_options(app, common=True),
    ]
    for verb, command in commands.items():
        if command is not None:
            lines += ["", f"## {verb}", "", *_verb(command, click.Context(command, context, info_name=verb))]
    return "\n".join((*lines, "", "<!-- end of generated -->")) + "\n"


def _verb(command: click.Command, context: click.Context) -> Iterator[str]:
    yield "```text"
    yield f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    yield "```"
    yield ""
    yield inspect.cleandoc(command.help or "")
    options = list(_options(command))
    if options:
        yield ""
        yield from options
    if {each.name for each in command.params}.isdisjoint(TARGET):
        yield ""
        yield "It does not use a cluster."


def _options(command: click.Command, *, common: bool = False) -> Iterator[str]:
    for each in command.params:
        if isinstance(each, click.Option) and (each.name in TARGET) == common:
            value = "" if each.is_flag else f" {each.make_metavar(click.Context(command))}"
            names = ", ".join(f"`{name}{value}`" for name in (*each.opts, *each.secondary_opts))
            default = f" Default: {each.default}." if each.show_default else ""
            many = " May be repeated." if each.multiple and each.callback is not only_one else ""
            yield f"- {names}: {each.help or ''}{default}{many}"
