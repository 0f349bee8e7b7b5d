"""Which counter spans the run, and how far it is: simulated displays and logs."""

from collections.abc import Callable, Iterable

import pytest

from weigh.model.progress import EndForecast
from weigh.progress.counters import MOST_COUNTERS
from weigh.progress.reader import RunProgressReader

BAR = "━" * 10
Printed = Iterable[tuple[float, str]]


def tqdm(done: int, total: int, label: str = "", *, below: int = 0) -> str:
    down, up = "\n" * below, "\x1b[A" * below
    name = f"{label}: " if label else ""
    bar = f"{100 * done // total:3d}%|##  | {done}/{total}"
    return f"{down}\r{name}{bar} [00:01<00:09, 9.9it/s]{up}"


def seen(printed: Printed, *, until: float) -> EndForecast:
    reader = RunProgressReader()
    for time, text in printed:
        if time <= until:
            reader.feed(text.encode(), time)
    forecast = reader.forecast(until)
    assert forecast is not None
    return forecast


def rounds(
    count: int,
    seconds: float,
    heading: Callable[[int], str],
    line: Callable[[int, int], str],
    steps: range = range(11),
) -> list[tuple[float, str]]:
    """Print a heading at the begin of each round, and a line each second."""
    return [
        printed
        for turn in range(count)
        for printed in (
            (turn * seconds, heading(turn)),
            *((turn * seconds + step, line(turn, step)) for step in steps),
        )
    ]


TO_TWENTY = range(1, 21)


@pytest.mark.parametrize(
    ("printed", "until", "done", "total", "left"),
    [
        pytest.param(
            rounds(
                *(5, 10, lambda n: tqdm(n, 5, "epochs")),
                lambda _, n: tqdm(n, 10, "steps", below=1),
            ),
            *(23, 2.3, 5, 27),
            id="of two nested bars the outer one spans the run",
        ),
        pytest.param(
            rounds(*(10, 10, lambda n: tqdm(n, 10)), lambda _, n: tqdm(n, 10, below=1)),
            *(35, 3.5, 10, 65),
            id="nested bars without a name and of one total are distinguished",
        ),
        pytest.param(
            rounds(
                *(10, 20, lambda n: f"\nEpoch {n + 1}/10\n"),
                lambda _, n: f"\r{n}/20 {BAR} 5s 40ms/step - loss: 0.5",
                TO_TWENTY,
            ),
            *(50, 2.5, 10, 150),
            id="a bar inside an epoch counts as its fraction",
        ),
        pytest.param(
            rounds(
                *(10, 20, lambda n: f"\nEpoch {n + 1}/10 lr 0.1\n"),
                lambda _, n: tqdm(n, 20),
                TO_TWENTY,
            ),
            *(50, 2.5, 10, 150),
            id="an epoch with a figure before its bar is under way",
        ),
        pytest.param(
            rounds(
                *(9, 10, lambda n: "" if n else "Namespace(epochs=20, lr=0.1)\n"),
                lambda epoch, n: tqdm(n, 10, f"Epoch {epoch}"),
            ),
            *(45, 4.5, 20, 155),
            id="epochs end where the program printed their number once",
        ),
        pytest.param(
            [(10.0 * n + 10, f"Epoch {n}/24 loss 0.5\n") for n in range(25)],
            *(60, 6, 25, 190),
            id="epochs counted from zero to one less are completed",
        ),
        pytest.param(
            [(n, f"epoch {1 + n // 100} step {n}/400\n") for n in range(1, 401)],
            *(150, 150, 400, 250),
            id="steps that go on through the epochs span the run",
        ),
        pytest.param(
            [(n / 2, tqdm(n, 10, "loading")) for n in range(11)]
            + [(6 + n, tqdm(n, 100, "training")) for n in range(101)],
            *(26, 20, 100, 80),
            id="a phase that is over gives way to the next",
        ),
        pytest.param(
            [(n, tqdm(n, 1000, "searching")) for n in range(6)]
            + [(6 + n, tqdm(n, 100, "training")) for n in range(101)],
            *(40, 34, 100, 66),
            id="a phase that was left gives way to the next",
        ),
        pytest.param(
            [
                (n, tqdm(n, 50, "quick") + tqdm(n, 500, "slow", below=1))
                for n in range(50)
            ],
            *(30, 30, 500, 470),
            id="of bars side by side the last to end counts",
        ),
        pytest.param(
            [(n, tqdm(n, 100 if n < 30 else 300)) for n in range(100)],
            *(50, 50, 300, 250),
            id="a total that changes is followed",
        ),
        pytest.param(
            [(n, tqdm(n, 100, "abcdefgh"[n % 7 :])) for n in range(100)],
            *(50, 48, 100, 52),
            id="a label that changes is followed",
        ),
        pytest.param(
            [(n / 2, f"step {n // 2 - 3 * (n % 2)} of 100\n") for n in range(20, 200)],
            *(50, 50, 100, 50),
            id="counts that lag behind are left out",
        ),
        pytest.param(
            [(10 * n, f"epoch {n}/10 step {100 - 3 * n}/100\n") for n in range(1, 8)],
            *(70, 6.79, 10, None),
            id="a step a little lower in a new epoch is a new pass",
        ),
        pytest.param(
            [
                (10 * n + late, f"epoch {max(1, n - late)}/10: loss 0.5\n")
                for n in range(1, 5)
                for late in (0, 1)
            ],
            *(25, 2, 10, None),
            id="lines of a process that lags an epoch behind are left out",
        ),
        pytest.param(
            [(n, tqdm(n, 100)) for n in range(101)],
            *(100, 100, 100, 0),
            id="a finished bar has nothing left",
        ),
        pytest.param(
            [(1, tqdm(5, 5))],
            *(1, 5, 5, 0),
            id="a bar seen only at its end is finished too",
        ),
        pytest.param(
            rounds(5, 20, lambda _: "", lambda _, n: tqdm(n, 20), range(21)),
            *(50, 50, None, None),
            id="a bar that begins again and again gives no end",
        ),
    ],
)
def test_it_is_known_how_far_a_run_is(
    printed: Printed, until: float, done: float, total: float | None, left: float | None
) -> None:
    forecast = seen(printed, until=until)
    assert forecast.done == pytest.approx(done)
    assert forecast.total == total
    if total is None:
        assert forecast.remaining is None
    if left is not None:
        assert forecast.remaining == pytest.approx(left, rel=0.05)


