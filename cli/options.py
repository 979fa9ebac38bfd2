"""The global options, named like kubectl's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tfjob_operator.cli.durations import seconds_of
from tfjob_operator.cli.printing import echo, is_printable

if TYPE_CHECKING:
    from tfjob_operator.cli.target import Target

F = TypeVar("F", bound="Callable[..., Any]")


def seconds(_ctx: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    """Return the seconds of a duration such as 90s, 5m or 7d. Raises BadParameter if it is invalid."""
    length = None if given is None else seconds_of(given)
    if given is not None and length is None:
        raise click.BadParameter(f"{given!r} is not a duration such as 90s, 5m or 1h30m")
    return length


def _timeout(ctx: click.Context, option: click.Parameter, given: str | None) -> float | None:
    return seconds(ctx, option, f"{given}s" if given and given.isdecimal() else given)


GLOBAL_OPTIONS: Final[tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = (
    (("-n", "--namespace"), {"metavar": "NAME", "help": "The namespace; by default that of the context."}),
    (("--context",), {"metavar": "NAME", "help": "The context of the kubeconfig file."}),
    (("--kubeconfig",), {"metavar": "FILE", "help": "The kubeconfig file."}),
    (("--cluster",), {"metavar": "NAME", "help": "The cluster of the kubeconfig file, instead of the context's."}),
    (("--user",), {"metavar": "NAME", "help": "The user of the kubeconfig file, instead of the context's."}),
    (("-s", "--server"), {"metavar": "URL", "help": "The address of the API server."}),
    (("--token",), {"help": "The bearer token for the API server."}),
    (("--as", "as_"), {"metavar": "USER", "help": "The user to impersonate."}),
    (("--as-group",), {"metavar": "GROUP", "multiple": True, "help": "A group to impersonate."}),
    (("--as-uid",), {"metavar": "UID", "help": "The UID to impersonate."}),
    (("--certificate-authority",), {"metavar": "FILE", "help": "The certificate of the API server's authority."}),
    (("--insecure-skip-tls-verify",), {"is_flag": True, "help": "Do not verify the API server's certificate."}),
    (
        ("--request-timeout",),
        {"metavar": "TIME", "callback": _timeout, "help": "Time limit of a single request, such as 5s; 0 for none."},
    ),
)
"""The names and click settings of each option."""
GLOBAL_KEYS: Final = tuple(names[-1].removeprefix("--").replace("-", "_") for names, _ in GLOBAL_OPTIONS)
"""Their argument names, which are the fields of `Target`."""
_SHOWN: Final = 3
"""The number of global options in the help of a command; `kubectl tfjob --help` shows all."""


def global_options(command: F) -> F:
    """Add all global options to the group."""
    for names, settings in reversed(GLOBAL_OPTIONS):
        command = click.option(*names, **settings)(command)
    return command


def target_options(command: F) -> F:
    """Add the global options to a command, as a single argument `target`; they may also precede the command."""
    from functools import wraps

    @wraps(command)
    def with_target(**given: Any) -> Any:
        before = click.get_current_context().find_root().params
        own = {key: given.pop(key) for key in GLOBAL_KEYS}
        return command(target=_target(own, before), **given)

    decorated: Any = with_target
    for number, (names, settings) in reversed(list(enumerate(GLOBAL_OPTIONS))):
        decorated = click.option(*names, **settings, hidden=number >= _SHOWN)(decorated)
    return decorated  # type: ignore[no-any-return]


def target_in(words: Sequence[str], before: Mapping[str, Any] | None = None) -> Target:
    """Return the cluster and user that words and the options `before` them select, ignoring incomplete options."""
    command = click.Command("", params=[click.Option(names, **settings) for names, settings in GLOBAL_OPTIONS])
    settings: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "resilient_parsing": True}
    return _target(command.make_context("", list(words), **settings).params, before or {})


def _target(own: Mapping[str, Any], before: Mapping[str, Any]) -> Target:
    from tfjob_operator.cli.target import Target

    return Target(**{key: value or before.get(key, value) for key, value in own.items()})


def force_option(command: F) -> F:
    """Add `--force` to a command that refuses changes of jobs that Kueue or another controller manages."""
    text = "Change the job although Kueue or another controller manages it, and may undo the change."
    return click.option("--force", is_flag=True, help=text)(command)


class WithProgram(click.Command):
    """A command whose argument `program` is everything after `--`; these words are never assigned to other arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--` with click.

        Raises UsageError for a program without `--`: its first word could be mistaken for the job's name.
        """
        end = args.index("--") if "--" in args else len(args)
        program = tuple(args[end + 1 :])
        rest = super().parse_args(ctx, args[:end])
        if stray := ctx.params.get("program"):
            raise click.UsageError(f"unexpected {' '.join(stray)!r}: put the command behind --", ctx)
        ctx.params["program"] = program
        return rest


def camel_cased(value: Any) -> Any:
    """Return dataclasses and named tuples as JSON, with keys in camelCase."""
    from dataclasses import fields, is_dataclass
    from datetime import datetime

    if isinstance(value, datetime):
        return value.isoformat()
    names = [field.name for field in fields(value)] if is_dataclass(value) else getattr(value, "_fields", ())
    if names:
        return {camel(name): camel_cased(getattr(value, name)) for name in names}
    return [camel_cased(each) for each in value] if isinstance(value, tuple) else value


def camel(name: str) -> str:
    """Return a Python name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def print_value(value: Any, output: str, *, sort_keys: bool = False) -> None:
    """Print a value as JSON or YAML: structs of msgspec, or decoded JSON."""
    if not isinstance(value, dict):
        import msgspec

        value = msgspec.to_builtins(value)
    if output == "json":
        import json

        text = json.dumps(value, indent=4, sort_keys=sort_keys, ensure_ascii=False)
        text = text if is_printable(text) else json.dumps(value, indent=4, sort_keys=sort_keys)
    else:
        from tfjob_operator.cli.yaml_text import yaml_text

        text = yaml_text(value, sort_keys=sort_keys).removesuffix("\n")
    echo(*text.split("\n"))
