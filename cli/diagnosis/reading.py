"""Reads logs: why a process ended, and errors that its shell ignored. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise, takewhile
from typing import Any, Final

import msgspec

from tfjob_operator.cli.diagnosis.causes import Problem
from tfjob_operator.cli.diagnosis.logs import PEER_AWAY, PEER_FAILED, PEER_UNKNOWN, RULES, TF_CONFIG_BAD
from tfjob_operator.cli.diagnosis.rules import CUT, MessageRule, first_match, rule
from tfjob_operator.cli.model.words import seconds_between
from tfjob_operator.cli.training import MAX_BYTES, LogReader

_LONGEST: Final = 65_536
_MOST_LINES: Final = 400
"""The end of a log that is read."""
_NEAR: Final = 40
"""Fewer lines than the advice prints."""
_TRACEBACK: Final = ("Traceback (most recent call last):", "During handling of the above exception, another")
_AT_END: Final = re.compile(
    r"(?:\A|(?P<before>(?:\A|\n)(?!Exception ignored )[^\n]*\n))Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+"
    r"(?P<line>[A-Za-z_][^\n]*)\Z"
)
"""A traceback at the end of a log, unless Python ignored its exception."""
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
_CHILD_KILLED: Final = re.compile(r"(?:\S+: line \d+: +\d+ +)?Killed(?: {2,}.*)?$")
_REJECTED: Final = re.compile(r"[\w./-]{1,100}: error: |Error: |FATAL Flags parsing error:")
"""How argparse, click and absl reject arguments; the first two print the usage before."""
_USAGE: Final = re.compile(r"(?m)^usage: ", re.IGNORECASE)
_ECHOES: Final = 3
"""The most lines that a script prints after a program that failed."""
_LINES_OF_USAGE: Final = 40
_LINES_LOGGED: Final = 10
"""So many lines may a program log after the error for which it ends."""
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
_ERROR: Final = re.compile(
    r"\b(?:error|fatal|critical|exception|failed|failure|fail|refused|denied|unreachable|unavailable|timed out|timeout|cannot|"
    r"can't|could not|unable to|not (?:found|reachable|available)|retry(?:ing)?|still waiting|deadline exceeded)\b|^[EF]\d{4} |"
    r"(?-i:\w(?:Error|Exception)\b)",
    re.IGNORECASE,
)
_TRIES_AGAIN: Final = re.compile(
    r"\b(retry|retrying|retries|try(ing)? again|attempting again|restart(ing)?)\b", re.IGNORECASE
)
"""In a line by which a script says that it starts a program again: the program has said why."""
_RESTORED: Final = re.compile(r"\b(restored|restoring|resumed|resuming)\b", re.IGNORECASE)
_MEASURES: Final = re.compile(r"\b(loss|accuracy)\b", re.IGNORECASE)
# horovod: horovod/common/stall_inspector.cc
_MISSING_RANKS: Final = re.compile(r"\bMissing ranks:\s{0,9}(\d{1,9}(?:, ?\d{1,9}){0,99})\b")
_MEASURED: Final = re.compile(
    r"\b\w*(?:errors?|failed|failures?)\b[\s:=]{0,3}[-+]?\d[\d.eE+-]*%?(?!\w)|"
    r"\b(?:0|no|nothing|none|zero)\s{1,3}(?:\w{1,30}\s)?(?:errors?|exceptions?|failed|failures?|timeouts?|timed out)\b|"
    r"\b(?:errors?|exceptions?|failed|failures?|timeouts?|timed out)(?:\s\w{1,30})?\"?\s{0,3}[:=]\s{0,3}"
    r"(?:0(?![\d.])|null\b|none\b|nil\b|false\b|\"\"|\[\])",
    re.IGNORECASE,
)
"""A number that is called an error, which a training logs, and what says that there was none."""
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
_NO_DATA: Final = re.compile(
    r"input ran out of data|Skipping training since max_steps has already saved|"
    r"\b(?:found )?0 (?:\w+ )?(?:files?|images?|samples?|records?|examples?|shards?)\b",
    re.IGNORECASE,
)
"""A warning of Keras, with which also a training ends that has trained, one of estimators that find a checkpoint of their last
step, and what programs say that look for data."""
_RANK: Final = re.compile(r"^\[\d+(?:,\d+)?\]<std(?:out|err)>: ?")
"""The rank that mpirun and horovodrun put before a line of a process."""
_OF_STACK: Final = re.compile(r"\s+at |\s*\.\.\. \d+ more$|Node\.js v\d|Stacktrace:$|\s*\[\d+\] |\s+@ |\s*$")
"""The lines of a stack after an exception of Java, JavaScript or Julia."""
_LOGGED: Final = re.compile(r"\b(ERROR|WARNING|CRITICAL|error|warning)\b|Exception in thread|(?:^|\n)[EW]\d{4} ")
"""In the line before a traceback that a logger or a thread has printed: the program continued."""
_IN_THREAD: Final = "Exception in thread "
_OF_LOGGER: Final = re.compile(r"(?:\S{1,60} ){0,4}\W?(?:ERROR|CRITICAL|FATAL)\b|E\d{4} [\d:.]+ ")
_GAVE_UP: Final = re.compile(
    r"\b(?:train(?:ing|er)?|job|run|experiment|pipeline|program)(?: (?:has|was|is))? (?:failed|crashed|aborted)\b(?! to\b)|"
    r"\b(?:aborting|giving up|gave up|cannot continue)\b",
    re.IGNORECASE,
)
_GIVES_UP: Final = re.compile(r"\b(?:aborting|exiting|terminating|quitting|giving up)\W*$", re.IGNORECASE)
"""The end of a line by which a program only says that it ends."""
_BESIDE: Final = re.compile(
    r"metric|upload|download|push|post|send|sync|report|notif|webhook|summary|monitor|telemetry|wandb|mlflow|retry|tensorboard",
    re.IGNORECASE,
)
"""What a training can do without."""
_XTRACE: Final = re.compile(r"\++ \S")
"""What a shell prints of a command after set -x."""
_OF_REPORT: Final = re.compile(r"[=-]{3,}$|\S+ FAILED$|Failures:$|Root Cause |\[\d+\]:$|<NO_OTHER_FAILURES>|\s|$")
"""The lines of the exception of torchrun after the first one, and lines that continue any exception."""
_BY_HYDRA: Final = "Set the environment variable HYDRA_FULL_ERROR=1"
_HINTS: Final = ("Config search path:", "Available options in ")
"""The first words of paragraphs that Hydra prints after an error."""
_HYDRA_FIRST: Final = re.compile(
    r"Could not |Cannot find |In '|Error (?!executing)|Primary config |Missing mandatory |Ambiguous |no viable alternative|"
    r"mismatched input|extraneous input|token recognition error|You must specify "
)
_TROUBLE: Final = re.compile(
    r"error(?!\S*\s*[:=]?\s*\d)|fail|exception|abort|fatal|invalid|cannot|can't|unable|\bnot?\b|kill|lost|missing|diverge|stop|"
    r"refused|denied|time[d ]*out|exceed|corrupt|signal|exit",
    re.IGNORECASE,
)
"""Words in a line with a step that is more than progress."""
_CAUSED: Final = "The above exception was the direct cause of the following exception:"
_IGNORED: Final = "Exception ignored "
# Python prints an exception at the beginning of a line, and the members of an ExceptionGroup behind a margin.
_MARGIN: Final = re.compile(r"^[ +]+\| (?=\S)")
_EXCEPTION: Final = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w{0,80}\.){1,12}(?:_?[A-Z]\w*|error|gaierror|herror|timeout)|_?[A-Z]\w*(?:Error|Exception|Group|Interrupt|Iteration|Exit))"
    r"(?:: (?P<words>.*)|:?$)"
)
# absl: `E0926 17:26:32.075402 157988 client.h:77] text`; TensorFlow: `2026-11-29 02:30:05.881660: E tensorflow/x.cc:29] text`
_NATIVE: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?(?P<level>[IWEF])(?:\d{4} [\d:.]+ +\d+)? [\w./-]{1,200}:\d+\] (?P<text>.*)"
)
_THROWN: Final = re.compile(r"\s+what\(\):\s+(.+)")
"""What std::terminate prints of an exception of C++ that nothing caught."""
_FAULT: Final = re.compile(r"Fatal Python error: .+|Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!$")
"""The first line of faulthandler. The frames follow, the innermost one first."""
_ABORT: Final = "Fatal Python error: Aborted"
_THREAD: Final = re.compile(r"(?P<current>Current t|T)hread 0x[0-9a-f]+ .{0,100}\(most recent call first\):")
_FAULT_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}) in (?P<name>\S.{0,200})')
_OF_LIBRARY: Final = re.compile(r"/lib(64)?/python\d|/(site|dist)-packages/|<frozen ")
_ROOT: Final = re.compile(r"NCCL WARN|OP_REQUIRES failed|insufficient shared memory|CUDA_ERROR_ECC")
"""Messages with the reason of an exception that gives none, such as an InternalError of NCCL."""
_OF_GPU: Final = re.compile(r"\b(?:CUDA_ERROR|CUDNN_STATUS)_[A-Z]")
_WITH_FRAMES: Final = (
    rule(TF_CONFIG_BAD, r'tfconfig_cluster_resolver\.py"[\s\S]{0,4000}\njson\.decoder\.JSONDecodeError: '),
)
"""An exception that is about a setting only if this function raised it."""
_CONTINUED: Final = re.compile(
    r"Additional GRPC error information|:(\{|[A-Z]+:)|RPC: /|(\d+|/job:\S+)$|The tasks have crashed|INTERNAL: Barrier |"
    r"Barrier result: |This suggests that the workers|# of tasks that reached the barrier: |The first task at the barrier: "
)
"""Lines of gRPC and of JAX's coordination service after the first line of a message of native code."""
_BY_JAX: Final = "the JAX distributed service detected fatal errors"
_OF_PEERS: Final = frozenset({PEER_UNKNOWN, PEER_FAILED, PEER_AWAY})
_TRAINS: Final = re.compile(r"\b(epoch|step|loss|accuracy)\b", re.IGNORECASE)
"""Words of a line by which a training shows that it continued after an error."""
_OF_SERVICE: Final = re.compile(rf"{_BY_JAX}|coordination service")
"""Messages of JAX that may name the peer."""
_VAGUE: Final = re.compile(
    r"(\w+\.)*((Internal|Unknown|XlaRuntime|JaxRuntime|Aborted|Cancelled)Error\b|RuntimeError: (NCCL|DataLoader))"
)
_FATAL: Final = re.compile(r"(FATAL|Fatal|fatal|CRITICAL): ?|[\w./-]{1,100}: error: ")
"""Lines by which a program says that it ends, such as those of argparse: an exception before it was handled."""
_CLOSING: Final = re.compile(r"(ERROR|Error|error|Aborting|Aborted): ")
"""The same, if it is the last line."""
_ESCAPES: Final = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_DECORATION: Final = re.compile(
    r"^\[rank\d+\]: |\x1b\[[\d;]*m|\{\{function_node [^}]{0,400}\}\} ?| ?\[Op:\w+\](?: name: ?)?"
)
_FRAME: Final = re.compile(r" {4}|  File ")
_WRAPPED: Final = re.compile(r"Exception encountered when calling |Graph execution error:|in user code:|$")
"""The first lines of exceptions of Keras and TensorFlow whose reason is on a later line."""
_ORIGINAL: Final = " Original error:"
"""The end of the first line of an exception of tf.train.Saver: the message from which it was raised follows."""
_WRAPPED_NAME: Final = re.compile(r"'[^']+'")
"""A file on the line after its error, where rich wraps lines."""
_FROM_TASK: Final = re.compile(r"From /job:\w+/replica:\d+/task:\d+:")
"""The first line of an error of TensorFlow that comes from another task, such as a parameter server."""
_SEVERAL_ROOTS: Final = re.compile(r"\d+ root error\(s\) found\.$")
_ROOT_ERROR: Final = re.compile(r"\s*\(\d+\) (?!CANCELLED|Cancelled)\S")
"""One of the errors that TensorFlow found when it ran a graph; operations are canceled because of another one."""
# openmpi: opal/util/show_help.c
_BOX: Final = re.compile(r"(?m)^-{60,}\n(?P<text>(?:(?!-{60}).*\n)+)-{60,}\Z")
_OF_LAUNCHER: Final = re.compile(r"(\w+\.)*ChildFailedError\b")
"""The exception of torchrun, after those of the processes that it started."""
_OF_PROCESS: Final = re.compile(r"\s+(traceback|exitcode) *: (?!To enable traceback)(.+)")
"""How the process of the first failure ended, in the exception of torchrun."""
_OF_CHILD: Final = re.compile(
    r"(?:\w+\.)*CalledProcessError: Command .*(?:python|\.py\b).* returned non-zero exit status|"
    r"RuntimeError: Horovod detected that one or more processes exited with non-zero status"
)
"""The exception of a launcher that runs Python in a child process, such as accelerate."""
# coreutils, tar, curl and so on; a shell and what it prints after set -x; the AWS CLI, gcloud, gsutil and git
_OF_OTHER: Final = re.compile(
    r"\++ \S|(?:\S*/)?(?!(?:usage|details?|error|hint|note): )[a-z][a-z\d_.+-]{0,40}: |\S+: (?:line )?\d+: |"
    r"(?:upload|download|copy|move|delete) failed: |fatal error: |An error occurred \(|ERROR: \(gcloud\.|"
    r"(?:Command|AccessDenied|BadRequest|NotFound|Service)Exception: "
)
"""The first line of another program after an exception, such as of a command by which a script cleans up."""
_LEVELS: Final = ("level", "severity", "levelname", "log.level")
_TEXTS: Final = ("msg", "message", "event", "error")
_TRACEBACKS: Final = ("exc_info", "exception", "exc_text", "exc", "traceback")
_LOGFMT: Final = re.compile(
    r"(?:\S+=\S+ )*?(?:level|lvl|severity)=(?:error|err|fatal|critical|panic)\b.*?\b(?:msg|message|error|err)="
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<word>\S+))',
    re.IGNORECASE,
)
_SEVERE: Final = frozenset({"ERROR", "ERR", "CRITICAL", "FATAL", "PANIC", "ALERT", "EMERGENCY"})
_NO_REASON: Final = re.compile(r"[=-]+$|Detected at node|Node: |\s|•|Stack trace for op|(Call a|A)rguments received")


