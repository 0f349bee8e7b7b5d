"""The schedulers of the table as parameters of tests: a new one is tested as they are.

Each needs ``ci/NAME-up.sh`` and ``ci/NAME-down.sh``, and a mark that has its name.
"""

import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from run_captured import CapturedRun, run_captured

from weigh.schedulers import KINDS

RIGS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in KINDS]
EACH_RIG = pytest.mark.parametrize("scheduler", RIGS)
EACH_KIND = pytest.mark.parametrize("name", list(KINDS))


def mainly(*names: str) -> pytest.MarkDecorator:
    """Run a test of the fixture ``weigh`` on these; elsewhere in ``make integrations``.

    For what depends little on the scheduler: each job costs half a second of CPU.
    """
    return pytest.mark.parametrize(
        "weigh",
        [
            pytest.param(
                name,
                marks=[
                    *([getattr(pytest.mark, name)] if name in KINDS else []),
                    *([] if name in names else [pytest.mark.integrations]),
                ],
            )
            for name in (*KINDS, "local")
        ],
        indirect=True,
    )


def sbatch_and_wait(
    *argv: str | Path, cwd: Path, env: Mapping[str, str]
) -> CapturedRun:
    """Submit to Slurm and wait for the end, as `sbatch --wait` would.

    That looks only every ten seconds. The exit code is sbatch's if it fails, else the
    largest of the elements'.
    """

    def called(*argv: str | Path) -> CapturedRun:
        return run_captured(argv, cwd=cwd, env=env)

    sent = called("sbatch", "--parsable", *argv)
    if sent.returncode != 0:
        return sent
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        shown = called("scontrol", "--oneliner", "show", "job", sent.stdout.strip())
        states = set(re.findall(r" JobState=(\w+)", shown.stdout))
        if states and not states & {"PENDING", "RUNNING", "COMPLETING"}:
            ends = re.findall(r" ExitCode=(\d+):(\d+)", shown.stdout)
            code = max(int(code) or 128 * bool(int(signal)) for code, signal in ends)
            return subprocess.CompletedProcess(
                sent.args, code, sent.stdout, sent.stderr
            )
        time.sleep(0.2)
    raise subprocess.TimeoutExpired(sent.args, 120, sent.stdout, sent.stderr)


@contextmanager
def acting_as(name: str | None, folder: Path) -> Iterator[None]:
    """Be the user *name* for a while, in a folder that he owns; None changes nothing.

    HTCondor runs no job of root's. The saved user id is the way back; commands that we
    start are the user's only.
    """
    if name is None:
        yield
        return
    user = pwd.getpwnam(name)
    for above in folder.parents:
        if above.owner() == "root" and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, 0)
    os.setresuid(user.pw_uid, user.pw_uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


# Python of a rank: wait until weigh's agents on the nodes of the job have sent figures
# of what it holds now, for on a busy machine they start late and seldom look
WAIT_FOR_AGENTS = """
import glob, os, time
def sent_by_agents():
    sent, job = {}, f"SLURM_JOB_ID={os.environ['SLURM_JOB_ID']}".encode()
    def read(process, name):
        with open(f"{process}/{name}", "rb") as file:
            return file.read()
    for process in glob.glob("/proc/[0-9]*"):
        try:  # its words first: of most processes nothing else has to be read
            if b"\\0weigh.measure.node_agent\\0" in read(process, "cmdline"):
                if job in read(process, "environ").split(b"\\0"):
                    sent[process] = int(read(process, "io").split()[3])
        except OSError:
            pass
    return sent
def wait_for_agents():
    nodes, end = int(os.environ["SLURM_JOB_NUM_NODES"]), time.monotonic() + 60
    before, times = sent_by_agents(), {}
    # twice: what comes first may have been measured before
    while sum(n > 1 for n in times.values()) < nodes and time.monotonic() < end:
        time.sleep(0.2)
        for who, sent in sent_by_agents().items():
            if sent > before.get(who, 0) + 200:
                before[who], times[who] = sent, times.get(who, 0) + 1
"""