def test_rounds_of_other_lengths_below_an_outer_bar_are_of_one_counter() -> None:
    lengths = [45, 44, 69, 32, 83, 63, 58, 44, 45]

    def printed() -> Printed:
        begin = 0
        for fold, length in enumerate(lengths):
            yield float(begin), tqdm(fold, 9, "folds")
            for step in range(length):
                yield float(begin + step), tqdm(step, length, f"fold {fold}", below=1)
            begin += length

    forecast = seen(printed(), until=100)
    assert forecast.done == pytest.approx(2.16, abs=0.1)
    assert forecast.remaining == pytest.approx(sum(lengths) - 100, rel=0.2)


def test_an_epoch_summed_up_after_its_bar_is_over() -> None:
    def printed() -> Printed:
        for epoch in range(1, 11):
            start = (epoch - 1) * 20.0
            for step in range(1, 21):
                yield start + step, tqdm(step, 20)
            yield epoch * 20.0, f"\nEpoch {epoch}/10 loss 0.5\n"

    forecast = seen(printed(), until=50)
    assert forecast.done == pytest.approx(2.5, abs=0.06)


def test_training_and_validation_in_turn_are_phases_of_an_epoch() -> None:
    def printed() -> Printed:
        for epoch in range(1, 9):
            start = (epoch - 1) * 13.0
            for step in range(11):
                yield start + step, tqdm(step, 10, f"Epoch {epoch}/8 train")
            for step in range(1, 6):
                yield start + 10 + step / 2, tqdm(step, 5, f"Epoch {epoch}/8 valid")

    forecast = seen(printed(), until=45)
    assert forecast.total == 8
    assert forecast.remaining == pytest.approx(8 * 13 - 45, rel=0.05)


def test_folds_contain_epochs_and_epochs_batches() -> None:
    def printed() -> Printed:
        clock = 0.0
        for fold in range(1, 6):
            for epoch in range(1, 5):
                for batch in range(1, 11):
                    clock += 1
                    line = f"fold {fold}/5 epoch {epoch}/4 batch {batch}/10\n"
                    yield clock, line

    forecast = seen(printed(), until=70)
    assert forecast.source == "fold lines"
    assert forecast.done == pytest.approx(1.75, abs=0.05)
    assert forecast.remaining == pytest.approx(130, rel=0.05)


def test_an_evaluation_inside_a_training_bar_changes_nothing() -> None:
    def printed() -> Printed:
        clock = 0.0
        for step in range(301):
            yield clock, tqdm(step, 300)
            clock += 1
            if step % 50 == 0:
                for batch in range(11):
                    clock += 1
                    yield clock, tqdm(batch, 10, below=1)

    forecast = seen(printed(), until=200)
    assert forecast.total == 300
    assert forecast.done == pytest.approx(157, abs=2)


def test_epochs_without_a_total_give_no_end() -> None:
    def printed() -> Printed:
        for epoch in range(9):
            for step in range(11):
                yield epoch * 10.0 + step, tqdm(step, 10, f"Epoch {epoch}")

    forecast = seen(printed(), until=45)
    assert (forecast.total, forecast.remaining) == (None, None)
    assert forecast.done == pytest.approx(4.5)
    assert forecast.step_time == pytest.approx(10, rel=0.02)


