"""The account of one GPU: made-up readings, and what the job had of them."""

import json
import os
import random
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh import process_ids
from weigh.measure.gpu_account import (
    DEVICE_RISE,
    PER_PROCESS,
    GpuAccount,
    gpu_column,
    health_of,
    idle_for,
    is_process_of_mine,
)
from weigh.model.gpu import GpuProcess
from weigh.probe.gpu import GpuCounters, GpuDevice, GpuReading
from weigh.units import GIB, MIB

CARD = GpuDevice(0, "GPU-a", "V100", 32 * GIB)
JOB = (71, 72)
SERVICE, STRANGER = 88, 99  # of this user, and of another
NOBODY: dict[int, float] = {}
STARTED = 100.0
PLENTY = 5000


def reading(
    used: float | None, listed: dict[int, float] | None = None, busy: float | None = 0
) -> GpuReading:
    """Return a reading of so many GiB in use, and held by processes."""
    size = None if used is None else int(used * GIB)
    if listed is None:
        return GpuReading("GPU-a", size, utilization=busy)
    held = {pid: int(one * GIB) for pid, one in listed.items()}
    return GpuReading("GPU-a", size, held, busy, processes=tuple(held))


def account_of(
    *readings: GpuReading,
    joined: bool = False,
    mixed: bool = False,
    first: float = 0.0,
    job: Collection[int] = JOB,
    in_container: bool = False,
) -> GpuAccount:
    """Read five times per second, from so long after the start."""
    account = GpuAccount(
        CARD,
        STARTED,
        exists=lambda pid: pid > 0 and not in_container,
        is_mine=lambda pid: pid == SERVICE,
        joined=joined,
        mixed=mixed,
    )
    for turn, each in enumerate(readings):
        account.take(STARTED + first + turn / 5, each, job)
    return account


sizes = st.integers(0, 4 * GIB)
lists = st.dictionaries(st.sampled_from((*JOB, SERVICE, STRANGER)), sizes)


@given(st.lists(lists, min_size=1, max_size=20), st.integers(0, GIB))
def test_what_the_driver_lists_of_the_job_is_its_account(
    moments: list[dict[int, int]], of_the_driver: int
) -> None:
    def held(listed: dict[int, int], *pids: int) -> int:
        return sum(listed.get(pid, 0) for pid in pids)

    used = [of_the_driver + sum(listed.values()) for listed in moments]
    rows = [
        GpuReading("GPU-a", size, listed, processes=tuple(listed))
        for size, listed in zip(used, moments, strict=True)
    ]
    account = account_of(*rows)
    usage, own = account.usage(), [held(listed, *JOB) for listed in moments]
    before = used[0] - own[0]
    assert (usage.peak_memory, usage.source) == (max(own), PER_PROCESS)
    assert usage.process_peak_memory == max(own)
    assert usage.was_used is (max(own) > 0)
    assert (usage.memory_before, usage.device_peak_memory) == (before, max(used))
    assert [size for _, size in account.job_moments()] == own
    assert account.in_use() == (before + own[-1], before + max(own))
    # None where none of mine was seen
    of_mine = [listed[SERVICE] for listed in moments if SERVICE in listed]
    assert usage.other_memory == max(of_mine, default=None)
    assert usage.processes == tuple(
        GpuProcess(pid, max(listed.get(pid, 0) for listed in moments))
        for pid in JOB
        if any(pid in listed for listed in moments)
    )


@given(st.lists(sizes, min_size=1, max_size=20), st.booleans())
def test_without_a_list_a_rise_is_the_jobs_unless_others_share_the_gpu(
    used: list[int],
    shared: bool,  # noqa: FBT001
) -> None:
    account = account_of(*(GpuReading("GPU-a", size) for size in used), mixed=shared)
    usage, rises = account.usage(), [max(0, size - used[0]) for size in used]
    shown = [size for _, size in account.job_moments()]
    assert (usage.peak_memory, usage.source, usage.memory_before, shown) == (
        (None, None, None, []) if shared else (max(rises), DEVICE_RISE, used[0], rises)
    )
    assert usage.process_peak_memory is None
    assert usage.device_peak_memory == max(used)
    assert account.in_use() == (used[-1], max(used))


