import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError, UsageError
from weigh.measure.memory.ledger import OWN
from weigh.model.gpu import GpuUsage
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
    Request,
    RunOutcome,
    Usage,
    WholeLoopForecast,
)
from weigh.request import (
    from_usages,
    gpu_type,
    parse_headroom,
    round_memory,
    round_time,
    why_no_request,
)
from weigh.units import DAY, GIB, HOUR, MIB, MINUTE

RECORD_FIELDS = frozenset(Record.__struct_fields__)
SIZES = st.integers(min_value=1, max_value=1 << 45)


def peak(value: int, *, high: int | None = None, **parts: int) -> PeakMemory:
    known: dict[str, Any] = {"anonymous": None, "shared": None, "file": None} | parts
    return PeakMemory(
        value=value, low=value, high=high or value, source="test", **known
    )


def usage(**changes: Any) -> Usage:
    values: dict[str, Any] = {
        "wall_time": 12.4,
        "cpus_used": 0.96,
        "peak_memory": peak(392 * MIB, high=401 * MIB),
        "virtual_memory": 970 * MIB,
    }
    return Usage(**(values | changes))


def record(state: str = "COMPLETED", **changes: Any) -> Record:
    own = {name: changes.pop(name) for name in RECORD_FIELDS & changes.keys()}
    values: dict[str, Any] = {
        "id": "7f3a91",
        "command": ("tag.py",),
        "started": "2026-11-21T10:00:00Z",
        "state": state,
        "usage": usage(**changes),
    }
    return Record(**(values | own))


def memory_record(size: int, state: str = "COMPLETED", **changes: Any) -> Record:
    return record(state, peak_memory=peak(size), **changes)


def noted(request: Request, words: str) -> bool:
    return any(words in note for note in request.notes)


@pytest.mark.parametrize(
    ("used", "wanted", "cpus"), [(0.45, 1.95, 2), (0.45, None, 1), (2.3, None, 3)]
)
def test_a_run_that_waited_for_others_requests_the_cpus_it_could_use(
    used: float, wanted: float | None, cpus: int
) -> None:
    wait = None
    if wanted is not None:
        wait = CpuWait(
            time=10.1, wanted=wanted, alone=1.6, threads=3, cpus=2, others=1.5
        )
    made = from_usages([record(cpus_used=used, cpu_wait=wait, wall_time=6.8)])
    assert made.cpus == cpus


WAITED = CpuWait(time=5.0, wanted=1.0, alone=6.0, threads=1, cpus=2, others=1.5)


def notes_on_waits(made: Request) -> list[str]:
    return [note for note in made.notes if "of its own" in note]


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "FAILED"])
def test_of_a_run_that_was_stopped_no_time_on_cpus_of_its_own_is_known(
    state: str,
) -> None:
    assert notes_on_waits(from_usages([record(cpu_wait=WAITED)]))
    assert not notes_on_waits(from_usages([record(state, cpu_wait=WAITED)]))


def test_the_time_on_cpus_of_its_own_is_that_of_the_batches_that_ran() -> None:
    loop = BatchTimes(
        None, 8, 8, forecast=WholeLoopForecast(300, 9, time=5000.0, left_out=4000.0)
    )
    made = from_usages([record(cpu_wait=WAITED, batches=loop)])
    assert notes_on_waits(made) == [
        "on 1 CPU of its own it would take 6.00 s instead of 12.4 s (it could use 1.00)"
    ]
    assert made.time_limit is not None
    assert made.time_limit > 4000


def test_one_run_is_requested_with_headroom_in_round_figures() -> None:
    assert from_usages([record()]) == Request(
        cpus=1,
        memory=480 * MIB,
        virtual_memory=1180 * MIB,
        time_limit=5 * MINUTE,
        headroom=0.2,
        runs=1,
        notes=("from 1 run + 20 %; run it three times to learn how much it varies",),
    )


@given(st.lists(SIZES, min_size=1, max_size=5), st.floats(min_value=0, max_value=10))
def test_memory_covers_the_biggest_use_and_the_headroom(
    sizes: list[int], headroom: float
) -> None:
    request = from_usages([memory_record(size) for size in sizes], headroom=headroom)

    assert request.memory is not None
    assert request.memory >= math.floor(max(sizes) * (1 + headroom))


@given(SIZES, SIZES)
def test_a_bigger_use_never_requests_less(one: int, other: int) -> None:
    small, large = sorted((one, other))

    assert round_memory(small) <= round_memory(large)


@given(st.integers(min_value=1, max_value=2000 * GIB))
def test_rounding_memory_adds_little(size: int) -> None:
    assert size <= round_memory(size) <= size + max(10 * MIB, 0.026 * size)


