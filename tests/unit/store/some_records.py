"""Records made up for the tests of the store, and strategies for any record."""

from hypothesis import strategies as st

from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    BatchTimes,
    MeasuringCost,
    PeakMemory,
    ProgramEvent,
    ProgramPhase,
    Record,
    RecordedHost,
    RecordedJob,
    RunOutcome,
    SampleSeries,
    Usage,
)
from weigh.store.identity import MachineIdentity

HERE = MachineIdentity(host="node07", machine_id="0123456789abcdef", boot_id="boot-1")


def some_record(
    record_id: str = "7f3a91c0d2e4",
    *,
    started: str = "2026-11-21T10:00:00.000Z",
    label: str | None = None,
    state: str = "COMPLETED",
    command: tuple[str, ...] = ("python", "tag.py", "50"),
) -> Record:
    return Record(
        id=record_id,
        label=label,
        command=command,
        started=started,
        state=state,
        exit_code=0,
        usage=Usage(
            wall_time=12.4,
            peak_memory=PeakMemory(
                value=411_041_792,
                low=408_944_640,
                high=420_478_976,
                anonymous=300 << 20,
                shared=50 << 20,
                file=42 << 20,
                source="pagemap",
                time=9.8,
            ),
        ),
        series=SampleSeries(
            t=(0.0, 9.8), memory=(1 << 20, 411_041_792), cpu=(None, 0.9)
        ),
        monitor=MeasuringCost(samples=2),
    )


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_size = st.integers(0, 1 << 62)
_figure = st.floats(allow_nan=False, allow_infinity=False)
_sizes = st.none() | _size
_figures = st.none() | _figure
_peaks = st.builds(
    PeakMemory,
    value=_size,
    low=_size,
    high=_size,
    anonymous=_sizes,
    shared=_sizes,
    file=_sizes,
    source=_text,
    time=_figures,
)
_gpus = st.builds(
    GpuUsage,
    uuid=_text,
    name=_text,
    peak_memory=_sizes,
    energy=_figures,
    slowed=st.none() | st.dictionaries(_text, _figure, max_size=2),
)
_usages = st.builds(
    Usage,
    wall_time=_figure,
    cpu_time=_figures,
    peak_memory=st.none() | _peaks,
    growing=st.none() | st.booleans(),
    gpus=st.lists(_gpus, max_size=2).map(tuple),
)
_phases = st.builds(
    ProgramPhase,
    name=_text,
    depth=st.integers(0, 9),
    calls=st.integers(1, 10**6),
    start=_figure,
    end=_figure,
    wall_time=_figure,
)
_batches = st.builds(
    BatchTimes,
    size=st.none() | st.integers(1, 10**6),
    count=st.integers(0, 10**6),
    samples=_sizes,
    time_min=_figures,
)
_events = st.builds(
    ProgramEvent, name=_text, time=_figure, value=st.none() | _size | _figure | _text
)
ids = st.text("0123456789abcdef", min_size=12, max_size=12)
records = st.builds(
    Record,
    id=ids,
    label=st.none() | _text,
    command=st.lists(_text, max_size=3).map(tuple),
    parameters=st.dictionaries(_text, _size | _figure | _text, max_size=3),
    host=st.none() | st.builds(RecordedHost, name=_text, system=_text),
    started=st.datetimes().map(lambda moment: moment.isoformat() + "Z") | _text,
    state=st.sampled_from(["COMPLETED", "FAILED", "UNKNOWN"]),
    exit_code=st.none() | st.integers(0, 255),
    outcome=st.none() | st.builds(RunOutcome, reason=_text),
    usage=st.none() | _usages,
    phases=st.lists(_phases, max_size=2).map(tuple),
    batches=st.none() | _batches,
    events=st.lists(_events, max_size=2).map(tuple),
    series=st.none()
    | st.builds(SampleSeries, memory=st.lists(_size, max_size=4).map(tuple)),
    job=st.none() | st.builds(RecordedJob, id=_text),
    monitor=st.none() | st.builds(MeasuringCost, warnings=st.lists(_text).map(tuple)),
)