@dataclass(frozen=True, slots=True)
class LastWords:
    """Why a process ended, by its log: the line with the reason, "" if unknown, and the problem, if it is a known one.

    `values` are those of the problem; `name` is missing if the rule does not know which part of the line is the name.
    """

    line: str = ""
    problem: Problem | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Message:
    """A message of a log.

    `level` is `X` for an exception, `J` for an error of a structured log, `I`, `W`, `E` or `F` (fatal) for native code, and ""
    for a line of the program.
    """

    level: str
    lines: list[str]
    is_cause: bool = False  # of the exception that follows
    is_handled: bool = False  # when the exception that follows was raised
    is_raised: bool = False  # with a traceback, at least as far as the log is there
    margin: int = 0  # before an ExceptionGroup and its members, the wider the deeper

    def reason(self) -> str:
        """Return the line that gives the reason: of an exception, its type without the package and its message."""
        exception = _EXCEPTION.match(self.lines[0]) if self.level == "X" else None
        if exception is None:
            where = _crashed_in(self.lines) if _FAULT.match(self.lines[0]) else ""
            return f"{self.lines[0]}, in {where}" if where else self.lines[0]
        words = exception["words"] or ""
        if _OF_LAUNCHER.match(self.lines[0]):
            ends = [match for line in self.lines if (match := _OF_PROCESS.match(line)) is not None]
            words = words or next((match[2] for match in ends if match[1] == "traceback"), "")
            words = words or next((f"exitcode {match[2]}" for match in ends), "")
        if words.startswith("in user code:"):
            return next((line.strip() for line in reversed(self.lines) if _EXCEPTION.match(line.strip())), words)
        if "of RPC that terminated with" in words:
            words = next((line.strip() for line in self.lines if line.startswith("\tdetails = ")), words)
        following = self.lines[1] if words.endswith(":") and len(self.lines) > 1 else ""
        is_continued = following[:1].isspace() and not _FRAME.match(following)
        if is_continued or _WRAPPED_NAME.fullmatch(following) or _FROM_TASK.fullmatch(words):
            words = f"{words} {following.strip()}"
        if _WRAPPED.match(words):
            words = next((line for line in self.lines[1:] if line and not _NO_REASON.match(line)), words)
        if words.endswith(_ORIGINAL):
            words = next((line for line in self.lines[1:] if line), words)
        if _SEVERAL_ROOTS.match(words):
            words = next((line.strip() for line in self.lines if _ROOT_ERROR.match(line)), words)
        return ": ".join(filter(None, (exception["type"].rpartition(".")[2], words)))

    def text(self) -> str:
        """Return all lines but stack frames, and the reason of an exception as a line of its own."""
        lines = [line for line in self.lines if not (_FRAME.match(line) or _FAULT_FRAME.match(line))]
        return "\n".join([*lines, self.reason()] if self.level == "X" else lines)


