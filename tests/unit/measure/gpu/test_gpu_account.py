import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh import process_ids
from weigh.measure.gpu_account import (
    DEVICE_RISE,
    PER_PROCESS,
    GpuAccount,
    gpu_columns,
    health_of,
    idle_for,
)
from weigh.model.gpu import GpuUsage
from weigh.probe.gpu import GpuCounters, GpuDevice, GpuReading
from weigh.units import GIB, MIB

CARD = GpuDevice(0, "GPU-a", "V100", 32 * GIB)
JOB = (71, 72)
PLENTY = 10_000
SERVICE = 88  # a process of this user's, and not of the job


def account(*, everybody_exists: bool = True, joined: bool = False) -> GpuAccount:
    return GpuAccount(
        CARD,
        0.0,
        exists=lambda pid: everybody_exists and pid > 0,
        is_mine=lambda pid: pid == SERVICE,
        joined=joined,
    )


def reading(
    used: int | None, holders: dict[int, int] | None = None, busy: float | None = None
) -> GpuReading:
    return GpuReading(
        "GPU-a",
        memory_used=used,
        process_memory=holders,
        processes=None if holders is None else tuple(holders),
        utilization=busy,
    )


def usage_of(*readings: GpuReading, **options: bool) -> GpuUsage:
    one = account(**options)
    for turn, each in enumerate(readings):
        one.take(turn / 10, each, JOB)
    return one.usage()


NOBODY: dict[int, int] = {}
GONE = [reading(9 * GIB, {71: 9 * GIB}), *[reading(9 * GIB, {})] * 5]
# what was read, and the peak, the driver's figure per process, whether others exist
PEAKS = {
    "of the job's processes together": (
        [
            reading(0, {}),
            reading(6 * GIB, {71: 2 * GIB, 72: 3 * GIB, 99: GIB}),
            reading(5 * GIB, {71: 4 * GIB, 99: GIB}),
        ],
        (5 * GIB, 5 * GIB, PER_PROCESS, True),
    ),
    "the rise above the baseline, without a list": (
        [reading(2 * GIB), reading(9 * GIB), reading(3 * GIB)],
        (7 * GIB, None, DEVICE_RISE, True),
    ),
    "a container that lists nobody": (
        [reading(GIB, {}), reading(9 * GIB, {}), reading(2 * GIB, {})],
        (8 * GIB, None, DEVICE_RISE, True),
    ),
    "a container that lists the host's numbers": (
        [reading(size, {5_000_001: size}) for size in (GIB, *[9 * GIB] * 4)],
        (8 * GIB, None, DEVICE_RISE, False),
    ),
    "memory that an ended process leaves for a moment": (
        [reading(0, {}), *GONE, reading(GIB, {72: GIB})],
        (9 * GIB, 9 * GIB, PER_PROCESS, True),
    ),
    "a little of nobody is the driver's": (
        [reading(0, {}), *[reading(GIB + 40 * MIB, {71: GIB})] * 9],
        (GIB, GIB, PER_PROCESS, True),
    ),
    "what others take meanwhile": (
        [reading(0, {}), reading(9 * GIB, {99: 9 * GIB})],
        (0, 0, PER_PROCESS, True),
    ),
    "nothing read": ([reading(None), reading(None)], (None, None, None, True)),
}


@pytest.mark.parametrize("what", PEAKS)
def test_the_peak_and_where_it_is_from(what: str) -> None:
    readings, (peak, own, source, everybody_exists) = PEAKS[what]
    usage = usage_of(*readings, everybody_exists=everybody_exists)
    assert (usage.peak_memory, usage.process_peak_memory, usage.source) == (
        peak,
        own,
        source,
    )
    assert usage.was_used is (None if peak is None else peak > 0)


def test_each_process_keeps_its_own_peak() -> None:
    usage = usage_of(reading(0, {}), reading(0, {71: 5}), reading(0, {71: 2, 72: 3}))
    assert [(one.pid, one.peak_memory) for one in usage.processes] == [(71, 5), (72, 3)]


