import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    PeakMemory,
    Record,
    RepeatedRun,
    Request,
    RunOutcome,
    Usage,
)
from weigh.render.record_lines import render_summary
from weigh.units import GIB, MIB

PEAK = PeakMemory(
    value=392 * MIB,
    low=392 * MIB,
    high=392 * MIB,
    anonymous=380 * MIB,
    shared=0,
    file=12 * MIB,
    source="kernel high-water mark of the one process",
    time=9.8,
)
USAGE = Usage(
    wall_time=12.4,
    cpu_time=11.9,
    cpus_used=0.96,
    peak_memory=PEAK,
    virtual_memory=970 * MIB,
    read_bytes=1258291,
    write_bytes=65536,
    processes=1,
    growing=False,
)
RECORD = Record(
    id="7f3a91c0ffee",
    command=("python", "tag.py"),
    started="2026-11-21T10:00:00Z",
    state="COMPLETED",
    exit_code=0,
    usage=USAGE,
)
REQUEST = Request(
    cpus=1,
    memory=500 * MIB,
    virtual_memory=1200 * MIB,
    time_limit=300,
    headroom=0.2,
    runs=1,
    notes=("from 1 run + 20 %; run it three times to learn how much it varies",),
)


def summary(
    request: Request | None = None,
    *,
    usage: Usage | None = USAGE,
    peak: dict[str, object] | None = None,
    **changes: object,
) -> list[str]:
    if usage is not None and peak is not None:
        changed = msgspec.structs.replace(PEAK, **peak)
        usage = msgspec.structs.replace(usage, peak_memory=changed)
    record = msgspec.structs.replace(RECORD, usage=usage, **changes)
    return render_summary(record, request).splitlines()


def row(name: str, lines: list[str]) -> str:
    (line,) = (line for line in lines if line.startswith(f"  {name} "))
    return line


def headline(text: str) -> str:
    return f"{text}{'run 7f3a91c0ffee':>{80 - len(text)}}"


# Whole screens


def test_one_process() -> None:
    assert summary(REQUEST) == [
        headline("weigh  COMPLETED in 12.4 s"),
        "  memory   392 MiB     peak at 9.80 s, then flat",
        "  cpu      11.9 s      0.96 of a core, 1 process",
        "  disk     1.20 MiB read, 64.0 KiB written",
        "  request  #SBATCH --mem=500M --cpus-per-task=1 --time=00:05:00",
        "           #$ -l h_vmem=1200M -l h_rt=00:05:00     (virtual size: 970 MiB)",
        "           from 1 run + 20 %; run it three times to learn how much it varies",
    ]


def test_a_failure_with_little_measured() -> None:
    assert summary(
        usage=Usage(wall_time=0.25),
        state="FAILED",
        exit_code=7,
        outcome=RunOutcome("exit code 7"),
    ) == [
        headline("weigh  FAILED in 0.25 s, exit code 7"),
        "  memory   not measured: no data in /proc",
    ]


def test_killed_for_memory() -> None:
    lines = summary(
        state="OUT_OF_MEMORY",
        exit_code=None,
        signal=9,
        outcome=RunOutcome(
            "killed for memory", ("the kernel's oom_kill count rose by 1",)
        ),
    )
    assert lines[:2] == [
        headline("weigh  OUT_OF_MEMORY in 12.4 s, signal 9"),
        "  ended    killed for memory; the kernel's oom_kill count rose by 1",
    ]


def test_several_runs() -> None:
    runs = [
        RepeatedRun(
            msgspec.structs.replace(
                USAGE,
                wall_time=wall,
                peak_memory=msgspec.structs.replace(PEAK, value=size * MIB),
            ),
            exit_code=0,
            signal=None,
            warmup=warmup,
        )
        for wall, size, warmup in [
            (99.0, 999, True),
            (3.0, 400, False),
            (1.0, 200, False),
            (2.0, 300, False),
        ]
    ]
    assert summary(repeats=tuple(runs)) == [
        headline("weigh  COMPLETED, 3 runs"),
        "           minimum     median      maximum",
        "  memory   200 MiB     300 MiB     400 MiB",
        "  time     1.00 s      2.00 s      3.00 s",
        "  cpu      11.9 s      11.9 s      11.9 s",
    ]


def test_several_runs_show_the_gpu_of_the_biggest() -> None:
    card = GpuUsage("GPU-1", "Tesla T4", peak_memory=3 * GIB, index=0)
    usage = msgspec.structs.replace(USAGE, gpus=(card,))
    runs = tuple(RepeatedRun(usage, 0, None) for _ in range(2))
    assert any("3.00 GiB" in line for line in summary(usage=usage, repeats=runs))


# Single rows


def test_bounds_are_reported_where_they_differ() -> None:
    assert row("memory", summary(peak={"low": 390 * MIB, "high": 401 * MIB})) == (
        "  memory   392 MiB     (between 390 and 401 MiB)  peak at 9.80 s, then flat"
    )


def test_bounds_in_two_units_name_both() -> None:
    line = row("memory", summary(peak={"low": 390 * MIB, "high": 2 * GIB}))
    assert "(between 390 MiB and 2.00 GiB)" in line


def test_bounds_within_2_percent_are_one_figure() -> None:
    lines = summary(peak={"low": 392 * MIB, "high": 399 * MIB})
    assert "between" not in row("memory", lines)


