from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe.cgroup import CgroupReading, memory_folder, read_cgroup

HYBRID = "12:pids:/a\n4:memory:/slurm/uid_7/job_9\n1:name=systemd:/a\n0::/b\n"
UNIFIED = "0::/system.slice/slurmstepd.scope/job_9/step_0\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    return tmp_path


def belong_to(machine: Path, text: str) -> None:
    (machine / "proc/self/cgroup").write_text(text)


def write(machine: Path, path: str, text: str) -> None:
    file = machine / "cgroup" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read(machine: Path) -> CgroupReading:
    return read_cgroup(f"{machine}/proc", f"{machine}/cgroup")


def test_version_1_has_its_own_memory_hierarchy(machine: Path) -> None:
    belong_to(machine, HYBRID)
    write(machine, "memory/slurm/uid_7/job_9/memory.max_usage_in_bytes", "123\n")
    oom = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    write(machine, "memory/slurm/uid_7/job_9/memory.oom_control", oom)
    assert read(machine) == CgroupReading(peak=123, oom_kills=2)


def test_version_2_has_one_hierarchy(machine: Path) -> None:
    belong_to(machine, UNIFIED)
    folder = "system.slice/slurmstepd.scope/job_9/step_0"
    write(machine, f"{folder}/memory.peak", "456\n")
    events = "low 0\nhigh 0\nmax 9\noom 3\noom_kill 1\noom_group_kill 0\n"
    write(machine, f"{folder}/memory.events", events)
    assert read(machine) == CgroupReading(peak=456, oom_kills=1)


def test_a_group_without_the_controller_counts_in_the_one_above(machine: Path) -> None:
    belong_to(machine, UNIFIED)
    (machine / "cgroup/system.slice/slurmstepd.scope/job_9/step_0").mkdir(parents=True)
    above = "system.slice/slurmstepd.scope/job_9"
    write(machine, f"{above}/memory.peak", "456\n")
    write(machine, f"{above}/memory.events", "oom_kill 1\n")
    write(machine, "system.slice/memory.events", "oom_kill 50\n")
    assert read(machine) == CgroupReading(peak=456, oom_kills=1)


def test_an_older_kernel_has_no_peak_and_that_is_not_zero(machine: Path) -> None:
    belong_to(machine, "0::/job\n")
    write(machine, "job/memory.events", "oom_kill 0\n")
    assert read(machine) == CgroupReading(peak=None, oom_kills=0)


@pytest.mark.parametrize(
    "text", ["", "0::/\n", "0::/../../elsewhere\n", "4:memory:/gone\n", "odd\n", "\n"]
)
def test_where_nothing_is_reported_nothing_is_known(machine: Path, text: str) -> None:
    belong_to(machine, text)
    assert read(machine) == CgroupReading()


def test_an_unreadable_group_is_not_known(machine: Path) -> None:
    belong_to(machine, "0::/job\n")
    for name in ("memory.peak", "memory.events"):
        (machine / "cgroup/job" / name).mkdir(parents=True)  # reads as an error
    assert read(machine) == CgroupReading()


def test_no_proc_is_no_reading(tmp_path: Path) -> None:
    assert read_cgroup(str(tmp_path), str(tmp_path)) == CgroupReading()


def test_a_path_may_hold_colons() -> None:
    assert memory_folder("0::/a:b\n", "/root") == ("/root/a:b", 2)


@given(text=st.text() | st.text("0123:,/memory.\n"))
def test_no_text_stops_the_reading(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("machine")
    (folder / "self").mkdir()
    (folder / "self/cgroup").write_text(text, encoding="utf-8")
    assert read_cgroup(str(folder), str(folder / "cgroup")) == CgroupReading()
