import io

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from some_views import ELSEWHERE, FOLLOWED, NOTHING, OVERVIEW, PROCESSES, RUN, views

from weigh.model.record import Headway, Node, Rank, Series
from weigh.render.columns import columns_of
from weigh.render.top_lines import (
    ProcessView,
    RunView,
    TopView,
    by_time,
    render_text,
    top_lines,
)
from weigh.render.top_screen import TopScreen, renderable
from weigh.units import MIB


def test_processes_can_be_listed_by_cpu() -> None:
    pids = [
        [line.split()[0] for line in render_text(view).splitlines() if line.strip()]
        for view in (OVERVIEW, replace(OVERVIEW, by_cpu=True))
    ]
    assert "busiest first" in render_text(replace(OVERVIEW, by_cpu=True))
    cores = {str(one.pid): one.cores or 0.0 for one in PROCESSES}
    busiest = [pid for pid in pids[1] if pid in cores]
    assert busiest == sorted(busiest, key=lambda pid: -cores[pid])
    assert busiest


def test_the_overview_is_this_screen() -> None:
    assert render_text(OVERVIEW) == (
        """\
weigh top   node07   10:00:12
  load    [|||||               ] 31.7 of 128 CPUs, 64 for you
  memory  [|                   ] 12.0 GiB of 251 GiB in use by all users

runs in progress
  run     label        memory      peak  cores  procs   elapsed
  7f3a91  alice       392 MiB   401 MiB   0.96      2    12.4 s
  c0d2e4  python ...        ?  2.00 GiB      ?      ?  2 h 02 m  node12, 4 s ago

GPUs
     GPU                      memory  busy  on it
  0  V100-SXM2-32GB  7.0 of 32.0 GiB  84 %  python 457520 6.00 GiB, 1 other
  2  V100-SXM2-32GB    ? of 32.0 GiB     ?  unknown

my processes, largest first   (RSS: counts shared pages in every process)
     pid       RSS   cpu  command
  457520   380 MiB  96 %  python tag.py alice.txt out.tsv 50
  457522  12.0 MiB     ?  sort"""
    )


