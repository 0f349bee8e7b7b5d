"""Which processes on a node are a job's: by control group, and by environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import children_of, until

from weigh.probe.job_members import JobGroup, JobMembers, MemberSigns, find_job_group

V1 = """\
9:freezer:/slurm/uid_1000/job_17/step_0
4:memory:/slurm/uid_1000/job_17/step_0/task_1
0::/
"""
# several slurmd on one machine, and a site that mounts controllers together
V1_JOINED = "7:cpu,cpuacct,freezer:/slurm_cn2/uid_1000/job_17/step_batch\n"
V2 = "0::/system.slice/slurmstepd.scope/job_17/step_2/user/task_0\n"
V2_NAMED = (
    "0::/system.slice/cn1_slurmstepd.scope/job_17/step_extern/user/task_special\n"
)


def folder(root: Path, path: str, *pids: int) -> str:
    made = root / path
    made.mkdir(parents=True, exist_ok=True)
    (made / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return str(made)


@pytest.mark.parametrize(
    ("text", "job", "step"),
    [
        (V1, "freezer/slurm/uid_1000/job_17", "step_0"),
        (V1_JOINED, "freezer/slurm_cn2/uid_1000/job_17", "step_batch"),
        (V2, "system.slice/slurmstepd.scope/job_17", "step_2"),
        (V2_NAMED, "system.slice/cn1_slurmstepd.scope/job_17", "step_extern"),
        (V2, "not/mounted/job_17", None),
        *((text, "x/job_x", None) for text in ("", "garbage", "0::/x/job_x/step_0\n")),
        ("0::/user.slice/session-1.scope\n", "user.slice", None),
    ],
)
def test_the_group_of_the_job_is_above_that_of_the_step(
    text: str, job: str, step: str | None, tmp_path: Path
) -> None:
    folder(tmp_path, f"{job}/{step}")
    folder(tmp_path, job)
    group = step and JobGroup(f"{tmp_path}/{job}", f"{tmp_path}/{job}/{step}")
    assert find_job_group(text, "job_", str(tmp_path)) == group


def our_job() -> str:
    return f"t{os.getpid()}"  # tests in other processes have others


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Run a process with the environment of a job, with a child of its own."""
    code = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    env = {**os.environ, "JOB": our_job(), "NODE": "cn1"}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, process_group=0)
    yield process.pid
    os.killpg(process.pid, 9)
    process.wait()


def members(mark: str = "NO_MARK", **env: str) -> JobMembers:
    signs = MemberSigns(same=("JOB", "NODE"), prefix="job_", mark=mark)
    return JobMembers(env, signs, groups="/none")


def test_without_a_group_the_environment_names_the_job(sleeper: int) -> None:
    tree = members(JOB=our_job(), NODE="cn1")
    until(lambda: len(tree.read()) == 2)  # Python and its child
    found = {one.pid for one in tree.read()}
    assert sleeper in found
    assert os.getpid() not in found
    others = [
        members(JOB="18", NODE="cn1"),  # another job of the user
        members(NODE="cn1"),
        members("NODE", JOB=our_job(), NODE="cn1"),  # it has the mark
    ]
    for other in others:
        assert sleeper not in [one.pid for one in other.read()]


def test_a_process_that_is_named_long_after_it_was_seen_belongs_too(
    sleeper: int,
) -> None:
    """Its weigh may write down late, on a busy node, which process it started."""
    named: set[int] = set()
    now = 0.0
    signs = MemberSigns(
        same=("JOB",), prefix=None, mark="NO_MARK", also=lambda: frozenset(named)
    )
    tree = JobMembers({"JOB": "another"}, signs, clock=lambda: now)
    assert sleeper not in tree.members()
    now = 60.0
    named.add(sleeper)
    assert sleeper in tree.members()


