"""What is requested for a run: reviewed texts, and laws over any run."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_runs import a_peak as peak
from some_runs import a_run, a_usage
from transcript import check_answers, check_texts

from weigh.errors import UsageError
from weigh.measure.memory.ledger import OWN
from weigh.model.gpu import GpuUsage
from weigh.model.plan import TaskKind, TaskNeed
from weigh.model.record import (
    Allocation,
    BatchTimes,
    CpuWait,
    JvmHeap,
    PageCache,
    PeakMemory,
    ProgramSign,
    Record,
    RepeatedRun,
    RunOutcome,
    WholeLoopForecast,
)
from weigh.request import (
    from_usages,
    gpu_type,
    need_without_runner,
    parse_headroom,
    round_memory,
    round_shared,
    round_time,
    why_no_request,
)
from weigh.units import DAY, GIB, HOUR, MIB, MINUTE, format_limit
from weigh.usage_needs import heap_words
from weigh.why_run_ended import fixed_heap

SIZES = st.integers(min_value=1, max_value=1 << 45)


USED: dict[str, Any] = {
    "wall_time": 12.4,
    "cpus_used": 0.96,
    "peak_memory": peak(392 * MIB, high=401 * MIB),
    "virtual_memory": 970 * MIB,
}


def record(state: str = "COMPLETED", **changes: Any) -> Record:
    return a_run("tag.py", state=state, **USED | {"exit_code": None} | changes)


def memory_record(size: int, state: str = "COMPLETED", **changes: Any) -> Record:
    return record(state, peak_memory=peak(size), **changes)


def waited(wanted: float, **changes: Any) -> CpuWait:
    wait = CpuWait(time=5.0, wanted=1.0, alone=6.0, threads=1, cpus=2, others=1.5)
    return msgspec.structs.replace(wait, wanted=wanted, **changes)


def jvm(limit: int, live: int, collecting: float, *flags: str) -> dict[str, Any]:
    """Return the usage of a Java program: MiB of its heap, and collections' share."""
    return {
        "jvm": JvmHeap(limit * MIB, live * MIB, collecting, flags),
        "virtual_memory": 9 * GIB,
    }


def of_process(size: int) -> dict[str, Any]:
    """Return the usage of one process of so many MiB."""
    return {"peak_memory": peak(size * MIB), "max_process_memory": size * MIB}


def on_gpu(name: str, *sizes: int | None) -> dict[str, Any]:
    """Return the usage of GPUs of one name, and what was held on each."""
    return {
        "gpus": tuple(
            GpuUsage(uuid=str(n), name=name, peak_memory=size)
            for n, size in enumerate(sizes)
        )
    }


def repeat(exit_code: int | None = 0, **changes: Any) -> RepeatedRun:
    warmup = changes.pop("warmup", False)
    signal = 9 if exit_code is None else None
    return RepeatedRun(
        a_usage(**USED | changes), exit_code=exit_code, signal=signal, warmup=warmup
    )


def bounded(high: int, source: str) -> PeakMemory:
    """Return a peak of 1000 MiB that may have been *high* MiB."""
    return msgspec.structs.replace(peak(1000 * MIB, high=high * MIB), source=source)


