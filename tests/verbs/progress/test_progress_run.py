"""``weigh run`` reads along: streams stay as they are, and what is found is right."""

import os
import random
import signal
import subprocess
import sys
from typing import Any

import pytest
from processes import HASTY_WEIGH, PATIENCE, Terminal, Weigh, until

PYTHON = sys.executable
IN_A_JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "job"}
STEPS = """
import time
for n in range(60):
    print('step', n + 1, 'of 60', flush=True)
    time.sleep(0.02)
"""
SLOW = STEPS.replace("60", "2000")


FACTS = "import os; print(os.isatty(1), os.isatty(2), *os.get_terminal_size(1))\n"
BAR = """
import time
from tqdm import tqdm
for _ in tqdm(range(60), mininterval=0.02): time.sleep(0.01)
"""


def progress_of(weigh: Weigh) -> Any:
    return weigh.record()["progress"]


def run_into_a_file(
    weigh: Weigh, *command: str, env: dict[str, str]
) -> "subprocess.CompletedProcess[bytes]":
    """Run weigh on *command*, with a file for its output."""
    with (weigh.folder / "log").open("wb") as log:
        return weigh.run("--", *command, stdout=log, env=env)


def in_a_job_with_squeue(weigh: Weigh, script: str) -> dict[str, str]:
    """Return the environment of a job, in which *script* is the scheduler's answer."""
    squeue = weigh.folder / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text(f"#!/bin/sh\n{script}\n")
    squeue.chmod(0o755)
    return weigh.env(**IN_A_JOB, PATH=f"{squeue.parent}:{os.environ['PATH']}")


def on_a_terminal(weigh: Weigh, *words: str, **variables: str) -> Terminal:
    return weigh.terminal(*HASTY_WEIGH, "run", *words, **variables)


def test_a_bar_in_a_batch_jobs_file_is_read_unasked(weigh: Weigh) -> None:
    pytest.importorskip("tqdm")
    job = BAR.replace("tqdm(", "tqdm(file=sys.stdout, iterable=")
    env = weigh.env(**IN_A_JOB)
    done = run_into_a_file(weigh, PYTHON, "-c", f"import sys{job}", env=env)
    assert done.returncode == 0
    found = progress_of(weigh)
    assert (found["done"], found["total"], found["source"]) == (60, 60, "tqdm")


def test_a_file_outside_of_a_job_is_not_read_unasked(weigh: Weigh) -> None:
    env = {k: v for k, v in weigh.env().items() if not k.startswith(("SLURM", "SGE"))}
    run_into_a_file(weigh, PYTHON, "-c", STEPS, env=env)
    assert progress_of(weigh) is None


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ((), "'step', n + 1, 'of 60'"),
        ((r"<(?P<done>\d+)\|(?P<total>\d+)>",), "f'<{n + 1}|60>'"),
    ],
)
def test_a_pipe_is_read_on_request_also_by_a_pattern_of_the_users_own(
    weigh: Weigh, pattern: tuple[str, ...], line: str
) -> None:
    job = STEPS.replace("'step', n + 1, 'of 60'", line)
    done = weigh.run("--progress", *pattern, "--", PYTHON, "-c", job)
    assert done.stdout.splitlines()[-1] in {b"step 60 of 60", b"<60|60>"}
    assert (progress_of(weigh)["done"], progress_of(weigh)["total"]) == (60, 60)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--progress", "("), b"not a regular expression: '('"),
        (("--checkpoint-signal", "KILL@1m"), b"'KILL' is no signal for this"),
        (
            ("--checkpoint-signal", "USR1@1s", "--attach", "1"),
            b"--attach reads no output: leave out --checkpoint-signal",
        ),
    ],
)
def test_what_cannot_be_read_or_sent_is_refused_before_the_job(
    weigh: Weigh, words: tuple[str, ...], error: bytes
) -> None:
    job = () if "--attach" in words else ("--", "touch", "ran")
    done = weigh.run(*words, *job)
    assert done.returncode == 125
    assert error in done.stderr
    assert not (weigh.folder / "ran").exists()


def test_a_bar_on_a_terminal_of_the_users_size_is_read(weigh: Weigh) -> None:
    pytest.importorskip("tqdm")
    terminal = on_a_terminal(weigh, "--progress", "--", PYTHON, "-c", FACTS + BAR)
    terminal.expect("True True 80 24")
    assert terminal.wait() == 0
    assert "60/60" in terminal.shown
    assert progress_of(weigh)["source"] == "tqdm"


def test_on_a_terminal_one_line_shows_how_far_the_run_is(weigh: Weigh) -> None:
    job = SLOW.replace("0.02", "0.1")
    terminal = on_a_terminal(weigh, "--progress", "--", PYTHON, "-c", job)
    terminal.expect(r"\r\x1b\[Kweigh  [^\n]*: \d+ of 2000 steps[^\n]*, left \d")
    # erased before the job's next line
    terminal.expect(r"\r\x1b\[Kstep \d+ of 2000\r\n")
    terminal.type("\x03")
    terminal.wait()
    _, _, summary = terminal.shown.rpartition("weigh  CANCELLED")
    assert "steps" in summary
    drawn = [one for one in terminal.shown.split("\x1b[K") if one.startswith("weigh  ")]
    assert all(len(one.rstrip("\r")) < 80 for one in drawn if "left" in one)


def test_a_run_that_prints_nothing_is_seen_to_run(weigh: Weigh) -> None:
    terminal = on_a_terminal(weigh, "--progress", "--", "sleep", "30")
    terminal.expect("no progress in its output yet")
    terminal.type("\x03")
    terminal.wait()