@given(st.integers(min_value=1, max_value=100 * DAY))
def test_a_time_is_rounded_up_by_no_more_than_its_step(seconds: int) -> None:
    rounded = round_time(seconds)

    step = 5 * MINUTE if seconds <= HOUR else 15 * MINUTE
    step = HOUR if seconds > 6 * HOUR else step
    assert seconds <= rounded < seconds + step


@pytest.mark.parametrize(
    ("use", "asked"),
    [
        (41 * MIB, 50 * MIB),
        (91 * MIB, 100 * MIB),
        (101 * MIB, 110 * MIB),
        (481 * MIB, 490 * MIB),
        (1164 * MIB, 1180 * MIB),
        (9.9 * GIB, 10200 * MIB),
        (8190 * MIB, 8 * GIB),
        (8 * GIB, 8 * GIB),
        (10.1 * GIB, 10400 * MIB),
        (20.1 * GIB, 20.5 * GIB),
        (99.1 * GIB, 100 * GIB),
    ],
)
def test_memory_is_rounded_to_what_a_person_would_write(use: float, asked: int) -> None:
    assert round_memory(use) == asked


def test_the_smallest_job_still_gets_room_for_its_shell() -> None:
    request = from_usages(
        [record(peak_memory=peak(MIB), virtual_memory=3 * MIB, wall_time=0.01)]
    )

    assert request.memory == 50 * MIB
    assert request.virtual_memory == 200 * MIB
    assert request.time_limit == 5 * MINUTE


@pytest.mark.parametrize(
    ("state", "wall_time"), [("OUT_OF_MEMORY", 0.8), ("COMPLETED", 0.8), ("FAILED", 40)]
)
def test_a_run_that_was_killed_or_too_short_does_not_count_for_cpus(
    state: str, wall_time: float
) -> None:
    idle = record(cpus_used=0.01, wall_time=600.0)
    start_up = record(state, cpus_used=1.6, wall_time=wall_time)
    assert from_usages([idle, start_up]).cpus == 1
    assert from_usages([start_up]).cpus == 2


@pytest.mark.parametrize(
    ("used", "asked"), [(None, 1), (0.0, 1), (0.96, 1), (1.02, 1), (1.3, 2), (7.4, 8)]
)
def test_cpus_are_the_mean_rounded_up_but_for_a_sliver(
    used: float | None, asked: int
) -> None:
    assert from_usages([record(cpus_used=used)]).cpus == asked


def test_a_bound_too_wide_to_request_is_named_instead() -> None:
    request = from_usages([record(peak_memory=peak(GIB, high=2 * GIB))])

    assert request.memory == 1240 * MIB
    assert noted(request, "may have reached 2.00 GiB")
    assert noted(request, "control group of its own")


def test_a_wide_bound_of_the_kernels_account_is_for_page_cache() -> None:
    counted = msgspec.structs.replace(peak(GIB, high=2 * GIB), source=OWN)
    request = from_usages([record(peak_memory=counted)])

    assert noted(request, "unless that was page cache: run it again")
    assert not noted(request, "control group of its own")


@pytest.mark.parametrize(
    ("high", "source", "request_size"),
    [
        (1100, "pages: counted", 1200),  # the headroom covers it
        (1400, "pages: counted", 1400),
        (9000, "pages: counted", 1200),  # shows nothing about the need
        (9000, "status: estimated", 1500),
    ],
)
def test_a_request_covers_the_upper_bound_where_that_is_of_use(
    high: int, source: str, request_size: int
) -> None:
    known = msgspec.structs.replace(peak(1000 * MIB, high=high * MIB), source=source)
    request = from_usages([record(peak_memory=known)])
    assert request.memory == request_size * MIB


def test_mapped_files_are_part_of_the_request_and_named() -> None:
    mapped = peak(
        2 * GIB, anonymous=512 * MIB, shared=512 * MIB, file=GIB, high=2 * GIB + MIB
    )

    request = from_usages([record(peak_memory=mapped)])

    assert request.memory is not None
    assert request.memory >= 2 * GIB * 1.2
    assert noted(request, "1.00 GiB of it are mapped files, which the kernel can drop")


def test_what_the_parts_do_not_account_for_is_still_requested() -> None:
    # the split was read after a spike of 1 GiB that only the high-water mark saw
    spiked = peak(2 * GIB, anonymous=512 * MIB, shared=0, file=512 * MIB)

    request = from_usages([record(peak_memory=spiked)])

    assert request.memory is not None
    assert request.memory >= 1.5 * GIB


