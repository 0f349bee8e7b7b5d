"""Phases: what a block of a program held and took."""

import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from region_programs import Channel, held, places, report_of, run

from weigh.errors import UsageError
from weigh.flow.run.regions import phase
from weigh.measure.region.tracker import RegionTracker
from weigh.probe.own_memory import ProcMemory
from weigh.units import MIB

linux = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="needs clear_refs"
)
NOISE = 4 * MIB


def only(tracker: RegionTracker, name: str) -> Any:
    (found,) = [one for one in tracker.regions().phases if one.name == name]
    return found


def rise(phase: Any) -> float:
    return float(phase.peak_memory - phase.memory_before)


@linux
def test_a_phase_has_the_peak_of_all_that_lies_within_it_and_of_nothing_else(
    tracker: RegionTracker,
) -> None:
    with phase("freed"), held(64 * MIB):
        pass
    with phase("outer"):
        with held(32 * MIB):
            pass
        with phase("inner"), held(8 * MIB):
            pass
    with phase("around"), phase("within"), held(48 * MIB):
        pass
    for size in (1, 16, 8):
        with phase("several"), held(size * MIB):
            pass
    expected = {"freed": 64, "outer": 32, "inner": 8, "around": 48, "several": 16}
    found = {name: rise(only(tracker, name)) / MIB for name in expected}
    assert found == pytest.approx(expected, abs=NOISE / MIB)
    freed = only(tracker, "freed")
    assert freed.memory_after - freed.memory_before == pytest.approx(0, abs=NOISE)
    assert only(tracker, "several").calls == 3


@linux
def test_phases_that_overlap_have_each_its_own_peak(tracker: RegionTracker) -> None:
    first, second = phase("first"), phase("second")
    first.__enter__()
    with held(64 * MIB):
        pass
    second.__enter__()
    with held(16 * MIB):
        pass
    first.__exit__(None, None, None)
    with held(32 * MIB):
        pass
    second.__exit__(None, None, None)
    with phase("third"):
        pass
    for name, size in (("first", 64), ("second", 32)):
        assert rise(only(tracker, name)) == pytest.approx(size * MIB, abs=NOISE)
    found = places(tracker.regions().phases)
    assert found == [("first", 0, 1), ("second", 1, 1), ("third", 0, 1)]


@linux
def test_a_peak_that_the_kernel_forgets_is_in_the_report_and_the_channel(
    tmp_path: Path,
) -> None:
    code = (
        "with weigh.phase('a'):\n  x = bytearray(200 << 20); del x\n"
        "with weigh.phase('b'): pass\n"
    )
    # and one after the last phase
    later = "y = bytearray(300 << 20); del y\n"
    assert report_of(code + later)["peak_memory"] > 300 * MIB
    channel = Channel(tmp_path / "channel")
    done = channel.run(
        f"import os\n{code}"
        "said = open('/proc/self/status').read().split('VmHWM:')[1]\n"
        "print(said.split()[0], flush=True)\n"
        "os._exit(0)"
    )
    # the mark itself: ru_maxrss begins at the size of the process that started this one
    assert int(done.stdout) * 1024 < 150 * MIB
    assert (channel.regions().peak_memory or 0) > 200 * MIB


def test_without_resets_the_kernels_own_mark_is_left_alone_and_bounds_the_peaks() -> (
    None
):
    code = (
        "import resource\n"
        "mark = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with weigh.phase('rose'):\n  x = bytearray(100 << 20); del x\n"
        "before = mark()\n"
        "with weigh.phase('bound'): pass\n"
        "assert mark() >= before\n"
    )
    for seen in report_of(code, WEIGH_EXACT_PHASES="0")["phases"]:
        assert seen["peak_memory"] > 100 * MIB
        assert seen["source"].startswith("upper bound")


