"""A metric in output: the values that programs printed, by what the test printed."""

import csv
import io
import json
import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.model.report import MetricTrend
from weigh.task_metric import (
    MetricReader,
    metric_expectation,
    metric_summary,
    printed_names,
    task_metric,
    without_seeds,
)


def a_csv(values: Sequence[float], separator: str = ",") -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator)
    writer.writerow(["epoch", "val_loss", "loss"])
    writer.writerows(
        [epoch, "" if epoch % 2 else 7, v] for epoch, v in enumerate(values)
    )
    return text.getvalue()


def a_printed_table(values: Sequence[float]) -> str:
    head = "E    #   LOSS TOK2VEC  LOSS   SCORE\n---  --  ------------  ----  -----\n"
    return head + "".join(
        f"  {n}       {n}  40.14   {v}   0.5\n" for n, v in enumerate(values)
    )


# how programs print a loss
FORMS: dict[str, Callable[[Sequence[float]], str]] = {
    "a word": lambda vs: "".join(f"epoch 1/9 loss {v} val_loss 7\n" for v in vs),
    "a colon": lambda vs: "".join(f"val_loss: 7 - loss: {v} - lr: 1e-3\n" for v in vs),
    "=": lambda vs: "".join(f"step=3 loss={v}, train/loss=7\n" for v in vs),
    "JSON": lambda vs: "".join(json.dumps({"a": 7, "loss": v}) + "\n" for v in vs),
    "a dict": lambda vs: "".join(f"{ ({'loss': v, 'epoch': 7}) }\n" for v in vs),
    "a tensor": lambda vs: "".join(
        f"loss: tensor({v}, requires_grad=True)\n" for v in vs
    ),
    "a bar": lambda vs: "".join(
        f"\r 5/9 [0:01<0:01, loss=\x1b[1m{v}\x1b[0m]" for v in vs
    ),
    "CSV": a_csv,
    "TSV": lambda vs: a_csv(vs, "\t"),
    "a table": a_printed_table,
    "Markdown": lambda vs: (
        "| n | loss |\n|---|---|\n"
        + "".join(f"| {n} | {v} |\n" for n, v in enumerate(vs))
    ),
}


def values_in(name: str, output: bytes, pieces: int = 1 << 20) -> list[float]:
    reader = MetricReader(task_metric(name))
    for at in range(0, len(output), pieces):
        reader.feed(output[at : at + pieces])
    reader.end()
    return reader.values


@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8),
    form=st.sampled_from(sorted(FORMS)),
    pieces=st.integers(1, 40),
    noise=st.binary(max_size=60).filter(lambda b: b"loss" not in b.lower()),
)
def test_every_printed_value_is_read_however_the_output_arrives(
    values: list[float], form: str, pieces: int, noise: bytes
) -> None:
    output = noise + b"\nanother line: 3 of 4\n" + FORMS[form](values).encode()
    assert values_in("loss", output, pieces) == values


@pytest.mark.parametrize(
    ("name", "output", "found"),
    [
        ("loss", "loss=nan loss: inf", [math.nan, math.inf]),
        ("Loss", "LOSS: 2", [2.0]),
        ("train/loss", "train/loss: 2 loss: 3", [2.0]),
        ("acc", "acc: 91.5% (acc: 90.)", [91.5, 90.0]),
        ("/took (\\d+) ms/", "took 12 ms\ntook 9 ms", [12.0, 9.0]),
        ("/took (\\d+) (ms|s)/", "took 12 ms\ntook 9 s", [12.0, 9.0]),
        ("/took (.*) ms/", "took long ms", []),
        ("ppl", "ppl: 1,234.5 ppl: 12,345 (ppl=-1,000)", [1234.5, 12345.0, -1000.0]),
        ("ppl", "ppl: 1,2 ppl: [1,234,5] ppl: 1234,567", [1.2, 1.0, 1234.567]),
        # a German locale, and a list
        ("loss", "loss: 0,12 (loss=3,5e-02) loss=-0,1, n=2", [0.12, 0.035, -0.1]),
        ("loss", "loss 1,234\nloss 0,987", [1.234, 0.987]),
        ("loss", '{"loss":[0,12],"n":1} loss: 1,2,3', [0.0, 1.0]),
        ("loss", "epoch;loss\n1;0,5\n2;0,25", [0.5, 0.25]),
        ("acc", "epoch;acc\n1;95,5%\n2;1,000%", [95.5, 1.0]),
        # of one column the head is the first line
        ("loss", "\nloss\n0.5\nsome words\n.25\n", [0.5, 0.25]),
        ("loss", '"loss"\r\n1\r\n', [1.0]),
        ("ppl", "epoch | ppl\n1 | 1,234.5", [1234.5]),
        ("/took (.*) ms/", "took 0,12 ms", [0.12]),
        ("écart", "Écart: 0.5", [0.5]),
        ("loss\udcff", "loss: 1", []),
        ("loss", "lossless: 3 loss_scale: 4 no loss today 5x loss: 1.2.3", []),
        # 64 KiB are the longest line
        ("loss", f"{'loss: 5':>65536}\n{'loss: 3':>65537}\nloss: 4", [5.0, 4.0]),
        ("f1", "epoch,f1\n1,.5\nsome words, and more\n2,.75", [0.5, 0.75]),
        ("f1", "epoch,f1\n1,2\n3,4,5\nf1,epoch\n6,7", [2.0, 6.0]),
        ("f1", "epoch,my_f1\n1,2\nf1,3\n4,5\nf1\n6", []),  # no head of f1
    ],
)
def test_a_metric_is_its_whole_name_and_a_number(
    name: str, output: str, found: list[float]
) -> None:
    assert values_in(name, output.encode()) == pytest.approx(found, nan_ok=True)


