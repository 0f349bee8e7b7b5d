"""What goes wrong around ``weigh exec``, each fault made for real."""

import json
import os
import signal
import sys
import time
from contextlib import closing

import pytest
from batches import Batch
from processes import HASTY_WEIGH, Terminal, is_stopped, until

STUCK = ("--end-stuck", "1.5")


@pytest.mark.parametrize("number", ["INT", "HUP", "USR2"])
def test_a_signal_is_passed_on_to_the_tasks_and_the_run_can_resume(
    batch: Batch, number: str
) -> None:
    trap = f"trap 'echo signalled >> ran; exit 0' {number}"
    batch.write(f"{trap}; echo in >> ran; [ -e go ] || sleep 100 & wait", "true")
    started = batch.begin("-j", "1", "--grace", "20")
    started.send_signal(getattr(signal, f"SIG{number}"))
    assert started.wait(30) == 128 + getattr(signal, f"SIG{number}")
    assert batch.ran() == ["in", "signalled"]
    assert batch.ended() == {}
    assert batch.record(1)["state"] == "INTERRUPTED"
    assert batch.marked() == []
    (batch.folder / "go").touch()
    assert batch.run("-j", "1").returncode == 0
    assert batch.ended() == {1: (0, 0), 2: (0, 0)}


def test_a_folder_that_cannot_be_written_is_reported_before_anything_starts(
    batch: Batch, as_nobody: tuple[str, ...]
) -> None:
    batch.write("echo a > ran")
    batch.folder.chmod(0o555)
    for parent in batch.folder.parents[:3] if as_nobody else ():
        parent.chmod(parent.stat().st_mode | 0o055)
    finished = batch.run(before=as_nobody)
    batch.folder.chmod(0o755)
    assert finished.returncode == 125
    assert "tasks.txt.joblog" in finished.stderr
    assert batch.ran() == []


def test_a_full_disk_under_the_joblog_stops_the_launching(
    batch: Batch, small_disk: tuple[str, ...]
) -> None:
    fill = "head -c 70000 /dev/zero > small/fill 2>/dev/null; echo {} >> ran"
    batch.write(*(f"{fill.format(n)} # {'long ' * 200}" for n in range(20)))
    finished = batch.run("-j", "1", "--joblog", "small/log", before=small_disk)
    assert finished.returncode == 125
    assert "small/log" in finished.stderr
    assert len(batch.ran()) < 20
    log = (batch.folder / "kept" / "log").read_text()
    assert log.endswith("\n") or not log
    written = max(0, len(log.splitlines()) - 1)
    assert written <= len(batch.ran())
    assert f"weigh  {written} of 20 tasks done" in finished.stdout


# what a task does that the full disk makes a doubtful one
GROUPED = ("--output", "small/out")


@pytest.mark.parametrize(
    ("line", "options", "ran"),
    [
        ("echo a >> ran; head -c 200000 /dev/zero; true", GROUPED, ["a"]),
        # a file that the task itself writes
        (
            "head -c 200000 /dev/zero > small/fill 2> small/why; echo a >> ran; exit 1",
            GROUPED,
            ["a"],
        ),
        ("head -c 200000 /dev/zero", ("--ungroup",), []),
    ],
)
def test_a_full_disk_under_the_output_stops_the_launching_and_marks_nothing_done(
    batch: Batch,
    small_disk: tuple[str, ...],
    line: str,
    options: tuple[str, ...],
    ran: list[str],
) -> None:
    batch.write(line, "echo b >> ran")
    shell = (*small_disk, "bash", "-c", '"$@" >small/said', "bash")
    finished = batch.run("-j", "1", *options, before=shell)
    assert finished.returncode == 125
    assert "full" in finished.stderr
    assert batch.ran() == ran
    assert batch.ended() == {}


def test_what_ended_while_the_disk_was_full_is_kept_once_there_is_room(
    batch: Batch, small_disk: tuple[str, ...]
) -> None:
    fill = "head -c 70000 /dev/zero > small/fill 2>/dev/null; echo in >> ran; exit 0"
    frees = "until [ -e ran ]; do sleep 0.1; done; sleep 0.5; rm small/fill; sleep 1"
    batch.write(f"{fill} # {'long ' * 1000}", frees)
    store = str(batch.folder / "small/store")
    options = ("-j", "2", "--joblog", "small/log", "--output", "out")
    finished = batch.run(*options, before=small_disk, WEIGH_DIR=store)
    assert finished.returncode == 125, finished.stderr
    assert "2 of 2 tasks done" in finished.stdout
    kept = batch.folder / "kept"
    events = map(json.loads, (kept / "log.events.jsonl").read_text().splitlines())
    assert sorted(e["seq"] for e in events if e["event"] == "ended") == [1, 2]
    shards = list((kept / "store/records").rglob("*.jsonl"))
    lines = [line for path in shards for line in path.read_text().splitlines()]
    records = [json.loads(line) for line in lines if line]
    assert sorted(one["job"]["task"] for one in records) == [1, 2]


def test_killed_repeatedly_every_task_ends_and_none_runs_twice_at_once(
    batch: Batch,
) -> None:
    alone = "exec 9> lock.$PARALLEL_SEQ; flock -n 9 || echo twice >> ran"
    batch.write(*(f"{alone}; sleep 0.0{n % 10}; echo {n} >> ran" for n in range(40)))
    done: set[int] = set()
    for more in (1, 12, 5):
        killed = batch.start("-j", "4")
        until(lambda: len(batch.entries()) >= len(done) + more)  # noqa: B023 - now
        killed.kill()
        killed.wait()
        assert done <= batch.ended().keys()
        done = set(batch.ended())
    until(lambda: not batch.marked())
    before = batch.ran()
    assert batch.run("-j", "4").returncode == 0
    ran = batch.ran()
    assert "twice" not in ran
    assert set(ran) == {str(n) for n in range(40)}
    # only tasks in flight run again
    assert not {str(seq - 1) for seq in done} & set(ran[len(before) :])
    assert batch.ended() == dict.fromkeys(range(1, 41), (0, 0))