@pytest.mark.parametrize(
    "listed", [{99: GIB}, {99: GIB, 0: 8 * GIB}, {99: GIB, 71: 0}, {99: GIB, 71: MIB}]
)
def test_a_list_that_does_not_explain_the_rise_is_not_believed(
    listed: dict[int, int],
) -> None:
    one = account()
    one.take(0.0, reading(GIB, {99: GIB}), JOB)
    for turn in range(3):
        one.take(turn + 1, reading((9 + turn) * GIB, listed), JOB)
    usage = one.usage()
    assert (usage.peak_memory, usage.source) == (10 * GIB, DEVICE_RISE)


@pytest.mark.parametrize("task", [*range(8), None])
def test_tasks_that_start_together_on_a_real_gpu_have_each_its_own_peak(
    task: int | None,
) -> None:
    # recorded on an H100: some 40 MiB of starting processes are on no list at times
    told = json.loads((Path(__file__).parent / "eight_trainings_h100.json").read_text())
    own = () if task is None else (told["processes"][task],)
    one, peak = account(), 0
    one.mixed = True
    for time, used, listed in told["rows"]:
        held = {int(pid): size * MIB for pid, size in listed.items()}
        peak = max(peak, *(held.get(pid, 0) for pid in own), 0)
        one.take(time, reading(used * MIB, held), own)
    assert (one.usage().peak_memory, one.usage().source) == (peak, PER_PROCESS)
    assert bool(peak) is (task is not None)


def test_what_tasks_with_hidden_processes_share_is_an_upper_bound_only() -> None:
    one = account()
    one.take(0.0, reading(0), JOB)
    one.mixed = True
    one.take(0.1, reading(6 * GIB), JOB)
    usage = one.usage()
    assert (usage.peak_memory, usage.device_peak_memory) == (None, 6 * GIB)


def test_a_process_that_left_the_tree_is_still_the_jobs() -> None:
    one = account()
    one.take(0.0, reading(0, {71: GIB}), JOB)
    one.take(0.1, reading(0, {71: 2 * GIB}), ())
    assert one.usage().peak_memory == 2 * GIB


@pytest.mark.parametrize(
    ("used", "holders", "busy", "expected"),
    [
        # busy for nobody known: perhaps for the job
        *(
            (used, holders, 53, (None, None, True))
            for used in (None, 0)
            for holders in (None, NOBODY)
        ),
        # an empty list shows nothing where memory cannot be read
        (None, NOBODY, 0, (None, None, False)),
        # a service of the user may have worked for the job, other users do not
        (40 * GIB, {SERVICE: 40 * GIB}, 90, (0, None, True)),
        (9 * GIB, {99: 9 * GIB}, 90, (0, False, False)),
    ],
)
def test_a_gpu_that_was_busy_may_have_been_the_jobs(
    used: int | None,
    holders: dict[int, int] | None,
    busy: float,
    expected: tuple[object, ...],
) -> None:
    usage = usage_of(*[reading(used, holders, busy)] * 3)
    assert (usage.peak_memory, usage.was_used, usage.may_be_needed) == expected
    assert usage.other_memory == (used if SERVICE in (holders or {}) else None)


@pytest.mark.parametrize("hidden", [None, NOBODY])
@pytest.mark.parametrize("later", [5 * GIB, 6 * GIB])
def test_of_a_job_at_work_before_hidden_memory_reports_nothing(
    hidden: dict[int, int] | None, later: int
) -> None:
    usage = usage_of(reading(5 * GIB, hidden), reading(later, hidden), joined=True)
    assert (usage.peak_memory, usage.memory_before, usage.source) == (None,) * 3
    assert usage.device_peak_memory == later


