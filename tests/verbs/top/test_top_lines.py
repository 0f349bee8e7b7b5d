"""The screen of ``weigh top``, made up."""

from pathlib import Path

import pytest
from any_values import PLAIN, values_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from some_runs import a_peak, a_run
from transcript import check_texts, differences

from weigh.model.gpu import GpuOccupant, GpuState
from weigh.model.record import Record, RecordedHost, ReportedProgress
from weigh.render.printable import width_of
from weigh.render.top_screen import MachineView, TopRun, TopView, top_screen_lines
from weigh.units import GIB, MIB

RECORD = a_run(
    id="7f3a91c0d2e4",
    label="alice",
    command=("python", "tag.py", "alice.txt", "out.tsv", "50"),
    host=RecordedHost(name="node07", system="Linux"),
    started="unreadably 10:00:00",
    state="RUNNING",
    wall_time=12.4,
    cpu_time=11.9,
    cpus_used=0.96,
    peak_memory=a_peak(401 * MIB, low=390 * MIB, source="", time=9.8),
)
RUN = TopRun(
    record=RECORD,
    elapsed=12.4,
    memory=392 * MIB,
    peak=401 * MIB,
    cores=0.96,
)
ELSEWHERE = TopRun(
    record=a_run(
        "python train.py --epochs 1",
        id="c0d2e47f3a91",
        host=RecordedHost(name="node12", system="Linux"),
        started="",
        state="RUNNING",
        usage=None,
    ),
    elapsed=7300,
    peak=2 * GIB,
    age=4,
)
GPUS = (
    GpuState(
        0,
        "GPU-0",
        "V100-SXM2-32GB",
        memory_used=7 * GIB,
        memory_total=32 * GIB,
        memory_percent=22.0,
        utilization=84,
        occupants=(GpuOccupant(457520, "ada", "python", 6 * GIB, mine=True),),
    ),
    GpuState(2, "GPU-2", "V100-SXM2-32GB", memory_total=32 * GIB),
)
MACHINE = MachineView("node07", 64, 12 * GIB, 251 * GIB, 31.7, 128)
OVERVIEW = TopView(
    clock="10:00:12",
    machine=MACHINE,
    store="/home/ada/ner/.weigh",
    runs=(RUN, ELSEWHERE),
    gpus=GPUS,
)
NOTHING = TopView(clock="10:00:12", machine=MACHINE, store="/home/ada/ner/.weigh")

_text = st.text(max_size=30)
_seconds = st.floats(0, 1e9)
_values = {**PLAIN, str: _text, float: _seconds, int: st.integers(0, 1 << 50)}
_records = st.builds(
    Record,
    id=st.text("0123456789abcdef", min_size=12, max_size=12),
    label=st.none() | _text,
    command=st.lists(_text, max_size=4).map(tuple),
    started=_text,
    host=st.none() | st.builds(RecordedHost, name=_text, system=_text),
    progress=st.none() | values_of(ReportedProgress, _values),
)
views = values_of(TopView, {**_values, Record: _records})

HEADWAY = ReportedProgress(
    done=30, total=120, source="tqdm", time=10, remaining=32, low=30, high=36
)


def headed(progress: ReportedProgress = HEADWAY) -> TopRun:
    """Return the run, 12.4 s into it, with a forecast made 2.4 s ago."""
    return replace(RUN, record=replace(RUN.record, progress=progress))


BEGUN = headed(replace(HEADWAY, done=0, remaining=None, low=None, high=None))
ALL_CPUS = replace(MACHINE, cpus=128)
VIEWS = {
    "two runs and two GPUs": OVERVIEW,
    "a forecast, and a run elsewhere": replace(OVERVIEW, runs=(headed(), ELSEWHERE)),
    "no forecast of a run that is silent": replace(
        OVERVIEW, runs=(replace(headed(), stale=True, age=500.0),)
    ),
    "no forecast of a run that has just begun": replace(OVERVIEW, runs=(BEGUN,)),
    "a stopped run on a machine that is all mine": replace(
        OVERVIEW, machine=ALL_CPUS, runs=(replace(RUN, stopped=True),)
    ),
    "a machine of unknown CPUs, and a run elsewhere a minute ago": replace(
        NOTHING,
        machine=replace(MACHINE, all_cpus=None, memory_total=None),
        runs=(replace(ELSEWHERE, age=60.0),),
    ),
    "nothing runs, and the driver is in trouble": replace(
        NOTHING, gpu_note="the GPU driver does not answer"
    ),
}


def test_the_screens_are_as_they_were_reviewed() -> None:
    texts = {
        name: "".join(f"{line}\n" for line in top_screen_lines(view, 80))
        for name, view in VIEWS.items()
    }
    check_texts(Path(__file__).with_name("top.texts"), differences(texts))


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (56, "run label memory peak cores elapsed"),
        (42, "run label memory peak cores"),
        (36, "run label memory peak"),
    ],
)
def test_a_narrow_window_keeps_the_run_and_its_memory(width: int, columns: str) -> None:
    stopped = replace(RUN, stopped=True)
    titles = next(
        line.split()
        for line in top_screen_lines(replace(OVERVIEW, runs=(stopped,)), width)
        if line.startswith("  run ")
    )
    assert titles == columns.split()


@given(views, st.integers(20, 200))
def test_every_line_fits_and_holds_nothing_that_steers_a_terminal(
    view: TopView, width: int
) -> None:
    for line in top_screen_lines(view, width):
        assert width_of(line) <= width
        assert line.isprintable()