def test_a_run_that_is_taken_up_again_further_back_ends_later() -> None:
    def printed() -> Printed:
        for step in range(80):
            yield step * 1.0, f"step {step} of 100\n"
        for step in range(60, 100):
            yield step + 30.0, f"step {step} of 100\n"

    forecast = seen(printed(), until=100)
    assert forecast.high is not None
    assert forecast.high > 30


def test_the_user_s_pattern_overrules_what_else_is_printed() -> None:
    reader = RunProgressReader([r"round (?P<done>\d+) out of (?P<total>\d+)"])
    for step in range(50):
        reader.feed(f"{tqdm(step, 5000)}\nround {step} out of 60\n".encode(), step)
    forecast = reader.forecast(50)
    assert forecast
    assert (forecast.source, forecast.total) == ("your pattern", 60)


def test_more_bars_than_are_kept_do_no_harm() -> None:
    def printed() -> Printed:
        for step in range(60):
            for bar in range(MOST_COUNTERS + 4):
                yield step * 1.0, tqdm(step, 100 + bar, "abcdefghijklmnopqrstuvwx"[bar])

    assert seen(printed(), until=59).source == "tqdm"


def test_an_epoch_counter_that_is_late_is_helped_by_its_bar() -> None:
    """Lines held back in a buffer come in bursts; the bar beside them does not."""

    def printed() -> Printed:
        held = ""
        for epoch in range(20):
            held += f"Epoch {epoch + 1}/20\n"
            if epoch % 4 == 0:
                yield epoch * 10.0, held
                held = ""
            for step in range(11):
                yield epoch * 10.0 + step, tqdm(step, 10)

    assert seen(printed(), until=115).done == pytest.approx(11.5, abs=0.1)


@pytest.mark.parametrize(("first", "total"), [(0, 8), (1, 7)])
def test_lightning_s_epochs_count_from_zero_to_the_last(first: int, total: int) -> None:
    def printed() -> Printed:
        for epoch in range(first, 8):
            for step in range(11):
                bar = f"Epoch {epoch}/7 {BAR} {step}/10 0:00:01 • 0:00:09 9it/s"
                yield (epoch - first) * 10.0 + step, f"\r{bar}"

    forecast = seen(printed(), until=25)
    assert forecast.total == total
    assert forecast.done == pytest.approx(2.5)


@pytest.mark.parametrize(
    "line",
    ["Chain 1: Iteration: {n} / 1500", "Pass 2: {n} of 400 files"],
)
def test_a_counter_of_a_numbered_part_does_not_end_the_run(line: str) -> None:
    forecast = seen(((n, line.format(n=n) + "\n") for n in range(1, 30)), until=25)
    assert forecast.total is None
    assert forecast.remaining is None


def test_a_bar_that_began_before_its_epoch_was_named_makes_no_epoch_of_it() -> None:
    def printed() -> Printed:
        yield 0.0, "\r[1/50]   2%|# [00:00<?]"
        for n in range(200):
            at = f"Epoch [{n // 50 + 1}/4]: [{n % 50 + 1}/50]"
            yield n + 0.1, f"\r{at} {2 * (n % 50 + 1):3d}%|# [00:00<?]"

    forecast = seen(printed(), until=100)
    assert forecast.done == pytest.approx(2, abs=0.05)
    assert forecast.total == 4
    assert forecast.remaining == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("word", ["pass", "Phase", "stage", "loop"])
def test_a_percentage_is_a_share_of_the_counted_part_before_it(word: str) -> None:
    def printed() -> Printed:
        for n in range(60):
            share = 5 * (n % 20)
            yield (
                n * 1.0,
                f"disk: {word} {n // 20 + 1}/3 (random)...{share / 25}GiB {share}%\n",
            )

    forecast = seen(printed(), until=30)
    assert forecast.done == pytest.approx(1.5, abs=0.05)
    assert forecast.total == 3
    assert forecast.remaining == pytest.approx(30, rel=0.1)


def test_after_a_bar_has_ended_as_much_may_follow_the_next() -> None:
    def second() -> Printed:
        for n in range(40):
            yield 51.0 + n, tqdm(n, 100, "tokenize")

    def both() -> Printed:
        for n in range(51):
            yield n * 1.0, tqdm(n, 50, "download")
        yield from second()

    alone, after = seen(second(), until=90), seen(both(), until=90)
    assert alone.high is not None
    assert after.high is not None
    assert after.remaining == pytest.approx(alone.remaining)
    assert after.high > alone.high + 50


@pytest.mark.parametrize(
    "line",
    [
        "epoch {n}/40: accuracy {share}%",
        "Phase {n}/40 accuracy: {share}%",
        "pass {n}/40 {share}% CPU",
    ],
)
def test_a_percentage_that_measures_something_is_no_share_of_a_part(line: str) -> None:
    def printed() -> Printed:
        for n in range(1, 31):
            yield n * 1.0, line.format(n=n, share=50 + n) + "\n"

    forecast = seen(printed(), until=20)
    assert (forecast.done, forecast.total) == (20, 40)
    assert forecast.remaining == pytest.approx(20, rel=0.05)
