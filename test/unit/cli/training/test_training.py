"""Numbers per step and progress, from logs as Keras, estimators and people write them; curves stay small."""

import math
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.training import MAX_BYTES, Curves, Line, LineReader, LogReader, Point, Progress

KERAS = (
    "Epoch 1/2\n"
    "\r  1/120 [..............................] - ETA: 1:03 - loss: 2.3026 - accuracy: 0.1250\b\b\b\b"
    "\r120/120 [==============================] - 3s 20ms/step - loss: 0.5000 - accuracy: 0.8000 - val_loss: 0.4000\n"
    "Epoch 2/2\n"
    " 60/120 [==============>...............] - ETA: 1s - loss: 0.4100 - accuracy: 0.9000\r"
)
KERAS_3 = (
    "Epoch 1/10\n\r\x1b[1m 120/938\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━━━\x1b[0m \x1b[1m3s\x1b[0m 4ms/step - "
    "accuracy: 0.9000 - loss: 0.4100\r"
)
ESTIMATOR = """INFO:tensorflow:loss = 2.5, step = 0
INFO:tensorflow:global_step/sec: 80
INFO:tensorflow:loss = 0.52, step = 100 (1.250 sec)
INFO:tensorflow:Saving checkpoints for 500 into /tmp/model.ckpt.
I0101 12:00:00.000000 139 estimator.py:2039] Saving dict for global step 500: accuracy = 0.97, global_step = 500, loss = 0.1
INFO:tensorflow:Loss for final step: 0.05.
"""


def read(text: str | bytes) -> tuple[list[tuple[int, str, float]], Progress | None]:
    reader = LogReader()
    points = reader.feed(text.encode() if isinstance(text, str) else text) + reader.close()
    return [point[:3] for point in points], reader.progress


def test_keras_counts_steps_over_all_epochs() -> None:
    points, progress = read(KERAS)
    first = [(1, "loss", 2.3026), (1, "accuracy", 0.125), (120, "loss", 0.5), (120, "accuracy", 0.8)]
    later = [(120, "val_loss", 0.4), (120, "step_time", 0.02), (180, "loss", 0.41), (180, "accuracy", 0.9)]
    assert points == first + later
    assert progress == Progress(180, 240)
    assert progress.share == 0.75


def test_keras_3_with_colours_reads_as_well() -> None:
    """Its bar is drawn with box characters."""
    points, progress = read(KERAS_3)
    assert points == [(120, "accuracy", 0.9), (120, "loss", 0.41), (120, "step_time", 0.004)]
    assert progress == Progress(120, 9380)


@pytest.mark.parametrize(
    ("text", "points", "progress"),
    [
        ("Epoch 3/10\n938/938 - 3s - loss: 0.4 - acc: 0.9\n", [(2814, "loss", 0.4), (2814, "acc", 0.9)], (2814, 9380)),
        ("Epoch 3/10\n - 3s - loss: 0.4 - acc: 0.9\n", [(3, "loss", 0.4), (3, "acc", 0.9)], (3, 10, "epoch")),
        ("Epoch 3/10\n", [], (2, 10, "epoch")),
        (
            "Epoch 1/2\n   12/Unknown - 3s 250us/step - loss: 0.4",
            [(12, "loss", 0.4), (12, "step_time", 0.00025)],
            (12, None),
        ),
        ("6400/60000 [==>.....] - ETA: 8s - loss: nan\n", [(6400, "loss", math.nan)], (6400, 60000)),
    ],
)
def test_the_other_ways_in_which_keras_writes(
    text: str, points: list[tuple[int, str, float]], progress: tuple[int, int | None]
) -> None:
    told, at = read(text)
    assert str(told) == str(points)
    assert at == Progress(*progress)


def test_an_evaluation_after_a_training_is_no_step_back() -> None:
    """`model.evaluate` writes a bar like that of an epoch, but announces none. It may have more steps than an epoch."""
    bar = "[====] - 1s 1ms/step - loss: "
    points, progress = read(
        f"Epoch 1/1\n100/100 {bar}0.5\n100/100 {bar}0.5 - val_loss: 0.4\n50/300 {bar}0.3\n300/300 {bar}0.2\n"
    )
    assert progress == Progress(100, 100)
    assert points[-1] == (100, "val_loss", 0.2)
    assert (100, "val_loss", 0.3) not in points


