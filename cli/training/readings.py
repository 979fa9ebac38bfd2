"""What single lines of logs say, in the formats of Keras, of estimators, and of training loops that people write. Pure.

All repetitions in the patterns are bounded or cannot overlap, so that no line takes longer than its length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_INT: Final = r"\d{1,15}(?!\d|\.\d)"
_NUMBER: Final = (
    r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?|\.\d{1,30}(?:[eE][-+]?\d{1,3})?|nan|inf)(?![\w.]*\w)"
)
_NAME: Final = r"[A-Za-z_][\w./-]{0,60}"

MAY_TELL: Final = re.compile(r"step|loss|epoch|iter|images/sec|\d/(?:\d|Unknown)", re.IGNORECASE)
"""Matches every line that any of the patterns below matches: most lines of most logs are skipped by this alone."""

KERAS_EPOCH: Final = re.compile(rf"\s{{0,4}}Epoch ({_INT})/({_INT})\s{{0,8}}$")
"""keras: Model.fit prints it before each epoch."""
KERAS_BAR: Final = re.compile(
    rf"\s{{0,15}}({_INT})/({_INT}|Unknown)(?= \[[=>.]| [━╸╺]|\s{{1,8}}(?:- )?\d{{1,9}}[smu]{{1,2}}\b)"
)
"""keras: utils/generic_utils.py and, in Keras 3, utils/progbar.py: `120/938 [==>...] - ETA: 3s - loss: 0.41`,
`938/938 ━━━━ 3s 4ms/step - loss: 0.41`, `120/Unknown - 3s 20ms/step`, and with verbose=2 `938/938 - 3s - loss: 0.41`."""
KERAS_END: Final = re.compile(r" - \d{1,9}s - ")
"""How a line of Keras in TensorFlow 1 begins with verbose=2: ` - 3s - loss: 0.41 - acc: 0.9`."""
KERAS_PAIR: Final = re.compile(rf" - ({_NAME}): ({_NUMBER})(?= - |\s{{0,8}}$)")
KERAS_STEP_TIME: Final = re.compile(r" (\d{1,9})(us|ms|s)/(?:step|sample)\b")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}

ESTIMATOR_RATE: Final = re.compile(rf"\bglobal_step/sec: ({_NUMBER})")
"""tensorflow: StepCounterHook of basic_session_run_hooks.py."""
ESTIMATOR_EVALUATION: Final = re.compile(rf"\bSaving dict for global step ({_INT}): ")
"""tensorflow: _write_dict_to_summary of estimator.py."""
ESTIMATOR_LAST: Final = re.compile(rf"\bLoss for final step: ({_NUMBER})")

BENCHMARK: Final = re.compile(
    rf"\s{{0,8}}({_INT})\s{{1,8}}images/sec: ({_NUMBER})"
    rf"(?: \+/- [\d.]{{1,20}})?(?: \(jitter = [\d.]{{1,20}}\))?\s{{1,8}}({_NUMBER})"
)
"""tf_cnn_benchmarks: step, images a second, total loss."""
TQDM: Final = re.compile(rf"\d{{1,3}}%\|[^|]{{0,400}}\| ({_INT})/({_INT}) \[")
AT_STEP: Final = re.compile(rf"(?<![\w./-])({_NAME}(?: {_NAME}){{0,2}}) at step ({_INT}): ({_NUMBER})")
"""tensorflow: mnist_with_summaries.py: `Accuracy at step 10: 0.7103`."""
COUNT: Final = re.compile(
    rf"(?<![A-Za-z])(global[_ ]step|step|iter(?:ation)?|epoch)[ \t]{{0,4}}[:=#(\[]?[ \t]{{0,4}}"
    rf"({_INT})(?:[ \t]?(?:/|of)[ \t]?({_INT}))?",
    re.IGNORECASE,
)
"""Where a training stands, as people print it: `step 20`, `Step 100/1000`, `epoch [3/10]`, `global_step=5`."""
PAIR: Final = re.compile(rf"(?<![\w./-])({_NAME})[ \t]{{0,4}}[:=][ \t]{{0,4}}({_NUMBER})(%)?")
WORDS: Final = re.compile(
    rf"(?<![\w./-])([\w./-]{{0,40}}(?:loss|accuracy|acc|auc|perplexity|error))[ \t]{{1,4}}({_NUMBER})(%)?",
    re.IGNORECASE,
)
"""Without a sign between name and number only names that are certainly metrics: `step 20 loss 0.3`."""
_COUNTS: Final = {"step", "global_step", "iter", "iteration", "epoch", "epochs", "batch", "steps", "eta"}


class Counts(NamedTuple):
    """The step and the epoch in a line, each with its total; None for what the line does not say."""

    step: int | None = None
    steps: int | None = None
    epoch: int | None = None
    epochs: int | None = None


def counts_of(text: str) -> Counts:
    """Return the first step and the first epoch of a line; iterations are steps, a global step wins over a local one."""
    found: dict[str, tuple[int, int | None]] = {}
    for each in COUNT.finditer(text):
        kind = each[1].lower().replace("_", " ")
        kind = "step" if kind.startswith("iter") else kind
        found.setdefault(kind, (int(each[2]), int(each[3]) if each[3] else None))
    step, steps = found.get("global step") or found.get("step") or (None, None)
    epoch, epochs = found.get("epoch") or (None, None)
    return Counts(step, steps, epoch, epochs)


def pairs_of(text: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a line with their names, each name once; percentages become fractions."""
    told: set[str] = set()
    for pattern in (PAIR, WORDS):
        for name, number, percent in pattern.findall(text):
            key = name.lower().rstrip(".")
            if key not in told and key not in _COUNTS:
                told.add(key)
                yield name, float(number) / (100 if percent else 1)


def keras_pairs_of(text: str) -> Iterator[tuple[str, float]]:
    """Yield the metrics behind a bar of Keras."""
    for name, number in KERAS_PAIR.findall(text):
        yield name, float(number)


def step_time_of(text: str) -> float | None:
    """Return the seconds per step that a bar of Keras tells, None if it does not."""
    found = KERAS_STEP_TIME.search(text)
    return int(found[1]) * _SECONDS[found[2]] if found is not None else None