def is_far_up(log: str, line: str) -> bool:
    """Return True if a line of a log is so far above its end that the last lines alone do not show it."""
    words, lines = line.partition(": ")[2] or line, log.rstrip().split("\n")
    return bool(words) and not any(words in each for each in lines[-_NEAR:]) and any(words in each for each in lines)


def last_error(log: str) -> str:
    """Return the last line of a log, with the line before it if it only says that the program gives up."""
    *before, last = log.strip().split("\n")
    has_reason = _GIVES_UP.search(last) is not None and before and _tells_of_error(before[-1])
    return f"{before[-1]}\n{last}" if has_reason else last


def is_exception(line: str) -> bool:
    """Return True for the reason of an exception of Python."""
    return _EXCEPTION.match(line) is not None


def last_exception(log: str, *, logged: bool = True) -> str:
    """Return the exception whose traceback is the end of a log; "" if there is none.

    With `logged`, one that a logger printed counts too.
    """
    match = _AT_END.search(plain(log)[-_LONGEST:].rstrip())
    before = (match["before"] or "").lstrip("\n") if match is not None else ""
    is_logged = _LOGGED.search(before) is not None and not before.startswith(_IN_THREAD)
    return "" if match is None or (is_logged and not logged) else match["line"]


def ignored_failure(log: str, *, by_shell: bool, is_several: bool) -> tuple[str, str]:
    """Return how a program failed whose exit code its script ignored, and the line that says so; "" if there is none.

    More than a few lines after it, or one of a training, show that the program was not the training, or that it continued.
    `by_shell` is False if the process is Python itself: a traceback that is not the end of its log was handled. `is_several` is
    True if the shell runs several commands: what follows a traceback may be of the next one. After set -x it is.
    """
    lines = plain(log)[-_LONGEST:].rstrip().splitlines()
    after = 0
    for number in range(len(lines), max(len(lines) - (_MOST_LINES if is_several else _LINES_OF_USAGE), 0), -1):
        line, before = lines[number - 1], lines[max(number - _LINES_OF_USAGE, 0) : number - 1]
        is_near = after < _ECHOES + 1
        if is_near and _gave_up(line):
            return "the training may have failed", line
        if _OF_REPORT.match(line) or _NATIVE.match(line) or _XTRACE.match(line):
            continue
        said = _failure_of(line, before, is_near=is_near, is_several=is_several, is_last=by_shell and not after)
        if said:
            return said, line
        if _EXCEPTION.match(line) and (match := _AT_END.search("\n".join(lines[:number]))) is not None:
            header = (match["before"] or "").strip()
            if is_near and _gave_up(header):
                return "the training may have failed", line
            is_last = bool(_XTRACE.match("".join(lines[number : number + 1])))
            if by_shell and (is_near or is_several or is_last):
                return ("", "") if _LOGGED.search(header) else ("a program may have failed", line)
        after += 1
        if _trains(line):
            break
    return "", ""