OF_4_GIB = {"allocation": Allocation("slurm", memory=4 * GIB)}
IN_GROUP = {"memory_limit": 4 * GIB}
SMALL, HALF = {"peak_memory": peak(60 * MIB)}, {"peak_memory": peak(2100 * MIB)}
KILLED = RunOutcome("killed for memory", ("oom_kill rose",))
ON_GPU = RunOutcome("ran out of memory", ("its output says 'CUDA out of memory'",))
NOT_COUNTED = RunOutcome(
    "ended by SIGKILL", ("the kernel counted no out-of-memory kill here",)
)
NO_PREALLOCATION = ProgramSign("jax", "", knob="XLA_PYTHON_CLIENT_PREALLOCATE")
H100 = GpuUsage(
    "0",
    "NVIDIA H100 80GB HBM3",
    memory_total=85520809984,
    memory_reserved=503316480,
    peak_memory=82141249536,
    process_peak_memory=82141249536,
)
V100, A100 = "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-40GB"
LOOP = BatchTimes(
    None, 8, 8, forecast=WholeLoopForecast(300, 9, time=5000.0, left_out=4000.0)
)
IDLE = record(cpus_used=0.01, wall_time=600.0)
KILLED_SOON = record("OUT_OF_MEMORY", cpus_used=1.6, wall_time=0.8)
# what was measured; requests.texts has what is requested for it
MEASURED: dict[str, list[Record]] = {
    "one run": [record()],
    "the smallest job": [
        record(peak_memory=peak(MIB), virtual_memory=3 * MIB, wall_time=0.01)
    ],
    # CPUs: the mean, but for a sliver, and what a run could have used
    **{f"{used} CPUs": [record(cpus_used=used)] for used in (None, 1.02, 2.3)},
    "0.45 CPUs while others had them": [
        record(
            cpus_used=0.45,
            cpu_wait=waited(1.95, time=10.1, alone=1.6, threads=3),
            wall_time=6.8,
        )
    ],
    # what was killed or is too short does not count for CPUs, unless it is alone
    "killed after 0.8 s, next to an idle one": [IDLE, KILLED_SOON],
    "killed after 0.8 s": [KILLED_SOON],
    "waited for a CPU": [record(cpu_wait=waited(1.0))],
    # of a run that was stopped no time on CPUs of its own is known
    "waited for a CPU, and TIMEOUT": [record("TIMEOUT", cpu_wait=waited(1.0))],
    # that time is of the batches that ran
    "waited for a CPU in a part of a loop": [
        record(cpu_wait=waited(1.0), batches=LOOP)
    ],
    # bounds: what the headroom covers, and what shows nothing about the need
    "a wide bound of the kernel's account": [
        record(peak_memory=msgspec.structs.replace(peak(GIB, high=2 * GIB), source=OWN))
    ],
    **{
        f"1000 MiB, at most {high}, {source}": [
            record(peak_memory=bounded(high, source))
        ]
        for high, source in (
            (1400, "pages: counted"),
            (9000, "pages: counted"),
            (9000, "status: estimated"),
        )
    },
    "mapped files of a half": [
        record(
            peak_memory=peak(
                2 * GIB,
                high=2 * GIB + MIB,
                anonymous=512 * MIB,
                shared=512 * MIB,
                file=GIB,
            )
        )
    ],
    # the split was read after a spike that only the high-water mark saw
    "parts that do not account for a spike": [
        record(peak_memory=peak(2 * GIB, anonymous=512 * MIB, shared=0, file=512 * MIB))
    ],
    "memory that grew": [record(growing=True)],
    "files that were read again": [
        record(cache=PageCache(read=9 * GIB, files=3 * GIB))
    ],
    # ends
    "killed for memory": [memory_record(3 * GIB, "OUT_OF_MEMORY", **OF_4_GIB)],
    "killed for memory without any figure": [record("OUT_OF_MEMORY", peak_memory=None)],
    "killed below what another needed": [
        memory_record(2 * GIB, "OUT_OF_MEMORY"),
        memory_record(3 * GIB),
    ],
    "out of time": [record("TIMEOUT", wall_time=7200.0)],
    "the largest failed": [memory_record(2 * GIB, "FAILED"), memory_record(GIB)],
    "failed with much granted, while another completed": [
        record("FAILED", **SMALL, **OF_4_GIB),
        memory_record(100 * MIB),
    ],
    # a run that may have lacked memory requests no less than it was granted
    "killed at 60 MiB, of 4 GiB of its group": [
        record("OUT_OF_MEMORY", outcome=KILLED, **SMALL, **IN_GROUP)
    ],
    **{
        f"{what}, of 4 GiB of its job": [record(state, **changes, **OF_4_GIB)]
        for what, state, changes in (
            ("failed at 2.05 GiB", "FAILED", HALF),
            ("exit code 137", "FAILED", {"exit_code": 137, **SMALL}),
            ("a heap of 1 GiB", "FAILED", {"jvm": JvmHeap(heap_limit=GIB), **SMALL}),
            ("3 GiB of address space", "FAILED", {"virtual_memory": 3 * GIB, **SMALL}),
        )
    },
    "exit code 1 at 60 MiB": [record("FAILED", exit_code=1, **SMALL, **OF_4_GIB)],
    "killed by signal 9, which no kernel counted": [
        record("FAILED", signal=9, outcome=NOT_COUNTED, **SMALL, **OF_4_GIB)
    ],
    "out of GPU memory at 60 MiB": [
        record("OUT_OF_MEMORY", outcome=ON_GPU, **SMALL, **OF_4_GIB)
    ],
    # several runs
    "three repeats after a warm-up": [
        record(repeats=(repeat(wall_time=9000.0, warmup=True), *[repeat()] * 3))
    ],
    # what was left out of a loop is time of a single run
    "three repeats of a part of a loop": [record(repeats=[repeat()] * 3, batches=LOOP)],
    "a repeat that failed": [record(repeats=(repeat(), repeat(None)))],
    "a warm-up that failed": [record("FAILED", repeats=(repeat(1, warmup=True),) * 2)],
    "three sizes": [
        memory_record(size * MIB, wall_time=10.0) for size in (900, 950, 1000)
    ],
    **{
        f"three times: {times}": [record(wall_time=time) for time in times]
        for times in ((1000.0, 1000.0, 2000.0), (0.25, 0.5, 0.5))
    },
    "three commands": [
        record(wall_time=t, command=(str(t),)) for t in (1000.0, 1500.0, 2000.0)
    ],
    # GPUs
    "two of four GPUs held something": [record(**on_gpu(V100, 2 * GIB, 0, None, GIB))],
    "GPUs of two kinds": [record(**on_gpu(A100, GIB)), record(**on_gpu(V100, GIB))],
    "failed with a full GPU": [record("FAILED", gpus=(H100,), exit_code=1)],
    "completed with a full GPU": [record(gpus=(H100,))],
    # a program that takes all of a GPU anyway lacked memory only by its words
    "failed with a GPU taken whole": [
        record("FAILED", gpus=(H100,), sign=NO_PREALLOCATION)
    ],
    "out of GPU memory with a GPU taken whole": [
        record("OUT_OF_MEMORY", gpus=(H100,), sign=NO_PREALLOCATION, outcome=ON_GPU)
    ],
    "out of a GPU's memory unseen": [record("OUT_OF_MEMORY", outcome=ON_GPU)],
    # what was measured in part
    "the largest process alone": [record(peak_memory=None, max_process_memory=GIB)],
    "no memory": [record(peak_memory=None, virtual_memory=None)],
    # Java: the peak shows what the heap was allowed
    "a heap without a limit": [record(**jvm(6144, 99, 0.3), **of_process(1742))],
    "a heap that was too small": [record(**jvm(126, 120, 0.94), **of_process(137))],
    "a heap that was set": [record(**jvm(64, 30, 0.3, "-Xmx64m"), **of_process(105))],
    "a heap that was set too small": [
        record(**jvm(64, 60, 0.8, "-Xmx64m"), **of_process(105))
    ],
    "a set heap that was full": [
        record(**jvm(64, 61, 0.1, "-Xmx64m"), **of_process(105))
    ],
    "a heap that was full": [record(**jvm(64, 61, 0.1), **of_process(105))],
}


