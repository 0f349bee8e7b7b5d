"""What goes wrong around ``weigh exec``, each fault made for real."""

import json
import signal
import sys
import time

import pytest
from batches import Batch
from processes import until

# the second signal of a user who typed Ctrl-C twice, once all tasks have ended
SIGNALLED_AT_THE_END = """
import os, signal, sys
if "exec" in sys.argv:
    from weigh.runner.channels import SlotChannels
    whole = SlotChannels.close
    def close(self):
        whole(self)
        os.kill(os.getpid(), signal.SIGINT)
    SlotChannels.close = close
"""


def test_tasks_that_survived_kill_9_are_waited_for(batch: Batch) -> None:
    slow = "echo in >> ran; while [ ! -e go ]; do sleep 0.05; done; echo out >> ran"
    batch.write(slow)
    first = batch.begin()
    batch.kill(first)
    second = batch.start()
    assert "waiting for" in batch.next_line(second)
    assert batch.ran() == ["in"]
    (batch.folder / "go").touch()
    assert second.wait(30) == 0
    assert batch.ran() == ["in", "out", "in", "out"]


def test_an_interrupt_while_waiting_for_survivors_ends_by_that_signal(
    batch: Batch,
) -> None:
    batch.write("echo in >> ran; while [ ! -e go ]; do sleep 0.05; done")
    first = batch.begin()
    batch.kill(first)
    second = batch.start()
    assert "waiting for" in batch.next_line(second)
    second.terminate()
    out, _ = second.communicate(timeout=60)
    (batch.folder / "go").touch()
    assert second.returncode == 128 + signal.SIGTERM
    assert "0 of 1 task done, 1 not run" in out
    assert batch.ran() == ["in"]


@pytest.mark.few(2)
@pytest.mark.parametrize("number", ["TERM", "INT", "HUP", "USR1", "USR2"])
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


def test_a_second_signal_ends_the_grace_time(batch: Batch) -> None:
    batch.write("trap '' TERM; echo in >> ran; while :; do sleep 0.1; done")
    started = batch.begin("--grace", "1000")
    started.terminate()
    assert "SIGTERM" in batch.next_line(started)
    time.sleep(0.4)
    started.terminate()
    assert started.wait(30) == 128 + signal.SIGTERM
    assert batch.marked() == []


def test_a_signal_from_a_scheduler_and_its_shell_keeps_the_grace_time(
    batch: Batch,
) -> None:
    saves = "sleep 0.3; touch saved; exit 1"
    batch.write(f"trap '{saves}' TERM; echo in >> ran; while :; do sleep 0.1; done")
    started = batch.begin("--grace", "1000")
    started.terminate()
    assert "SIGTERM" in batch.next_line(started)
    started.terminate()
    assert started.wait(30) == 128 + signal.SIGTERM
    assert (batch.folder / "saved").exists()


HOLDER = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
held = bytearray(int(sys.argv[1]) << 20)
time.sleep(0.6)
open("ran", "a").write("daemon\\n")
"""


def test_a_daemon_belongs_to_its_task_and_ends_before_it(batch: Batch) -> None:
    (batch.folder / "holder.py").write_text(HOLDER)
    run = f"{sys.executable} holder.py"
    batch.write(f"{run} 50", f"{run} 120")
    assert batch.run("-j", "2").returncode == 0
    assert batch.ran() == ["daemon", "daemon"]
    peaks = [batch.record(task)["usage"]["peak_memory"]["value"] for task in (1, 2)]
    assert 50 << 20 < peaks[0] < 80 << 20
    assert 120 << 20 < peaks[1] < 150 << 20
    assert all(entry.wall_time > 0.6 for entry in batch.entries())


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "tasks.txt"),
        (b"", "no task in tasks.txt"),
        (b"\n# nothing\n", "no task in tasks.txt"),
        (b"true\n\necho 'a\n", "tasks.txt:3: a quote is never closed"),
        (b'echo "a\n', "tasks.txt:1: a quote is never closed"),
        (b"echo a \\\necho b\n", "or the line ends in a backslash"),
        (b"true\necho a\0b\n", "tasks.txt:2: a NUL byte"),
        ("true\n".encode("utf-16"), "UTF-16"),
        (b"#!/bin/sh\ntrue\n", "a script"),
        (b"#SBATCH --mem=1G\necho a >> ran\n", "tasks.txt:1 is a directive"),
        (b"echo a >> ran\n#$ -l h_rt=60\n", "tasks.txt:2 is a directive"),
    ],
)
def test_a_line_that_cannot_be_a_command_is_named_before_anything_starts(
    batch: Batch, text: bytes | None, complaint: str
) -> None:
    if text is not None:
        batch.tasks.write_bytes(text)
    finished = batch.run()
    assert finished.returncode == 2
    assert complaint in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
    assert batch.ran() == []
    assert not batch.joblog.exists()


def test_a_task_file_changed_while_it_runs_stops_the_launching(batch: Batch) -> None:
    first = "echo a >> ran; while [ ! -e go ]; do sleep 0.05; done"
    batch.write(first, "echo b >> ran")
    started = batch.begin("-j", "1")
    batch.write(first, "rm -r thing")
    (batch.folder / "go").touch()
    assert started.wait(30) == 125
    assert batch.ran() == ["a"]
    assert started.stderr is not None
    assert "was changed" in started.stderr.read()


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
    frees = "until [ -e ran ]; do sleep 0.05; done; sleep 0.5; rm small/fill; sleep 1"
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


def test_an_interrupt_that_comes_while_the_run_ends_cuts_off_no_summary(
    batch: Batch,
) -> None:
    (batch.folder / "sitecustomize.py").write_text(SIGNALLED_AT_THE_END)
    batch.write("echo in >> ran; sleep 100")
    started = batch.begin(PYTHONPATH=str(batch.folder))
    started.send_signal(signal.SIGINT)
    out, _ = started.communicate(timeout=60)
    assert started.returncode == 128 + signal.SIGINT
    assert "0 of 1 task done, 1 interrupted" in out


def test_killed_repeatedly_every_task_ends_and_none_runs_twice_at_once(
    batch: Batch,
) -> None:
    alone = "exec 9> lock.$PARALLEL_SEQ; flock -n 9 || echo twice >> ran"
    batch.write(*(f"{alone}; sleep 0.0{n % 10}; echo {n} >> ran" for n in range(40)))
    done: set[int] = set()
    for more in (1, 4, 9, 3, 8):
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


@pytest.mark.few(2)
@pytest.mark.parametrize("number", ["USR1", "USR2", "XCPU"])
@pytest.mark.parametrize("before", ["", "weigh run -- "])
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