def test_times_of_several_calls_add_up(tracker: RegionTracker) -> None:
    regions = []
    for _ in range(3):
        with phase("work") as region:
            sum(range(50_000))
        regions.append(region)
    seen = only(tracker, "work")
    assert seen.wall_time == pytest.approx(sum(r.wall_time or 0 for r in regions))
    assert seen.cpu_time == pytest.approx(sum(r.cpu_time or 0 for r in regions))


def test_cpu_time_counts_children_once_they_are_waited_for(
    tracker: RegionTracker,
) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with phase("work"):
        run("sum(range(3_000_000))")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert (only(tracker, "work").cpu_time or 0) >= children > 0


def test_phases_come_each_behind_the_one_they_lie_in(tracker: RegionTracker) -> None:
    for _ in range(2):
        with phase("a"):
            with phase("c"):
                pass
            with phase("b"):
                pass
    # an exception ends its phase and passes through
    with pytest.raises(KeyError, match="mine"), phase("b"), phase("inner"):
        raise KeyError("mine")
    with phase("next"):
        pass
    assert places(tracker.regions().phases) == [
        *(("a", 0, 2), ("c", 1, 2), ("b", 1, 2)),
        *(("b", 0, 1), ("inner", 1, 1), ("next", 0, 1)),
    ]


def test_a_phase_is_used_and_closed_once(tracker: RegionTracker) -> None:
    region = phase("load")
    with region, pytest.raises(UsageError, match="'load' is used twice"):
        region.__enter__()
    with pytest.raises(UsageError, match="used twice"):
        region.__enter__()
    region.__exit__(None, None, None)
    assert only(tracker, "load").calls == 1


def test_a_phase_above_a_function_names_what_to_write_there() -> None:
    with pytest.raises(UsageError, match=r"@weigh\.measured\(name='load'\)"):

        @phase("load")
        def load() -> None:
            pass


@pytest.mark.parametrize("name", ["", "  ", None, 3, b"load"])
def test_a_name_that_is_no_text_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        phase(name)


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "x" * 10_000, "\udcff"])
def test_a_name_that_cannot_be_shown_is_escaped_and_cut(
    tracker: RegionTracker, name: str
) -> None:
    with phase(name):
        pass
    (kept,) = [one.name for one in tracker.regions().phases]
    assert kept.isprintable()
    assert len(kept) <= 100


def test_names_or_nesting_without_end_stay_in_bounded_room(
    tracker: RegionTracker,
) -> None:
    def nest(depth: int) -> None:
        if depth:
            with phase("deeper"):
                nest(depth - 1)

    nest(200)
    for number in range(3000):
        with phase(f"step {number}"):
            pass
    phases = tracker.regions().phases
    assert len(phases) <= 1001
    assert sum(one.calls for one in phases) == 3200


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_groups_before_the_figures_do_not_hide_them(tmp_path: Path) -> None:
    groups = " ".join(str(number) for number in range(20_000))
    (tmp_path / "status").write_text(
        f"Name:\tpython\nGroups:\t{groups}\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n"
    )
    assert ProcMemory(str(tmp_path)).read() == (MIB, 2 * MIB)


BUSY = """
import sys, threading, time
from weigh.probe.own_memory import ProcMemory
memory, turns = ProcMemory(), [0]
def spin():
    while True: turns[0] += 1
threading.Thread(target=spin, daemon=True).start()
sys.setswitchinterval(1)  # who has the interpreter keeps it so long, unless it is given
def others_ran():
    time.sleep(0.001)
    before = turns[0]
    assert all(memory.read() for _ in range(300))
    return turns[0] > before
# on a busy machine a second may pass meanwhile
print(all(others_ran() for _ in range(5)), flush=True)
"""


@linux
def test_reading_does_not_leave_the_interpreter_to_a_busy_thread() -> None:
    assert run(BUSY).stdout == "False\n"


@pytest.mark.parametrize("text", ["", "Name:\tpython\n", "\nVmHWM:\nVmRSS:\n"])
def test_a_status_without_figures_is_not_measured(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text)
    assert ProcMemory(str(tmp_path)).read() is None