@pytest.mark.parametrize("before", [b"", b"PATH=/bin\0"])
def test_a_process_is_judged_by_the_environment_of_its_program(
    before: bytes, tmp_path: Path
) -> None:
    ours = tmp_path / "7"
    ours.mkdir()
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (ours / "environ").write_bytes(before)  # as between a fork and an exec
    now = 0.0
    tree = JobMembers(
        {"JOB": "17"},
        MemberSigns(same=("JOB",), prefix="job_", mark="MARK"),
        root=str(tmp_path),
        groups="/none",
        clock=lambda: now,
    )
    assert tree.members() == []
    now = 0.2
    (ours / "environ").write_bytes(b"JOB=17\0")
    assert tree.members() == [7]
    now = 0.4
    (ours / "environ").write_bytes(b"JOB=17\0MARK=1\0")
    assert tree.members() == []


def test_a_step_without_a_group_has_what_its_processes_start() -> None:
    """Also with an environment of its own, and no process that nobody has marked."""
    own = {"WEIGH_STEP": f"step-{os.getpid()}"}
    line = "env -i sleep 60 & echo $!; wait"
    with (
        subprocess.Popen(
            ["sh", "-c", line], env={**os.environ, **own}, stdout=subprocess.PIPE
        ) as rank,
        subprocess.Popen(["sleep", "60"]) as stranger,
    ):
        assert rank.stdout is not None
        below = int(rank.stdout.readline())
        signs = MemberSigns(same=tuple(own), prefix=None, mark="NO_MARK")
        tree = JobMembers(own, signs)
        tree.read()
        found = tree.pids()
        tree.close()
        for pid in (below, rank.pid, stranger.pid):
            os.kill(pid, signal.SIGKILL)
    assert sorted(found) == sorted([rank.pid, below])


def test_a_fork_of_an_excluded_process_counts_once_it_executes_a_program() -> None:
    code = """
import os, sys
if not os.fork():
    sys.stdin.readline()
    os.execlp("sleep", "sleep", "60")
print(flush=True)
os.wait()
"""
    env = {**os.environ, "JOB": our_job(), "NODE": "cn1"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=pipe, stdout=pipe, process_group=0
    )
    try:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        tree = members(JOB=our_job(), NODE="cn1")
        tree.excluded = frozenset([process.pid])
        assert tree.members() == []
        process.stdin.write(b"\n")
        process.stdin.flush()
        found = until(tree.members)
        assert Path(f"/proc/{found[0]}/cmdline").read_bytes() == b"sleep\x0060\0"
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def test_all_steps_of_a_job_but_its_own_are_members_in_version_2(
    sleeper: int, tmp_path: Path
) -> None:
    (beside_weigh,) = until(lambda: children_of(sleeper))
    members_of = {
        "step_0/user/task_0": [sleeper],
        "step_0/slurm": [1],  # another user's
        "step_1/user/task_0": [os.getpid(), beside_weigh],
        **{f"step_{path}": [] for path in ("0/user", "0", "1", "extern/user/task_x")},
        "": [],
    }
    groups, proc = tmp_path / "groups", tmp_path / "proc"
    slices = "system.slice/cn1_slurmstepd.scope/job_17"
    for path, pids in members_of.items():
        folder(groups, f"{slices}/{path}", *pids)
    (proc / str(os.getpid())).mkdir(parents=True)
    (proc / "self").symlink_to(str(os.getpid()))
    (proc / "self/cgroup").write_text(f"0::/{slices}/step_1/user/task_0\n")
    for pid in (sleeper, beside_weigh, 1):
        (proc / str(pid)).symlink_to(f"/proc/{pid}")
    signs = MemberSigns(same=("NONE",), prefix="job_", mark="NO_MARK")
    tree = JobMembers({}, signs, root=str(proc), groups=str(groups))
    assert tree.group is not None
    others = {1} if os.getuid() == 0 else set()  # process 1 is this user's too
    assert {*tree.members()} - others == {sleeper}
    # the step has just ended
    (groups / slices / "step_0/user/task_0/cgroup.procs").unlink()
    assert sleeper not in tree.members()