def test_a_few_mapped_files_are_part_of_the_request() -> None:
    few = peak(GIB, anonymous=900 * MIB, shared=0, file=124 * MIB)

    request = from_usages([record(peak_memory=few)])

    assert request.memory == 1240 * MIB
    assert not noted(request, "mapped files")


def test_memory_still_growing_is_reported() -> None:
    assert noted(from_usages([record(growing=True)]), "memory was still rising")
    assert not noted(from_usages([record(growing=False)]), "rising")


def test_a_run_killed_for_memory_doubles_what_it_was_granted() -> None:
    killed = memory_record(
        3 * GIB,
        "OUT_OF_MEMORY",
        allocation=Allocation(scheduler="slurm", memory=4 * GIB),
    )

    request = from_usages([killed])

    assert request.memory == 8 * GIB
    assert noted(request, "doubled from 4.00 GiB")
    assert noted(request, "a lower bound")


def test_a_run_killed_for_memory_without_any_figure_requests_none() -> None:
    assert from_usages([record("OUT_OF_MEMORY", peak_memory=None)]).memory is None


@pytest.mark.parametrize("cache", [None, PageCache(read=9 * GIB, files=3 * GIB)])
def test_a_program_that_rereads_its_files_is_reported(cache: PageCache | None) -> None:
    request = from_usages([record(cache=cache)])
    words = "read 9.00 GiB of files of 3.00 GiB"
    assert noted(request, words) == (cache is not None)


def test_a_run_killed_for_memory_below_what_others_needed_changes_nothing() -> None:
    killed = memory_record(2 * GIB, "OUT_OF_MEMORY")
    whole = memory_record(3 * GIB)

    request = from_usages([killed, whole])

    assert request.memory == from_usages([whole]).memory
    assert not noted(request, "doubled")


def test_a_run_stopped_by_its_time_limit_doubles_the_time() -> None:
    request = from_usages([record("TIMEOUT", wall_time=7200.0)])

    assert request.time_limit == 4 * HOUR
    assert noted(request, "time doubled from 2 h 00 m")
    assert request.memory == 480 * MIB


def test_failed_runs_alone_are_a_lower_bound_and_are_reported() -> None:
    request = from_usages([record("FAILED")])

    assert request.runs == 1
    assert noted(request, "from 1 run that did not complete (FAILED)")
    assert noted(request, "a lower bound only")


def test_a_failed_run_raises_the_request_only_by_what_it_was_seen_to_use() -> None:
    request = from_usages([memory_record(2 * GIB, "FAILED"), memory_record(GIB)])

    assert request.memory == 2500 * MIB
    assert request.runs == 1
    assert noted(request, "the biggest memory is of a run that did not complete")


def test_every_repeat_is_a_run_and_a_warm_up_is_none() -> None:
    repeats = (
        RepeatedRun(
            usage=usage(wall_time=9000.0), exit_code=0, signal=None, warmup=True
        ),
        *(RepeatedRun(usage=usage(), exit_code=0, signal=None) for _ in range(3)),
    )

    request = from_usages([record(repeats=repeats)])

    assert request.runs == 3
    assert request.time_limit == 5 * MINUTE


@pytest.mark.parametrize("state", ["FAILED", "COMPLETED"])  # the record's
def test_a_repeat_that_failed_is_not_counted_as_completed(state: str) -> None:
    repeats = (
        RepeatedRun(usage=usage(), exit_code=0, signal=None),
        RepeatedRun(usage=usage(), exit_code=None, signal=9),
    )

    assert from_usages([record(state, repeats=repeats)]).runs == 1


def test_three_runs_state_how_far_they_vary() -> None:
    request = from_usages(
        [memory_record(size * MIB, wall_time=10.0) for size in (900, 950, 1000)]
    )

    assert request.notes == (
        "from 3 runs + 20 %; between runs memory varies by 10 %, time by 0 %",
    )


def test_runs_that_vary_beyond_the_headroom_call_for_a_larger_one() -> None:
    request = from_usages([record(wall_time=t) for t in (1000.0, 1000.0, 2000.0)])

    assert noted(request, "more than the headroom")


def test_times_that_the_least_limit_holds_call_for_no_larger_headroom() -> None:
    request = from_usages([record(wall_time=t) for t in (0.8, 1.0, 1.4)])

    assert not noted(request, "more than the headroom")


def test_runs_of_different_commands_are_no_repeats_that_vary() -> None:
    runs = [record(wall_time=t, command=(str(t),)) for t in (1000.0, 1500.0, 2000.0)]

    assert from_usages(runs).notes == (
        "from 3 runs + 20 %; the runs are of 3 different commands: the largest counts",
    )


