import os
from pathlib import Path

import pytest

from weigh.probe.host import may_be_login_node, read_host


def test_the_machine_is_reported_by_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\nMemFree: 7 kB\n")
    host = read_host(str(tmp_path))
    assert host.memory == 2048 * 1024
    assert host.name == os.uname().nodename


@pytest.mark.parametrize(
    "meminfo", ["", "MemTotal:", "MemTotal: lots kB", "MemTotal: -5 kB", "Mem: 1 kB"]
)
def test_odd_memory_is_not_known(tmp_path: Path, meminfo: str) -> None:
    (tmp_path / "meminfo").write_text(meminfo)
    assert read_host(str(tmp_path)).memory is None


def test_what_no_file_reports_is_not_known(tmp_path: Path) -> None:
    assert read_host(str(tmp_path)).memory is None


def test_cpus_are_those_this_process_may_use() -> None:
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everything)})
    try:
        assert read_host().cpus == 1
    finally:
        os.sched_setaffinity(0, everything)


SCHEDULERS = ("sbatch", "qsub"), ("SLURM_JOB_ID", "SGE_TASK_ID")


def test_a_login_node_has_the_commands_and_is_reached_by_ssh(tmp_path: Path) -> None:
    command = tmp_path / "sbatch"
    command.touch(mode=0o755)
    here = {"PATH": f"/nowhere:{tmp_path}", "SSH_TTY": "/dev/pts/1"}
    assert may_be_login_node(here, *SCHEDULERS)
    assert not may_be_login_node({**here, "SLURM_JOB_ID": "7"}, *SCHEDULERS)
    assert not may_be_login_node({**here, "PATH": "/nowhere"}, *SCHEDULERS)
    assert not may_be_login_node({"PATH": here["PATH"]}, *SCHEDULERS)