GONE = [reading(9, {71: 9}), *[reading(9, {})] * 5]
HOST = 5_000_001  # a process of the machine, seen in a container
# what was read, and the peak in GiB with its source
DOUBTS = {
    "a container that lists nobody": (
        [reading(1, {}), reading(9, {}), reading(2, {})],
        (8, DEVICE_RISE),
    ),
    "a container that lists the host's numbers": (
        [reading(size, {HOST: size}) for size in (1, *[9] * 4)],
        (8, DEVICE_RISE),
    ),
    "memory that an ended process leaves for a moment": (
        [reading(0, {}), *GONE, reading(1, {72: 1})],
        (9, PER_PROCESS),
    ),
    # what is not explained is near the most that was
    "and a little more": (
        [reading(0, {}), reading(10, {71: 10}), reading(10.3, {71: 9})],
        (10, PER_PROCESS),
    ),
    "what is listed later": (
        [reading(0, {}), reading(11, {71: 9}), reading(10.75, {71: 10.75})],
        (10.75, PER_PROCESS),
    ),
    "what is listed never": (
        [reading(0, {}), reading(11, {71: 9}), reading(9.5, {71: 9.5})],
        (11, DEVICE_RISE),
    ),
    "a little of nobody is the driver's": (
        [reading(0, {}), *[reading(1.04, {71: 1})] * 9],
        (1, PER_PROCESS),
    ),
    "of the job from the first look": (
        [reading(4, {71: 4}, 90)] * 3,
        (4, PER_PROCESS),
    ),
    **{
        f"a list of {listed} for a rise of 10": (
            [reading(1, {99: 1}), *(reading(9 + turn, listed) for turn in range(3))],
            (10, DEVICE_RISE),
        )
        for listed in (
            *({99: 1.0}, {99: 1.0, 0: 8.0}, {99: 1.0, 71: 0.0}),
            {99: 1.0, 71: 1 / 1024},
        )
    },
    "a rise within the driver's own while at work": (
        [reading(0, None, 90), reading(1 / 64, None, 90)],
        (None, None),
    ),
    "nothing read": ([reading(None)] * 2, (None, None)),
}


@pytest.mark.parametrize("what", DOUBTS)
def test_a_list_is_believed_where_it_explains_the_memory(what: str) -> None:
    readings, (peak, source) = DOUBTS[what]
    usage = account_of(*readings, in_container="container" in what).usage()
    expected = peak and int(peak * GIB)
    assert (usage.peak_memory, usage.source) == (expected, source)


@pytest.mark.parametrize("task", [*range(8), None])
def test_tasks_that_start_together_on_a_real_gpu_have_each_its_own_peak(
    task: int | None,
) -> None:
    # recorded on an H100: some 40 MiB of starting processes are on no list at times
    told = json.loads((Path(__file__).parent / "eight_trainings_h100.json").read_text())
    own = () if task is None else (told["processes"][task],)
    account, peak = account_of(mixed=True), 0
    for time, used, listed in told["rows"]:
        held = {int(pid): size * MIB for pid, size in listed.items()}
        peak = max(peak, *(held.get(pid, 0) for pid in own), 0)
        row = GpuReading("GPU-a", used * MIB, held, processes=tuple(held))
        account.take(time, row, own)
    usage = account.usage()
    assert (usage.peak_memory, usage.source) == (peak, PER_PROCESS)
    assert bool(peak) is (task is not None)


def test_a_process_that_left_the_tree_is_still_the_jobs() -> None:
    account = account_of(reading(1, {71: 1}))
    account.take(STARTED + 1, reading(2, {71: 2}, 50), ())
    assert account.usage().peak_memory == 2 * GIB
    # nor is what it does another user's
    assert account.busy_for_nobody


@pytest.mark.parametrize(
    ("used", "listed", "busy", "expected"),
    [
        # busy for nobody known: perhaps for the job
        *(
            (used, listed, 53, (None, None, True))
            for used in (None, 0)
            for listed in (None, NOBODY)
        ),
        # an empty list shows nothing where memory cannot be read
        (None, {}, 0, (None, None, False)),
        # a service of the user may have worked for the job, other users do not
        (30, {SERVICE: 30}, 90, (0, None, True)),
        (9, {STRANGER: 9}, 90, (0, False, False)),
    ],
)
def test_a_gpu_that_was_busy_may_have_been_the_jobs(
    used: float | None,
    listed: dict[int, float] | None,
    busy: float,
    expected: tuple[object, ...],
) -> None:
    usage = account_of(*[reading(used, listed, busy)] * 3).usage()
    assert (usage.peak_memory, usage.was_used, usage.may_be_needed) == expected


