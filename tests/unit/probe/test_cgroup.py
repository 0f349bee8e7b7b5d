from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe.cgroup import CgroupReading, memory_folder, read_cgroup

UNIFIED = "0::/system.slice/slurmstepd.scope/job_9/step_0\n"
V1_JOB = "memory/slurm/uid_7/job_9"
V2_JOB = "system.slice/slurmstepd.scope/job_9"
# what the process belongs to, the files of its groups, and what is read
GROUPS: dict[str, tuple[str, dict[str, str], CgroupReading]] = {
    "version 1 has its own memory hierarchy": (
        "12:pids:/a\n4:memory:/slurm/uid_7/job_9\n1:name=systemd:/a\n0::/b\n",
        {
            f"{V1_JOB}/memory.max_usage_in_bytes": "123\n",
            f"{V1_JOB}/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n",
        },
        CgroupReading(peak=123, oom_kills=2),
    ),
    "version 2 has one hierarchy": (
        UNIFIED,
        {
            f"{V2_JOB}/step_0/memory.peak": "456\n",
            f"{V2_JOB}/step_0/memory.events": "oom 3\noom_kill 1\noom_group_kill 0\n",
        },
        CgroupReading(peak=456, oom_kills=1),
    ),
    "a group without the controller counts in the one above": (
        UNIFIED,
        {
            f"{V2_JOB}/step_0/cgroup.procs": "",
            f"{V2_JOB}/memory.peak": "456\n",
            f"{V2_JOB}/memory.events": "oom_kill 1\n",
            "system.slice/memory.events": "oom_kill 50\n",
        },
        CgroupReading(peak=456, oom_kills=1),
    ),
    "an older kernel has no peak and that is not zero": (
        "0::/job\n",
        {"job/memory.events": "oom_kill 0\n"},
        CgroupReading(peak=None, oom_kills=0),
    ),
    "an unreadable group is not known": (
        "0::/job\n",  # a folder in the place of a file reads as an error
        {"job/memory.peak/a": "", "job/memory.events/a": ""},
        CgroupReading(),
    ),
    "a path may hold colons": (
        "0::/a:b\n",
        {"a:b/memory.peak": "9\n", "a:b/memory.events": ""},
        CgroupReading(peak=9),
    ),
    **{
        f"nothing is known from {text!r}": (text, {}, CgroupReading())
        for text in ("", "0::/", "0::/../../elsewhere", "4:memory:/gone", "odd", "\n")
    },
}


@pytest.mark.parametrize("what", GROUPS)
def test_of_groups(tmp_path: Path, what: str) -> None:
    text, files, found = GROUPS[what]
    for path, content in {"proc/self/cgroup": text, **files}.items():
        file = tmp_path / (path if path.startswith("proc/") else f"cgroup/{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    assert read_cgroup(f"{tmp_path}/proc", f"{tmp_path}/cgroup") == found


def test_no_proc_is_no_reading(tmp_path: Path) -> None:
    assert read_cgroup(str(tmp_path), str(tmp_path)) == CgroupReading()


@given(st.text() | st.text("0123:,/memory.\n"))
def test_no_text_stops_the_reading(text: str) -> None:
    memory_folder(text)
