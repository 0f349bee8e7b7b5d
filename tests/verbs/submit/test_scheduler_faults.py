"""A scheduler's commands that are missing, slow, failing, lying, garbled: fakes."""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from following import Weigh, until
from transcript import named_rows, named_texts
from written_programs import processes_with, write_program

from weigh.runner import events

Fake = Callable[[str, str], Path]
LISTS_NOTHING = ":"
JOBLOG = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"


@pytest.fixture
def fake(here: Weigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Put a command of three lines on PATH, in front of a real one."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    here.scheduler = "slurm"

    def put(name: str, body: str) -> Path:
        return write_program(folder / name, body)

    known = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol")
    for name in known:
        put(name, f"echo {name} $* >>{tmp_path}/called; {LISTS_NOTHING}")
    return put


@pytest.fixture
def job(here: Weigh, fake: Fake) -> str:
    """A job of three elements that a fake took."""
    fake("sbatch", "echo 7")
    return here.submit(here.plan("true", "true", "true"))


def submit(here: Weigh, *words: str) -> tuple[int, str]:
    code, _, err = here("submit", here.plan("true"), "--on", "slurm", *words)
    return code, err.splitlines()[-1]


def calls(tmp_path: Path, name: str) -> int:
    return (tmp_path / "called").read_text().split().count(name)


def test_a_missing_sbatch_is_reported_with_the_way_out(
    here: Weigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    code, err = submit(here)

    assert code == 125
    assert "sbatch is not on this machine" in err
    assert "login node" in err


# Slurm's own message on a machine that has its commands and no slurm.conf
NO_SLURM_CONF = (
    "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host",
    "sbatch: error: fetch_config: DNS SRV lookup failed",
    "sbatch: error: _establish_config_source: failed to fetch config",
    "sbatch: fatal: Could not establish a configuration source",
)
REFUSED = ("sbatch: error: invalid partition", "BSF")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        *(
            ("; ".join(f"echo '{line}' >&2" for line in lines) + "; exit 1", said)
            for lines, said in (
                (REFUSED, ("sbatch refused the job: " + "; ".join(REFUSED),)),
                (NO_SLURM_CONF, ("finds no cluster from this machine", "--on local")),
            )
        ),
        *(
            (f"printf '{lie}'", ("printed no job id",))
            for lie in ("all is well", "", r"\xff\xfe", "Submitted -1")
        ),
    ],
)
def test_an_sbatch_that_takes_no_job_is_one_line_with_what_it_printed(
    here: Weigh, fake: Fake, body: str, said: tuple[str, ...]
) -> None:
    fake("sbatch", body)

    code, err = submit(here)

    assert code == 125
    assert [text for text in said if text not in err] == []


def test_a_command_that_was_refused_keeps_its_name(here: Weigh, fake: Fake) -> None:
    words = ("submit", "--on", "slurm", "--", "python3", "train.py")
    fake("sbatch", "echo 'invalid partition' >&2; exit 1")
    here(*words)
    fake("sbatch", "echo 7")
    here(*words)
    fake("sbatch", "echo 8")

    here(*words)

    assert sorted(path.name for path in Path("plan").iterdir()) == ["train", "train-2"]


