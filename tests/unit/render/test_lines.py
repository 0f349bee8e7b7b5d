"""Lines of requests, and of the summary of a run, which break where a reader would."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from sessions import check_session
from some_requests import REQUESTS
from some_runs import a_peak, a_run

from weigh.model.record import Request, SampleSeries
from weigh.render.record_lines import render_summary
from weigh.render.request_lines import FORMS, folded_note_lines, request_form_lines
from weigh.review.runs import run_of
from weigh.units import MIB


def test_worked_examples_of_lines() -> None:
    check_session(Path(__file__).with_name("lines.session"), {})


@given(REQUESTS, st.sampled_from(FORMS))
def test_every_form_writes_every_request(request: Request, form: str) -> None:
    lines = request_form_lines(request, form)

    assert lines or request.time_limit is None
    assert all("\n" not in line for line in lines)


@given(st.lists(st.text(alphabet="abc déf", max_size=200), max_size=3))
def test_notes_fold_at_80_columns_and_lose_no_word(notes: list[str]) -> None:
    lines = folded_note_lines(notes, indent="   ")

    words = " ".join(notes).split()
    assert " ".join(lines).split() == words
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)


SIZES = st.integers(1, 900).map(lambda size: round(size * 1.037 * MIB))


@given(low=SIZES, value=SIZES, high=SIZES, time=st.floats(0.01, 1e5))
@example(low=900 * MIB, value=1200 * MIB, high=1500 * MIB, time=1e5)  # too long by 4
def test_the_line_of_memory_breaks_before_its_course(
    low: int, value: int, high: int, time: float
) -> None:
    low, value, high = sorted((low, value, high))
    series = SampleSeries(
        t=tuple(2 * time * n / 50 for n in range(51)),
        memory=tuple(round(value * min(1, n / 25)) for n in range(51)),
    )
    record = a_run(
        peak_memory=a_peak(value, low=low, high=high, source="pages", time=time),
        wall_time=2 * time,
        growing=False,
        series=series,
    )
    lines = render_summary(record).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  memory"))
    assert max(map(len, lines)) <= 80
    more = [line.strip() for line in lines[at + 1 :] if line.startswith(" " * 11)]
    assert all(line.startswith("peak at ") for line in more)
    assert " ".join([lines[at], *more]).count("peak at") == 1


def test_the_summary_and_the_report_agree_whether_memory_rose() -> None:
    flat = SampleSeries(t=tuple(range(60)), memory=(9 * MIB,) * 60)
    for growing in (True, False):
        record = a_run(memory=9 * MIB, wall_time=60.0, growing=growing, series=flat)
        assert ("rising" in render_summary(record)) == bool(run_of(record).row.growing)
