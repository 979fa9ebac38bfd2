"""Real texts of libraries, kubelets, runtimes and servers: each has its problem, and no rule cuts a wrong name."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from support.cases import for_each
from tfjob_operator.api.text import tail_of
from tfjob_operator.cli import diagnosis
from tfjob_operator.cli.diagnosis import reading
from tfjob_operator.cli.diagnosis.causes import Cause
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.diagnosis.rules import MessageRule, first_match
from unit.cli.diagnosis.troubled import Troubled
from unit.cli.diagnosis.world import WORKER


class Text(msgspec.Struct, forbid_unknown_fields=True):
    """A text that a program wrote: to a log, or, by `seen`, as a message of a server or a kubelet.

    `names` are all that a rule may cut out of it, and the title quotes the first one; without names it quotes `line`.
    """

    text: str
    source: str
    problem: str
    names: list[str] = []
    line: str = ""
    seen: str = "log"
    code: int = 1
    produced: bool = False

    @property
    def name(self) -> str:
        return f"{self.source}: {self.text[-200:]}"


TEXTS: Final = msgspec.yaml.decode((Path(__file__).parent / "texts.yaml").read_bytes(), type=list[Text])


def without_secret(world: Troubled, message: str) -> None:
    world.creating()
    world.pod_event("FailedToRetrieveImagePullSecret", message)


QUOTED: Final = 100
"""Titles are longer, but cut what they quote."""
SENTENCES: Final = frozenset({"words", "shortage", "holder"})
"""Groups of rules that quote a part of the message instead of a name."""
SEEN: Final[Mapping[str, Callable[[Troubled, Text], object]]] = {
    "log": lambda world, text: world.failed(text.code, log=text.text),
    "mount": lambda world, text: world._unmounted(text.text),
    "claim": lambda world, text: world._unbound(f"ProvisioningFailed: {text.text}"),
    "schedule": lambda world, text: world.unscheduled(text.text),
    "create": lambda world, text: world.refuse(text.text),
    "pull": lambda world, text: world._unpulled(text.text),
    "secret": lambda world, text: without_secret(world, text.text),
    "evict": lambda world, text: world._pod_failed("Evicted", text.text),
    "kueue": lambda world, text: world._queued(f"Pending: {text.text}"),
}
"""Ways of a text to the diagnosis; others are reasons for which a container waits."""


def first_of(text: Text) -> Cause:
    world = Troubled()
    if text.seen in SEEN:
        SEEN[text.seen](world, text)
    else:
        world._unstarted(f"{text.seen}: {text.text}")
    return diagnose(world.evidence()).causes[0]


@for_each("text", TEXTS)
def test_the_first_line_names_the_problem_and_quotes_the_name_or_the_line(text: Text) -> None:
    first = first_of(text)
    assert first.id == text.problem, first
    expected = (text.names[:1] or [text.line])[0]
    assert " ".join(expected.split())[:QUOTED] in first.title


def test_the_words_in_the_condition_of_a_job_whose_pod_is_gone_are_read_like_a_log() -> None:
    world = Troubled()
    trace = ("Traceback (most recent call last):", '  File "train.py", line 9, in <module>', "    open(path)")
    error = "FileNotFoundError: [Errno 2] No such file or directory: '/data set/train.csv'"
    world.failed(1, message=tail_of("\n".join((*trace, error))))
    del world.pods[WORKER]
    assert diagnose(world.evidence()).causes[0].title == f"File not found: /data set/train.csv ({WORKER})"


def rules_of(module: str) -> Iterator[MessageRule]:
    for value in vars(importlib.import_module(f"{diagnosis.__name__}.{module}")).values():
        yield from (each for each in value if isinstance(each, MessageRule)) if isinstance(value, tuple) else ()


RULES: Final = {each.name: list(rules_of(each.name)) for each in pkgutil.iter_modules(diagnosis.__path__)}


def test_all_rules_are_found() -> None:
    assert {name for name, rules in RULES.items() if rules} >= {
        "admission",
        "exits",
        "images",
        "log_rules",
        "starting",
        "storage",
    }
    assert len({each.pattern.pattern for rules in RULES.values() for each in rules}) > 120


@for_each("text", TEXTS)
def test_no_rule_cuts_a_wrong_name_out_of_any_text(text: Text) -> None:
    """Also not a rule for another kind of message: the order of rules is not what makes a name right."""
    for module, rules in RULES.items():
        for each in (rule for rule in rules if rule.pattern.groupindex):
            if module in {"log_rules", "log_symptoms", "reading"}:
                cut = [*reading.read(text.text, (each,)).values.items()]
                cut += reading.read(tail_of(text.text).replace(" / ", "\n"), (each,)).values.items()
            else:
                cut = [*(first_match((each,), text.text) or ("", {}))[1].items()]
            wrong = [(group, name) for group, name in cut if group not in SENTENCES and name not in text.names]
            assert not wrong, (module, each.problem.id, each.pattern.pattern)


def test_the_texts_are_many_and_half_of_them_were_produced() -> None:
    assert len(TEXTS) >= 120
    assert sum(text.produced for text in TEXTS) >= 60
    assert len({text.problem for text in TEXTS}) >= 60
