"""Options that the verbs share, spelled as kubectl spells them, and what they lead to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tfjob_operator.cli.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.cli.session import Session

F = TypeVar("F", bound="Callable[..., Any]")
_KEYS: Final = ("kubeconfig", "context", "namespace")


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster and namespace, as the options say; None where they say nothing."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None

    def session(self) -> Session:
        """Open a session there. Raises CliError."""
        from tfjob_operator.cli.kubeconfig import read_access
        from tfjob_operator.cli.session import Session

        return Session(read_access(self.kubeconfig, self.context, self.namespace))


def target_options(command: F) -> F:
    """Give a command --kubeconfig, --context and --namespace, which it takes as one argument, `target`."""
    from functools import wraps

    @click.option("--kubeconfig", metavar="FILE", help="The kubeconfig file to use.")
    @click.option("--context", metavar="NAME", help="The context of the kubeconfig to use.")
    @click.option("-n", "--namespace", metavar="NAME", help="The namespace; the context's if it is left out.")
    @wraps(command)
    def with_target(**given: Any) -> Any:
        return command(target=Target(**{key: given.pop(key) for key in _KEYS}), **given)

    return with_target  # type: ignore[return-value]


def seconds(_ctx: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    """Return the seconds of a duration such as 90s, 5m or 7d. Raises BadParameter for anything else."""
    length = None if given is None else seconds_of(given)
    if given is not None and length is None:
        raise click.BadParameter(f"{given!r} is not a duration such as 90s, 5m or 1h30m")
    return length