@pytest.mark.parametrize(
    ("readings", "peak", "before"),
    [
        # hidden memory may be the job's own or not
        *(
            ([reading(5, hidden), reading(later, hidden)], None, None)
            for hidden in (None, NOBODY)
            for later in (5, 6)
        ),
        # what the driver names is believed
        ([reading(8, {71: 4}), reading(9, {71: 5})], 5, 4),
        ([reading(5, {STRANGER: 5})], 0, 5),
        ([reading(0, {})], 0, 0),
    ],
)
def test_of_a_job_at_work_before_only_listed_memory_is_reported(
    readings: list[GpuReading], peak: int | None, before: int | None
) -> None:
    usage = account_of(*readings, joined=True).usage()
    assert (usage.peak_memory, usage.memory_before) == (
        peak and peak * GIB,
        before and before * GIB,
    )
    assert usage.source == (None if peak is None else PER_PROCESS)


def test_a_gpu_that_shares_the_hosts_memory_has_its_processes_peak() -> None:
    account = account_of(*(reading(None, {71: held}) for held in (0, 4, 1)))
    assert account.usage().peak_memory == 4 * GIB
    assert account.in_use() == (None, 4 * GIB)
    assert [size / GIB for _, size in account.job_moments()] == [0, 4, 1]


@pytest.mark.parametrize(
    ("first", "words"), [(0.5, ""), (3.0, "; first looked 3.0 s after the start")]
)
def test_a_late_baseline_is_reported(first: float, words: str) -> None:
    usage = account_of(reading(5), reading(7), first=first).usage()
    assert usage.source == f"{DEVICE_RISE}{words}"


def test_counters_count_from_the_start_of_the_job_and_unknown_is_not_none() -> None:
    account = account_of()
    assert account.usage().xid_errors is None
    account.take_counters(GpuCounters(energy=5.0, ecc_errors=3, xids=()))
    usage = account.usage()
    assert (usage.energy, usage.ecc_errors, usage.xid_errors) == (None, None, 0)
    account.take_counters(GpuCounters(energy=7.5, ecc_errors=4, xids=(31,)))
    usage = account.usage()
    assert (usage.energy, usage.ecc_errors, usage.pcie_replays) == (2.5, 1, None)
    assert (usage.xid_errors, usage.xids) == (1, (31,))


def test_a_gpu_is_lost_when_it_was_first_and_is_failing() -> None:
    assert account_of().in_use() == (None, None)
    lost = GpuReading("GPU-a", lost=True)
    account = account_of(reading(1), lost, lost)
    assert account.lost_at == pytest.approx(0.2)
    assert account.usage().health == "failing: fell off the bus"


def test_a_long_run_keeps_the_larger_of_each_two_moments() -> None:
    held = random.Random(1).sample(range(PLENTY), PLENTY)
    account = account_of()
    for turn, size in enumerate(held):
        account.take(turn, GpuReading("GPU-a", 0, {71: size}, processes=(71,)), JOB)
    many = [*map(max, zip(held[:4096:2], held[1:4096:2], strict=True))]
    assert [size for _, size in account.job_moments()] == many + held[4096:]


def test_a_record_has_some_of_very_many_processes() -> None:
    crowd = range(1, 100)
    usage = account_of(reading(1, dict.fromkeys(crowd, 0.01)), job=crowd).usage()
    assert [one.pid for one in usage.processes] == [*range(1, 65)]


times = st.lists(st.integers(0, 100), min_size=1, max_size=30, unique=True).map(sorted)
rows = st.lists(
    st.tuples(st.integers(0, 110), st.integers(0, 1 << 40)), max_size=60
).map(sorted)


@given(times, rows)
def test_a_column_has_the_most_since_the_time_before(
    at: list[int], row: list[tuple[int, int]]
) -> None:
    bounds, expected, held = [-1, *at[:-1], 1000], [], 0
    for since, until in pairwise(bounds):
        inside = [size for time, size in row if since < time <= until]
        expected.append(max(inside, default=held))
        held = inside[-1] if inside else held
    assert gpu_column(row, at) == tuple(expected)
    assert (gpu_column([], at), gpu_column(row, [])) == ((0,) * len(at), ())