def test_mapped_files_are_named_where_they_are_more_than_a_fifth() -> None:
    lines = summary(peak={"file": 100 * MIB})
    assert lines[2] == "           of which 100 MiB mapped files the kernel can drop"
    assert "of which" not in "".join(summary(peak={"file": 70 * MIB}))


def test_shared_memory_and_mapped_files_are_distinguished() -> None:
    assert summary(peak={"file": 100 * MIB, "shared": 200 * MIB})[2] == (
        "           of which 200 MiB shared memory, 100 MiB mapped files the kernel can"
    )


def test_a_job_below_the_launchers_floor_is_given_a_bound_only() -> None:
    floor = {"low": 0, "value": 9 * MIB, "high": 9 * MIB, "source": "launcher floor"}
    assert row("memory", summary(peak=floor)) == (
        "  memory   up to 9.00 MiB: too short to measure more exactly"
    )


def test_memory_still_rising_is_reported() -> None:
    growing = msgspec.structs.replace(USAGE, growing=True)
    assert row("memory", summary(usage=growing)).endswith("still rising at the end")


def test_more_than_one_core_is_reported_in_cores() -> None:
    busy = msgspec.structs.replace(USAGE, cpus_used=3.84, processes=5)
    assert row("cpu", summary(usage=busy)) == (
        "  cpu      11.9 s      3.8 cores, 5 processes"
    )


def test_an_exit_code_is_reported_once() -> None:
    lines = summary(state="FAILED", exit_code=7, outcome=RunOutcome("exit code 7"))
    assert "".join(lines).count("exit code") == 1


def test_what_a_job_wrote_does_not_steer_the_terminal() -> None:
    outcome = RunOutcome("found in its output", ("\x1b[2Jerror",))
    assert "\x1b" not in "".join(summary(state="FAILED", outcome=outcome))


def test_the_virtual_size_goes_where_it_does_not_fit() -> None:
    long = msgspec.structs.replace(REQUEST, cpus=128, gpus=8)
    assert "virtual size" in "".join(summary(REQUEST))
    assert "virtual size" not in "".join(summary(long))


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_colour_changes_nothing_else(state: str) -> None:
    record = msgspec.structs.replace(RECORD, state=state)
    coloured = render_summary(record, REQUEST, colour=True)
    plain = coloured
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert coloured != plain == render_summary(record, REQUEST)


# Every screen

BYTES = st.integers(0, 1 << 63)
SECONDS = st.floats(0, 1e9)
PEAKS = (
    st.tuples(BYTES, BYTES, BYTES)
    .map(sorted)
    .flatmap(
        lambda sizes: st.builds(
            PeakMemory,
            low=st.just(sizes[0]),
            value=st.just(sizes[1]),
            high=st.just(sizes[2]),
            anonymous=st.none() | BYTES,
            shared=st.none() | BYTES,
            file=st.none() | BYTES,
            source=st.sampled_from(["launcher floor", "kernel high-water mark"]),
            time=st.none() | SECONDS,
        )
    )
)
USAGES = st.builds(
    Usage,
    wall_time=SECONDS,
    cpu_time=st.none() | SECONDS,
    cpus_used=st.none() | st.floats(0, 1e4),
    peak_memory=st.none() | PEAKS,
    virtual_memory=st.none() | BYTES,
    read_bytes=st.none() | BYTES,
    write_bytes=st.none() | BYTES,
    processes=st.none() | st.integers(1, 1 << 22),
    growing=st.none() | st.booleans(),
)
REQUESTS = st.builds(
    Request,
    cpus=st.integers(1, 1 << 12),
    memory=st.none() | BYTES,
    virtual_memory=st.none() | BYTES,
    time_limit=st.none() | st.integers(1, 10**9),
    headroom=st.just(0.2),
    runs=st.just(1),
    gpus=st.integers(0, 16),
    gpu_type=st.none() | st.just("nvidia_h100_80gb_hbm3"),
    notes=st.just(("a note " * 30,)),
)
REPEATS = st.builds(
    RepeatedRun, USAGES, exit_code=st.just(0), signal=st.none(), warmup=st.booleans()
)
OUTCOMES = st.builds(
    RunOutcome,
    reason=st.just("ended by SIGKILL"),
    evidence=st.lists(st.text("ab \x1b\n", max_size=60), max_size=3).map(tuple),
)


@given(
    st.builds(
        Record,
        id=st.just("7f3a91c0ffee"),
        command=st.just(("x",)),
        started=st.just(""),
        state=st.sampled_from(["OUT_OF_MEMORY", "COMPLETED"]),
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        outcome=st.none() | OUTCOMES,
        usage=st.none() | USAGES,
        repeats=st.lists(REPEATS, max_size=4).map(tuple),
    ),
    st.none() | REQUESTS,
)
def test_no_line_is_longer_than_80_columns(
    record: Record, request: Request | None
) -> None:
    text = render_summary(record, request)
    assert text.endswith("\n")
    assert all(0 < len(line) <= 80 for line in text.splitlines())


@given(USAGES)
def test_what_was_not_measured_is_not_a_zero(usage: Usage) -> None:
    lines = summary(usage=usage)
    said = {line[2:8].strip() for line in lines[1:]}
    assert ("cpu" in said) == (usage.cpu_time is not None)
    assert ("disk" in said) == (None not in {usage.read_bytes, usage.write_bytes})
    assert "memory" in said