def test_only_gpus_that_held_something_are_requested() -> None:
    cards = tuple(
        GpuUsage(uuid=str(n), name="Tesla V100-SXM2-32GB", peak_memory=size)
        for n, size in enumerate((2 * GIB, 0, None, GIB))
    )

    request = from_usages([record(gpus=cards)])

    assert (request.gpus, request.gpu_type) == (2, "v100")
    assert noted(request, "v100 is a guess")


def test_gpus_of_several_kinds_are_requested_without_a_type() -> None:
    runs = [
        record(gpus=(GpuUsage(uuid="0", name=name, peak_memory=GIB),))
        for name in ("NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-32GB")
    ]

    request = from_usages(runs)

    assert (request.gpus, request.gpu_type) == (1, None)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla P100-PCIE-12GB", "p100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100_1g.5gb"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA TITAN V", "titanv"),
        ("AMD Instinct MI250X", "mi250x"),
        ("NVIDIA", None),
        ("", None),
        ("rtx", "rtx"),
        ("$(rm):x", "rmx"),
    ],
)
def test_a_gpu_is_named_as_most_sites_name_it(name: str, word: str | None) -> None:
    assert gpu_type(name) == word


def test_a_largest_process_stands_in_where_no_tree_was_measured() -> None:
    request = from_usages([record(peak_memory=None, max_process_memory=GIB)])

    assert request.memory == 1240 * MIB
    assert noted(request, "largest process")


def test_what_was_not_measured_is_not_requested() -> None:
    request = from_usages([record(peak_memory=None, virtual_memory=None)])

    assert (request.memory, request.virtual_memory) == (None, None)
    assert noted(request, "memory was not measured")


@pytest.mark.parametrize("records", [[], [record(usage=None)]])
def test_nothing_measured_names_the_way_out(records: list[Record]) -> None:
    with pytest.raises(UsageError, match="weigh run -- COMMAND"):
        from_usages(records)


@pytest.mark.parametrize("headroom", [-0.1, math.nan, math.inf, 10.01])
def test_a_headroom_out_of_range_is_refused(headroom: float) -> None:
    with pytest.raises(UsageError, match="headroom"):
        from_usages([record()], headroom=headroom)


@pytest.mark.parametrize(
    ("text", "headroom"),
    [
        ("20%", 0.2),
        ("0.2", 0.2),
        ("0", 0),
        ("1", 1),
        ("1000%", 10),
        (" 12.5 % ", 0.125),
    ],
)
def test_a_headroom_is_read_as_a_share_or_per_cent(text: str, headroom: float) -> None:
    assert parse_headroom(text) == pytest.approx(headroom)


@pytest.mark.parametrize(
    "text",
    ["", "%", "-20%", "-0.1", "nan", "nan%", "inf", "1001%", "20", "1.2x", "a"],
)
def test_a_headroom_that_could_mislead_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="headroom"):
        parse_headroom(text)


def test_a_request_survives_the_wire() -> None:
    request = from_usages([record()])

    assert msgspec.json.decode(msgspec.json.encode(request), type=Request) == request


STATES = ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "INTERRUPTED", "UNKNOWN"]


@given(st.lists(st.tuples(SIZES, st.sampled_from(STATES)), min_size=1, max_size=4))
def test_every_mix_of_ends_makes_a_request_that_covers_what_was_seen(
    runs: list[tuple[int, str]],
) -> None:
    request = from_usages([memory_record(size, state) for size, state in runs])

    assert request.memory is not None
    assert request.memory >= max(size for size, _ in runs)
    assert len(request.notes) >= 1


@given(SIZES, SIZES, SIZES, st.floats(min_value=0, max_value=10))
def test_no_request_is_below_the_peak(
    anonymous: int, shared: int, file: int, headroom: float
) -> None:
    parts = {"anonymous": anonymous, "shared": shared, "file": file}
    mapped = peak(anonymous + shared + file, **parts)
    request = from_usages([record(peak_memory=mapped)], headroom=headroom)
    assert request.memory is not None
    assert request.memory >= mapped.value


GRANTED = Allocation("slurm", memory=4 * GIB)
ON_GPU = RunOutcome("ran out of memory", ("its output says 'CUDA out of memory'",))


NOT_COUNTED = RunOutcome(
    "ended by SIGKILL", ("the kernel counted no out-of-memory kill here",)
)
SMALL = {"peak_memory": peak(60 * MIB)}
HALF = {"peak_memory": peak(2100 * MIB)}