@pytest.mark.parametrize(("quiet", "term"), [(("-q",), "xterm"), ((), "dumb")])
def test_no_line_is_drawn_where_it_could_not_be_erased_or_is_switched_off(
    weigh: Weigh, quiet: tuple[str, ...], term: str
) -> None:
    words = (*quiet, "--progress", "--", "sh", "-c", "sleep 1; echo end")
    terminal = weigh.terminal("env", f"TERM={term}", *HASTY_WEIGH, "run", *words)
    assert terminal.wait() == 0
    assert "end" in terminal.shown
    assert "\x1b[K" not in terminal.shown
    assert "in its output" not in terminal.shown


def test_every_byte_gets_through_the_terminal(weigh: Weigh) -> None:
    # bytes that the test's own reading of a terminal can distinguish
    sent = bytes(byte & 0x7F for byte in random.Random(7).randbytes(300_000))
    noise = weigh.folder / "noise"
    noise.write_bytes(sent)
    terminal = on_a_terminal(weigh, "-q", "--progress", "--", "cat", str(noise))
    assert terminal.wait() == 0
    # what the user's own terminal makes of a newline, once
    assert terminal.shown.encode() == sent.replace(b"\n", b"\r\n")


def test_stdout_and_stderr_stay_apart_and_the_copier_ends_with_the_job(
    weigh: Weigh,
) -> None:
    script = "echo out; echo err >&2; exit 5"
    done = weigh.run("-q", "--progress", "--", "sh", "-c", script)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 5)
    until(lambda: not weigh.left(), "all to be gone")


def test_a_reader_that_has_enough_ends_the_job(weigh: Weigh) -> None:
    line = " ".join([*HASTY_WEIGH, "run -q --progress -- yes | head -n 1"])
    done = subprocess.run(
        ["bash", "-c", line],
        check=False,
        capture_output=True,
        env=weigh.env(),
        cwd=weigh.folder,
        timeout=PATIENCE,
    )
    assert done.stdout == b"y\n"
    until(lambda: not weigh.left(), "yes to end")


def test_the_job_goes_on_and_is_read_when_weigh_is_killed(weigh: Weigh) -> None:
    job = "import time\nprint('begin', flush=True)\ntime.sleep(1)\nprint('end')\n"
    process = weigh.start(
        *("run", "--progress", "--", PYTHON, "-c", job), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begin\n"
    os.kill(process.pid, signal.SIGKILL)
    assert process.stdout.read() == b"end\n"


def test_a_new_window_size_reaches_the_job(weigh: Weigh) -> None:
    job = (
        "import os, signal\n"
        "def show(*_):\n"  # two may come at once: print() is not reentrant
        "    os.write(1, b'now %d %d\\n' % os.get_terminal_size(1))\n"
        "signal.signal(signal.SIGWINCH, show)\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    terminal = on_a_terminal(weigh, "-q", "--progress", "--", PYTHON, "-c", job)
    terminal.expect("ready")
    terminal.resize(30, 100)
    terminal.expect("now 100 30")


@pytest.mark.parametrize("is_behind_a_shell", [False, True])
def test_a_checkpoint_signal_comes_before_the_limit(
    weigh: Weigh, *, is_behind_a_shell: bool
) -> None:
    script = weigh.folder / "job.py"
    script.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))\n"
        "signal.pause()\n"
    )
    shell = ("sh", "-c", f"{PYTHON} {script}; exit $?")
    command = shell if is_behind_a_shell else (PYTHON, str(script))
    done = weigh.run("--time", "4s", "--checkpoint-signal", "USR1@2s", "--", *command)
    assert done.returncode == 9
    assert b"sent USR1" in done.stderr


def test_a_program_without_a_handler_is_not_ended_by_the_signal(weigh: Weigh) -> None:
    limit = ("--time", "1s", "--checkpoint-signal", "USR1@500ms")
    done = weigh.run(*limit, "--", "sleep", "2.5")
    assert done.returncode == 0
    assert b"USR1 not sent: no process has a handler for it\n" in done.stderr


def test_a_stalled_job_is_reported_once(weigh: Weigh) -> None:
    env = weigh.env(**IN_A_JOB, WEIGH_STALLED_AFTER="1")
    done = run_into_a_file(weigh, "sleep", "2.5", env=env)
    assert done.stderr.count(b"no output and no CPU time for ") == 1


def test_a_job_runs_though_no_copier_can_be_made(weigh: Weigh) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (7, 7)); "
    start = "import runpy; runpy.run_module('weigh', run_name='__main__', alter_sys=1)"
    argv = (PYTHON, "-c", few + start, "run", "--progress", "--", "echo", "there")
    done = subprocess.run(
        argv, env=weigh.env(), cwd=weigh.folder, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"there\n")
    assert b"cannot read the output: Too many open files" in done.stderr


def test_a_scheduler_that_does_not_answer_holds_nothing_up_and_a_file_is_only_read(
    weigh: Weigh,
) -> None:
    env = in_a_job_with_squeue(weigh, "exec sleep 60")
    run_into_a_file(weigh, PYTHON, "-c", STEPS, env=env)
    record = weigh.record()
    assert record["progress"]["done"] == 60
    assert record["usage"]["processes"] == 1
    # the job writes where its own descriptor stands: moved, a line would be torn
    lines = [f"step {n} of 60" for n in range(1, 61)]
    assert (weigh.folder / "log").read_text().splitlines() == lines


def test_a_limit_that_only_slurm_knows_is_warned_about(weigh: Weigh) -> None:
    env = in_a_job_with_squeue(weigh, "echo 0:02")
    done = run_into_a_file(weigh, PYTHON, "-c", STEPS.replace("60", "150"), env=env)
    assert done.stderr.count(b"will not end before the time limit") == 1