def test_steps_of_a_data_set_of_unknown_length_go_on_in_the_next_epoch() -> None:
    """The first epoch does not know how long it is; a training that is started again begins at the beginning."""
    epoch = "5/Unknown - 3s 1ms/step - loss: 0.4\n"
    points, progress = read(f"Epoch 1/3\n{epoch}Epoch 2/3\n{epoch}")
    assert [step for step, name, _ in points if name == "loss"] == [5, 10]
    assert progress == Progress(10, None)
    assert read(f"Epoch 1/3\n{epoch}Epoch 1/3\n{epoch}")[1] == Progress(5, None)


def test_an_estimator_tells_loss_rate_and_evaluations() -> None:
    """The rate is that of the steps up to the one in the next line. Evaluations have the names that Keras would give them."""
    points, progress = read(ESTIMATOR)
    losses = [(0, "loss", 2.5), (100, "loss", 0.52), (100, "step_time", 0.0125)]
    assert points == [*losses, (500, "val_accuracy", 0.97), (500, "val_loss", 0.1), (100, "loss", 0.05)]
    assert progress == Progress(100, None)


@pytest.mark.parametrize(
    ("text", "points", "progress"),
    [
        ("step 20: loss=0.3", [(20, "loss", 0.3)], (20, None)),
        ("step 20 loss 0.3 acc 91%", [(20, "loss", 0.3), (20, "acc", 0.91)], (20, None)),
        ("Step 100/1000", [], (100, 1000)),
        ("[step=100] lr=5e-05, train/loss: .25", [(100, "lr", 5e-05), (100, "train/loss", 0.25)], (100, None)),
        ("Iteration 7 of 10, loss = inf", [(7, "loss", math.inf)], (7, 10)),
        ("Epoch [2/3], Step [100/600], Loss: 0.2", [(700, "Loss", 0.2)], (700, 1800)),
        ("Epoch 3: loss=0.5", [(3, "loss", 0.5)], (3, None, "epoch")),
        ("1600000000.1: Worker 0: training step 9 done (global step: 20)", [], (20, None)),
        ("Accuracy at step 10: 0.7103", [(10, "Accuracy", 0.7103)], (10, None)),
        ("30\timages/sec: 56.1 +/- 0.1 (jitter = 0)\t8.1", [(30, "images/sec", 56.1), (30, "loss", 8.1)], (30, None)),
        (" 45%|████▌     | 450/1000 [00:10<00:12, 43.2it/s, loss=0.3]", [(450, "loss", 0.3)], (450, 1000)),
        ("train | step:    100 | steps/sec:   12.3", [(100, "steps/sec", 12.3)], (100, None)),
    ],
)
def test_training_loops_of_ones_own(
    text: str, points: list[tuple[int, str, float]], progress: tuple[int, int | None]
) -> None:
    """What examples, benchmarks and people print."""
    assert read(text) == (points, Progress(*progress))


@pytest.mark.parametrize(
    "text",
    [
        "Downloading https://example.com/model-2.1.0/epoch.tar.gz",
        "listening on port=8080",
        "2026/11/22 12:00:00 starting 3 workers",
        "10/20 3 files copied",
        "stepping 20 stones",
        "step 0.5",
        "Epoch 00003: early stopping",
        "\x1b]0;step 3\x07",
    ],
)
def test_other_lines_tell_nothing(text: str) -> None:
    assert read(text) == ([], None)


def test_a_total_that_was_told_once_holds_for_the_lines_that_do_not_tell_it() -> None:
    assert read("Step 100/1000\nstep 200 loss 0.3\n")[1] == Progress(200, 1000)
    assert read("Step 100/1000\nstep 2000 loss 0.3\n")[1] == Progress(2000, None)


