"""A job is in the queue once: whatever sbatch answers, whoever else sends, who dies."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from following import Weigh, until
from rigs import EACH_RIG, acting_as, mainly

RIG = Path(os.environ.get("WEIGH_RIG", "/var/lib/weigh-rig"))
PIDS = {
    "slurm": RIG / "slurm/pid/slurmctld.pid",
    "gridengine": RIG / "gridengine/pid/qmaster",
    "htcondor": RIG / "htcondor/pid/schedd",
}


@contextmanager
def stopped(scheduler: str) -> Iterator[int]:
    """Stop the controller: it accepts connections and answers nothing."""
    pid = int(PIDS[scheduler].read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def impatient(
    here: Weigh, slurm: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's commands give up after 2 seconds, not 30."""
    here.scheduler = "slurm"
    text = Path(slurm["SLURM_CONF"]).read_text()
    conf = tmp_path / "slurm.conf"
    conf.write_text(re.sub(r"MessageTimeout=\d+", "MessageTimeout=2", text))
    monkeypatch.setenv("SLURM_CONF", str(conf))


def start(here: Weigh, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "weigh", *words],
        cwd=here.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def counted(here: Weigh, tasks: int, name: str = "p", more: str = "") -> str:
    """Plan tasks that each leave a line in a file of its own when they begin."""
    lines = [f"echo x >>{here.folder}/began.{task}{more}" for task in range(tasks)]
    return here.plan(*lines, name=name)


def begun(here: Weigh) -> list[int]:
    """Return how often each task has begun."""
    files = sorted(here.folder.glob("began.*"))
    return [len(path.read_text().split()) for path in files]


def once_sent(here: Weigh, plan: str, *words: str) -> str:
    """Call submit until it is known that the plan is there; return the job's id."""
    answers: list[str] = []

    def is_there() -> bool:
        code, out, err = here("submit", plan, "--on", here.scheduler, *words)
        answers.append(out + err)
        return code in {0, 2}

    until(is_there, what=lambda: answers[-1])
    found = re.search(r"as job (\d+)", answers[-1])
    assert found is not None, answers[-1]
    return found[1]


@pytest.mark.slurm
@pytest.mark.usefixtures("impatient")
@pytest.mark.alone
def test_a_job_that_sbatch_gave_up_is_found_and_not_sent_again(here: Weigh) -> None:
    plan = counted(here, 3)
    with stopped("slurm"):
        code, _, err = here("submit", plan, "--on", "slurm", "--no-checks")
        assert (code, "not known whether slurm accepted" in err) == (125, True)
        assert here("submit", plan, "--on", "slurm", "--no-checks")[0] == 125
        assert here("cancel", "all")[0] == 125

    job = once_sent(here, plan, "--no-checks")

    assert here.finish(job) == {"COMPLETED": 3}
    assert begun(here) == [1, 1, 1]


@EACH_RIG
@pytest.mark.alone
def test_the_job_of_a_sender_that_was_killed_runs_once(
    here: Weigh,
    request: pytest.FixtureRequest,
    shorten: Callable[[str, float], None],
    monkeypatch: pytest.MonkeyPatch,
    scheduler: str,
) -> None:
    env: dict[str, str] = request.getfixturevalue(scheduler)
    here.with_cluster(scheduler, env, monkeypatch)
    user = env.get("WEIGH_RIG_AS")
    plan = counted(here, 2)
    with stopped(scheduler), acting_as(user, here.folder.parent):
        sender = start(here, "submit", plan, "--on", scheduler, "--no-checks")
        until(lambda: bool(list(Path(plan, "sent").glob("*.part"))))
        time.sleep(0.5)
        sender.kill()
        sender.communicate()
    if scheduler == "slurm":  # a request that is refused as too old would take 310 s
        shorten("schedulers.slurm.scheduler._DEFAULT_TTL", 5.0)

    with acting_as(user, here.folder.parent):
        job = once_sent(here, plan, "--no-checks")

        assert here.finish(job) == {"COMPLETED": 2}
        assert begun(here) == [1, 1]


@mainly("local")
def test_of_three_who_submit_a_plan_at_once_one_does(weigh: Weigh) -> None:
    plan = counted(weigh, 2)

    senders = [start(weigh, "submit", plan, "--on", weigh.scheduler) for _ in range(3)]
    said = [sender.communicate(timeout=90)[0] for sender in senders]

    assert sorted(sender.returncode for sender in senders) == [0, 2, 2], said
    lost = [text for text in said if "was submitted" in text]
    assert len(lost) == 2, said
    assert all("as job" in text for text in lost), said
    assert weigh.finish("last") == {"COMPLETED": 2}
    assert begun(weigh) == [1, 1]


def test_a_staged_job_that_runs_keeps_its_joblog_when_it_is_submitted_again(
    here: Weigh,
) -> None:
    plan = counted(here, 1, more="; while [ ! -e $OLDPWD/go ]; do sleep 0.1; done")
    staged = ("--stage-out", str(here.folder / "results"))
    first = here.submit(plan, *staged)
    joblog = Path(plan, "log/tasks_0.joblog")
    until(joblog.exists)

    second = here.submit(plan, "--again", *staged)
    until(lambda: len(begun(here)) == 1 and begun(here)[0] == 2)

    assert joblog.exists()
    here("cancel", first, second)


def test_a_job_keeps_the_plan_it_was_submitted_with(here: Weigh) -> None:
    plan = counted(here, 4)
    job = here.submit(plan)
    here.finish(job)
    (here.folder / "p.txt").write_text("false\nfalse\n")
    code, _, err = here(
        *("plan", "p.txt", "--replace", "--memory", "100M", "--cpus", "1"),
        *("--time", "5m"),
    )
    assert code == 0, err

    assert here.status(job)["tasks"] == {"COMPLETED": 4}
    again = here.submit(plan, "--again")
    assert here.finish(again) == {"FAILED": 2}
    assert here.status(job)["tasks"] == {"COMPLETED": 4}
    assert here.status(plan)["jobs"] == [again]


def test_commands_submitted_at_once_get_plans_of_their_own(here: Weigh) -> None:
    script = here.folder / "train.sh"
    script.write_text("echo x >>began.$1\n")

    senders = [
        start(here, "submit", "--on", "local", "--", "bash", "train.sh", str(seed))
        for seed in range(3)
    ]
    said = [sender.communicate(timeout=90)[0] for sender in senders]

    assert [sender.returncode for sender in senders] == [0, 0, 0], said
    until(lambda: begun(here) == [1, 1, 1], what=lambda: str(begun(here)))
