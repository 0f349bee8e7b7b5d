import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.progress.parser import CounterRank, CountParser, StepCount, parse_number

BAR = "━" * 10


def counts(text: str) -> list[StepCount]:
    return list(CountParser().counts(text.encode()))


@pytest.mark.parametrize(
    ("text", "source", "done", "total"),
    [
        (" 12%|█▏    | 12/100 [00:10<01:10,  1.20it/s, loss=0.5]", "tqdm", 12, 100),
        ("x:  0%|      | 0/400 [00:00<?, ?it/s]", "tqdm", 0, 400),
        ("  3%|3     | 1/30 [01:10<2:01:10, 70.10s/it]", "tqdm", 1, 30),
        (" 30%|###   | 1.20k/4.00k [00:10<01:10, 1.20kB/s]", "tqdm", 1200, 4000),
        (" 30%|###   | 1.2M/4.0G [00:10<01:10, 1.20MB/s]", "tqdm", 1.2e6, 4e9),
        ("12% 12/100 [00:10<01:10,  1.20it/s]", "tqdm", 12, 100),
        ("40%|████      |", "tqdm", 40, 100),
        ("a: 12it [00:10,  1.20it/s]", "tqdm", 12, None),
        ("1.50kB [1:00:10, 1.20kB/s, loss=2]", "tqdm", 1500, None),
        (f"12/100 {BAR} 5s 40ms/step - loss: 0.5", "Keras", 12, 100),
        ("12/100 [==>.......] - ETA: 5s - loss: 0.5", "Keras", 12, 100),
        ("100/100 - 5s - 50ms/step - loss: 0.1", "Keras", 100, 100),
        ("     12/Unknown 5s 40ms/step", "Keras", 12, None),
        (f"Working... {BAR}╸{BAR}  24% 0:00:12", "rich", 24, 100),
        (f"batches {BAR}╺{BAR} 3/10 0:00:12", "rich", 3, 10),
        (f"get {BAR} 1.2/ 4.0 MB", "rich", 1.2, 4),
        ("[ 42%] Building C object a.o", "percentages", 42, 100),
        ("Progress: 42.5%", "percentages", 42.5, 100),
        ("copied, 42% done", "percentages", 42, 100),
        ("step 120 of 4000", "step lines", 120, 4000),
        ("INFO iter 1,200/4,000 loss 0.1", "step lines", 1200, 4000),
        ("Iteration: [ 5 / 10 ]", "step lines", 5, 10),
        ("done with 12 of 40 files", "step lines", 12, 40),
        ("[12/345] cc -c a.c", "step lines", 12, 345),
    ],
)
def test_steps_are_read(
    text: str, source: str, done: float, total: float | None
) -> None:
    (count,) = counts(text)
    assert (count.source, count.rank, count.done, count.total) == (
        source,
        CounterRank.STEP,
        done,
        total,
    )


@pytest.mark.parametrize(
    ("text", "done", "total"),
    [
        ("Epoch 3/10", 3, 10),
        ("epoch 3 of 10: loss 0.1", 3, 10),
        ("== Epoch [3/10] ==", 3, 10),
        ("Epoch 2:", 2, None),
        ("round 2/8", 2, 8),
    ],
)
def test_epochs_are_read(text: str, done: float, total: float | None) -> None:
    (count,) = counts(text)
    assert (count.rank, count.done, count.total) == (CounterRank.EPOCH, done, total)
    assert count.is_ordinal


@pytest.mark.parametrize(
    ("text", "outer", "inner"),
    [
        ("Epoch [3/10], Step [120/4000], Loss: 0.5", (3, 10), (120, 4000)),
        ("Epoch: [3][ 120/4000]\tTime 0.1", (3, None), (120, 4000)),
        ("Train Epoch: 3 [1280/6000 (21%)]\tLoss: 0.5", (3, None), (1280, 6000)),
        ("Epoch 2:  40%|██   | 40/100 [00:04<00:06, 9it/s]", (2, None), (40, 100)),
        (f"Epoch 0/9 {BAR} 5/50 0:00:01 • 0:00:09 9it/s", (0, 9), (5, 50)),
        ("fold 2/5 epoch 3/10", (2, 5), (3, 10)),
    ],
)
def test_two_counts_of_one_line_are_read_the_outer_one_first(
    text: str, outer: tuple[float, float | None], inner: tuple[float, float]
) -> None:
    assert [(count.done, count.total) for count in counts(text)] == [outer, inner]