def test_a_name_that_is_taken_is_refused_with_what_submit_can_do(
    here: Weigh, fake: Fake
) -> None:
    words = ("submit", "--on", "slurm", "--name", "fit", "--")
    fake("sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    here(*words, "python3", "a.py")
    other = here(*words, "python3", "b.py")
    fake("sbatch", "echo 7")
    assert here(*words, "python3", "a.py")[0] == 0
    again = here(*words, "python3", "a.py")

    assert (other[0], again[0]) == (2, 2)
    assert "plan/fit is the plan of another command: choose another" in other[2]
    assert "plan/fit was submitted before: choose another --name" in again[2]
    assert "weigh resume fit runs what did not finish" in again[2]
    assert "--replace" not in other[2] + again[2]


def test_a_dry_run_of_a_command_leaves_nothing_behind(here: Weigh, fake: Fake) -> None:
    fake("sbatch", "exit 1")

    code, out, _ = here("submit", "--on", "slurm", "--dry-run", "--", "true")

    assert (code, out[:11]) == (0, "#!/bin/bash")
    assert not list(here.folder.iterdir())


def test_a_silent_sbatch_is_not_queried_twice(
    here: Weigh, fake: Fake, shorten: Callable[[str, float], None]
) -> None:
    shorten("schedulers.client.TO_SUBMIT", 0.2)
    fake("sbatch", "[ $1 = --parsable ] || exit 0; exec sleep 30")

    code, err = submit(here)

    assert code == 125
    assert "not known whether slurm accepted the job" in err


def test_what_a_site_s_wrapper_states_before_the_id_does_no_harm(
    here: Weigh, fake: Fake
) -> None:
    fake("sbatch", r"printf 'Welcome to \xff, 12 users\n481516;cluster\n'")

    assert here.submit(here.plan("true")) == "481516"


@pytest.mark.parametrize(
    "body",
    [
        "echo 'slurm_load_jobs error: Unable to contact controller' >&2; exit 1",
        "printf '7|0|RUNN'",
        "printf 'Lorem ipsum\\n'",
        "printf '\\xff\\xfe\\n'",
        "kill -9 $$",
    ],
)
def test_a_queue_that_does_not_answer_leaves_the_job_unknown(
    here: Weigh, fake: Fake, job: str, body: str
) -> None:
    fake("squeue", body)

    standing = here.status(job)

    assert standing["tasks"] == {"UNKNOWN": 3}
    assert "squeue" in standing["trouble"]


def test_what_was_known_stays_while_there_is_no_answer(
    here: Weigh, fake: Fake, job: str
) -> None:
    fake("squeue", 'for i in 0 1 2; do echo "7|$i|PENDING|N/A||Priority"; done')
    here.status(job)
    fake("squeue", "exit 1")

    standing = here.status(job)

    assert standing["tasks"] == {"PENDING": 3}
    assert "last answer" in here("status", job)[1]


def gone(here: Weigh, fake: Fake, sacct: str, *, ago: float = 100.0) -> None:
    """Make the job one of *ago* seconds before, that has left the queue."""
    fake("sacct", sacct)
    jobs = here.folder / ".weigh/jobs.jsonl"
    document = json.loads(jobs.read_text())
    jobs.write_text(json.dumps(document | {"submitted": time.time() - ago}) + "\n")


# what squeue lists, what sacct does, the end of the log of each element, and the states
STANDINGS = named_texts(Path(__file__).with_name("standings.texts"))
FLAGS = named_rows(Path(__file__).with_name("flags.texts"))["go through"]


@pytest.mark.parametrize("row", STANDINGS)
def test_what_queue_accounting_and_logs_show_is_how_the_job_stands(
    here: Weigh, fake: Fake, job: str, row: str
) -> None:
    queue, accounting, *logs, states = STANDINGS[row].splitlines()
    gone(here, fake, accounting)
    fake("squeue", queue)
    for element, words in enumerate(logs):
        (here.folder / f"plan/p/log/{job}_{element}.out").write_text(
            words.replace("\\n", "\n") + "\n"
        )

    assert here.status(job)["tasks"] == Counter(states.split())


@pytest.mark.parametrize(
    ("sacct", "why"),
    [
        ("echo 'sacct: error: Connection refused' >&2; exit 1", "error: Connection"),
        ("kill -9 $$", "exit code -9"),
        ("echo 'sacct: fatal: no key' >&2; exit 3", "fatal: no key"),
    ],
)
def test_a_job_that_left_the_queue_is_unknown_while_accounting_fails(
    here: Weigh, fake: Fake, job: str, sacct: str, why: str
) -> None:
    gone(here, fake, sacct)

    standing = here.status(job)
    out = " ".join(here("status", job)[1].split())

    assert standing["tasks"] == {"UNKNOWN": 3}
    assert f"unknown 3 elements: accounting does not answer: sacct: {why}" in out


def test_accounting_that_is_too_slow_is_accounting_that_fails(
    here: Weigh, fake: Fake, job: str, shorten: Callable[[str, float], None]
) -> None:
    shorten("schedulers.client._TO_ASK", 0.2)
    gone(here, fake, "exec sleep 30")

    assert "did not answer within" in here.status(job)["unknown"][0]["reason"]


def test_what_is_unknown_is_not_resumed_unless_requested(
    here: Weigh, fake: Fake, job: str
) -> None:
    gone(here, fake, "exit 1")

    _, out, _ = here("resume", job)
    waits = here.resume(job, "--dry-run")
    anyway = here.resume(job, "--also", "unknown", "--dry-run")

    assert "nothing resumed" in out
    assert f"weigh resume {job} --also unknown" in out
    assert (len(waits["again"]), len(waits["left"])) == (0, 3)
    assert anyway["again"][0]["tasks"] == [1, 2, 3]


def test_what_may_still_run_is_never_resumed(here: Weigh, fake: Fake, job: str) -> None:
    fake("squeue", "exit 1")

    assert not here.resume(job, "--also", "unknown", "--dry-run")["again"]


def test_a_task_killed_while_accounting_fails_is_not_called_failed(
    here: Weigh, fake: Fake, job: str
) -> None:
    gone(here, fake, "exit 1")
    log = here.folder / "plan/p/log/tasks_0.joblog"
    log.write_text(JOBLOG + "1\t:\t1.0\t1.0\t0\t0\t0\t9\ttrue\n")
    ended = events.AttemptEnded(
        seq=1,
        attempt=1,
        time=2.0,
        state="FAILED",
        exit_code=None,
        signal=9,
        record="r",
        reason="ended by SIGKILL",
        again=False,
    )
    (log.parent / f"{log.name}{events.SUFFIX}").write_bytes(
        msgspec.json.encode(ended) + b"\n"
    )

    assert here.status(job)["tasks"] == {"UNKNOWN": 3}


def test_accounting_that_is_late_is_waited_for_and_not_for_ever(
    here: Weigh, fake: Fake, job: str
) -> None:
    gone(here, fake, "echo '7_0|RUNNING|0:0|0:0|1|Unknown|node1|None'", ago=9000)

    early = here.status(job)
    poll = here.folder / ".weigh/queue/slurm.json"
    document = json.loads(poll.read_text())
    poll.write_text(json.dumps(document | {"unsettled": {job: 1.0}}))
    late = here.status(job)

    assert early["tasks"] == {"UNKNOWN": 3}
    assert "has not recorded its end yet" in early["unknown"][0]["reason"]
    assert late["tasks"] == {"INTERRUPTED": 3}
    assert here.status(job)["tasks"] == {"INTERRUPTED": 3}  # and so for each later look


def test_what_the_queue_lists_as_ended_is_queried_until_accounting_has_it(
    here: Weigh, fake: Fake, job: str
) -> None:
    fake("squeue", 'for i in 0 1 2; do echo "7|$i|COMPLETED|1|node1|None"; done')
    fake("sacct", "exit 1")
    first = here.status(job)
    fake(
        "sacct",
        'for i in 0 1 2; do echo "7_$i|COMPLETED|0:0|0:0|1|2|node1|None"\n'
        'echo "7_$i.0|OUT_OF_MEMORY|0:125||1|2|node1|"; done',
    )
    then = here.status(job)
    fake("sacct", "exit 1")
    last = here.status(job)

    assert "OUT_OF_MEMORY" not in first["elements"]
    assert first["accounting"]
    assert then["elements"] == last["elements"] == {"OUT_OF_MEMORY": 3}
    assert last["accounting"] is None  # it was not asked again


def step_ran_out(here: Weigh, fake: Fake, outputs: dict[str, str]) -> dict[str, int]:
    """Have two of two tasks done, and a step of their element out of memory."""
    fake("sbatch", "echo 9")
    job = here.submit(here.plan("true", "true", name="two", together=2))
    fake("squeue", "echo '9|N/A|COMPLETED|1|node1|None'")
    fake(
        "sacct",
        "echo '9|COMPLETED|0:0|0:125|1|2|node1|None'\n"
        "echo '9.0|OUT_OF_MEMORY|0:125||1|2|node1|'",
    )
    log = here.folder / "plan/two/log"
    (log / "tasks_0.joblog").write_text(
        JOBLOG + "".join(f"{n}\t:\t1.0\t1.0\t0\t0\t0\t0\ttrue\n" for n in (1, 2))
    )
    (log / "tasks_0.out").mkdir()
    for name, text in outputs.items():
        (log / "tasks_0.out" / name).write_text(text)
    tasks: dict[str, int] = here.status(job)["tasks"]
    return tasks


SRUN = "srun: error: cn1: task 0: Out Of Memory\n"


@pytest.mark.parametrize(
    ("outputs", "tasks"),
    [
        ({"1.out": SRUN, "2.out": "fine\n"}, {"OUT_OF_MEMORY": 1, "COMPLETED": 1}),
        ({"1.out": SRUN, "1.2.out": "fine\n"}, {"COMPLETED": 2}),  # a later attempt
        ({"1.out": "fine\n"}, {"OUT_OF_MEMORY": 2}),  # nobody knows which
    ],
)
def test_a_step_that_ran_out_of_memory_is_that_of_the_task_whose_output_shows_it(
    here: Weigh, fake: Fake, outputs: dict[str, str], tasks: dict[str, int]
) -> None:
    assert step_ran_out(here, fake, outputs) == tasks


def test_a_job_that_was_cancelled_is_shown_as_such_at_once(
    here: Weigh,
    fake: Fake,
    job: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEIGH_POLL", "30s")
    monkeypatch.setattr("weigh.schedulers.client._WHILE_ENDING", 0.0)
    fake("squeue", 'for i in 0 1 2; do echo "7|$i|RUNNING|1|node1|None"; done')
    here.status(job)
    assert here("cancel", job)[0] == 0

    ending = here.status(job)
    fake("squeue", 'for i in 0 1 2; do echo "7|$i|CANCELLED|1|node1|None"; done')
    ended = here.status(job)

    assert (ending["elements"], ending["cancelling"]) == ({"RUNNING": 3}, 3)
    assert (ended["tasks"], ended["cancelling"]) == ({"CANCELLED": 3}, 0)


def test_an_element_that_still_runs_long_after_it_was_cancelled_just_runs(
    here: Weigh, fake: Fake, job: str, shorten: Callable[[str, float], None]
) -> None:
    fake("squeue", 'for i in 0 1 2; do echo "7|$i|RUNNING|1|node1|None"; done')
    here.status(job)
    assert here("cancel", job)[0] == 0
    shorten("schedulers.client._TO_CANCEL", 0.0)

    later = here.status(job)

    assert (later["elements"], later["cancelling"]) == ({"RUNNING": 3}, 0)


def test_a_job_that_got_an_id_of_ours_is_neither_shown_nor_cancelled(
    here: Weigh, fake: Fake, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_POLL", "0s")
    fake("squeue", "echo '7|N/A|RUNNING|1|node1|None|/home/u/other.sh|(null)'")

    shown = here.status(job)
    code, _, err = here("cancel", job)

    assert "RUNNING" not in shown["elements"]
    assert code == 125
    assert "7 is another job now" in err
    assert calls(tmp_path, "scancel") == 0


def test_resume_waits_for_what_was_just_cancelled_to_end(
    here: Weigh,
    fake: Fake,
    job: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEIGH_POLL", "1h")
    monkeypatch.setattr("weigh.flow.follow.resume._PAUSE", 0.01)
    looks = tmp_path / "looks"
    fake(
        "squeue",
        f"echo >>{looks}; [ $(wc -l <{looks}) -lt 4 ] && w=COMPLETING || w=CANCELLED\n"
        'for i in 0 1 2; do echo "7|$i|$w|1|node1|None"; done',
    )
    assert here("cancel", job)[0] == 0

    code, out, err = here("resume", job, "--dry-run")

    assert code == 0
    assert f"waiting for cancelled job {job} to end" in err
    assert "would resume 3 tasks" in out


def test_a_reason_that_a_job_and_its_resume_wait_for_is_one_line(
    here: Weigh, fake: Fake, job: str
) -> None:
    waits = 'for i in 1 2; do echo "7|$i|PENDING|N/A||Priority"; done'
    fake("squeue", f"{waits}; echo '7|0|NODE_FAIL|1795370130|cn1|None'")
    fake("sbatch", "echo 8")
    here.resume(job)
    fake("squeue", f"{waits}; echo '8|N/A|PENDING|N/A||Priority'")

    waiting = here.status("last")["waiting"]

    assert [one["elements"] for one in waiting] == [3]


def test_many_looks_are_one_question(
    here: Weigh, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_POLL", "30s")
    before = calls(tmp_path, "squeue") if (tmp_path / "called").exists() else 0

    for _ in range(5):
        here.status(job)

    assert calls(tmp_path, "squeue") == before + 1


def test_all_jobs_are_queried_in_one_question(
    here: Weigh, fake: Fake, job: str, tmp_path: Path
) -> None:
    fake("sbatch", f"echo {int(job) + 1}")
    here.submit(here.plan("true", name="q"))

    here("status")

    assert calls(tmp_path, "squeue") == calls(tmp_path, "sacct") == 1


def test_a_scheduler_that_fails_is_left_alone_for_longer(
    here: Weigh, fake: Fake, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_POLL", "30s")
    fake("squeue", f"echo squeue >>{tmp_path}/called; exit 1")
    poll = here.folder / ".weigh/queue/slurm.json"
    here.status(job)
    document = json.loads(poll.read_text())
    document["tried"] -= 45  # a pause would be over, had it answered
    poll.write_text(json.dumps(document))

    here.status(job)

    assert calls(tmp_path, "squeue") == 1


def test_a_job_that_was_submitted_elsewhere_is_refused_with_its_folder(
    here: Weigh, fake: Fake, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    monkeypatch.delenv("WEIGH_DIR", raising=False)
    fake(
        "scontrol",
        f'echo "JobId={job} JobName=p UserId=$(id -un)(0) JobState=RUNNING '
        f'WorkDir={here.folder} Command={here.folder}/plan/p/job.sh"',
    )

    for verb in ("status", "logs", "resume", "cancel"):
        code, _, err = here(verb, job)
        expected = f"weigh: job {job} was submitted elsewhere: cd {here.folder}\n"
        assert (verb, code, err) == (verb, 2, expected)


def test_an_element_that_succeeded_after_a_resume_has_no_failed_log(
    here: Weigh, fake: Fake
) -> None:
    (here.folder / "s.sh").write_text("#!/bin/bash\n#SBATCH --array=1-2\ntrue\n")
    fake("sbatch", "echo 7")
    here.submit("s.sh")
    ended = "1|cn1|None"
    fake("squeue", f"echo '7|1|COMPLETED|{ended}'; echo '7|2|FAILED|{ended}'")
    (here.folder / "slurm-7_2.out").write_text("no value\n")
    assert "no value" in here("logs", "s.sh", "failed")[1]
    fake("sbatch", "echo 8")
    here.resume("7")
    fake("squeue", f"echo '8|2|COMPLETED|{ended}'")

    code, _, err = here("logs", "s.sh", "failed")

    assert (code, err) == (
        2,
        "weigh: no element of s.sh has failed (weigh status s.sh)\n",
    )


def test_a_torn_line_of_the_jobs_is_stepped_over(here: Weigh, job: str) -> None:
    with (here.folder / ".weigh/jobs.jsonl").open("a") as file:
        file.write('{"schema": "weigh.job/1", "id": "9\n\xff\n')

    assert here.status("last")["job"]["id"] == job


def test_a_plan_that_was_deleted_leaves_the_job_listed(
    here: Weigh, fake: Fake, job: str
) -> None:
    fake("squeue", 'for i in 0 1 2; do echo "7|$i|RUNNING|1|node1|None"; done')
    shutil.rmtree("plan")

    assert here.status(job)["tasks"] == {"RUNNING": 3}


def test_waiting_ends_where_what_waits_will_never_start(
    here: Weigh, fake: Fake, job: str
) -> None:
    fake(
        "squeue",
        f'for e in 0 1 2; do echo "{job}|$e|PENDING|N/A||'
        'DependencyNeverSatisfied"; done',
    )

    code, out, _ = here("status", job, "--wait")

    assert code == 1
    assert "never: a job that it depends on failed" in out


def test_a_job_waits_for_none_of_another_scheduler(here: Weigh, fake: Fake) -> None:
    fake("sbatch", "echo 9")
    here.scheduler = "local"
    first = here.submit(here.plan("true", name="first"))

    code, err = submit(here, "--after", first)

    assert code == 2
    assert "cannot wait for it" in err


@pytest.mark.parametrize(
    ("answer", "shown", "cancelling"),
    [
        ("echo 'Access denied' >&2; exit 1", "weigh: scancel: Access denied\n", 0),
        ("exec sleep 30", "did not answer within", 3),  # it may have been made
    ],
)
def test_a_cancel_that_fails_is_reported(  # noqa: PLR0913, PLR0917 - a table
    answer: str,
    shown: str,
    cancelling: int,
    here: Weigh,
    fake: Fake,
    job: str,
    shorten: Callable[[str, float], None],
) -> None:
    shorten("schedulers.client._TO_ASK", 0.5)
    fake("squeue", 'for i in 0 1 2; do echo "7|$i|RUNNING|1|node1|None"; done')
    fake("scancel", answer)

    code, _, err = here("cancel", job)

    assert (code, shown in err) == (125, True), err
    assert here.status(job)["cancelling"] == cancelling


def test_only_what_waits_is_cancelled(
    here: Weigh, fake: Fake, job: str, tmp_path: Path
) -> None:
    fake(
        "squeue",
        'echo "7|0|RUNNING|1|node1|None"\n'
        'for i in 1 2; do echo "7|$i|PENDING|N/A||Priority"; done',
    )

    here("cancel", job, "--state", "pending")

    assert "scancel 7_[1-2]" in (tmp_path / "called").read_text()


@pytest.mark.parametrize(
    ("states", "flags", "said"),
    [
        (("COMPLETED", "RUNNING", "PENDING"), (), "2 of 3 elements"),
        (("COMPLETED", "FAILED", "PENDING"), ("--dry-run",), "1 of 3 elements"),
        (("RUNNING", "RUNNING", "PENDING"), ("--state", "pending"), "1 of 3 elements"),
        (("RUNNING", "RUNNING", "RUNNING"), (), "3 elements"),
    ],
)
def test_elements_that_had_ended_are_not_counted(  # noqa: PLR0913, PLR0917 - a table
    states: tuple[str, ...],
    flags: tuple[str, ...],
    said: str,
    here: Weigh,
    fake: Fake,
    job: str,
) -> None:
    lines = (f"7|{at}|{state}|1|node1|None" for at, state in enumerate(states))
    fake("squeue", "".join(f'echo "{line}"\n' for line in lines))

    _, out, _ = here("cancel", job, *flags)

    verb = "would cancel" if flags == ("--dry-run",) else "cancelled"
    assert out == f"  {verb} {job} (p): {said}\n"


def test_a_job_to_keep_is_kept(
    here: Weigh, fake: Fake, job: str, tmp_path: Path
) -> None:
    fake("sbatch", "echo 8")
    here.submit(here.plan("true", name="q"))

    here("cancel", "all", "--keep", job)

    told = [
        line
        for line in (tmp_path / "called").read_text().splitlines()
        if line.startswith("scancel")
    ]
    assert told == ["scancel 8"]


def test_a_local_job_that_was_killed_is_interrupted(here: Weigh) -> None:
    job = here.submit(here.plan("touch began; sleep 60"))
    here.wait_for(job, lambda one: "RUNNING" in one["tasks"])
    runs = json.loads((here.folder / ".weigh/local" / job / "process").read_text())
    subprocess.run(
        ["pkill", "-KILL", "-s", str(runs["process"]["pid"])], check=True, timeout=10
    )

    assert here.finish(job) == {"INTERRUPTED": 1}
    for pid in processes_with(cwd=here.folder):
        os.kill(pid, 9)


def test_a_local_job_of_another_machine_is_not_called_dead(here: Weigh) -> None:
    job = here.submit(here.plan("true", "true"))
    here.finish(job)
    folder = here.folder / ".weigh/local" / job
    until((folder / "exit").exists)
    process = json.loads((folder / "process").read_text())
    process["machine"] |= {"host": "far", "boot_id": "another", "machine_id": "another"}
    (folder / "process").write_text(json.dumps(process))
    (folder / "exit").unlink()
    for log in (here.folder / "plan/p/log").glob("*_1*"):
        log.unlink()

    assert here.status(job)["tasks"] == {"COMPLETED": 1, "UNKNOWN": 1}


@pytest.mark.parametrize(("scheduler", "flags", "line"), FLAGS)
def test_a_scheduler_s_own_flags_go_through(
    scheduler: str, flags: str, line: str, here: Weigh, fake: Fake
) -> None:
    fake("sbatch", ":")
    fake("qsub", ":")
    plan = here.plan("true")

    words = (*shlex.split(flags), plan, "--on", scheduler, "--dry-run")
    code, out, err = here("submit", *words)

    assert (code, f"\n{line}\n" in out) == (0, True), out + err


def test_one_option_names_who_is_notified(here: Weigh, fake: Fake) -> None:
    fake("sbatch", ":")
    words = ("--on", "slurm", "--dry-run", "--notify", "me@uni.edu")

    _, out, _ = here(
        "submit", here.plan("true"), *words, "--notify", "ssh me@host date"
    )

    assert "#SBATCH --mail-user=me@uni.edu\n" in out
    assert "ssh me@host date" in out
    code, _, err = here("submit", "plan/p", *words, "--notify", "you@uni.edu")
    assert (code, "one address, not me@uni.edu and you" in err) == (2, True)