def test_binary_output_has_no_metric() -> None:
    assert values_in("loss", random.Random(1).randbytes(1 << 20)) == []


@pytest.mark.parametrize("text", ["", ":min", "/(/", "/no group/", "/(a+)+b/"])
def test_what_names_no_metric_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        task_metric(text)


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("val_loss", True),
        ("WER", True),
        ("ppl", True),
        ("acc", False),
        ("reward", False),
        ("acc:min", True),
        ("loss:max", False),
    ],
)
def test_which_end_is_good_is_in_the_name_or_typed(name: str, *, lower: bool) -> None:
    assert task_metric(name).lower_is_better is lower


NOISE = [random.Random(2).gauss(1, 0.1) for _ in range(60)]


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([2.3 * 0.9**n for n in range(30)], "improving"),
        ([2.0, 1.5, 1.2, 1.1, 1.0, 0.9], "improving"),
        (NOISE, "standing still"),
        # beyond a hundredth of all that the values moved
        ([1.0] * 3 + [0.0] * 3 + [-0.009] * 3, "standing still"),
        ([1.0] * 3 + [0.0] * 3 + [-0.011] * 3, "improving"),
        ([100 - n / 10 for n in range(12)], "improving"),
        # up and down by 2, and then down by .2: two standard errors are 4 / sqrt(5)
        ([*[1, 3, 1, 3, 1] * 2, 0.8, 2.8, 0.8, 2.8, 0.8], "standing still"),
        ([2, 1, 0.5, 0.4, 0.5, 0.9, 1.4, 2, 3], "getting worse"),
        ([v + 0.02 * n for n, v in enumerate(NOISE)], "getting worse"),
        ([2.0, 1.0, math.nan], "diverged"),
        ([2.0, 1.0, math.inf], "diverged"),
        ([2.0, 1.0, 0.5, 0.4, 0.3], None),
    ],
)
def test_the_trend_is_that_of_the_last_third_beyond_its_noise(
    values: list[float], trend: MetricTrend | None
) -> None:
    less = metric_summary(values, lower_is_better=True)
    turned = metric_summary([-v for v in values], lower_is_better=False)
    assert less is not None
    assert turned is not None
    assert (less.trend, turned.trend) == (trend, trend)


def test_the_best_value_has_its_place_and_is_finite() -> None:
    values = [math.nan, 3.0, 1.0, 2.0, math.inf]
    low = metric_summary(values, lower_is_better=True)
    high = metric_summary(values, lower_is_better=False)
    assert low is not None
    assert high is not None
    assert (low.best, low.best_at, low.last, low.values) == (1.0, 3, math.inf, 5)
    assert (high.best, high.best_at) == (3.0, 2)
    assert metric_summary([], lower_is_better=True) is None


@pytest.mark.parametrize(
    ("text", "values", "failure"),
    [
        ("loss<0.05", [1.0, 0.04, 0.3], None),
        ("loss < 0.05", [1.0, 0.06], "loss 0.06, not < 0.05"),
        ("loss<=1", [1.0], None),
        ("loss<1", [1.0], "loss 1, not < 1"),
        ("acc>=.9", [0.1, 0.95, 0.2], None),
        ("acc > 0.9", [0.9], "acc 0.9, not > 0.9"),
        ("loss:min<0.05", [1.0, 0.04], None),
        ("loss:max<5", [1.0, 9.0], "loss 9, not < 5"),
        ("loss<1", [math.nan], "printed no loss"),
        ("loss<1", [], "printed no loss"),
    ],
)
def test_an_expectation_is_met_by_the_best_value(
    text: str, values: list[float], failure: str | None
) -> None:
    assert metric_expectation(text).failure(values) == failure


@pytest.mark.parametrize("text", ["loss", "<1", "loss<", "loss=1", "loss<x", ""])
def test_what_is_no_expectation_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="is not like"):
        metric_expectation(text)


def test_printed_names_are_in_order_of_how_often_they_occur() -> None:
    assert printed_names("a=1 val_loss: 2\nval_loss: 1 at 12:30") == ["val_loss", "a"]


def test_tasks_that_differ_in_their_seed_only_are_repeats() -> None:
    names = {
        "seed": 1,
        "rng_seed": 1,
        "random_state": 2,
        "fold": 3,
        "lr": 4,
        "seeds": 5,
    }
    assert without_seeds(names) == {"lr": 4, "seeds": 5}