def test_a_fold_contains_the_epochs() -> None:
    assert [count.rank for count in counts("fold 2/5 epoch 3/10")] == [
        CounterRank.PART,
        CounterRank.EPOCH,
    ]


def test_an_epoch_with_figures_after_it_is_over_and_one_without_begins() -> None:
    assert counts("Epoch 3/10")[0].is_heading
    assert not counts("Epoch 3/10: loss 0.25")[0].is_heading


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss 0.5",
        "2026/11/21 10:00:00 started",
        "accuracy 42%",
        "best epoch 3 so far",
        "epochs were many",
        "cat a/1/2/3",
        "step 7/3",
        "step 0/0",
        "[13/12]",
        "{'loss': '0.5', 'epoch': '1.5'}",
        "saved [epoch]",
        "3.5% [x]",
    ],
)
def test_other_lines_count_nothing(text: str) -> None:
    assert counts(text) == []


def test_the_trainer_s_lines_count_once_the_epochs_are_known() -> None:
    parser = CountParser()
    assert list(parser.counts(b"  Num Epochs = 3")) == []
    (count,) = parser.counts(b"{'loss': '0.5', 'epoch': '1.5'}")
    assert (count.source, count.done, count.total) == ("Trainer", 1.5, 3)


def test_a_bar_reports_its_line_on_the_display() -> None:
    assert counts("\r  5%|   | 5/99 [00:01<00:09]\x1b[A")[0].position == 1


def test_a_label_is_the_same_whatever_the_figures_in_it() -> None:
    labels = {
        counts(f"loss {n / 7:.2f}: 5%|   | 5/99 [00:01<00:09]")[0].label
        for n in range(9)
    }
    assert len(labels) == 1


def test_the_user_s_own_pattern_comes_first() -> None:
    parser = CountParser([r"sweep (?P<done>[\d,]+) <(?P<total>\d+)>"])
    (count,) = parser.counts(b"sweep 1,200 <4000>")
    assert count == StepCount("your pattern", "0", CounterRank.PATTERN, 0, 1200, 4000)


def test_a_pattern_may_be_of_per_cent() -> None:
    (count,) = CountParser([r"at (?P<percent>[\d.]+)"]).counts(b"at 12.5")
    assert (count.done, count.total) == (12.5, 100)


@pytest.mark.parametrize("text", [b"at x", b"at 101", b"at nan", b"at inf", b"up 3"])
def test_a_pattern_that_finds_no_sensible_number_counts_nothing(text: bytes) -> None:
    assert list(CountParser([r"at (?P<percent>\S+)"]).counts(text)) == []


def test_a_group_that_took_no_part_counts_nothing() -> None:
    pattern = r"at (?:(?P<done>\d+) of (?P<total>\d+)|nowhere)"
    assert list(CountParser([pattern]).counts(b"at nowhere")) == []


@pytest.mark.parametrize(
    "pattern", ["(", r"(\d+)/(\d+)", r"(?P<done>\d+)", "a{9999999999}"]
)
def test_a_pattern_that_cannot_be_is_refused(pattern: str) -> None:
    with pytest.raises(FormatError):
        CountParser([pattern])


@given(st.binary(max_size=300))
def test_no_line_is_too_odd(line: bytes) -> None:
    for count in CountParser(["(?P<percent>.)"]).counts(line):
        assert 0 <= count.done < float("inf")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("epoch 2/5 file 3/9 45%", [("epoch", 2), ("step", 3)]),
        ("file 3/9 45%", [("file", 3), ("", 45)]),
    ],
)
def test_what_counts_the_parts_of_a_part(
    text: str, found: list[tuple[str, float]]
) -> None:
    assert [(count.label, count.done) for count in counts(text)] == found


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,200", 1200),
        ("12,5", 12.5),
        ("1.234", 1.234),
        ("1.234,56", 1234.56),
        ("1,234.56", 1234.56),
        ("1.234.567", 1234567),
        ("1,234,567", 1234567),
        ("12_345", 12345),
        ("4.0k", 4000),
        ("1,5G", 1.5e9),
    ],
)
def test_of_two_kinds_of_marks_in_a_number_the_last_is_the_decimal_one(
    text: str, number: float
) -> None:
    assert parse_number(text) == number