def test_of_a_job_at_work_before_what_the_driver_names_is_believed() -> None:
    holding = [reading((4 + held) * GIB, {71: held * GIB}) for held in (4, 5)]
    named = usage_of(*holding, joined=True)
    assert (named.peak_memory, named.memory_before) == (5 * GIB, 4 * GIB)
    for idle in (reading(5 * GIB, {99: 5 * GIB}), reading(0, {})):
        assert usage_of(idle, joined=True).was_used is False


def test_a_gpu_that_shares_the_hosts_memory_has_its_processes_peak() -> None:
    one = account()
    for turn, held in enumerate((0, 4 * GIB, GIB)):
        one.take(turn, reading(None, {71: held}), JOB)
    assert one.usage().peak_memory == 4 * GIB
    assert one.job_moments() == [(0, 0), (1, 4 * GIB), (2, GIB)]


def test_a_late_baseline_is_reported_and_leaves_out_what_the_job_had_by_then() -> None:
    one = account()
    one.take(3.0, reading(5 * GIB), JOB)
    one.take(3.1, reading(7 * GIB), JOB)
    assert "first looked 3.0 s after the start" in (one.usage().source or "")
    assert usage_of(reading(5 * GIB, {71: 4 * GIB})).memory_before == GIB


def test_errors_count_from_the_start_of_the_job_and_unknown_is_not_none() -> None:
    one = account()
    counts = [one.usage().xid_errors]
    one.take_counters(GpuCounters(ecc_errors=3, xids=()))
    assert [*counts, one.usage().xid_errors] == [None, 0]
    one.take_counters(GpuCounters(ecc_errors=4, xids=(31,)))
    usage = one.usage()
    assert (usage.ecc_errors, usage.xid_errors, usage.xids) == (1, 1, (31,))


@given(st.lists(st.integers(0, 32 * GIB), min_size=1, max_size=40))
def test_a_rise_and_its_series_are_what_the_gpu_held_on_top(held: list[int]) -> None:
    one = account()
    for turn, used in enumerate(held):
        one.take(turn, reading(used), JOB)
    assert one.usage().peak_memory == max(held) - held[0]
    series = [size for _, size in one.job_moments()]
    assert series == [max(0, used - held[0]) for used in held]


def test_a_long_run_keeps_its_peak_and_stays_small() -> None:
    one = account()
    for turn in range(PLENTY):
        one.take(turn, reading(0, {71: GIB + (MIB if turn == 4321 else 0)}), JOB)
    assert max(held for _, held in one.job_moments()) == GIB + MIB
    assert len(one.job_moments()) < PLENTY // 2


times = st.lists(st.floats(0, 100), min_size=1, max_size=30, unique=True).map(sorted)
rows = st.lists(
    st.tuples(st.floats(0, 100), st.integers(0, 1 << 40)), min_size=1, max_size=60
).map(sorted)


@given(times, rows)
def test_a_column_is_as_long_as_the_time_and_has_the_peak(
    at: list[float], row: list[tuple[float, int]]
) -> None:
    (column,) = gpu_columns([row], at)
    assert len(column) == len(at)
    assert max(column) == max(held for _, held in row)


def test_a_column_holds_its_last_value_between_looks() -> None:
    row = [(0.0, 5), (1.0, 9), (1.1, 3)]
    assert gpu_columns([row], [0.5, 2.0, 3.0]) == ((5, 9, 3),)


def test_this_very_process_exists_and_an_impossible_one_does_not() -> None:
    found = [process_ids.is_process_id_in_use(pid) for pid in (os.getpid(), 0, 1 << 30)]
    assert found == [True, False, False]