def _failure_of(line: str, before: Sequence[str], *, is_near: bool, is_several: bool, is_last: bool) -> str:
    """Return how a program failed, if a line of a shell or of an option parser says so, or the last one of any program."""
    if (is_near or is_several) and _NOT_STARTED.match(line):
        return "a program did not start"
    if is_last and (_FATAL.match(line) or _CLOSING.match(line)) and not _BESIDE.search(line):
        return "the log ends with an error"
    if (is_near or is_several) and _CRASHED.match(line):
        return "a program was killed or crashed"
    if is_near and _REJECTED.match(line) and (line.startswith("FATAL") or _USAGE.search("\n".join(before))):
        return "a program rejected its arguments"
    return ""


def without_data(log: str) -> str:
    """Return the line by which a program says that it has found no data, if its log has no line of a training; "" otherwise."""
    lines = plain(log)[-_LONGEST:].split("\n")
    has_trained = any(_trains(line) for line in lines if not _NO_DATA.search(line))
    return "" if has_trained else next((line for line in lines if _NO_DATA.search(line)), "")


def _gave_up(line: str) -> bool:
    """Return True for an error of a logger by which a program says that its training has failed, not just a part of it."""
    said = " ".join(_error_of(line) or ([line] if _OF_LOGGER.match(line) else []))
    return _GAVE_UP.search(said) is not None and not _BESIDE.search(said)