def test_one_run_is_this_screen() -> None:
    assert render_text(FOLLOWED) == (
        """\
weigh top   node07   10:00:12
alice   run 7f3a91c0d2e4
  command   python tag.py alice.txt out.tsv 50
  state     12.4 s since 10:00:00
  memory    392 MiB now, peak 401 MiB at 9.80 s
            |                ::::::::::::::::====================@@@@@@@@@@@@@@|
            0 to 12.4 s, up to 401 MiB
  cpu       0.96 cores now, 11.9 s in total, 0.96 cores on average, 2 processes
  request   #SBATCH --mem=500M --cpus-per-task=1 --time=00:05:00
            #$ -l h_vmem=1200M -l h_rt=00:05:00
            for the usage so far + 20 %; a lower bound while it runs

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
    lines = render_text(view).splitlines()
    at = lines.index("  progress  30 of 120 steps (25%), by tqdm")
    assert lines[at + 1] == "  ends      in 29.6 s (between 27.6 s and 33.6 s)"


def test_the_overview_states_when_runs_end() -> None:
    view = replace(OVERVIEW, runs=(headed(HEADWAY), ELSEWHERE))
    lines = render_text(view).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  run "))
    assert lines[at].rstrip().endswith("to go")
    assert "29.6 s" in lines[at + 1]


def test_no_end_is_predicted_where_nobody_has_read_a_run_for_long() -> None:
    silent = replace(headed(HEADWAY), stale=True, age=500.0)
    view = replace(FOLLOWED, followed=silent)
    assert "  ends " not in render_text(view)


def test_nothing_running_is_reported_and_what_to_do() -> None:
    text = render_text(NOTHING)
    assert "none; start one in another window: weigh run -- COMMAND" in text
    assert "/home/ada/ner/.weigh" in text


def test_a_gpu_driver_in_trouble_is_named() -> None:
    view = replace(NOTHING, gpu_note="the GPU driver does not answer")
    assert "  the GPU driver does not answer" in render_text(view).splitlines()


def test_a_low_window_keeps_the_gpus_rather_than_what_is_in_doubt() -> None:
    view = replace(OVERVIEW, gpu_note="a doubt of many words, " * 5)
    shown = [line.text for line in top_lines(view, 40, 10)]
    assert any("V100" in line for line in shown)


def test_a_run_that_ended_states_how_and_where_to_read_on() -> None:
    ended = replace(RUN, record=replace(RUN.record, state="FAILED", exit_code=3))
    text = render_text(replace(FOLLOWED, followed=ended))
    assert "FAILED in 12.4 s, exit code 3; details: weigh records show 7f3a91" in text


def test_a_stopped_run_is_reported() -> None:
    view = replace(FOLLOWED, followed=replace(RUN, stopped=True))
    assert "stopped, 12.4 s" in render_text(view)


def test_only_somebody_at_the_keyboard_is_shown_the_key() -> None:
    assert "q quits" in top_lines(NOTHING, keys=True)[0].text
    assert "q quits" not in render_text(NOTHING)


def test_the_height_decides_how_many_processes_are_shown() -> None:
    many = tuple(ProcessView(n, f"job {n}", 1 << 30) for n in range(100))
    view = replace(OVERVIEW, processes=many)
    lines = top_lines(view, 80, 24)
    assert len(lines) == 24
    shown = sum("job" in line.text for line in lines)
    assert f"{100 - shown} more with {100 - shown}.0 GiB" in lines[-1].text


def test_a_narrow_window_keeps_the_run_and_its_memory() -> None:
    lines = top_lines(OVERVIEW, 24, 24)
    assert "  7f3a91  392 MiB" in [line.text for line in lines]


def test_a_low_window_has_no_blank_lines() -> None:
    lines = [line.text for line in top_lines(OVERVIEW, 80, 12)]
    assert len(lines) == 12
    assert all(lines)


@given(views, st.integers(1, 200), st.none() | st.integers(1, 60))
def test_every_line_fits_and_holds_nothing_that_steers_a_terminal(
    view: TopView, width: int, height: int | None
) -> None:
    lines = top_lines(view, width, height, keys=True)
    assert all(columns_of(line.text) <= width for line in lines)
    assert all(line.text.isprintable() for line in lines)
    assert height is None or len(lines) <= height


# rich knows a newer Unicode than Python may: letters whose width both agree on
@given(st.text("aé漢字가😀ｱﾊーЖ\u0301", max_size=30))
def test_columns_are_counted_as_rich_counts_them(text: str) -> None:
    assert columns_of(text) == cell_len(text)


@given(views, st.integers(10, 120), st.integers(4, 50))
def test_what_rich_draws_is_those_lines(view: TopView, width: int, height: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(renderable(view, width, height), end="")
    lines = top_lines(view, width, height, keys=True)
    drawn = [line.rstrip() for line in out.getvalue().split("\n")]
    assert len(drawn) == len(lines)
    for line, shown in zip(lines, drawn, strict=True):
        assert cell_len(shown) <= width
        assert line.text.startswith(shown)
        assert not line.text.isascii() or shown == line.text.rstrip()


def test_over_time_a_short_peak_is_kept_and_a_gap_is_bridged() -> None:
    t, memories = (0.0, 1.0, 1.1, 1.2, 9.0, 10.0), (1, 5, 90, 5, 7, 8)
    assert by_time(t, memories, 10) == [5, 90, 5, 5, 5, 5, 5, 5, 7, 8]


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1 << 50)), min_size=1),
    st.integers(1, 100),
)
def test_over_time_the_highest_stays_the_highest(
    samples: list[tuple[float, int]], width: int
) -> None:
    t, memories = zip(*sorted(samples), strict=True)
    plot = [value for value in by_time(t, memories, width) if value is not None]
    assert t[-1] == 0 or max(plot) == max(memories)


def test_processes_name_their_bias() -> None:
    assert PROCESSES[0].resident
    assert "RSS: counts shared pages in every process" in render_text(OVERVIEW)


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
    text = render_text(replace(OVERVIEW, followed=run))
    assert "cn2  400 MiB now, 0.5 cores, 1 rank" in text
    assert "largest: rank 1 on cn2, 580 MiB, 1.3 times the mean" in text
