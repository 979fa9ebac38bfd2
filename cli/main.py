"""`kubectl tfjob`: the commands. Each is imported only when used, so that all of them start fast."""

from __future__ import annotations

import gc
import os
import sys
import threading
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from tfjob_operator.cli.errors import show
from tfjob_operator.cli.options import global_options, target_in
from tfjob_operator.cli.printing import echo

NAME: Final = "kubectl tfjob"
"""The name of the plugin for users: kubectl finds `kubectl-tfjob` in PATH."""
COMMANDS: Final = {
    "submit": "Create a TFJob from flags.",
    "list": "List TFJobs, and for those that do not run the reason.",
    "status": "Show the state of a TFJob and of each replica.",
    "watch": "Show a TFJob and its replicas live, until it finishes.",
    "timeline": "Show the history of a TFJob and its replicas.",
    "explain": "Explain why a TFJob does not run, failed, or is waiting.",
    "logs": "Print the logs of the replicas of a TFJob.",
    "wait": "Wait until a TFJob finishes; the exit code tells how.",
    "suspend": "Suspend TFJobs: delete their pods.",
    "resume": "Resume suspended TFJobs.",
    "scale": "Change the number of replicas of a TFJob.",
    "restart": "Restart a TFJob, or recreate some of its pods.",
    "prune": "Delete finished TFJobs.",
    "exec": "Run a command, or a shell, in a replica.",
    "top": "Show the CPU and memory usage of the replicas of a TFJob.",
    "tensorboard": "Open the TensorBoard of a TFJob.",
    "dashboard": "Serve a live page of TFJobs on this machine.",
    "validate": "Validate manifests as the operator does, without a cluster.",
    "convert": "Convert TFJobs of older API versions to kubeflow.org/v1.",
    "migrate": "Compare with training-operator, and plan its replacement.",
    "completion": "Set up shell completion of commands, options and job names.",
    "version": "Print the versions of plugin, cluster and operator.",
}
"""The commands in the order of the help, with summaries. Each is the function `command` of its module, such as `list_`."""
_IN_MODULE_OF: Final = {"status": "watch", "wait": "watch", "resume": "suspend", "convert": "validate"}
"""Commands that are implemented in the module of another command, as a function of their own name."""
ALIASES: Final = {"get": "list", "describe": "status"}
"""kubectl command names that are accepted as aliases."""
KUBECTL_COMMANDS: Final = frozenset(
    {"annotate", "apply", "create", "delete", "diff", "edit", "label", "patch", "replace"}
)
"""kubectl commands that also work on TFJobs."""


class Commands(click.Group):
    """The command group. The help is generated from the table above, without importing any command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if it does not exist."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"tfjob_operator.cli.commands.{_IN_MODULE_OF.get(cmd_name, cmd_name)}_")
        if not gc.isenabled():
            gc.freeze()  # otherwise all imported objects would be traversed at once
            gc.enable()
        command: click.Command = getattr(module, cmd_name if cmd_name in _IN_MODULE_OF else "command")
        return command

    def main(self, *given: Any, **how: Any) -> NoReturn:
        """Run a command line and exit: 0 on success, 1 for an error, 2 for a usage error, 130 after Ctrl-C."""
        try:
            code: Any = super().main(*given, **how | {"standalone_mode": False})
        except click.ClickException as error:
            show(error)
            code = error.exit_code
        except click.Abort:
            code = 130
        raise SystemExit(code or 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the requested command, or suggest a similar one."""
        if args and args[0] not in {*COMMANDS, *ALIASES} and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            if args[0] in KUBECTL_COMMANDS:
                files = args[0] in {"apply", "create", "diff", "replace"}
                target = target_in(args[1:], ctx.params)
                words = ("-f", "FILE") if files else ("tfjob", "NAME")
                meant = f" Use {target.command(target.namespace, args[0], *words)}."
            ctx.fail(f"unknown command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them, then the global options."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        click.Command.format_options(self, ctx, formatter)


def _print_version(ctx: click.Context, _option: click.Parameter, given: bool) -> None:  # noqa: FBT001 - as click calls it
    if given:
        from importlib.metadata import version

        echo(f"kubectl-tfjob {version('tfjob-operator')}")
        ctx.exit()


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Use `{NAME} COMMAND --help` for more about a command. Global options stand before or after it, but after tfjob.",
)
@click.option(
    "--version",
    is_flag=True,
    callback=_print_version,
    is_eager=True,
    expose_value=False,
    help="Print the version and exit.",
)
@global_options
def app(**_: Any) -> None:
    """Create, inspect and debug TFJobs."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run the plugin and exit."""
    sys.excepthook = _print_bug
    threading.excepthook = lambda bug: _print_bug(bug.exc_type, bug.exc_value, bug.exc_traceback)
    app.main(args, prog_name=NAME)


def _print_bug(*bug: Any) -> None:
    """Print the traceback of a bug, whose message may quote a server; a full disk is not a bug."""
    from errno import EDQUOT, ENOSPC
    from traceback import format_exception

    if isinstance(bug[1], OSError) and bug[1].errno in {EDQUOT, ENOSPC}:
        echo(f"error: the output cannot be written: {bug[1].strerror}", err=True)
        # Otherwise the interpreter writes the rest at its exit, and if that fails, exits with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    echo(*"".join(format_exception(*bug)).split("\n"), err=True, nl=False)