def plain(log: str) -> str:
    """Return a log without escape sequences and ranks, and of lines that were written over each other the last one."""
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in _ESCAPES.sub("", log).split("\n"))
    return "\n".join(_RANK.sub("", line) for line in lines)


def without_frames(log: str) -> str:
    """Return a log without the stack frames at its end, as of Java, JavaScript and Julia."""
    lines = log.rstrip().split("\n")
    while len(lines) > 1 and _OF_STACK.match(lines[-1]):
        lines.pop()
    return "\n".join(lines)


def repeated_error(log: str, times: Sequence[datetime | None] = ()) -> tuple[int, str, bool]:
    """Return how many of the last lines of a log are one error, apart from numbers, the line of them that says most, and True.

    The number is 0 if the log says more. Then a program does nothing but try again. A line of a training shows that it does
    more, as does an error that is measured. After a line of a training, the same operation must have failed for a minute, and
    for twice as long as the training was silent before, by the `times` of the lines; then the last value is False.
    """
    lines = plain(log).split("\n")
    trained = [number for number, line in enumerate(lines) if _trains(line) and not _is_about_step(line)]
    after = lines[trained[-1] + 1 :] if trained else lines
    times_alike = 2 if trained else 1

    def masked(line: str) -> str:
        return (_NUMBER_ALONE if trained or _SKIPS.search(line) else _NUMBER).sub("#", line)

    said = [line for line in after if line.strip() and not _is_of_traceback(line)]
    alike = Counter(masked(line) for line in said)
    least = {line: times_alike * (_RAISES if _EXCEPTION.match(line) else _REPEATS) for line in alike}
    repeated = {line: count for line, count in alike.items() if count >= least[line]}
    errors = [line for line in said if masked(line) in repeated and _tells_of_error(line)]
    if not errors or sum(repeated.values()) < 0.8 * len(said):
        return 0, "", False
    if trained:
        is_old = any(masked(line) in repeated for line in lines[: trained[-1]])
        if not _is_overdue(times, [0, *trained] if is_old else trained, len(lines)):
            return 0, "", False
    return len(errors), max(reversed(errors), key=_weight), not trained


def _tells_of_error(line: str) -> bool:
    return _is_severe(line) or _ERROR.search(_MEASURED.sub("", line)) is not None


def _is_severe(line: str) -> bool:
    native = _NATIVE.match(line)
    return native is not None and native["level"] in {"E", "F"}


