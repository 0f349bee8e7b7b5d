import io
import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from some_views import ELSEWHERE, NOTHING, OVERVIEW, RUN, views

from weigh.model.record import ReportedProgress
from weigh.render.top_screen import (
    MachineView,
    TopRun,
    TopScreen,
    TopView,
    top_page,
)
from weigh.units import GIB


def test_the_overview_is_this_screen() -> None:
    assert top_page(OVERVIEW) == (
        """\
weigh top   node07   10:00:12
  load    [|||||               ] 31.7 of 128 CPUs, 64 for you
  memory  [|                   ] 12.0 GiB of 251 GiB in use by all users

runs in progress
  run     label          memory      peak  cores   elapsed
  7f3a91  alice         392 MiB   401 MiB   0.96    12.4 s
  c0d2e4  python tr...        ?  2.00 GiB      ?  2 h 02 m  node12, 4 s ago

GPUs
  0  V100-SXM2-32GB  7.0 of 32.0 GiB  22 %  busy 84 %  mine: python 457520
  2  V100-SXM2-32GB    ? of 32.0 GiB                   processes hidden"""
    )


def headed(progress: ReportedProgress) -> TopRun:
    """Give the run of these tests, 12.4 s into it, with a forecast made 2.4 s ago."""
    record = replace(RUN.record, progress=progress)
    return replace(RUN, record=record)


HEADWAY = ReportedProgress(
    done=30, total=120, source="tqdm", time=10, remaining=32, low=30, high=36
)


def test_the_overview_states_when_runs_end() -> None:
    view = replace(OVERVIEW, runs=(headed(HEADWAY), ELSEWHERE))
    lines = top_page(view).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  run "))
    assert lines[at + 1].endswith("29.6 s to go")


def test_no_end_is_predicted_where_nobody_has_read_a_run_for_long() -> None:
    silent = replace(headed(HEADWAY), stale=True, age=500.0)
    assert "to go" not in top_page(replace(OVERVIEW, runs=(silent,)))


def test_no_end_is_shown_of_a_run_that_has_done_nothing_yet() -> None:
    began = headed(replace(HEADWAY, done=0, remaining=None, low=None, high=None))
    assert "to go" not in top_page(replace(OVERVIEW, runs=(began,)))


def test_all_cpus_of_a_machine_are_not_shown_twice() -> None:
    machine = MachineView("node07", 128, 12 * GIB, 251 * GIB, 31.7, 128)
    page = top_page(replace(OVERVIEW, machine=machine))
    assert "31.7 of 128 CPUs\n" in page


def test_nothing_running_is_reported_and_what_to_do() -> None:
    text = top_page(NOTHING)
    assert "none: weigh run -- COMMAND in another window" in text
    assert "/home/ada/ner/.weigh" in text


def test_a_gpu_driver_in_trouble_is_named() -> None:
    view = replace(NOTHING, gpu_note="the GPU driver does not answer")
    assert "  the GPU driver does not answer" in top_page(view).splitlines()


def test_a_stopped_run_is_reported() -> None:
    view = replace(OVERVIEW, runs=(replace(RUN, stopped=True),))
    assert "12.4 s  stopped" in top_page(view)


def test_without_colour_the_screen_has_none() -> None:
    view = replace(OVERVIEW, gpu_note="the GPU driver does not answer")  # in yellow
    assert "\x1b[33m" in _drawn(view, colour=True)
    assert "\x1b[33m" not in _drawn(view, colour=False)


def _drawn(view: TopView, *, colour: bool) -> str:
    out = io.StringIO()
    with TopScreen(out, colour=colour) as screen:
        screen.show(view)
    return out.getvalue()


def test_a_screen_fits_its_window_and_names_the_key_that_quits() -> None:
    lines = _screen_lines(replace(OVERVIEW, runs=(RUN,) * 40))
    assert len(lines) == 24
    assert "q quits" in lines[0]


def test_a_narrow_page_keeps_the_run_and_its_memory() -> None:
    assert "  7f3a91  392 MiB" in top_page(OVERVIEW, 24).splitlines()


@given(views, st.integers(20, 200))
def test_every_line_fits_and_holds_nothing_that_steers_a_terminal(
    view: TopView, width: int
) -> None:
    for line in top_page(view, width).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()


def _screen_lines(view: TopView) -> list[str]:
    """Return the lines of a screen of 80 x 24."""
    drawn = re.split(r"\x1b\[\d+;1H", _drawn(view, colour=False))
    return [line.rstrip() for line in drawn[1:]]
