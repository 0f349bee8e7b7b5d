"""Which counter spans the run, and how far it is: simulated displays and logs."""

from collections.abc import Iterator

import pytest

from weigh.model.progress import EndForecast
from weigh.progress.nested import MOST_COUNTERS
from weigh.progress.reader import RunProgressReader

BAR = "━" * 10
Printed = Iterator[tuple[float, str]]


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


def test_of_two_nested_bars_the_outer_one_spans_the_run() -> None:
    def printed() -> Printed:
        for epoch in range(5):
            yield epoch * 10.0, tqdm(epoch, 5, "epochs")
            for step in range(11):
                yield epoch * 10.0 + step, tqdm(step, 10, "steps", below=1)

    forecast = seen(printed(), until=23)
    assert forecast.done == pytest.approx(2.3)
    assert forecast.total == 5
    assert forecast.remaining == pytest.approx(27, rel=0.02)


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


def test_nested_bars_without_a_name_and_of_one_total_are_distinguished() -> None:
    def printed() -> Printed:
        for epoch in range(10):
            yield epoch * 10.0, tqdm(epoch, 10)
            for step in range(11):
                yield epoch * 10.0 + step, tqdm(step, 10, below=1)

    forecast = seen(printed(), until=35)
    assert forecast.done == pytest.approx(3.5)
    assert forecast.total == 10


def test_a_bar_inside_an_epoch_heading_counts_as_its_fraction() -> None:
    def printed() -> Printed:
        for epoch in range(1, 11):
            start = (epoch - 1) * 20.0
            yield start, f"\nEpoch {epoch}/10\n"
            for step in range(1, 21):
                yield start + step, f"\r{step}/20 {BAR} 5s 40ms/step - loss: 0.5"

    forecast = seen(printed(), until=50)
    assert forecast.done == pytest.approx(2.5)
    assert forecast.total == 10
    assert forecast.remaining == pytest.approx(150, rel=0.02)
    assert forecast.source == "epoch lines"


def test_an_epoch_summed_up_after_its_bar_is_over() -> None:
    def printed() -> Printed:
        for epoch in range(1, 11):
            start = (epoch - 1) * 20.0
            for step in range(1, 21):
                yield start + step, tqdm(step, 20)
            yield epoch * 20.0, f"\nEpoch {epoch}/10 loss 0.5\n"

    forecast = seen(printed(), until=50)
    assert forecast.done == pytest.approx(2.5, abs=0.06)


def test_an_epoch_with_a_figure_before_its_bar_is_under_way() -> None:
    def printed() -> Printed:
        for epoch in range(1, 11):
            start = (epoch - 1) * 20.0
            yield start, f"\nEpoch {epoch}/10 lr 0.1\n"
            for step in range(1, 21):
                yield start + step, tqdm(step, 20)

    assert seen(printed(), until=50).done == pytest.approx(2.5)


def test_epochs_counted_from_zero_to_one_less_are_completed() -> None:
    def printed() -> Printed:
        for epoch in range(25):
            yield epoch * 10.0 + 10, f"Epoch {epoch}/24 loss 0.5\n"

    forecast = seen(printed(), until=60)
    assert (forecast.done, forecast.total) == (6, 25)


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


def test_steps_that_go_on_through_the_epochs_span_the_run() -> None:
    def printed() -> Printed:
        for step in range(1, 401):
            yield step * 1.0, f"epoch {1 + step // 100} step {step}/400\n"

    forecast = seen(printed(), until=150)
    assert (forecast.source, forecast.total) == ("step lines", 400)
    assert forecast.remaining == pytest.approx(250, rel=0.02)


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


def test_epochs_without_a_total_end_where_the_program_printed_it_once() -> None:
    def printed() -> Printed:
        yield 0.0, "Namespace(epochs=20, lr=0.1)\n"
        for epoch in range(9):
            for step in range(11):
                yield epoch * 10.0 + step, tqdm(step, 10, f"Epoch {epoch}")

    forecast = seen(printed(), until=45)
    assert forecast.remaining == pytest.approx(155, rel=0.02)