def _weight(line: str) -> int:
    """Rank a line by how likely it says why something is tried again; the highest rank is the most likely."""
    return 2 if _is_severe(line) else 0 if _TRIES_AGAIN.search(line) else 1


def _is_overdue(times: Sequence[datetime | None], trained: Sequence[int], count: int) -> bool:
    """Return True if a log of `count` lines has no line of a training for much longer than between its lines `trained`."""
    known = [at for at in times if at is not None]
    if len(known) != count:
        return False
    gaps = [seconds_between(known[one], known[other]) for one, other in pairwise(trained)]
    return seconds_between(known[trained[-1]], known[-1]) >= max(_TRIED_S, 2 * max(gaps, default=0.0))


def _trains(line: str) -> bool:
    """Return True for a line by which a training shows that it goes on."""
    return _TRAINS.search(line) is not None or is_progress(line)


def _is_about_step(line: str) -> bool:
    """Return True if a line names a step only because it could not be saved and is tried again, or because it was restored."""
    tries_again = _TRIES_AGAIN.search(line) is not None and _ERROR.search(line) is not None
    return (tries_again or _RESTORED.search(line) is not None) and _MEASURES.search(line) is None


def missing_ranks(log: str) -> tuple[int, str]:
    """Return how often Horovod has said at the end of a log that it waits for other ranks, and for which; 0 if it does not.

    It says so once a minute, so the log of a training that waits for ever is not silent.
    """
    lines = plain(log).split("\n")
    last = max((number for number, line in enumerate(lines) if _trains(line)), default=-1)
    ranks = _MISSING_RANKS.findall("\n".join(lines[last + 1 :]))
    return (len(ranks), f"waiting for remainder of ranks; missing ranks: {ranks[-1]}") if len(ranks) > 1 else (0, "")


def without_heartbeat(log: str) -> str:
    """Return a log without the same line at its end again and again, apart from numbers, if it is no line of a training."""
    lines = plain(log).rstrip().split("\n")
    last = _NUMBER.sub("#", lines[-1])
    count = next((count for count, line in enumerate(reversed(lines)) if _NUMBER.sub("#", line) != last), len(lines))
    is_heartbeat = count >= _REPEATS and not _trains(lines[-1])
    return "\n".join(lines[:-count]) if is_heartbeat else log


def _is_of_traceback(line: str) -> bool:
    return line.startswith((*_TRACEBACK, _CAUSED)) or _FRAME.match(line) is not None


def diverged(log: str, *, is_over: bool) -> str:
    """Return the last line with a loss of the training if the last two losses of a log are no numbers; "" otherwise.

    If the training `is_over`, the last one is enough, as is what Keras and Lightning say when they end it for that.
    """
    lines = plain(log)[-_LONGEST:].split("\n")
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
    return next((line for line in plain(log)[-_LONGEST:].split("\n") if _NO_DEVICE.search(line)), "")


def is_progress(line: str) -> bool:
    """Return True for a line of a training that goes well, which is not why it ended."""
    reader = LogReader()
    values = [each.value for each in reader.feed(f"{line}\n".encode(errors="replace"))]
    return (
        reader.progress is not None and all(abs(value) < float("inf") for value in values) and not _TROUBLE.search(line)
    )