def in_mebibytes(size: int) -> str:
    return f"{size / MIB:g} MiB"


def request_text(records: list[Record]) -> str:
    """Return a request as a person reads it, its notes, and those on a Java heap."""
    request = from_usages(records)
    known = {
        "memory": request.memory and in_mebibytes(request.memory),
        "virtual": request.virtual_memory and in_mebibytes(request.virtual_memory),
        "cpus": request.cpus,
        "time": request.time_limit and format_limit(request.time_limit),
        "gpus": request.gpus,
        "gpu": request.gpu_type,
        "knob": request.knob,
        "runs": request.runs,
    }
    first = ", ".join(f"{name} {value}" for name, value in known.items() if value)
    assert records[0].usage is not None
    heap = [f"heap: {words}" for words in heap_words(records[0].usage)]
    return "\n".join((first, *request.notes, *heap, ""))


def test_requests_are_as_they_were_reviewed() -> None:
    texts = {name: request_text(records) for name, records in MEASURED.items()}
    check_texts(Path(__file__).with_name("requests.texts"), texts)


def need_alone_text(words: str) -> str:
    """Return what a task needs by itself, of MiB that were planned and measured."""
    planned, used = map(int, words.split())
    item, measured = TaskNeed(memory=planned * MIB), TaskNeed(memory=used * MIB)
    kind = TaskKind(item=item, used=measured, tasks=1, example="x")
    return in_mebibytes(need_without_runner(kind, 0.2))


