from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.runner.divergence import (
    DivergenceWatch,
    LostNumber,
    lost_at_end,
    lost_number,
)


def test_what_was_lost_is_found_as_it_was_reviewed() -> None:
    def unescaped(text: str) -> str:
        return text.encode().decode("unicode_escape")

    def word(line: str) -> str | None:
        lost = watched(unescaped(line))
        return None if lost is None else lost.word

    path = Path(__file__).with_name("divergence.texts")
    check_answers(
        path,
        {
            "a line": word,
            "the end of an output": lambda text: lost_at_end(unescaped(text).encode()),
        },
    )


def watched(text: str, pieces: int = 1, patience: int = 1) -> LostNumber | None:
    watch, size = DivergenceWatch(patience), -(-len(text) // pieces) or 1
    for at in range(0, len(text), size):
        lost = watch.feed(text[at : at + size].encode())
        if lost is not None:
            return lost
    return watch.feed(b"\n")


def test_the_first_of_several_lines_is_named() -> None:
    text = "step 1 loss: 0.5\nstep 2 loss: nan\nstep 3 loss: nan\n"
    assert watched(text) == LostNumber(2, "step 2 loss: nan", "NaN")


def test_a_progress_bar_that_draws_over_itself_is_read_piece_by_piece() -> None:
    found = watched("a\n1/3 loss=0.5\r2/3 loss=inf\r3/3 loss=inf\n")
    assert found == LostNumber(2, "2/3 loss=inf", "inf")


@given(st.text(alphabet=st.characters(exclude_categories=("L", "Cs"))))
def test_a_line_without_letters_never_alarms(text: str) -> None:
    assert watched(text) is None


@given(st.floats(), st.sampled_from(("loss: {}", "loss={}", "reward -> {}")))
def test_python_s_own_way_to_write_numbers_is_read(number: float, line: str) -> None:
    is_finite = number - number == 0
    assert (lost_number(line.format(number)) is None) == is_finite


@given(st.binary())
def test_bytes_of_any_kind_are_read(text: bytes) -> None:
    watch = DivergenceWatch()
    watch.feed(text)
    watch.feed(b"\n")


def losses(*values: object, form: str = "step loss: {}\n") -> str:
    return "".join(form.format(value) for value in values)


@pytest.mark.parametrize(
    "form",
    [
        "step loss: {}\n",
        "Epoch 3/10 - train_loss: {} - accuracy: 0.5\n",
        "{{'loss': {}, 'grad_norm': 2.5, 'epoch': 0.1}}\n",
        "loss={}, 3.1it/s\r",
        "it 3 val/loss tensor({})\n",
    ],
)
@pytest.mark.parametrize("pieces", [1, 7, 40])
def test_a_loss_that_explodes_is_found(form: str, pieces: int) -> None:
    text = losses("1.02", "0.9", 1, 1.1, 8e4, "3.1e+09", 7e13, form=form)
    lost = watched(text, pieces)
    assert lost is not None
    assert lost.word.endswith("loss 1 -> 7e+13")
    assert lost.line == (1 if form.endswith("\r") else 7)


@pytest.mark.parametrize(
    "values",
    [
        (2.3, 2.1, 1.9, 60, 1.8, 1.7),  # a spike
        (2.3, 2.1, 1.9, 9e6, 1.8, 9e6, 9e6, 1.7),  # several
        (1e5, 9e4, 2e7, 3e7, 5e7, 4e6),  # of squares of prices
        (1e-9, 1e-8, 1e-7, 3e-3, 4e-3, 8e-3, 9e-3),  # small all the time
        (700, 3, 0.2, 0.1),
    ],
)
def test_a_loss_that_only_varies_is_not(values: tuple[float, ...]) -> None:
    assert watched(losses(*values)) is None


def test_a_line_that_never_ends_is_read_in_time_that_grows_with_it() -> None:
    for text in ("loss" * 10_000, "loss: " + "9" * 40_000, "loss" + " " * 40_000):
        assert watched(text, pieces=3) is None


def test_what_scales_a_loss_is_none() -> None:
    assert watched(losses(1, 2, 1, *[65536] * 5, form="loss_scale: {}\n")) is None


RECORDED = Path(__file__).parents[2] / "support/data"


def test_no_recorded_output_is_taken_for_a_divergence() -> None:
    files = [path for path in RECORDED.rglob("*") if path.is_file()]
    alarms = {
        path.name: lost
        for path in files
        if (lost := watched(path.read_bytes().decode("latin-1"))) is not None
    }
    assert len(files) > 20
    assert alarms == {}


def test_an_undefined_score_with_a_loss_that_is_a_number_is_no_divergence() -> None:
    both = losses(*range(9), form="loss: 0.{0}, f1: nan\n")
    apart = losses(*range(9), form="loss: 0.{0}\nf1: nan\n")
    assert watched(both) is watched(apart) is None
    assert watched(f"{apart}loss: nan\n") == LostNumber(19, "loss: nan", "NaN")


def test_an_infinite_gradient_of_mixed_precision_is_waited_for() -> None:
    scaled = losses(1, form="grad_norm: inf\n") + losses(2, 2, 2)
    assert watched(scaled, patience=3) is None
    lost = watched(scaled + losses(*["nan"] * 9), patience=3)
    assert lost is not None
    assert lost.line == 6