def test_process_ids_are_mine_in_use_or_nobodys() -> None:
    pids = (os.getpid(), 0, -1, 1 << 30)
    assert [*map(process_ids.is_process_id_in_use, pids)] == [True, *[False] * 3]
    assert [*map(is_process_of_mine, pids)] == [True, *[False] * 3]


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
        ((3, 3, 3, 3, 25), None),  # 22 GiB of 32 on top of a model
        ((5, 30, 30), None),  # in use at the first look
        ((0, 22.3, 22.3), None),  # too little to be a framework's share
        ((0, 22.5, 22.5), 22.5),
    ],
)
def test_memory_that_a_framework_takes_at_once_is_not_need(
    gib: tuple[float, ...], taken: float | None
) -> None:
    found = account_of(*(reading(size, {71: size}) for size in gib)).usage()
    assert (found.preallocated and found.preallocated / GIB) == (
        taken and pytest.approx(taken, abs=0.5)
    )


@pytest.mark.parametrize(
    ("wear", "xids", "errors", "lost", "words"),
    [
        ({}, (), None, False, None),
        ({}, (31,), 0, False, "healthy"),
        ({"retired_pages": 3}, (), None, False, "healthy, 3 pages retired"),
        ({"remapped_rows": 0, "failed": False}, (), 0, False, "healthy"),
        ({"remapped_rows": 2}, (), None, False, "healthy, 2 rows remapped"),
        ({"pending": True}, (), 0, False, "needs a reset: memory to take out of use"),
        ({"failed": True}, (79,), 1, False, "failing: no spare memory rows left"),
        ({}, (13, 79, 48), 2, False, "failing: XID 48"),
        ({"pending": True}, (), 2, False, "failing: 2 uncorrected memory errors"),
        ({"failed": True}, (), 0, True, "failing: fell off the bus"),
    ],
)
def test_a_gpus_health_is_a_word_with_its_reason(
    wear: dict[str, Any], xids: tuple[int, ...], errors: int, *, lost: bool, words: str
) -> None:
    assert health_of(GpuCounters(**wear), xids, errors, lost=lost) == words


figures = st.none() | st.integers(0, 100)


@given(st.lists(figures, min_size=1), st.lists(figures))
def test_each_figure_has_mean_and_bounds_without_what_went_on_before(
    power: Sequence[int | None], traffic: Sequence[int | None]
) -> None:
    account = account_of(
        *(GpuReading("GPU-a", power=value, sm_clock=7) for value in power)
    )
    for value in traffic:
        account.take_bus((value, 100))
    usage = account.usage()
    known = [value for value in power[1:] if value is not None]
    of_power = (usage.power_min, usage.power_max, usage.power_mean)
    assert of_power == _bounds(known, pytest.approx)
    sent = [value for value in traffic if value is not None]
    assert (usage.pcie_rx_min, usage.pcie_rx_max, usage.pcie_rx) == _bounds(sent, round)
    assert usage.sm_clock_mean == (7 if power[1:] else None)
    assert usage.pcie_tx == (100 if traffic else None)


def _bounds(values: list[int], of_mean: object) -> tuple[object, ...]:
    assert callable(of_mean)
    if not values:
        return None, None, None
    return min(values), max(values), of_mean(fmean(values))


def test_what_slows_a_gpu_down_is_a_share_of_the_looks_that_report_it() -> None:
    said = ((), ("power",), None, ("power", "thermal"), ())
    rows = [
        GpuReading("GPU-a", slowed=None if words is None else frozenset(words))
        for words in (("thermal",), *said)
    ]
    assert account_of(*rows).usage().slowed == {"power": 50.0, "thermal": 25.0}
    assert account_of(reading(1), reading(1)).usage().slowed is None


@pytest.mark.parametrize(
    ("gpus", "since"),
    [
        ([[0.0, 0.0, 70.0, 0.0, 0.0]], 8.0),  # since it was last busy
        ([[0.0, 0.0, 0.0]], 9.0),  # never busy: since the first look
        ([[None, None, None]], None),  # it does not report
        ([[0.0, None, 0.0], [None, None]], None),  # one of two does not
        # one busy GPU of two is enough
        ([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 90.0]], 7.0),
    ],
)
def test_gpus_are_idle_since(
    gpus: list[list[float | None]], since: float | None
) -> None:
    accounts = [account_of() for _ in gpus]
    for account, looks in zip(accounts, gpus, strict=True):
        for second, busy in enumerate(looks):
            account.take(float(second), reading(0, None, busy), ())
    assert idle_for(accounts, 10.0) == since
