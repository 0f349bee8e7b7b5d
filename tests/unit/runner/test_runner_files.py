"""Locks, joblogs, memory groups: the runner's files, on trees made for the test."""

import os
import time
from pathlib import Path

import msgspec
import pytest
from written_programs import write_program

from weigh.errors import UsageError
from weigh.runner import orphans
from weigh.runner.attempt import TasksOutput
from weigh.runner.events import AttemptStarted, PastRuns, RunOpened
from weigh.runner.memory_guard import MachineMemoryGauge, MemoryRoom
from weigh.runner.owned_file import JoblogHolder, JoblogLock
from weigh.runner.shell import LineShell
from weigh.runner.slots import read_cpu_quota
from weigh.store.identity import (
    MachineIdentity,
    ProcessIdentity,
    process_identity,
    this_machine,
)
from weigh.units import MIB

AWAY = MachineIdentity("away", "m2", "b2", "p2")


def me() -> JoblogHolder:
    return JoblogHolder(this_machine(), process_identity(os.getpid()))


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


# the lock


def test_a_lock_from_a_machine_out_of_sight_holds_while_it_gives_signs_of_life(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.lock"
    write(path, msgspec.json.encode(JoblogHolder(AWAY, ProcessIdentity(1, 1))))

    def give_a_sign(_seconds: float) -> None:
        os.utime(path, (time.time() + 60, time.time() + 60))

    with pytest.raises(UsageError, match="away"):
        JoblogLock(str(path.with_suffix("")), me(), sleep=give_a_sign)
    slept: list[float] = []
    JoblogLock(str(path.with_suffix("")), me(), sleep=slept.append).release()
    assert sum(slept) >= 60


# output


def test_a_folder_in_which_nobody_wrote_goes_away(tmp_path: Path) -> None:
    output = TasksOutput(str(tmp_path / "out"))
    output.open(1, 1).close()
    output.close()
    assert os.listdir(tmp_path) == []


# survivors


def _past(opened: RunOpened) -> PastRuns:
    start = AttemptStarted(
        4, 1, opened.run, 1.0, slot=1, pid=99, start_time=1, task="x"
    )
    return PastRuns({opened.run: opened}, {4: start}, {}, {})


def _opened(machine: MachineIdentity, job: str | None = None) -> RunOpened:
    return RunOpened("r", 1.0, machine, ProcessIdentity(1, 1), "t", 9, "0", job=job)


def test_tasks_on_a_machine_out_of_sight_are_not_run_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"away.*--forget-survivors"):
        orphans.refuse_elsewhere(_past(_opened(AWAY)), this_machine())
    # a scheduler has cleared up after its job, unless it says that it runs there
    orphans.refuse_elsewhere(_past(_opened(AWAY, "4711")), this_machine())
    answer = 'echo "$*" | grep -q -- "-j 4711 -w away" && echo 4711'
    write_program(tmp_path / "squeue", answer)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(UsageError, match="away"):
        orphans.refuse_elsewhere(_past(_opened(AWAY, "4711")), this_machine())
    orphans.refuse_elsewhere(_past(_opened(AWAY, "4712")), this_machine())
    orphans.refuse_elsewhere(_past(_opened(AWAY, "4711")), this_machine(), "4711")


def test_a_reboot_leaves_no_survivors_of_tasks_that_began_before_it() -> None:
    """Others run on a node that was cloned with its name and its id."""
    here = MachineIdentity("here", "m", "boot2", "p")
    before = _past(_opened(MachineIdentity("here", "m", "boot1", "p")))
    orphans.refuse_elsewhere(before, here)
    assert orphans.find_survivors(before, here) == {}
    start = msgspec.structs.replace(before.in_flight[4], time=time.time())
    past = msgspec.structs.replace(before, in_flight={4: start})
    with pytest.raises(UsageError, match=r"here.*--forget-survivors"):
        orphans.refuse_elsewhere(past, here)


# limits of control groups


def _groups(tmp_path: Path) -> tuple[str, str]:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "self/cgroup", "0::/job/step\n")
    write(proc / "meminfo", "MemTotal: 2000 kB\nMemFree: 1 kB\nMemAvailable: 1500 kB\n")
    return str(proc), str(root)


V2_LIMITS = {
    "cgroup/job/step/memory.max": "max\n",
    "cgroup/job/memory.max": str(MIB),
    "cgroup/job/memory.current": str(MIB // 2),
    "cgroup/job/memory.stat": f"anon 1\ninactive_file {MIB // 4}\nactive_file 5\n",
}
V1_LIMITS = {
    "proc/self/cgroup": "4:memory:/job\n0::/\n",
    "cgroup/memory/job/memory.limit_in_bytes": str(MIB),
    "cgroup/memory/job/memory.usage_in_bytes": str(MIB // 2),
    "cgroup/memory/job/memory.stat": f"cache 1\ntotal_inactive_file {MIB // 4}\n",
    "cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096),
}


@pytest.mark.parametrize(
    ("files", "limit", "used", "room"),
    [
        (V2_LIMITS, None, 0, MemoryRoom(MIB // 4, MIB)),
        (V1_LIMITS, None, 0, MemoryRoom(MIB // 4, MIB)),
        ({}, None, 0, MemoryRoom(500 * 1024, 2000 * 1024)),
        ({}, 100_000, 90_000, MemoryRoom(90_000, 100_000)),
    ],
    ids=["above, without inactive cache", "version 1", "the machine", "of the tasks"],
)
def test_the_tightest_limit_counts(
    tmp_path: Path,
    files: dict[str, str],
    limit: int | None,
    used: int,
    room: MemoryRoom,
) -> None:
    proc, root = _groups(tmp_path)
    for name, text in files.items():
        write(tmp_path / name, text)
    gauge = MachineMemoryGauge(limit, proc_folder=proc, root=root)
    assert gauge.is_grouped == bool(files)
    assert gauge.tightest(used) == room


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"job/step/cpu.max": "max 100000", "job/cpu.max": "250000 100000"}, 2.5),
        ({"job/step/cpu.max": "100000 100000", "job/cpu.max": "250000 100000"}, 1.0),
        ({}, None),
    ],
)
def test_the_least_cpu_quota_above_counts(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    proc, root = _groups(tmp_path)
    for name, text in files.items():
        write(tmp_path / "cgroup" / name, text)
    assert read_cpu_quota(proc, root) == quota


def test_functions_that_were_exported_take_every_line_to_the_shell() -> None:
    env = {b"PATH": b"/usr/bin:/bin"}
    assert LineShell(env).words(b"true a")[1] == [b"true", b"a"]
    exported = {**env, b"BASH_FUNC_true%%": b"() { false; }"}
    assert LineShell(exported).words(b"true a")[1][1:] == [b"-c", b"true a"]