def why_not(words: str) -> str | None:
    state, wall_time = words.split()
    return why_no_request(record(state, wall_time=float(wall_time)))


def test_parts_of_a_request_are_read_and_rounded_as_they_were_reviewed() -> None:
    path = Path(__file__).with_name("request_parts.texts")
    check_answers(
        path,
        {
            "a GPU as most sites name it": gpu_type,
            "headroom": parse_headroom,
            "headroom of a request": lambda text: (
                from_usages([record()], headroom=float(text)).headroom
            ),
            # of output and command
            "option that limits a heap": lambda row: fixed_heap(*row.split(" | ")),
            "need without weigh exec, planned and used": need_alone_text,
            "why a run is no basis": why_not,
        },
    )


@given(
    st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=5),
    st.floats(min_value=0, max_value=10),
)
def test_memory_covers_the_biggest_use_and_the_headroom(
    parts: list[tuple[int, int, int]], headroom: float
) -> None:
    names = ("anonymous", "shared", "file")
    peaks = [peak(sum(one), **dict(zip(names, one, strict=True))) for one in parts]
    runs = [record(peak_memory=one) for one in peaks]
    request = from_usages(runs, headroom=headroom)

    assert request.memory is not None
    assert request.memory >= math.floor(max(map(sum, parts)) * (1 + headroom))


# MiB: up to the first number memory is rounded up to a multiple of the second
STEPS = ((1000, 10), (2000, 20), (5000, 50), (10240, 100), (20480, 200), (65536, 512))
SHARED_STEPS = ((100, 10), (1000, 50), (10240, 100))


def test_memory_is_rounded_up_to_its_step_or_to_a_whole_gibibyte() -> None:
    for size in (round(MIB * 1.05**n) for n in range(260)):
        for rounded, steps in (round_memory, STEPS), (round_shared, SHARED_STEPS):
            step = next((step for most, step in steps if size <= most * MIB), 1024)
            units = step * MIB, GIB
            assert rounded(size) == min(-(-size // unit) * unit for unit in units)


@given(st.integers(min_value=1, max_value=100 * DAY))
def test_a_time_is_rounded_up_by_no_more_than_its_step(seconds: int) -> None:
    rounded = round_time(seconds)

    step = 5 * MINUTE if seconds <= HOUR else 15 * MINUTE
    step = HOUR if seconds > 6 * HOUR else step
    assert seconds <= rounded < seconds + step


@pytest.mark.parametrize("records", [[], [record(usage=None)]])
def test_nothing_measured_names_the_way_out(records: list[Record]) -> None:
    with pytest.raises(UsageError, match="weigh run -- COMMAND"):
        from_usages(records)


STATES = ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "INTERRUPTED", "UNKNOWN"]


@given(st.lists(st.tuples(SIZES, st.sampled_from(STATES)), min_size=1, max_size=4))
def test_every_mix_of_ends_makes_a_request_that_covers_what_was_seen(
    runs: list[tuple[int, str]],
) -> None:
    request = from_usages([memory_record(size, state) for size, state in runs])

    assert request.memory is not None
    assert request.memory >= max(size for size, _ in runs)
    assert len(request.notes) >= 1
