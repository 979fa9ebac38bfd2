"""What one line of a log is: an exception, a frame of a traceback, an error, or progress of a training. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tfjob_operator.cli.training import LogReader

TRACEBACK: Final = ("Traceback (most recent call last):", "During handling of the above exception, another")
ERROR: Final = re.compile(
    r"\b(?:error|fatal|critical|exception|failed|failure|fail|refused|denied|unreachable|unavailable|timed out|timeout|cannot|"
    r"can't|could not|unable to|not (?:found|reachable|available)|retry(?:ing)?|still waiting|deadline exceeded)\b|^[EF]\d{4} |"
    r"(?-i:\w(?:Error|Exception)\b)",
    re.IGNORECASE,
)
_MEASURED: Final = re.compile(
    r"\b\w*(?:errors?|failed|failures?)\b[\s:=]{0,3}[-+]?\d[\d.eE+-]*%?(?!\w)|"
    r"\b(?:0|no|nothing|none|zero)\s{1,3}(?:\w{1,30}\s)?(?:errors?|exceptions?|failed|failures?|timeouts?|timed out)\b|"
    r"\b(?:errors?|exceptions?|failed|failures?|timeouts?|timed out)(?:\s\w{1,30})?\"?\s{0,3}[:=]\s{0,3}"
    r"(?:0(?![\d.])|null\b|none\b|nil\b|false\b|\"\"|\[\])",
    re.IGNORECASE,
)
"""A number that is called an error, which a training logs, and what says that there was none."""
_RANK: Final = re.compile(r"^\[\d+(?:,\d+)?\]<std(?:out|err)>: ?")
"""The rank that mpirun and horovodrun put before a line of a process."""
_PREFIXED: Final = re.compile(
    r'(?m)^(?P<first>(?=\S)[^\n]{1,80}?)Traceback \(most recent call last\):\n(?P<second>(?=\S)[^\n]{1,80}?)  File "'
)
"""A traceback of which each line has something before it, as of `python train.py | ts`."""
_OF_STACK: Final = re.compile(r"\s+at |\s*\.\.\. \d+ more$|Node\.js v\d|Stacktrace:$|\s*\[\d+\] |\s+@ |\s*$")
"""The lines of a stack after an exception of Java, JavaScript or Julia."""
LOGGED: Final = re.compile(r"\b(ERROR|WARNING|CRITICAL|error|warning)\b|Exception in thread|(?:^|\n)[EW]\d{4} ")
"""In the line before a traceback that a logger or a thread has printed: the program continued."""
OF_LOGGER: Final = re.compile(r"(?:\S{1,60} ){0,4}\W?(?:ERROR|CRITICAL|FATAL)\b|E\d{4} [\d:.]+ ")
_GAVE_UP: Final = re.compile(
    r"\b(?:train(?:ing|er)?|job|run|experiment|pipeline|program)(?: (?:has|was|is))? (?:failed|crashed|aborted)\b(?! to\b)|"
    r"\b(?:aborting|giving up|gave up|cannot continue)\b",
    re.IGNORECASE,
)
BESIDE: Final = re.compile(
    r"metric|upload|download|push|post|send|sync|report|notif|webhook|summary|monitor|telemetry|wandb|mlflow|retry|tensorboard",
    re.IGNORECASE,
)
"""What a training can do without."""
_TROUBLE: Final = re.compile(
    r"error(?!\S*\s*[:=]?\s*\d)|fail|exception|abort|fatal|invalid|cannot|can't|unable|\bnot?\b|kill|lost|missing|diverge|stop|"
    r"refused|denied|time[d ]*out|exceed|corrupt|signal|exit",
    re.IGNORECASE,
)
"""Words in a line with a step that is more than progress."""
CAUSED: Final = "The above exception was the direct cause of the following exception:"
EXCEPTION: Final = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w{0,80}\.){1,12}(?:_?[A-Z]\w*|error|gaierror|herror|timeout)|_?[A-Z]\w*(?:Error|Exception|Group|Interrupt|Iteration|Exit))"
    r"(?:: (?P<words>.*)|:?$)"
)
# absl: `E0926 17:26:32.075402 157988 client.h:77] text`; TensorFlow: `2026-11-29 02:30:05.881660: E tensorflow/x.cc:29] text`
NATIVE: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?(?P<level>[IWEF])(?:\d{4} [\d:.]+ +\d+)? [\w./-]{1,200}:\d+\] (?P<text>.*)"
)
MEASURES: Final = re.compile(
    r"(?:\b|_)(?:loss|accuracy)\b[^:=\n\d]{0,60}(?:[:=]|\s)\s{0,4}(?:tensor\()?[-+]?(?:\.?\d|nan\b|inf(?:inity)?\b)",
    re.IGNORECASE,
)
_COUNTS: Final = re.compile(r"(?<![\w./-])(?:epoch|step)s?\b[\"']?(?:\s{0,4}[:=#(\[]\s{0,4}|\s{1,4})\d", re.IGNORECASE)
"""Words of a line by which a training shows that it continued after an error: each with its number."""
_ESCAPES: Final = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
FRAME: Final = re.compile(r" {4}|  File ")
_LEVELS: Final = ("level", "severity", "levelname", "log.level")
_TEXTS: Final = ("msg", "message", "event", "error")
_TRACEBACKS: Final = ("exc_info", "exception", "exc_text", "exc", "traceback")
_LOGFMT: Final = re.compile(
    r"(?:\S+=\S+ )*?(?:level|lvl|severity)=(?:error|err|fatal|critical|panic)\b.*?\b(?:msg|message|error|err)="
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<word>\S+))',
    re.IGNORECASE,
)
_SEVERE: Final = frozenset({"ERROR", "ERR", "CRITICAL", "FATAL", "PANIC", "ALERT", "EMERGENCY"})


def is_exception(line: str) -> bool:
    """Return True for the reason of an exception of Python."""
    return EXCEPTION.match(line) is not None


def gave_up(line: str) -> bool:
    """Return True for an error of a logger by which a program says that its training has failed, not just a part of it."""
    said = " ".join(error_of(line) or ([line] if OF_LOGGER.match(line) else []))
    return _GAVE_UP.search(said) is not None and not BESIDE.search(said)


def plain(log: str) -> str:
    """Return a log without escape sequences, ranks, and what a pipe puts before each line, such as the time.

    Of lines that were written over each other it has the last one.
    """
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in _ESCAPES.sub("", log).split("\n"))
    text = "\n".join(_RANK.sub("", line) for line in lines)
    match = _PREFIXED.search(text)
    if match is None or LOGGED.search(match["first"]) or _shape(match["first"]) != _shape(match["second"]):
        return text
    prefix = re.compile(_shape(match["first"]))
    return "\n".join(prefix.sub("", line, count=1) if prefix.match(line) else line for line in text.split("\n"))


def _shape(prefix: str) -> str:
    """Return a pattern for what is before lines that were written at different times."""
    shape = re.sub(r"\d+", r"\\d+", re.escape(prefix))
    shape = re.sub(r"\b[A-Z][a-z]{2}\b", "[A-Z][a-z]{2}", shape)  # days and months
    return re.sub(r"(?:\\ )+(?!$|\\)", r"\\ +", shape)


def without_frames(log: str) -> str:
    """Return a log without the stack frames at its end, as of Java, JavaScript and Julia."""
    lines = log.rstrip().split("\n")
    while len(lines) > 1 and _OF_STACK.match(lines[-1]):
        lines.pop()
    return "\n".join(lines)


def tells_of_error(line: str) -> bool:
    """Return True if the line names an error that is more than a measured value, as in `error: 0.01`."""
    return is_severe(line) or ERROR.search(_MEASURED.sub("", line)) is not None


def is_severe(line: str) -> bool:
    """Return True if a native library logged the line as an error or as fatal."""
    native = NATIVE.match(line)
    return native is not None and native["level"] in {"E", "F"}


def trains(line: str) -> bool:
    """Return True if the line shows progress of a training."""
    return has_progress(line) or is_progress(line)


def has_progress(line: str) -> bool:
    """Return True for a line with the number of a step or an epoch, or with a loss or an accuracy."""
    return MEASURES.search(line) is not None or _COUNTS.search(line) is not None


def is_of_traceback(line: str) -> bool:
    """Return True if the line belongs to a traceback, but is not its exception."""
    return line.startswith((*TRACEBACK, CAUSED)) or FRAME.match(line) is not None


def is_progress(line: str) -> bool:
    """Return True for a line of a training that goes well, which is not why it ended."""
    reader = LogReader()
    values = [each.value for each in reader.feed(f"{line}\n".encode(errors="replace"))]
    return (
        reader.progress is not None and all(abs(value) < float("inf") for value in values) and not _TROUBLE.search(line)
    )


def error_of(line: str) -> list[str] | None:
    """Return the message of an error in a structured log (JSON or logfmt) as lines; None if the line is not such an error."""
    if (match := _LOGFMT.match(line)) is not None:
        return [(match["quoted"] or match["word"] or "").replace('\\"', '"')]
    if not line.startswith("{") or not line.endswith("}"):
        return None
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
    level = next((fields[name] for name in _LEVELS if name in fields), "")
    said = [
        fields[name] for name in (*_TRACEBACKS, *_TEXTS) if isinstance(fields.get(name), str) and fields[name].strip()
    ]
    if str(level).upper() not in _SEVERE or not said:
        return None
    lines: list[str] = said[0].strip().splitlines()
    if any(name in fields for name in _TRACEBACKS):
        return lines[-1:]
    cause = fields.get("error")
    return [*lines[:-1], f"{lines[-1]}: {cause}"] if isinstance(cause, str) and cause and said[0] != cause else lines