@pytest.mark.parametrize(
    "granted",
    [{"allocation": GRANTED}, {"memory_limit": 4 * GIB}],
    ids=["job", "group"],
)
@pytest.mark.parametrize(
    ("state", "changes", "asked"),
    [
        (
            "OUT_OF_MEMORY",
            {"outcome": RunOutcome("killed for memory", ("oom_kill rose",)), **SMALL},
            8 * GIB,
        ),
        ("FAILED", HALF, 4 * GIB),
        ("FAILED", {"signal": 9, **SMALL}, 4 * GIB),
        ("FAILED", {"exit_code": 137, **SMALL}, 4 * GIB),
        ("FAILED", {"jvm": JvmHeap(heap_limit=GIB), **SMALL}, 4 * GIB),
    ],
)
def test_a_run_that_may_have_lacked_memory_requests_no_less_than_it_was_granted(
    granted: dict[str, Any], state: str, changes: dict[str, Any], asked: int
) -> None:
    assert from_usages([record(state, **changes, **granted)]).memory == asked


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        ("FAILED", {"exit_code": 1}),
        ("FAILED", {"signal": 9, "outcome": NOT_COUNTED}),
        ("OUT_OF_MEMORY", {"outcome": ON_GPU}),
    ],
)
def test_a_failed_run_far_below_what_it_was_granted_requests_its_peak(
    state: str, changes: dict[str, Any]
) -> None:
    made = from_usages([record(state, **changes, **SMALL, allocation=GRANTED)])
    assert made.memory == 80 * MIB
    assert not noted(made, "granted")


def test_address_space_near_what_was_granted_may_have_ended_a_run() -> None:
    near = {"virtual_memory": 3 * GIB, **SMALL, "allocation": GRANTED}
    assert from_usages([record("FAILED", **near)]).memory == 4 * GIB
    in_group = record("FAILED", memory_limit=4 * GIB, **near)
    assert from_usages([in_group]).memory == 80 * MIB


H100 = GpuUsage(
    "0",
    "NVIDIA H100 80GB HBM3",
    memory_total=85520809984,
    memory_reserved=503316480,
    peak_memory=82141249536,
    process_peak_memory=82141249536,
)
FULL = "GPU memory was full (76.5 of 79.2 GiB): a smaller batch, or a larger GPU"


def test_a_failed_run_that_filled_a_gpu_may_have_lacked_its_memory() -> None:
    made = from_usages([record("FAILED", gpus=(H100,), exit_code=1)])
    assert noted(made, FULL)
    assert not noted(from_usages([record(gpus=(H100,))]), "GPU memory")


def test_a_program_that_takes_a_gpu_anyway_lacked_memory_only_by_its_words() -> None:
    sign = ProgramSign("jax", "", knob="XLA_PYTHON_CLIENT_PREALLOCATE")
    failed = record("FAILED", gpus=(H100,), sign=sign)
    assert not noted(from_usages([failed]), "GPU memory")
    ran_out = record("OUT_OF_MEMORY", gpus=(H100,), sign=sign, outcome=ON_GPU)
    assert noted(from_usages([ran_out]), FULL)


def test_a_run_that_ran_out_of_a_gpu_unseen_needs_a_larger_one() -> None:
    made = from_usages([record("OUT_OF_MEMORY", outcome=ON_GPU)])
    assert noted(made, "the run ran out of GPU memory: a smaller batch, or a larger")


def test_a_failed_run_requests_no_more_where_another_completed() -> None:
    failed = record("FAILED", peak_memory=peak(60 * MIB), allocation=GRANTED)
    request = from_usages([failed, memory_record(100 * MIB)])
    assert request.memory == 120 * MIB


def test_a_run_that_failed_as_it_began_is_no_basis_for_a_request() -> None:
    assert why_no_request(record("FAILED", wall_time=0.3)) is not None
    assert why_no_request(record("FAILED", wall_time=30.0)) is None
    assert why_no_request(record("OUT_OF_MEMORY", wall_time=0.3)) is None
    assert why_no_request(record(wall_time=0.3)) is None


def test_a_run_that_failed_while_it_warmed_up_is_a_lower_bound() -> None:
    warm = RepeatedRun(usage(), exit_code=1, signal=None, warmup=True)
    request = from_usages([record("FAILED", repeats=(warm, warm))])
    assert request.memory == 480 * MIB
    assert noted(request, "a lower bound only")


def test_how_far_short_runs_vary_is_stated_too() -> None:
    request = from_usages([record(wall_time=t) for t in (0.25, 0.5, 0.5)])
    assert noted(request, "memory varies by 0 %, time by 50 %")