def test_where_signal_0_is_one_no_process_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Windows it is Ctrl-C."""
    windows = SimpleNamespace(name="nt", kill=lambda *_: pytest.fail("a signal"))
    monkeypatch.setattr(process_ids, "os", windows)
    assert process_ids.is_process_id_in_use(os.getpid())


@pytest.mark.parametrize(
    ("gib", "taken"),
    [
        ((0, 0.4, 24.4, 24.4, 25), 24),  # JAX: its context, then 75 % of 32 GiB
        ((0, 30, 30), 30),  # TensorFlow
        ((0, 0, 0, 8, 25), 25),  # in two steps, half a second apart at most
        ((0, 1, 1, 1, 6, 12, 18, 24), None),  # a batch that grows
        ((0, 4, 4, 4, 4, 4, 4, 30), None),  # a model, then the cache of a server
        ((5, 30, 30), None),  # in use at the first look
        ((0, 12, 12), None),  # too little to be a framework's share
    ],
)
def test_memory_that_a_framework_takes_at_once_is_not_need(
    gib: tuple[float, ...], taken: int | None
) -> None:
    one = account()
    for turn, size in enumerate(gib):
        held = int(size * GIB)
        one.take(0.2 * turn, reading(held, {71: held}), JOB)
    found = one.usage().preallocated
    assert (found and round(found / GIB)) == taken


@pytest.mark.parametrize(
    ("wear", "xids", "errors", "lost", "words"),
    [
        (GpuCounters(), (), None, False, None),
        (GpuCounters(), (31,), 0, False, "healthy"),
        (
            GpuCounters(retired_pages=3, pending=False),
            (),
            None,
            False,
            "healthy, 3 pages retired",
        ),
        (GpuCounters(remapped_rows=0, failed=False), (), 0, False, "healthy"),
        (GpuCounters(remapped_rows=2, pending=True), (), 0, False, "needs a reset"),
        (GpuCounters(remapped_rows=9, failed=True), (79,), 1, False, "no spare memory"),
        (GpuCounters(), (13, 79), 0, False, "failing: XID 79"),
        (GpuCounters(), (), 2, False, "failing: 2 uncorrected"),
        (GpuCounters(), (), 0, True, "failing: fell off the bus"),
    ],
)
def test_a_gpus_health_is_a_word_with_its_reason(
    wear: GpuCounters,
    xids: tuple[int, ...],
    errors: int,
    *,
    lost: bool,
    words: str | None,
) -> None:
    found = health_of(wear, xids, errors, lost=lost)
    assert found == words or (words and words in (found or ""))


def test_each_figure_has_mean_and_bounds_without_what_went_on_before() -> None:
    one = account()
    for turn, (busy, clock) in enumerate(((100, 0), (20, 1380), (60, 300))):
        looked = GpuReading(
            "GPU-a",
            utilization=busy,
            power=busy,
            sm_clock=clock,
            slowed=frozenset({"power"} if turn == 1 else ()),
        )
        one.take(turn, looked, JOB)
    for traffic in ((100, 7), (None, None), (300, None)):
        one.take_bus(traffic)
    usage = one.usage()
    of_time = (usage.utilization_min, usage.utilization_mean, usage.utilization_max)
    powers = (usage.power_min, usage.power_mean, usage.power_max)
    assert [of_time, powers] == [(20, 40, 60)] * 2
    assert (usage.sm_clock_max, usage.sm_clock_min) == (1380, 300)
    assert (usage.pcie_rx, usage.pcie_rx_max, usage.pcie_tx) == (200, 300, 7)
    assert usage.slowed == {"power": 50.0}


def idle_account(*looks: float | None) -> GpuAccount:
    """Look once a second; the first look is what was before the job."""
    one = account()
    for now, utilization in enumerate(looks):
        one.take(float(now), reading(0, None, utilization), ())
    return one


@pytest.mark.parametrize(
    ("gpus", "since"),
    [
        ([[0.0, 0.0, 70.0, 0.0, 0.0]], 8.0),  # since it was last busy
        ([[0.0, 0.0, 0.0]], 9.0),  # never busy: since the first look
        ([[None, None, None]], None),  # it does not report
        # one busy GPU of two is enough
        ([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 90.0]], 7.0),
    ],
)
def test_gpus_are_idle_since(
    gpus: list[list[float | None]], since: float | None
) -> None:
    assert idle_for([idle_account(*looks) for looks in gpus], 10.0) == since