def read(log: str, rules: Sequence[MessageRule] = RULES) -> LastWords:
    """Return why the process with this log ended.

    The last exception decides, or a later fatal message: lines before it may be about errors that were handled. An exception of
    a launcher decides only without another, and so do other programs after an exception, such as those by which a script cleans
    up. Without all of them, the last error of a structured log decides, else the last line
    that a rule knows.
    """
    messages = _messages(log)
    ends = [message for message in reversed(messages) if message.level in {"X", "F"}]
    ends += [message for message in reversed(messages) if message.level == "J"]
    last = next((message for message in ends if not _is_of_launcher(messages, message)), ends[0] if ends else None)
    candidates: list[_Message] = []
    if last is not None:
        last = _before_abort(messages, last) if _BY_JAX in last.lines[0] else last
        candidates += [_first_member(messages)] if last.margin else _causes(messages, last)
        last = candidates[0]
    if last is None or last.level == "J":
        candidates += _lines(messages)
    for candidate in candidates:
        found = first_match(rules, candidate.text())
        if found is not None and found[0] in _OF_PEERS and not found[1]:
            others = (first_match(rules, other.text()) for other in messages if _OF_SERVICE.search(other.lines[0]))
            found = next((other for other in others if other and other[0] in _OF_PEERS and other[1]), found)
        if found is not None:
            return LastWords(candidate.reason(), *found)
    if last is None and _BY_HYDRA in log:
        return LastWords(_of_hydra(log[-_LONGEST:]))
    if last is None:
        where = _crashed_in(log[-_LONGEST:].splitlines())  # the first line of faulthandler may have been cut off
        logged = (line for line in reversed(log.rstrip().splitlines()[-_LINES_LOGGED:]) if _OF_LOGGER.match(line))
        return LastWords(f"crashed in {where}" if where else next(logged, "") or _in_box(log[-_LONGEST:].rstrip()))
    line = next((candidate.reason() for candidate in candidates if "NCCL WARN" in candidate.lines[0]), last.reason())
    handled = [message for message in messages if message.is_handled and first_match(rules, message.text()) is not None]
    if handled and last.level == "X":
        line = f"{line}, while handling {handled[-1].reason()}"
    if (other := _just_before(messages, last) or next(_of_gpu_before(messages, last), None)) is not None:
        line = f"{line}, after {other.reason()}"
    return LastWords(line, *(first_match(_WITH_FRAMES, log[-_LONGEST // 2 :]) or ()))


def _in_box(log: str) -> str:
    """Return the first sentence between two lines of hyphens at the end of a log, as of mpirun; "" if there are none."""
    match = _BOX.search(log)
    return " ".join(match["text"].split("\n\n")[0].split()) if match is not None else ""


def _just_before(messages: Sequence[_Message], last: _Message) -> _Message | None:
    """Return the exception whose traceback is right before that of the last one: it may be of another process, or the cause."""
    before = messages[: messages.index(last)][-1:]
    is_other = last.is_raised and all(
        message.is_raised and not (message.is_cause or message.is_handled or any(message.lines[1:]))
        for message in before
    )
    return before[0] if before and is_other else None


def _of_gpu_before(messages: Sequence[_Message], last: _Message) -> Iterator[_Message]:
    """Yield the errors of a GPU right before a fatal message, the last one first: that may have nothing but a number."""
    before = reversed(messages[: messages.index(last)] if last.level == "F" else [])
    yield from takewhile(lambda message: message.level == "E" and _OF_GPU.search(message.lines[0]), before)


def _of_hydra(log: str) -> str:
    """Return the first line of an error that Hydra prints without its traceback; paragraphs of advice may follow it."""
    paragraphs = log[: log.rindex(_BY_HYDRA)].strip("\n").split("\n\n")
    while len(paragraphs) > 1 and paragraphs[-1].lstrip("\n").startswith(_HINTS):
        paragraphs.pop()
    lines = paragraphs[-1].strip("\n").split("\n")
    return next((line for line in reversed(lines) if _HYDRA_FIRST.match(line)), lines[0])


def _crashed_in(lines: Sequence[str]) -> str:
    """Return the innermost frame of the user's code in the output of faulthandler, else the innermost one; "" for none.

    The thread that crashed counts, or the first one if the process was ended by a timeout.
    """
    threads: list[list[re.Match[str]]] = [[]]
    for line in lines:
        if (thread := _THREAD.match(line)) is not None:
            if thread["current"] == "Current t":
                threads.clear()
            threads.append([])
        elif (frame := _FAULT_FRAME.match(line)) is not None:
            threads[-1].append(frame)
    frames = next(filter(None, threads), [])
    own = (match for match in frames if not _OF_LIBRARY.search(match["file"]))
    innermost = next(own, frames[0] if frames else None)
    return "" if innermost is None else f"{innermost['name']} ({innermost['file']}:{innermost['line']})"


def _before_abort(messages: Sequence[_Message], abort: _Message) -> _Message:
    """Return the exception that ended a program before JAX aborted it, or the message of JAX if another process caused both.

    At its exit, a process of JAX waits for the others, and is aborted if they do not exit too. If the end of the message of JAX
    has been cut off, with the status, the error right before it counts.
    """
    before = (
        message for message in reversed(messages[: messages.index(abort)]) if message.level not in {"I", "W", "E", "F"}
    )
    raised = next(before, abort)
    known = first_match(RULES, raised.text())
    if raised.level == "X" and not (_went_on(raised) or (known and known[0] in _OF_PEERS)):
        return raised
    logged = messages[: messages.index(abort)][-1:] if CUT.search(abort.text()) else []
    found = next((first_match(RULES, message.text()) for message in logged if message.level == "E"), None)
    return logged[0] if found is not None and found[0] in _OF_PEERS else abort


def _is_of_launcher(messages: Sequence[_Message], one: _Message) -> bool:
    """Return True for the exception of a launcher about a process that it started."""
    if _OF_CHILD.match(one.lines[0]) is None:
        return _OF_LAUNCHER.match(one.lines[0]) is not None
    raised = [message for message in messages if message.level == "X"]
    before = raised[-2] if len(raised) > 1 and raised[-1] is one else None
    return before is not None and not (before.is_handled or before.is_cause or _went_on(before))


def _went_on(raised: _Message) -> bool:
    """Return True if progress of a training follows an exception, which was handled then."""
    return any(_TRAINS.search(line) for line in raised.lines[1:])


def _first_member(messages: Sequence[_Message]) -> _Message:
    """Return the first member of the last ExceptionGroup: it was raised first, and may have caused the others."""
    outermost = min(message.margin for message in messages if message.margin)
    found: list[_Message] = []
    for message in messages:
        if "Group: " in message.lines[0]:
            found = [] if message.margin == outermost else found
        elif message.margin:
            found.append(message)
    return found[0] if found else messages[-1]


def _causes(messages: Sequence[_Message], last: _Message) -> Iterator[_Message]:
    """Yield the deciding message, the exceptions from which it was raised, and what explains it if it is vague."""
    yield last
    yield from _of_gpu_before(messages, last)
    chain = [message for message in messages if message.level == "X"]
    for message in reversed(chain[:-1] if last.level == "X" else []):
        if not message.is_cause:
            break
        yield message
    if _VAGUE.match(last.lines[0]):
        yield from (message for message in reversed(messages) if _ROOT.search(message.lines[0]))
    if "No matching distribution found for " in last.lines[0]:  # by pip, also if it cannot reach its index
        yield from (message for message in reversed(messages) if "Retrying (Retry(" in message.lines[0])
    if "CalledProcessError" in last.lines[0]:
        yield from _lines(messages)


def _lines(messages: Sequence[_Message]) -> Iterator[_Message]:
    """Yield the lines of the program, and errors of native code after them; earlier ones did not end the program."""
    ended = True
    for message in reversed(messages):
        is_early = _CHILD_KILLED.match(message.lines[0]) is not None  # that of the end is a fatal message
        if (message.level == "" and not is_early) or (message.level == "E" and ended):
            yield message
        ended = ended and message.level != ""


def _messages(log: str) -> list[_Message]:
    current: _Message | None = None
    is_ignored = in_frames = has_ended = False
    messages: list[_Message] = []
    lines = log[-_LONGEST:].rstrip().splitlines()[-_MOST_LINES:]
    for number, raw in enumerate(lines, 1):
        margined = _DECORATION.sub("", raw)
        line = _MARGIN.sub("", margined).rstrip()
        exception = _EXCEPTION.match(line)
        has_ended, is_said = _is_after(current, line, has_ended=has_ended, in_frames=in_frames)
        if (begun := _begun(line, left=len(lines) - number, is_said=is_said)) is not None:
            is_known = line.startswith(_ABORT) and any(message.level == "F" for message in messages)
            messages += [] if is_known else [begun]  # the failed check was logged before the abort
            current = begun if begun.level == "F" else None
        elif messages and messages[-1].level and _CONTINUED.match(line):
            messages[-1].lines.append(line)
        elif line.startswith(_TRACEBACK):
            if messages and line != _TRACEBACK[0]:
                messages[-1].is_handled = messages[-1].level == "X"
            current, in_frames = None, True
        elif has_ended or line.startswith(_IGNORED):
            current, is_ignored = None, not has_ended
        elif line == _CAUSED:
            if messages and messages[-1].level == "X":
                messages[-1].is_cause = True
            current = None
        elif exception:
            is_raised = in_frames or all(
                map(_FRAME.match, lines[1 : number - 1])
            )  # the first lines may have been cut off
            current = _Message("X", [line], margin=len(margined.rstrip()) - len(line), is_raised=is_raised)
            messages += [] if is_ignored else [current]
            is_ignored = in_frames = False
        elif current is not None:
            current.lines.append(line)
        elif line and not in_frames:
            messages.append(_Message("", [line]))
    return messages


def _is_after(raised: _Message | None, line: str, *, has_ended: bool, in_frames: bool) -> tuple[bool, bool]:
    """Return True if this line is of a command after an exception, and True if an error on it is not of the program either."""
    if has_ended:
        has_ended = not line.startswith((*_TRACEBACK, _CAUSED))
        return has_ended, has_ended
    if raised is None or not raised.is_raised or in_frames:
        return False, False
    has_ended = _OF_OTHER.match(line) is not None and not _went_on(raised)
    return has_ended, has_ended or (len(raised.lines) <= _ECHOES and not _went_on(raised))


def _begun(line: str, *, left: int, is_said: bool) -> _Message | None:
    """Return the message of native code or of a structured log, or the fatal one, that begins with this line.

    `left` is the number of lines after it. `is_said` is True after an exception: then it is a script that says that it ends.
    """
    if (thrown := _THROWN.match(line)) is not None:
        return _Message("F", [thrown[1]])
    is_end = (left == 0 and _CLOSING.match(line) and not is_said) or (left <= _ECHOES and _CHILD_KILLED.match(line))
    if _FAULT.match(line) or is_end or ((fatal := _FATAL.match(line)) and not (is_said and fatal[1])):
        return _Message("F", [line])
    if (native := _NATIVE.match(line)) is not None:
        return _Message(native["level"], [native["text"]])
    error = _error_of(line)
    return _Message("J", error) if error is not None else None


def _error_of(line: str) -> list[str] | None:
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