def test_the_end_of_a_slurm_job_is_a_time_limit(batch: Batch) -> None:
    def until_the_end(seconds: int) -> None:
        end = str(int(time.time()) + seconds)
        finished = batch.run("--grace", "2", SLURM_JOB_ID="1", SLURM_JOB_END_TIME=end)
        assert finished.returncode == 128 + signal.SIGTERM

    task = "trap 'echo saved >> ran; exit 0' TERM; touch began; sleep 100 & wait"
    batch.write(task)
    until_the_end(3)
    if not batch.ran():  # on a busy machine the task began too late
        until_the_end(20)
    assert batch.ran() == ["saved"]


_ONLY_TERM = (
    "import signal, sys, time\n"
    "def save(*_):\n"
    "    open('ran', 'a').write('saved\\n')\n"
    "    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "open('ran', 'a').write('in\\n')\n"
    "while True: time.sleep(0.05)\n"
)


@pytest.mark.parametrize(
    ("number", "before"), [("USR1", "weigh run -- "), ("XCPU", "")]
)
def test_a_scheduler_s_warning_reaches_a_program_with_only_a_term_handler_as_term(
    batch: Batch, number: str, before: str
) -> None:
    (batch.folder / "only_term.py").write_text(_ONLY_TERM)
    weigh = before.replace("weigh", f"{sys.executable} -m weigh")
    batch.write(f"{weigh}{sys.executable} only_term.py")
    started = batch.begin("--grace", "20")

    started.send_signal(getattr(signal, f"SIG{number}"))

    assert started.wait(30) == 128 + getattr(signal, f"SIG{number}")
    assert batch.ran() == ["in", "saved"]


def test_a_warning_that_comes_after_term_kills_no_task_that_saves(
    batch: Batch,
) -> None:
    slow = _ONLY_TERM.replace("    open(", "    time.sleep(1); open(", 1)
    (batch.folder / "only_term.py").write_text(slow)
    batch.write(f"{sys.executable} only_term.py")
    started = batch.begin("--grace", "20")

    started.terminate()
    started.send_signal(signal.SIGUSR1)

    assert started.wait(30) in {128 + signal.SIGTERM, 128 + signal.SIGUSR1}
    assert batch.ran() == ["in", "saved"]


def test_stopped_and_continued_it_goes_on(batch: Batch) -> None:
    batch.write("echo in >> ran; while [ ! -e go ]; do sleep 0.1; done; echo out")
    started = batch.begin()
    started.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(started.pid))
    time.sleep(0.6)  # longer than it sleeps at most
    started.send_signal(signal.SIGCONT)
    until(lambda: not is_stopped(started.pid))
    (batch.folder / "go").touch()
    assert started.wait(30) == 0
    assert batch.ended() == {1: (0, 0)}


def test_a_line_as_long_as_the_kernel_takes_runs(batch: Batch) -> None:
    most = 32 * os.sysconf("SC_PAGE_SIZE") - 1
    shell = "echo a >> ran; : "
    words = "true" + " x" * most
    batch.write(shell + "x" * (most - len(shell)), words)
    assert batch.run("-j", "1").returncode == 0
    assert batch.ran() == ["a"]


@pytest.mark.parametrize(
    ("option", "shown"),
    [("--ungroup", "\r\nsaid\r\n"), ("--pin", "0 of 2 done, 2 running")],
)
def test_on_a_terminal_progress_is_drawn_and_not_mixed_with_lines_of_tasks(
    batch: Batch, option: str, shown: str
) -> None:
    batch.write("sleep 0.7; echo said", "sleep 0.1; sleep 0.1")
    words = [*HASTY_WEIGH, "exec", "-j", "2", option, "tasks.txt"]
    with closing(Terminal(words, batch.env(TERM="xterm"), batch.folder)) as terminal:
        assert terminal.wait() == 0
    assert shown in f"\r\n{terminal.shown}"


def test_a_task_that_somebody_suspended_is_not_stuck(batch: Batch) -> None:
    batch.write("echo $$ >> ran; sleep 1; echo done >> ran")
    started = batch.begin(*STUCK)
    task = int(batch.ran()[0])
    os.killpg(task, signal.SIGSTOP)
    # by then more than the time has passed
    folder = batch.folder / "other"
    folder.mkdir()
    other = Batch(folder).write("sleep 1000")
    assert other.run(*STUCK).returncode == 1

    os.killpg(task, signal.SIGCONT)

    assert started.wait() == 0
    until(lambda: batch.ran()[-1] == "done")


def test_a_run_by_hand_of_a_queue_names_it(batch: Batch) -> None:
    """No run of a queue knows that it is the last one."""
    batch.write("echo a >> ran", "# weigh: then", "echo merged")
    needs = ("--time", "9s", "--memory", "90M", "--node", "1G,2", "--hours", "1")
    planned = batch.weigh("plan", "tasks.txt", *needs)
    assert planned.returncode == 0, planned.stderr

    pulled = batch.weigh("exec", "--pull", "plan/tasks")

    assert (pulled.returncode, batch.ran()) == (0, ["a"])
    assert "weigh: when all runs of this queue end, run: echo merged\n" in pulled.stderr