def test_timestamps_of_the_kubelet_become_the_time_of_points() -> None:
    stamp = "2026-11-22T10:00:00.123456789Z"
    reader = LogReader()
    lines = f"{stamp} step 1 loss 3\rstep 2 loss 2\nstep 3 loss 1\n2026-13-99T10:00:00Z step 4 loss 0\n"
    points = reader.feed(lines.encode())
    at = datetime(2026, 11, 22, 10, 0, 0, 123456, UTC)
    assert points == [Point(step, "loss", 4.0 - step, at if step < 3 else None) for step in range(1, 5)]


KNOWN = [*KERAS.splitlines(), KERAS_3, *ESTIMATOR.splitlines(), "\r", "\b", "\n", "\x1b[", "step 3 loss "]
TEXTS = st.lists(st.one_of(st.sampled_from(KNOWN), st.text(max_size=30))).map("\n".join)


@given(TEXTS, st.lists(st.integers(0, 3000)))
def test_where_the_bytes_are_cut_changes_nothing(text: str, cuts: list[int]) -> None:
    data = text.encode(errors="replace")
    whole, cut = LogReader(), LogReader()
    expected = whole.feed(data) + whole.close()
    points, start = [], 0
    for end in [*sorted(cuts), len(data)]:
        points += cut.feed(data[start:end])
        start = max(start, end)
    assert str(points + cut.close()) == str(expected)
    assert cut.progress == whole.progress


@given(st.binary(max_size=2000))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    reader = LogReader()
    for point in reader.feed(data) + reader.close():
        assert point.step >= 0
        assert point.name


@given(TEXTS)
def test_lines_have_no_escapes_and_no_ends_in_them(text: str) -> None:
    reader = LineReader()
    for line in [*reader.feed(text.encode(errors="replace")), *reader.close()]:
        assert not set("\r\b\n") & set(line.text)


def test_a_line_of_10_megabytes_is_cut() -> None:
    reader = LineReader()
    for _ in range(100):
        assert list(reader.feed(b"x" * 100_000)) == []
    assert list(reader.feed(b"\nstep 1\n")) == [Line("x" * MAX_BYTES), Line("step 1")]


UNITS = [
    "step ", "a=1", "epoch 1 ", "a.", "1/1 ", "loss ", "a a ", "\x1b[", "\x1b]", "1%|", "=1=", "9", "step 1/", " - loss: 1",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_no_line_takes_longer_than_its_length(unit: str) -> None:
    line = ("step 1 loss " + unit * MAX_BYTES)[: MAX_BYTES - 1].encode() + b"\n"
    reader = LogReader()
    started = time.process_time()
    for _ in range(25):
        reader.feed(line)
    assert time.process_time() - started < 2.0


def steps_of(curves: Curves, name: str = "loss") -> list[int]:
    return [point.step for point in curves.by_name[name]]


def test_what_is_told_again_of_a_step_replaces_what_was_told() -> None:
    """A training that goes on from a checkpoint repeats steps."""
    curves = Curves()
    curves.add([Point(step, "loss", 1.0) for step in (10, 20, 30, 40)])
    curves.add([Point(25, "loss", 2.0), Point(35, "loss", 3.0)])
    assert [(point.step, point.value) for point in curves.by_name["loss"]] == [(10, 1), (20, 1), (25, 2), (35, 3)]


def test_a_long_curve_keeps_its_shape_and_its_ends() -> None:
    curves = Curves(most_points=8)
    curves.add(Point(step, "loss", 0.0) for step in range(101))
    assert steps_of(curves) == [0, 16, 32, 48, 64, 80, 96, 100]


def test_there_are_no_more_curves_than_a_page_can_show() -> None:
    """A log may tell of a thousand names."""
    curves = Curves(most_names=2)
    curves.add(Point(1, name, 0.0) for name in ("a", "b", "c", "a"))
    assert list(curves.by_name) == ["a", "b"]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(2, 10))
def test_steps_only_grow_and_the_last_point_is_the_newest(steps: list[int], most: int) -> None:
    curves = Curves(most_points=most)
    curves.add(Point(step, "loss", 0.0) for step in steps)
    told = steps_of(curves)
    assert told == sorted(set(told))
    assert told[-1] == steps[-1]
    assert len(told) <= most + 1
