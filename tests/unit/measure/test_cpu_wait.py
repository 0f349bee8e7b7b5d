import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from doctored import DoctoredProc
from hypothesis import example, given, settings
from hypothesis import strategies as st
from looks import reading

from weigh.measure.cpu_wait import (
    CpuWaits,
    parse_busy,
    parse_schedstat,
    parse_throttled,
)
from weigh.model.record import CpuWait
from weigh.probe.proc import ProcessReading

SECOND = 1_000_000_000
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Machine:
    """Threads of processes whose figures are written by hand, in seconds."""

    def __init__(self, root: Path) -> None:
        self.proc = DoctoredProc(root)
        (root / "self").symlink_to(str(os.getpid()))
        self.busy(0)
        self.now = 0.0
        self.waits = CpuWaits(proc_folder=str(root), groups=str(root / "groups"))

    def busy(self, ticks: int) -> None:
        cpus = (f"cpu{cpu} {ticks} 0 0 9 9 0 0 0 0 0" for cpu in range(512))
        self.proc.write("stat", "\n".join(("cpu 1 2 3", *cpus)).encode())

    def thread(self, pid: int, tid: int, run: float, wait: float) -> None:
        text = f"{run * SECOND:.0f} {wait * SECOND:.0f} 12\n"
        self.proc.write(f"{pid}/task/{tid}/schedstat", text.encode())

    def figures(self, cpu_time: float, wall: float) -> CpuWait:
        found = self.waits.figures(cpu_time, wall)
        assert found is not None
        return found

    def look(self, *readings: ProcessReading) -> None:
        self.now += 1
        assert 0.1 <= self.waits.look(self.now, readings) < 60


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def threaded(pid: int, threads: int) -> ProcessReading:
    return msgspec.structs.replace(reading(pid, 1), threads=threads)


def test_the_wait_of_all_threads_is_added_up(machine: Machine) -> None:
    machine.thread(7, 7, 1, 2)
    machine.thread(7, 8, 1, 4)
    machine.now = 3.0
    machine.look(threaded(7, 2))
    found = machine.figures(2.0, 4.0)
    assert (found.time, found.wanted, found.threads) == (6.0, 2.0, 2)
    assert found.alone == 1.0
    # what was not seen is assumed to have waited as the rest
    assert machine.figures(3.0, 12.0).time == 9.0


def test_an_ended_thread_keeps_its_last_figures(machine: Machine) -> None:
    machine.thread(7, 7, 1, 2)
    machine.thread(9, 9, 3, 5)
    machine.look(reading(7, 1), reading(9, 1))
    machine.proc.remove("9/task/9/schedstat")
    machine.look(reading(7, 1))
    found = machine.figures(4.0, 4.0)
    assert found.time == 7.0


@pytest.mark.parametrize("cpu_time", [None, 0.0, 6.1])
def test_nothing_is_reported_below_half_of_the_cpu_time(
    machine: Machine, cpu_time: float | None
) -> None:
    machine.thread(7, 7, 3, 6)
    machine.look(reading(7, 1))
    assert machine.waits.figures(cpu_time, 12.0) is None


def test_threads_that_wait_for_a_lock_want_no_cpu_while_they_sleep(
    machine: Machine,
) -> None:
    """Eight threads under Python's lock: one runs, all wake up often and wait."""
    for second in range(1, 11):
        for tid in range(8):
            machine.thread(7, 7 + tid, 0.1 * second, 0.4 * second)
        machine.look(threaded(7, 8))
    found = machine.figures(8.0, 10.0)
    assert 0.8 <= found.wanted <= 1.5
    assert found.threads == 8


@given(
    st.lists(
        st.tuples(
            st.floats(0, 2),  # seconds asleep, before
            st.integers(1, 6),  # threads at once
            st.floats(0.01, 0.4),  # seconds that each is on a CPU
            st.floats(0, 9),  # times as long each waits for one
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(("threads of a pool", "new threads")),
)
@example([(0.8, 4, 0.04, 9.0)] * 10, "new threads")
@settings(max_examples=40)
def test_alone_a_run_sleeps_as_long_and_waits_for_no_cpu(
    phases: list[tuple[float, int, float, float]], what: str
) -> None:
    # thousands of files, which a disk would take its time for
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        machine = Machine(Path(folder))
        first, now, asleep, alone, cpu_time = 10, 0.0, 0.0, 0.0, 0.0
        times: dict[int, tuple[float, float]] = {}
        for sleep, threads, run, share in phases:
            alone, cpu_time = alone + sleep + run, cpu_time + run * threads
            now, asleep = now + sleep, asleep + sleep
            if what == "new threads":
                first, times = first + 10, {}
            machine.waits.look(now, [reading(pid, 1) for pid in times])
            looks = math.ceil(run * (1 + share) / 0.1)
            for _ in range(looks):
                now += run * (1 + share) / looks
                for pid in range(first, first + threads):
                    ran, waited = times.get(pid, (0.0, 0.0))
                    times[pid] = ran + run / looks, waited + run * share / looks
                    machine.thread(pid, pid, *times[pid])
                machine.waits.look(now, [reading(pid, 1) for pid in times])
        found = machine.figures(cpu_time, now)
        assert found.alone == pytest.approx(alone, rel=0.02)
        assert found.wanted == pytest.approx(cpu_time / alone, rel=0.02)
        # threads that were not seen may have waited as well, while others did
        assert machine.figures(1.9 * cpu_time, now).alone >= asleep - 0.2


def test_others_are_what_is_busy_without_the_run(machine: Machine) -> None:
    machine.thread(7, 7, 1, 0)
    machine.look(reading(7, 1))
    machine.thread(7, 7, 5, 4)
    machine.busy(600)  # 6 s on each CPU
    machine.look(reading(7, 1))
    machine.waits._cpus = {0, 1}
    found = machine.figures(5.0, 8.0)
    assert (found.cpus, found.others) == (2, 1.0)


def test_a_cpu_limit_is_seen_in_the_control_groups(
    machine: Machine, tmp_path: Path
) -> None:
    machine.proc.write(f"{os.getpid()}/cgroup", b"0::/a/b\n")
    machine.proc.write("groups/a/cpu.stat", b"usage_usec 5\nthrottled_usec 1000000\n")
    machine.waits = CpuWaits(proc_folder=str(tmp_path), groups=f"{tmp_path}/groups")
    machine.thread(7, 7, 1, 3)
    machine.look(reading(7, 1))
    machine.proc.write("groups/a/cpu.stat", b"usage_usec 5\nthrottled_usec 3500000\n")
    assert machine.figures(1.0, 4.0).throttled == 2.5


@pytest.mark.parametrize(
    "text", [b"", b"12", b"a b", b"\xff\xff", b"cpu0 1 2", b"cpux 1 2 3 4 5 6 7 8"]
)
def test_a_stat_of_another_form_has_no_figures(text: bytes) -> None:
    assert (parse_schedstat(text), parse_busy(text)) == (None, {})


def test_throttling_is_read_of_both_versions() -> None:
    assert parse_throttled(b"nr_throttled 4\nthrottled_time 2000000000\n") == 2.0
    assert parse_throttled(b"throttled_usec 3000000\n") == 3.0
    assert parse_throttled(b"throttled_usec x\n") == 0.0
