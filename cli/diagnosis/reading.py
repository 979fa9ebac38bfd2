"""Reads logs: why a process ended, and errors that its shell ignored. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from tfjob_operator.cli.diagnosis.causes import Problem
from tfjob_operator.cli.diagnosis.log_lines import (
    CAUSED,
    EXCEPTION,
    FRAME,
    LOGGED,
    MEASURES,
    NATIVE,
    OF_LOGGER,
    TRACEBACK,
    error_of,
    has_progress,
    is_exception,
    plain,
    tells_of_error,
    trains,
)
from tfjob_operator.cli.diagnosis.log_rules import PEER_AWAY, PEER_FAILED, PEER_UNKNOWN, RULES, TF_CONFIG_BAD
from tfjob_operator.cli.diagnosis.rules import CUT, MessageRule, first_match, rule
from tfjob_operator.cli.training import LogReader

LONGEST: Final = 65_536
MOST_LINES: Final = 400
"""The end of a log that is read."""
_NEAR: Final = 40
"""Fewer lines than the advice prints."""
AT_END: Final = re.compile(
    r"(?:(?:\A|(?P<before>(?:\A|\n)(?!Exception ignored )[^\n]*\n))Traceback \(most recent call last\):\n|"
    r"(?P<cut>\A(?:[ \t][^\n]*\n)*|(?:\A|\n)\S[^\n]*(?<!call last\):)(?<!call first\):)\n)(?=  File \"))"
    r"(?:[ \t][^\n]*\n)+(?P<line>[A-Za-z_][^\n]*)\Z"
)
"""A traceback at the end of a log, which may lack its beginning, unless Python ignored its exception."""
_CHILD_KILLED: Final = re.compile(r"(?:\S+: line \d+: +\d+ +)?Killed(?: {2,}.*)?$")
ECHOES: Final = 3
"""The most lines that a script prints after a program that failed."""
_LINES_LOGGED: Final = 10
"""So many lines may a program log after the error for which it ends."""
_NO_DATA: Final = re.compile(
    r"input ran out of data|Skipping training since max_steps has already saved|"
    r"\b(?:found )?0 (?:\w+ )?(?:files?|images?|samples?|records?|examples?|shards?)\b",
    re.IGNORECASE,
)
"""A warning of Keras, with which also a training ends that has trained, one of estimators that find a checkpoint of their last
step, and what programs say that look for data."""
_IN_THREAD: Final = "Exception in thread "
_GIVES_UP: Final = re.compile(r"\b(?:aborting|exiting|terminating|quitting|giving up)\W*$", re.IGNORECASE)
"""The end of a line by which a program only says that it ends."""
_BY_HYDRA: Final = "Set the environment variable HYDRA_FULL_ERROR=1"
_HINTS: Final = ("Config search path:", "Available options in ")
"""The first words of paragraphs that Hydra prints after an error."""
_HYDRA_FIRST: Final = re.compile(
    r"Could not |Cannot find |In '|Error (?!executing)|Primary config |Missing mandatory |Ambiguous |no viable alternative|"
    r"mismatched input|extraneous input|token recognition error|You must specify "
)
_IGNORED: Final = "Exception ignored "
# Python prints an exception at the beginning of a line, and the members of an ExceptionGroup behind a margin.
_MARGIN: Final = re.compile(r"^[ +]+\| (?=\S)")
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
_OF_SERVICE: Final = re.compile(rf"{_BY_JAX}|coordination service")
"""Messages of JAX that may name the peer."""
_VAGUE: Final = re.compile(
    r"(\w+\.)*((Internal|Unknown|XlaRuntime|JaxRuntime|Aborted|Cancelled)Error\b|RuntimeError: (NCCL|DataLoader))"
)
FATAL: Final = re.compile(r"(FATAL|Fatal|fatal|CRITICAL): ?|[\w./-]{1,100}: error: ")
"""Lines by which a program says that it ends, such as those of argparse: an exception before it was handled."""
CLOSING: Final = re.compile(r"(ERROR|Error|error|Aborting|Aborted): ")
"""The same, if it is the last line."""
_DECORATION: Final = re.compile(
    r"^\[rank\d+\]: |\x1b\[[\d;]*m|\{\{function_node [^}]{0,400}\}\} ?| ?\[Op:\w+\](?: name: ?)?"
)
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
_NO_REASON: Final = re.compile(
    r"[=-]+$|Detected at node|Node: |<stack traces|\s|•|Stack trace for op|(Call a|A)rguments received"
)


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
        exception = EXCEPTION.match(self.lines[0]) if self.level == "X" else None
        if exception is None:
            where = _crashed_in(self.lines) if _FAULT.match(self.lines[0]) else ""
            return f"{self.lines[0]}, in {where}" if where else self.lines[0]
        words = exception["words"] or ""
        if _OF_LAUNCHER.match(self.lines[0]):
            ends = [match for line in self.lines if (match := _OF_PROCESS.match(line)) is not None]
            words = words or next((match[2] for match in ends if match[1] == "traceback"), "")
            words = words or next((f"exitcode {match[2]}" for match in ends), "")
        if words.startswith("in user code:"):
            return next((line.strip() for line in reversed(self.lines) if EXCEPTION.match(line.strip())), words)
        if "of RPC that terminated with" in words:
            words = next((line.strip() for line in self.lines if line.startswith("\tdetails = ")), words)
        following = self.lines[1] if words.endswith(":") and len(self.lines) > 1 else ""
        is_continued = following[:1].isspace() and not FRAME.match(following)
        if is_continued or _WRAPPED_NAME.fullmatch(following) or _FROM_TASK.fullmatch(words):
            words = f"{words} {following.strip()}"
        if _WRAPPED.match(words):
            words = next((line for line in self.lines[1:] if line and not _NO_REASON.match(line)), words)
        if words.endswith(_ORIGINAL):
            words = next(
                (line for line in self.lines[1:] if not (_WRAPPED.match(line) or _NO_REASON.match(line))), words
            )
        if _SEVERAL_ROOTS.match(words):
            words = next((line.strip() for line in self.lines if _ROOT_ERROR.match(line)), words)
        return ": ".join(filter(None, (exception["type"].rpartition(".")[2], words)))

    def text(self) -> str:
        """Return all lines but stack frames, and the reason of an exception as a line of its own."""
        lines = [line for line in self.lines if not (FRAME.match(line) or _FAULT_FRAME.match(line))]
        return "\n".join([*lines, self.reason()] if self.level == "X" else lines)


def is_far_up(log: str, line: str) -> bool:
    """Return True if a line of a log is so far above its end that the last lines alone do not show it."""
    words, lines = line.partition(": ")[2] or line, log.rstrip().split("\n")
    return bool(words) and not any(words in each for each in lines[-_NEAR:]) and any(words in each for each in lines)


def last_error(log: str) -> str:
    """Return the last line of a log, with the line before it if it only says that the program gives up."""
    *before, last = log.strip().split("\n")
    has_reason = _GIVES_UP.search(last) is not None and before and tells_of_error(before[-1])
    return f"{before[-1]}\n{last}" if has_reason else last


def last_exception(log: str, *, logged: bool = True) -> str:
    """Return the exception whose traceback is the end of a log; "" if there is none.

    With `logged`, one that a logger printed counts too.
    """
    match = AT_END.search(plain(log)[-LONGEST:].rstrip())
    before = (match["before"] or "").lstrip("\n") if match is not None else ""
    is_logged = LOGGED.search(before) is not None and not before.startswith(_IN_THREAD)
    if match is None or (is_logged and not logged) or not (match["cut"] is None or is_exception(match["line"])):
        return ""
    return match["line"]


def without_data(log: str) -> str:
    """Return the line by which a program says that it has found no data, if its log has no line of a training; "" otherwise."""
    lines = plain(log)[-LONGEST:].split("\n")
    has_trained = any(trains(line) for line in lines if not _NO_DATA.search(line))
    return "" if has_trained else next((line for line in lines if _NO_DATA.search(line)), "")


def measures(line: str) -> bool:
    """Return True for a line with a number that a training measures, such as a loss."""
    return MEASURES.search(line) is not None or bool(LogReader().feed(f"{line}\n".encode(errors="replace")))


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
        return LastWords(_of_hydra(log[-LONGEST:]))
    if last is None:
        where = _crashed_in(log[-LONGEST:].splitlines())  # the first line of faulthandler may have been cut off
        logged = (line for line in reversed(log.rstrip().splitlines()[-_LINES_LOGGED:]) if OF_LOGGER.match(line))
        return LastWords(f"crashed in {where}" if where else next(logged, "") or _in_box(log[-LONGEST:].rstrip()))
    line = next((candidate.reason() for candidate in candidates if "NCCL WARN" in candidate.lines[0]), last.reason())
    handled = [message for message in messages if message.is_handled and first_match(rules, message.text()) is not None]
    if handled and last.level == "X":
        line = f"{line}, while handling {handled[-1].reason()}"
    if (other := _just_before(messages, last) or next(_of_gpu_before(messages, last), None)) is not None:
        line = f"{line}, after {other.reason()}"
    return LastWords(line, *(first_match(_WITH_FRAMES, log[-LONGEST // 2 :]) or ()))


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
    return any(map(has_progress, raised.lines[1:]))


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
    lines = log[-LONGEST:].rstrip().splitlines()[-MOST_LINES:]
    for number, raw in enumerate(lines, 1):
        margined = _DECORATION.sub("", raw)
        line = _MARGIN.sub("", margined).rstrip()
        exception = EXCEPTION.match(line)
        has_ended, is_said = _is_after(current, line, has_ended=has_ended, in_frames=in_frames)
        if (begun := _begun(line, left=len(lines) - number, is_said=is_said)) is not None:
            is_known = line.startswith(_ABORT) and any(message.level == "F" for message in messages)
            messages += [] if is_known else [begun]  # the failed check was logged before the abort
            current = begun if begun.level == "F" else None
        elif messages and messages[-1].level and _CONTINUED.match(line):
            messages[-1].lines.append(line)
        elif line.startswith(TRACEBACK):
            if messages and line != TRACEBACK[0]:
                messages[-1].is_handled = messages[-1].level == "X"
            current, in_frames = None, True
        elif has_ended or line.startswith(_IGNORED):
            current, is_ignored = None, not has_ended
        elif line == CAUSED:
            if messages and messages[-1].level == "X":
                messages[-1].is_cause = True
            current = None
        elif exception:
            is_raised = in_frames or all(
                map(FRAME.match, lines[1 : number - 1])
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
        has_ended = not line.startswith((*TRACEBACK, CAUSED))
        return has_ended, has_ended
    if raised is None or not raised.is_raised or in_frames:
        return False, False
    has_ended = _OF_OTHER.match(line) is not None and not _went_on(raised)
    return has_ended, has_ended or (len(raised.lines) <= ECHOES and not _went_on(raised))


def _begun(line: str, *, left: int, is_said: bool) -> _Message | None:
    """Return the message of native code or of a structured log, or the fatal one, that begins with this line.

    `left` is the number of lines after it. `is_said` is True after an exception: then it is a script that says that it ends.
    """
    if (thrown := _THROWN.match(line)) is not None:
        return _Message("F", [thrown[1]])
    is_end = (left == 0 and CLOSING.match(line) and not is_said) or (left <= ECHOES and _CHILD_KILLED.match(line))
    if _FAULT.match(line) or is_end or ((fatal := FATAL.match(line)) and not (is_said and fatal[1])):
        return _Message("F", [line])
    if (native := NATIVE.match(line)) is not None:
        return _Message(native["level"], [native["text"]])
    error = error_of(line)
    return _Message("J", error) if error is not None else None
