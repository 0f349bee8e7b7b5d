import io
import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from some_views import ELSEWHERE, FOLLOWED, NOTHING, OVERVIEW, RUN, views

from weigh.model.record import Headway, Node, Rank, Series
from weigh.render.top_screen import TopScreen, top_page
from weigh.render.top_view import ProcessView, RunView, TopView
from weigh.units import MIB


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
  2  V100-SXM2-32GB    ? of 32.0 GiB                   processes hidden

my processes, largest first   (RSS: counts shared pages in every process)
     pid       RSS   cpu  command
  457520   380 MiB  96 %  python tag.py alice.txt out.tsv 50
  457522  12.0 MiB     ?  sort"""
    )


def test_one_run_is_this_screen() -> None:
    assert top_page(FOLLOWED) == (
        """\
weigh top   node07   10:00:12
alice   run 7f3a91c0d2e4
  command   python tag.py alice.txt out.tsv 50
  state     12.4 s since 10:00:00
  memory    392 MiB now, peak 401 MiB
            | :=@@|
  cpu       0.96 cores now, 0.96 on average
  request   #SBATCH --mem=500M --cpus-per-task=1 --time=00:05:00
            #$ -l h_vmem=1200M -l h_rt=00:05:00
            for the usage so far, so a lower bound while it runs

its processes, largest first   (RSS: counts shared pages in every process)
     pid       RSS   cpu  command
  457520   380 MiB  96 %  python tag.py alice.txt out.tsv 50
  457522  12.0 MiB     ?  sort"""
    )


def headed(progress: Headway) -> RunView:
    """Give the run of these tests, 12.4 s into it, with a forecast made 2.4 s ago."""
    record = replace(RUN.record, progress=progress)
    return replace(RUN, record=record)


HEADWAY = Headway(
    done=30, total=120, source="tqdm", time=10, remaining=32, low=30, high=36
)


def test_a_run_that_counts_its_steps_states_when_it_ends() -> None:
    view = replace(FOLLOWED, followed=headed(HEADWAY))
    lines = top_page(view).splitlines()
    at = lines.index("  progress  30 of 120 steps (25%), by tqdm")
    assert lines[at + 1] == "  ends      in 29.6 s (between 27.6 s and 33.6 s)"


def test_the_overview_states_when_runs_end() -> None:
    view = replace(OVERVIEW, runs=(headed(HEADWAY), ELSEWHERE))
    lines = top_page(view).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  run "))
    assert lines[at + 1].endswith("29.6 s to go")


def test_no_end_is_predicted_where_nobody_has_read_a_run_for_long() -> None:
    silent = replace(headed(HEADWAY), stale=True, age=500.0)
    view = replace(FOLLOWED, followed=silent)
    assert "  ends " not in top_page(view)


def test_nothing_running_is_reported_and_what_to_do() -> None:
    text = top_page(NOTHING)
    assert "none: weigh run -- COMMAND in another window" in text
    assert "/home/ada/ner/.weigh" in text


def test_a_gpu_driver_in_trouble_is_named() -> None:
    view = replace(NOTHING, gpu_note="the GPU driver does not answer")
    assert "  the GPU driver does not answer" in top_page(view).splitlines()


def test_a_run_that_ended_states_how_and_where_to_read_on() -> None:
    ended = replace(RUN, record=replace(RUN.record, state="FAILED", exit_code=3))
    text = top_page(replace(FOLLOWED, followed=ended))
    assert "FAILED in 12.4 s, exit code 3; details: weigh records show 7f3a91" in text


def test_a_stopped_run_is_reported() -> None:
    view = replace(FOLLOWED, followed=replace(RUN, stopped=True))
    assert "12.4 s since 10:00:00   (stopped)" in top_page(view)


# rich knows a newer Unicode than Python may: letters whose width both agree on


def test_without_colour_the_screen_has_none() -> None:
    view = replace(FOLLOWED, followed=replace(RUN, stopped=True))  # points in yellow
    assert "\x1b[33m" in _drawn(view, colour=True)
    assert "\x1b[33m" not in _drawn(view, colour=False)


def _drawn(view: TopView, *, colour: bool) -> str:
    out = io.StringIO()
    with TopScreen(out, colour=colour) as screen:
        screen.show(view)
    return out.getvalue()


def test_nodes_and_ranks_are_shown_as_they_are_now() -> None:
    usage = RUN.record.usage
    assert usage is not None
    peak = usage.peak_memory
    assert peak is not None
    nodes = tuple(
        Node(
            name=f"cn{number}",
            peak_memory=replace(peak, value=number * 300 * MIB),
            series=Series(t=(0.0, 1.0), memory=(1, number * 200 * MIB), cpu=(0, 0.5)),
            ranks=1,
        )
        for number in (1, 2)
    )
    ranks = tuple(
        Rank(number, host=f"cn{number + 1}", peak_memory=(number + 1) * 290 * MIB)
        for number in (0, 1)
    )
    record = replace(RUN.record, nodes=nodes, ranks=ranks)
    run = replace(RUN, record=record)
    text = top_page(replace(OVERVIEW, followed=run))
    assert "nodes     2: cn2 600 MiB, cn1 300 MiB" in text
    assert "ranks     2, each between 290 and 580 MiB (RSS)" in text


def test_a_window_shows_as_many_processes_as_fit_below_the_rest() -> None:
    many = tuple(ProcessView(n, f"job {n}", 1 << 30) for n in range(100))
    lines = _screen_lines(replace(OVERVIEW, processes=many))
    assert len(lines) == 24
    shown = sum("job" in line for line in lines)
    assert f"{100 - shown} more with {100 - shown}.0 GiB" in lines[-1]
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
