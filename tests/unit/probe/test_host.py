import os
import shutil
from pathlib import Path

import pytest
from run_captured import run_captured

from weigh.probe.host import may_be_login_node, read_commit, read_host

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("meminfo", "memory"),
    [
        ("MemTotal:       2048 kB\nMemFree: 7 kB\n", 2048 * 1024),
        *((odd, None) for odd in ("", "MemTotal:", "MemTotal: lots kB", "Mem: 1 kB")),
        ("MemTotal: -5 kB", None),
        (None, None),
    ],
)
def test_the_machine_is_reported_by_its_own_files(
    tmp_path: Path, meminfo: str | None, memory: int | None
) -> None:
    if meminfo is not None:
        (tmp_path / "meminfo").write_text(meminfo)
    host = read_host(str(tmp_path))
    assert (host.name, host.memory) == (os.uname().nodename, memory)


def test_cpus_are_those_this_process_may_use() -> None:
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everything)})
    try:
        assert read_host().cpus == 1
    finally:
        os.sched_setaffinity(0, everything)


def test_a_login_node_has_the_commands_and_is_reached_by_ssh(tmp_path: Path) -> None:
    (tmp_path / "sbatch").touch(mode=0o755)
    path, ssh = {"PATH": f"/nowhere:{tmp_path}"}, {"SSH_TTY": "/dev/pts/1"}
    schedulers = ("sbatch", "qsub"), ("SLURM_JOB_ID", "SGE_TASK_ID")
    assert may_be_login_node(path | ssh, *schedulers)
    for env in (path, ssh | {"PATH": "/nowhere"}, path | ssh | {"SLURM_JOB_ID": "7"}):
        assert not may_be_login_node(env, *schedulers)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_the_one_that_git_names(tmp_path: Path) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    (checkout / "below").mkdir(parents=True)

    def git(folder: Path, *words: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        argv = ["git", *author, "-C", str(folder), *words]
        return run_captured(argv, check=True).stdout.strip()

    git(checkout, "init", "-q")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "first")
    for change in (
        ("pack-refs", "--all"),
        ("checkout", "-q", "--detach"),
        ("checkout", "-q", "-b", "topic/new"),
        ("worktree", "add", "-q", str(other)),  # which has a branch of its own
    ):
        assert read_commit(f"{checkout}/below") == git(checkout, "rev-parse", "HEAD")
        git(checkout, *change)
    git(other, "commit", "-q", "--allow-empty", "-m", "second")
    commits = [git(folder, "rev-parse", "HEAD") for folder in (checkout, other)]
    assert [read_commit(str(folder)) for folder in (checkout, other)] == commits
    assert commits[0] != commits[1]


@pytest.mark.parametrize(
    ("head", "commit"),
    [
        ("ref: refs/heads/main\n", None),  # a branch without commits
        ("ref: ../secret\n", None),  # a file that holds no commit
        ("ref: \0\n", None),  # a damaged file
        (f"{COMMIT}\n", COMMIT),  # a detached head is its own
        (f"{COMMIT[1:]}\n", None),
        (COMMIT.replace("0", "g"), None),
        ("", None),
    ],
)
def test_a_commit_is_what_head_names(
    tmp_path: Path, head: str, commit: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text(head)
    (tmp_path / "secret").write_text("not for the record\n")
    assert read_commit(str(tmp_path)) == commit


def test_where_there_is_no_checkout_there_is_no_commit() -> None:
    assert read_commit("/") is None
