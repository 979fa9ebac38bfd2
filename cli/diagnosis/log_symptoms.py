"""Symptoms in the log of a container that did not fail: repeated errors, no progress, losses that are not numbers. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from tfjob_operator.cli.diagnosis.log_lines import (
    BESIDE,
    ERROR,
    EXCEPTION,
    LOGGED,
    NATIVE,
    gave_up,
    is_of_traceback,
    is_severe,
    plain,
    tells_of_error,
    trains,
)
from tfjob_operator.cli.diagnosis.reading import AT_END, CLOSING, ECHOES, FATAL, LONGEST, MOST_LINES, measures
from tfjob_operator.cli.model.command_lines import is_printed
from tfjob_operator.cli.model.words import seconds_between
from tfjob_operator.cli.training import MAX_BYTES

# CPython: Modules/main.c and Lib/runpy.py; dash, bash and busybox, with the line of the script or without
_NOT_STARTED: Final = re.compile(
    r"\S*python[\d.]*: (?:can't open file |No module named |Error while finding module specification for |"
    r"'?\S+ is a package and cannot be directly executed)|"
    r"(?:[^\s:]+: (?:line )?\d+|\S*sh): [^:]{1,300}: (?:(?:command )?not found|No such file or directory|Permission denied)$"
)
# bash, with the line of the script and the process, dash and busybox
_CRASHED: Final = re.compile(
    r"(?:\S+: line \d+: +\d+ +)?(?:Killed|Segmentation fault|Bus error|Illegal instruction|Aborted)"
    r"(?: \(core dumped\))?(?: {2,}(?!(?:sleep|tensorboard|tail|watch|nvidia-smi)\b).*)?$"
)
"""Not of a helper, which a script may kill itself when the training has ended."""
_REJECTED: Final = re.compile(r"[\w./-]{1,100}: error: |Error: |FATAL Flags parsing error:")
"""How argparse, click and absl reject arguments; the first two print the usage before."""
_USAGE: Final = re.compile(r"(?m)^usage: ", re.IGNORECASE)
_LINES_OF_USAGE: Final = 40
ECHOES_OF_FILE: Final = 12
"""As `ECHOES`, of a script in a file, whose commands are unknown."""
_REPEATS: Final = 5
"""As many lines that differ only in numbers are a repetition."""
_RAISES: Final = 3
"""The same of exceptions, between which there may be many frames."""
_NO_NUMBERS: Final = frozenset({"nan", "inf", "infinity"})
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")
_NUMBER_ALONE: Final = re.compile(r"0x[0-9a-fA-F]+|(?<![A-Za-z_/\d])(?<![A-Za-z_]-)\d+")
"""A number outside of names. Errors that differ only in such numbers are the same; errors about different files are not."""
_SKIPS: Final = re.compile(r"\b(?:skip(?:s|ped|ping)?|ignor(?:ed|ing))\b", re.IGNORECASE)
"""In a line about a file or a record with which a program does not try again."""
_TRIED_S: Final = 60.0
_TRIES_AGAIN: Final = re.compile(
    r"\b(retry|retrying|retries|try(ing)? again|attempting again|restart(ing)?)\b", re.IGNORECASE
)
"""In a line by which a script says that it starts a program again: the program has said why."""
_RESTORED: Final = re.compile(r"\b(restored|restoring|resumed|resuming)\b", re.IGNORECASE)
_MEASURES: Final = re.compile(r"\b(loss|accuracy)\b", re.IGNORECASE)
# xla: xla/service/rendezvous.cc, which also says if it was wrong
_STUCK: Final = re.compile(r"\bmay be stuck\b", re.IGNORECASE)
# horovod: horovod/common/stall_inspector.cc
_MISSING_RANKS: Final = re.compile(r"\bMissing ranks:\s{0,9}(\d{1,9}(?:, ?\d{1,9}){0,99})\b")
_LOSS: Final = re.compile(
    r"(?P<name>[\w/.-]{0,40}(?:loss|cost|rmse|mse|mae|nll))\b(?:[^:=\n]{0,60}?[:=]\s*(?:tensor\()?|\s+(?:is\s+)?)"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?)\b|[-+]?\d[\d.eE+-]*)",
    re.IGNORECASE,
)
_ENDED_BY_LOSS: Final = re.compile(r"Invalid loss, terminating training|Monitored metric \S+ = \S+ is not finite")
_OF_EVALUATION: Final = re.compile(
    r"(?:^|[\W_])(?:val|valid|validation|eval|evaluation|test|aux)[\W_]*$", re.IGNORECASE
)
_NO_DEVICE: Final = re.compile(
    r"Skipping registering GPU devices|failed call to cuInit|CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected|"
    r"No GPU/TPU found, falling back to CPU|CUDA-enabled jaxlib is not installed|Could not find cuda drivers|"
    r"CUDA initialization: |Found no NVIDIA driver"
)
_XTRACE: Final = re.compile(r"\++ \S")
"""What a shell prints of a command after set -x."""
_OF_REPORT: Final = re.compile(
    r"[=-]{3,}$|\S+ FAILED$|Failures:$|Root Cause |\[\d+\]:$|<NO_OTHER_FAILURES>|Detected at node|Node: |<stack traces|"
    r"\s(?! ?\d{1,9}[%/])|$"
)
"""The lines of the exceptions of torchrun and TensorFlow after the first one, and lines that continue any exception."""
_STEP_OF_SCRIPT: Final = re.compile(
    r"\bstep\s?\d{1,2}(?:\s?(?:/|of)\s?\d{1,2})?(?:\s?[:.)\]-]+|\s)\s*[A-Za-z]\D*$", re.IGNORECASE
)
"""How a script numbers what it does: `Step 2/3: copying logs`."""
_TRANSFERS: Final = re.compile(r"upload|download|sync|copy|copied|transfer", re.IGNORECASE)
_BATCHES: Final = re.compile(
    r"(?<![\w./-])(?:batch|iter(?:ation)?|round|episode)\s{0,2}[:=#\[]?\s{0,2}\d|"
    r"\d\s?(?:it|img|images?|samples?|examples?|tokens?|batches|steps)/s",
    re.IGNORECASE,
)
_ENDED_WITH: Final = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?(?: code| status)?|rc|return ?code|exit_?code|returned non-zero exit status)"
    r"(?: is|:|=)?\s{0,2}-?[1-9]\d{0,2}\b",
    re.IGNORECASE,
)
"""How a script or a launcher tells with which code a program ended."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a container starts its program.

    `by_shell` is False if the process is Python itself. `is_several` is True if the shell runs several commands. `printed` are
    the lines that its script prints, in parts; `echoes` is the most lines that it prints besides after a program that failed.
    """

    by_shell: bool = True
    is_several: bool = False
    printed: Sequence[tuple[str, ...]] = ()
    echoes: int = ECHOES


def ignored_failure(log: str, launch: Launch) -> tuple[str, str]:
    """Return how a program failed whose exit code its script ignored, and the line that says so; "" if there is none.

    More than a few lines after it, or one of a training, show that the program was not the training, or that it continued.
    Lines that the script prints do not, but for numbers of a training. If the process is Python itself, a traceback that is not
    the end of its log was handled, unless it says with which code a child ended. If the shell runs several commands, what
    follows a traceback may be of the next one. After set -x it is.
    """
    lines = plain(log)[-LONGEST:].rstrip().splitlines()
    by_shell, is_several = launch.by_shell, launch.is_several
    has_code = False
    after = 0
    for number in range(len(lines), max(len(lines) - (MOST_LINES if is_several else _LINES_OF_USAGE), 0), -1):
        line, before = lines[number - 1], lines[max(number - _LINES_OF_USAGE, 0) : number - 1]
        is_near = after < launch.echoes + 1
        if is_near and gave_up(line):
            return "the training may have failed", line
        if _OF_REPORT.match(line) or NATIVE.match(line) or _XTRACE.match(line):
            continue
        said = _failure_of(line, before, is_near=is_near, is_several=is_several, is_last=by_shell and not after)
        if said:
            return said, line
        if EXCEPTION.match(line) and (match := AT_END.search("\n".join(lines[:number]))) is not None:
            header = (match["before"] or "").strip()
            if is_near and gave_up(header):
                return "the training may have failed", line
            is_last = bool(_XTRACE.match("".join(lines[number : number + 1])))
            if (by_shell and (is_near or is_several or is_last)) or (has_code and is_near):
                return ("", "") if LOGGED.search(header) else ("a program may have failed", line)
        texts = [parts for parts in launch.printed if is_printed(line, parts)]
        has_code = has_code or _ENDED_WITH.search(line) is not None
        if _goes_on(line, is_fixed=any(len(parts) == 1 or any(map(trains, parts)) for parts in texts)):
            break
        after += not texts
    return "", ""


def _goes_on(line: str, *, is_fixed: bool) -> bool:
    """Return True for a line of a training, and not of what its script does afterwards. The text of a script `is_fixed`."""
    if measures(line):
        return True
    is_other = is_fixed or _STEP_OF_SCRIPT.search(line) is not None or _TRANSFERS.search(line) is not None
    return not is_other and (trains(line) or _BATCHES.search(line) is not None)


def _failure_of(line: str, before: Sequence[str], *, is_near: bool, is_several: bool, is_last: bool) -> str:
    """Return how a program failed, if a line of a shell or of an option parser says so, or the last one of any program."""
    if (is_near or is_several) and _NOT_STARTED.match(line):
        return "a program did not start"
    if is_last and (FATAL.match(line) or CLOSING.match(line)) and not BESIDE.search(line):
        return "the log ends with an error"
    if (is_near or is_several) and _CRASHED.match(line):
        return "a program was killed or crashed"
    if is_near and _REJECTED.match(line) and (line.startswith("FATAL") or _USAGE.search("\n".join(before))):
        return "a program rejected its arguments"
    return ""


def repeated_error(log: str, times: Sequence[datetime | None] = ()) -> tuple[int, str, bool]:
    """Return how many of the last lines of a log are one error, apart from numbers, the line of them that says most, and True.

    The number is 0 if the log says more. Then a program does nothing but try again. A line of a training shows that it does
    more, as does an error that is measured. After a line of a training, the same operation must have failed for a minute, and
    for twice as long as the training was silent before, by the `times` of the lines; then the last value is False.
    """
    lines = plain(log).split("\n")
    trained = [number for number, line in enumerate(lines) if trains(line) and not _is_about_step(line)]
    after = lines[trained[-1] + 1 :] if trained else lines
    times_alike = 2 if trained else 1

    def masked(line: str) -> str:
        return (_NUMBER_ALONE if trained or _SKIPS.search(line) else _NUMBER).sub("#", line)

    said = [line for line in after if line.strip() and not is_of_traceback(line)]
    alike = Counter(masked(line) for line in said)
    least = {line: times_alike * (_RAISES if EXCEPTION.match(line) else _REPEATS) for line in alike}
    repeated = {line: count for line, count in alike.items() if count >= least[line]}
    errors = [line for line in said if masked(line) in repeated and tells_of_error(line)]
    if not errors or sum(repeated.values()) < 0.8 * len(said):
        return 0, "", False
    if trained:
        is_old = any(masked(line) in repeated for line in lines[: trained[-1]])
        if not _is_overdue(times, [0, *trained] if is_old else trained, len(lines)):
            return 0, "", False
    return len(errors), max(reversed(errors), key=_weight), not trained


def _weight(line: str) -> int:
    """Rank a line by how likely it says why something is tried again; the highest rank is the most likely."""
    return 2 if is_severe(line) else 0 if _TRIES_AGAIN.search(line) else 1


def _is_overdue(times: Sequence[datetime | None], trained: Sequence[int], count: int) -> bool:
    """Return True if a log of `count` lines has no line of a training for much longer than between its lines `trained`."""
    known = [at for at in times if at is not None]
    if len(known) != count:
        return False
    gaps = [seconds_between(known[one], known[other]) for one, other in pairwise(trained)]
    return seconds_between(known[trained[-1]], known[-1]) >= max(_TRIED_S, 2 * max(gaps, default=0.0))


def _is_about_step(line: str) -> bool:
    """Return True if a line names a step only because it could not be saved and is tried again, or because it was restored."""
    tries_again = _TRIES_AGAIN.search(line) is not None and ERROR.search(line) is not None
    return (tries_again or _RESTORED.search(line) is not None) and _MEASURES.search(line) is None


def missing_ranks(log: str) -> tuple[int, str]:
    """Return how often Horovod has said at the end of a log that it waits for other ranks, and for which; 0 if it does not.

    It says so once a minute, so the log of a training that waits for ever is not silent.
    """
    lines = plain(log).split("\n")
    last = max((number for number, line in enumerate(lines) if trains(line)), default=-1)
    ranks = _MISSING_RANKS.findall("\n".join(lines[last + 1 :]))
    return (len(ranks), f"waiting for remainder of ranks; missing ranks: {ranks[-1]}") if len(ranks) > 1 else (0, "")


def stuck(log: str) -> str:
    """Return the last line of a log if XLA says there that an operation of all replicas may be stuck; "" otherwise."""
    last = plain(log).rstrip().rpartition("\n")[2]
    return last if _STUCK.search(last) else ""


def without_heartbeat(log: str) -> str:
    """Return a log without the lines at its end that differ only in numbers, unless they show progress of a training."""
    lines = plain(log).rstrip().split("\n")
    last = _NUMBER.sub("#", lines[-1])
    count = next((count for count, line in enumerate(reversed(lines)) if _NUMBER.sub("#", line) != last), len(lines))
    is_heartbeat = count >= _REPEATS and not trains(lines[-1])
    return "\n".join(lines[:-count]) if is_heartbeat else log


def diverged(log: str, *, is_over: bool) -> str:
    """Return the last line with a loss of the training if the last two losses of a log are no numbers; "" otherwise.

    If the training `is_over`, the last one is enough, as is what Keras and Lightning say when they end it for that.
    """
    lines = plain(log)[-LONGEST:].split("\n")
    if said := [line for line in lines if _ENDED_BY_LOSS.search(line)]:
        return said[-1].strip()
    least = 1 if is_over else 2
    losses = [match for line in lines if (match := _loss_in(line)) is not None][-least:]
    is_nan = len(losses) == least and all(match["value"].lower().lstrip("+-") in _NO_NUMBERS for match in losses)
    return losses[-1].string.strip() if is_nan else ""


def _loss_in(line: str) -> re.Match[str] | None:
    """Return the first loss in a line that is not that of an evaluation or of a part."""
    for match in _LOSS.finditer(line[:MAX_BYTES]):
        name = match["name"].rpartition("loss")[0] if "loss" in match["name"].lower() else match["name"]
        if not _OF_EVALUATION.search(line[: match.start("name")] + name):
            return match
    return None


def unused_accelerator(log: str) -> str:
    """Return the line of a log by which TensorFlow, JAX or CUDA says that it found no accelerator; "" if there is none."""
    return next((line for line in plain(log)[-LONGEST:].split("\n") if _NO_DEVICE.search(line)), "")
