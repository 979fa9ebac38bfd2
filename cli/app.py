"""`kubectl tfjob`: the verbs. Each is imported when it is used, so that all of them start fast."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any, Final, NoReturn

import click

NAME: Final = "kubectl tfjob"
"""How people call it: kubectl finds `kubectl-tfjob` in the PATH."""
VERBS: Final = {
    "submit": "Make a job of flags, and start it.",
    "list": "Show jobs, as kubectl get does.",
    "status": "Show how a job and each of its replicas stand.",
    "watch": "Show a job and its replicas as they change, until it has ended.",
    "timeline": "Draw what each replica of a job did when.",
    "explain": "Say why a job does not run, ends as it does, or waits.",
    "logs": "Print what the replicas of a job write, of all or of some.",
    "wait": "Wait until jobs have ended; the exit code says how.",
    "suspend": "Stop the pods of jobs, which keep their place.",
    "resume": "Let suspended jobs go on.",
    "scale": "Change how many replicas of a type a job has.",
    "restart": "Make the pods of a job anew, all or some.",
    "prune": "Delete jobs that have ended.",
    "exec": "Run a command in a replica, or a shell.",
    "top": "Show what replicas use of CPU and memory.",
    "tensorboard": "Open the TensorBoard of a job.",
    "dashboard": "Serve a live page of jobs on this machine.",
    "validate": "Check manifests without a cluster, in the words of the operator.",
    "convert": "Turn jobs of the alpha APIs into kubeflow.org/v1.",
    "completion": "Make a shell complete verbs, options and names of jobs.",
    "version": "Show the versions of this plugin, the cluster and the operator.",
}
"""Each verb in the order of the help, and what it does. A verb is the function `command` of its module, such as `list_`."""


ALIASES: Final = {"get": "list", "describe": "status"}
"""Verbs of kubectl that mean one of ours."""
OF_KUBECTL: Final = frozenset({"annotate", "apply", "create", "delete", "diff", "edit", "label", "patch", "replace"})
"""Verbs that kubectl has for objects of every kind."""


class Verbs(click.Group):
    """The verbs. The help is made from the table above, without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb; return None if there is none of this name."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in VERBS:
            return None
        module = import_module(f"tfjob_operator.cli.commands.{cmd_name}_")
        if not gc.isenabled():
            gc.freeze()  # else all that was imported would be looked through at once
            gc.enable()
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was asked for, or suggest one."""
        if args and args[0] not in {*VERBS, *ALIASES} and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            if args[0] in OF_KUBECTL:
                files = args[0] in {"apply", "create", "diff", "replace"}
                meant = f" Use kubectl {args[0]} {'-f FILE' if files else 'tfjob NAME'}."
            ctx.fail(f"unknown command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"`{NAME} VERB --help` tells more about one.",
)
def app() -> None:
    """Run and watch TFJobs: what kubectl does not say about them."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run the plugin and exit: 0 when all went well, 1 for an error, 2 for a wrong command line, 130 after Ctrl-C."""
    try:
        code: Any = app.main(args, prog_name=NAME, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    raise SystemExit(code or 0)
