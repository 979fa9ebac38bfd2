"""How a job that is watched is shown: drawn anew on a terminal, line by line elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from tfjob_operator.api.text import clean, quoted
from tfjob_operator.cli.gathering import job_from, pods_from
from tfjob_operator.cli.status.judge import standing_of
from tfjob_operator.cli.status.render import ASCII, UNICODE, render
from tfjob_operator.cli.training.values import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from tfjob_operator.cli.status.values import JobStanding
    from tfjob_operator.cli.terminal import Terminal
    from tfjob_operator.cli.watching.live import Seen

_BAR: Final = 30
_LEAST_BAR: Final = 5
"""The fewest columns with which a bar is of use."""
_MOST_NUMBERS: Final = 3
_TENTHS: Final = 10


def standing_from(seen: Seen) -> JobStanding | None:
    """Return how the job stands, None before it and its pods were read."""
    if seen.job is None or seen.replicas is None:
        return None
    return standing_of(job_from(seen.job), seen.job, pods_from(each.pod for each in seen.replicas))


def progress_line(seen: Seen, width: int = 0, bar: tuple[str, str] = ("#", ".")) -> str:
    """Return how far the training is and its last numbers, "" where no log tells; with a bar where `width` has room."""
    if seen.progress is None:
        return ""
    at = seen.progress
    of = f" of {at.total}" if at.total is not None else ""
    before = f"{seen.source}: {at.unit} {at.step}{of}"
    named = [(name, value) for name, value in seen.numbers.items() if name != STEP_TIME][:_MOST_NUMBERS]
    after = "".join(f"  {quoted(name)} {value:.4g}" for name, value in named)
    if at.share is None:
        return before + after
    after = f" {at.share:.0%}{after}"
    room = min(width - len(before) - len(after) - 1, _BAR)
    full = round(at.share * room)
    return f"{before} {bar[0] * full}{bar[1] * (room - full)}{after}" if room >= _LEAST_BAR else before + after


class Screen:
    """Draws a job in the same place again and again. `terminal` is asked each time: its size may change."""

    def __init__(self, terminal: Callable[[], Terminal]) -> None:
        self._terminal = terminal
        self._drawn = 0

    def show(self, seen: Seen, now: datetime, *, last: bool = False) -> None:
        """Draw the job: what fits, or with `last` all of it."""
        standing = standing_from(seen)
        if standing is None:
            return
        screen = self._terminal()
        lines = render(standing, now, screen.paint, screen.width, UNICODE if screen.unicode else ASCII)
        signs = ("█", "░") if screen.unicode else ("#", ".")
        if progress := progress_line(seen, screen.width - 2, signs):
            lines.insert(lines.index(""), f"  {progress}"[: screen.width])
        room = max(screen.height - 1, 2)
        if len(lines) > room and not last:
            lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"[: screen.width]]
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        text = "".join(f"{screen.shown(line)}\x1b[K\n" for line in lines)
        click.echo(f"{up}{text}\x1b[J", nl=False, color=True)
        self._drawn = len(lines)


class Printer:
    """Prints a line for each change, for files and programs."""

    def __init__(self) -> None:
        self._job = ""
        self._replicas: dict[str, str] = {}
        self._tenth = -1

    def show(self, seen: Seen, now: datetime, *, last: bool = False) -> None:
        """Print what is new; after a `last` one nothing more comes."""
        standing = standing_from(seen)
        if standing is None:
            return
        for line in (*self._changes(standing), *self._steps(seen, last=last)):
            click.echo(f"{now.astimezone():%H:%M:%S}  {line}")

    def _changes(self, standing: JobStanding) -> Sequence[str]:
        lines = []
        if standing.state != self._job:
            self._job = standing.state
            message = next((each.message for each in standing.conditions if each.type == standing.state), "")
            lines.append(f"{quoted(standing.name)} {quoted(standing.state)}{message and ': '}{_one_line(message)}")
        now: dict[str, str] = {}
        for each in (replica for kind in standing.types for replica in kind.replicas):
            where = f" on {quoted(each.node)}" if each.node else ""
            code = f", exit {each.exit_code}" if each.exit_code is not None else ""
            again = f", {each.restarts} restart{'s' if each.restarts > 1 else ''}" if each.restarts else ""
            said = f": {_one_line(each.message)}" if each.message else ""
            now[each.replica] = f"{quoted(each.state)}{where}{code}{again}{said}"
        lines += [f"{quoted(name)} {text}" for name, text in now.items() if self._replicas.get(name) != text]
        self._replicas = now
        return lines

    def _steps(self, seen: Seen, *, last: bool) -> Sequence[str]:
        """Return how far the training is, whenever another tenth of it is done."""
        share = seen.progress.share if seen.progress is not None else None
        tenth = int(share * _TENTHS) if share is not None else (0 if seen.progress is not None else -1)
        if tenth == self._tenth and not (last and tenth >= 0):
            return ()
        self._tenth = tenth
        line = progress_line(seen)
        return [line] if line else []


def _one_line(text: str) -> str:
    return " ".join(clean(text, 500).split())