def test_a_bar_that_begins_again_and_again_gives_no_end() -> None:
    def printed() -> Printed:
        for start in range(0, 100, 20):
            for step in range(21):
                yield start + step * 0.9, tqdm(step, 20)

    forecast = seen(printed(), until=50)
    assert forecast.total is None
    assert forecast.done == pytest.approx(51, abs=2)


def test_a_phase_that_is_over_gives_way_to_the_next() -> None:
    def printed() -> Printed:
        for step in range(11):
            yield step * 0.5, tqdm(step, 10, "loading")
        for step in range(101):
            yield 6.0 + step, tqdm(step, 100, "training")

    forecast = seen(printed(), until=26)
    assert (forecast.done, forecast.total) == (20, 100)


def test_a_phase_that_was_left_gives_way_to_the_next() -> None:
    def printed() -> Printed:
        for step in range(6):
            yield step * 1.0, tqdm(step, 1000, "searching")
        for step in range(101):
            yield 6.0 + step, tqdm(step, 100, "training")

    assert seen(printed(), until=40).total == 100


def test_of_bars_side_by_side_the_last_to_end_counts() -> None:
    def printed() -> Printed:
        for step in range(50):
            yield step * 1.0, tqdm(step, 50, "quick")
            yield step * 1.0, tqdm(step, 500, "slow", below=1)

    assert seen(printed(), until=30).total == 500


def test_a_total_that_changes_is_followed() -> None:
    def printed() -> Printed:
        for step in range(100):
            yield step * 1.0, tqdm(step, 100 if step < 30 else 300)

    forecast = seen(printed(), until=50)
    assert forecast.total == 300
    assert forecast.remaining == pytest.approx(250, rel=0.02)


def test_a_label_that_changes_is_followed() -> None:
    def printed() -> Printed:
        for step in range(100):
            name = "abcdefgh"[step % 7 :]
            yield step * 1.0, tqdm(step, 100, name)

    forecast = seen(printed(), until=50)
    assert forecast.remaining == pytest.approx(50, rel=0.05)


def test_counts_that_lag_behind_are_left_out() -> None:
    def printed() -> Printed:
        for step in range(10, 100):
            yield step * 1.0, f"step {step} of 100\n"
            yield step * 1.0 + 0.5, f"step {step - 3} of 100\n"

    forecast = seen(printed(), until=50)
    assert (forecast.done, forecast.total) == (50, 100)


def test_a_run_that_is_taken_up_again_further_back_ends_later() -> None:
    def printed() -> Printed:
        for step in range(80):
            yield step * 1.0, f"step {step} of 100\n"
        for step in range(60, 100):
            yield step + 30.0, f"step {step} of 100\n"

    forecast = seen(printed(), until=100)
    assert forecast.high is not None
    assert forecast.high > 30


def test_a_finished_bar_has_nothing_left() -> None:
    def printed() -> Printed:
        for step in range(101):
            yield step * 1.0, tqdm(step, 100)

    forecast = seen(printed(), until=100)
    assert (forecast.remaining, forecast.low) == (0, 0)


def test_a_bar_seen_only_at_its_end_is_finished_too() -> None:
    forecast = seen(iter([(1.0, tqdm(5, 5))]), until=1)
    assert (forecast.remaining, forecast.done) == (0, 5)


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


def test_a_step_a_little_lower_in_a_new_epoch_is_a_new_pass() -> None:
    def printed() -> Printed:
        for burst in range(1, 8):
            yield burst * 10.0, f"epoch {burst}/10 step {100 - 3 * burst}/100\n"

    assert seen(printed(), until=70).done == pytest.approx(6.79)


def test_lines_of_a_process_that_lags_an_epoch_behind_are_left_out() -> None:
    def printed() -> Printed:
        for epoch in range(1, 5):
            yield epoch * 10.0, f"epoch {epoch}/10: loss 0.5\n"
            yield epoch * 10.0 + 1, f"epoch {max(1, epoch - 1)}/10: loss 0.5\n"

    assert seen(printed(), until=25).done == 2


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
