import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import (
    COUNTER,
    WEIGH,
    Counted,
    Terminal,
    Weigh,
    children_of,
    is_running,
    is_stopped,
    job_of,
    until,
)

from weigh.measure import signals

PROMPT = "PROMPT> "
CTRL_C, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x1a", "\x1c"
RUN = " ".join([*WEIGH, "run", "-q", "--"])


@pytest.fixture
def shell(weigh: Weigh) -> Terminal:
    """Give bash on a terminal, at its first prompt."""
    shell = weigh.shell()
    shell.expect(PROMPT)
    return shell


def _exit_code(shell: Terminal) -> int:
    shell.expect(PROMPT)
    shell.type("echo code=$?\n")
    return int(shell.expect(r"code=(\d+)")[1])


def _weigh_under(shell: Terminal) -> int:
    return until(lambda: children_of(shell.pid), "weigh to start")[0]


def _counted(weigh: Weigh, *typed: str) -> tuple[Terminal, Counted]:
    """Run the job that notes its signals, alone on a terminal."""
    notes = weigh.folder / "signals"
    argv = [*WEIGH, "run", "-q", *typed, "--", sys.executable, "-c", COUNTER]
    terminal = weigh.terminal(*argv, str(notes))
    return terminal, Counted(terminal, notes)


@pytest.mark.parametrize(
    ("key", "name"),
    [(CTRL_C, "INT"), (CTRL_BACKSLASH, "QUIT"), (CTRL_Z, "TSTP")],
)
def test_a_typed_signal_reaches_the_job_once(weigh: Weigh, key: str, name: str) -> None:
    terminal, job = _counted(weigh)
    for count in (1, 2):
        terminal.type(key)
        job.wait_for(name, count)
    assert job.finish() == {name: 2}
    assert terminal.wait() == 3


# What stays where no witness can be had: no second process allowed, say.
ALONE = """
import sys
from weigh.measure import signals
from weigh.measure.command import run_command
from weigh.measure.watcher import WatchSettings
def refuse():
    raise BlockingIOError
signals.SignalWitness = refuse
sys.exit(run_command(sys.argv[1:], {}, WatchSettings(), []).exit_code)
"""


def test_without_a_witness_the_terminals_signals_still_come_once(
    weigh: Weigh,
) -> None:
    notes = weigh.folder / "signals"
    job = (sys.executable, "-c", COUNTER, str(notes))
    terminal = weigh.terminal(sys.executable, "-c", ALONE, *job)
    counted = Counted(terminal, notes)
    terminal.type(CTRL_C)
    counted.wait_for("INT")
    os.kill(terminal.pid, signal.SIGTERM)
    counted.wait_for("TERM")
    assert counted.finish() == {"INT": 1, "TERM": 1}


def test_a_new_window_size_reaches_the_job_once(weigh: Weigh) -> None:
    terminal, job = _counted(weigh)
    before = job.counts()["WINCH"]  # the first size may come while weigh starts
    terminal.resize(40, 100)
    job.wait_for("WINCH", before + 1)
    assert job.finish() == {"WINCH": before + 1}


def test_closing_the_window_hangs_up_once(weigh: Weigh) -> None:
    terminal, job = _counted(weigh)
    job.wait_for_witness()
    terminal.hang_up()
    job.wait_for("HUP")
    assert job.finish()["HUP"] == 1


def test_ctrl_c_ends_the_job_with_130(weigh: Weigh, shell: Terminal) -> None:
    shell.type(f"{RUN} sleep 60\n")
    job_of(_weigh_under(shell), "sleep")
    shell.type(CTRL_C)
    assert _exit_code(shell) == 130
    assert weigh.record()["state"] == "CANCELLED"


def test_ctrl_c_before_the_job_runs_leaves_nothing(
    weigh: Weigh, shell: Terminal
) -> None:
    shell.type(f"{RUN} sleep 60\n")
    pid = _weigh_under(shell)
    until(lambda: children_of(pid), "weigh to be more than an interpreter")
    shell.type(CTRL_C)
    assert _exit_code(shell) == 130
    until(lambda: not is_running(pid) and weigh.left() == [shell.pid])


def test_ctrl_z_and_fg_work(shell: Terminal) -> None:
    shell.type(f"{RUN} sh -c 'sleep 60 & wait; exit 6'\n")
    own = _weigh_under(shell)
    job = job_of(own, "sh")
    (sleep,) = until(lambda: children_of(job))
    for _ in range(2):
        shell.type(CTRL_Z)
        shell.expect("Stopped")
        shell.expect(PROMPT)
        until(lambda: all(map(is_stopped, (own, job, sleep))), "all to stop")
        shell.type("fg\n")
        until(lambda: not any(map(is_stopped, (own, job, sleep))), "fg")
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    shell.type("bg\n")
    until(lambda: not any(map(is_stopped, (own, job, sleep))), "bg")
    shell.type(f"kill {sleep}; wait %1\n")
    shell.expect("Exit 6")


FROM_TERMINAL, FROM_PROCESS = 0x80, 0  # SI_KERNEL, SI_USER


@pytest.mark.parametrize(
    ("taken", "sender", "noted", "is_for_the_job"),
    [
        # of two that wait the kernel keeps the later one, in the witness as well: the
        # earlier one, passed on, would reach the job a second time, after the later
        (signal.SIGCONT, FROM_PROCESS, signal.SIGTSTP, False),
        (signal.SIGTSTP, FROM_PROCESS, signal.SIGCONT, False),
        # a key typed just before there was a witness
        (signal.SIGQUIT, FROM_TERMINAL, 0, False),
        (signal.SIGHUP, FROM_TERMINAL, 0, True),  # to the leader of its session alone
        (signal.SIGQUIT, FROM_PROCESS, 0, True),
    ],
)
def test_what_the_witness_noted_and_who_sent_it_decide_what_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
    taken: int,
    sender: int,
    noted: int,
    *,
    is_for_the_job: bool,
) -> None:
    witness = SimpleNamespace(pid=0, noted=lambda: {noted}, close=lambda: None)
    monkeypatch.setattr(signals, "SignalWitness", lambda: witness)
    info: Any = SimpleNamespace(si_signo=taken, si_code=sender, si_pid=1)
    wakeup = signals.SignalWakeup()
    try:
        wakeup.call_witness()
        assert wakeup.is_for_the_job(info, []) == is_for_the_job
    finally:
        wakeup.close()


@pytest.mark.parametrize("name", ["TSTP", "STOP"])
def test_the_shells_kill_and_fg_work_on_a_job_in_the_background(
    shell: Terminal, name: str
) -> None:
    shell.type(f"{RUN} sh -c 'sleep 60 & wait; exit 6' &\n")
    own = _weigh_under(shell)
    job = job_of(own, "sh")
    (sleep,) = until(lambda: children_of(job))
    shell.type(f"kill -{name} %1\n")
    until(lambda: is_stopped(own) and is_stopped(job), "both to stop")
    shell.type("jobs\n")
    shell.expect("Stopped")
    shell.type("fg\n")
    until(lambda: not is_stopped(own) and not is_stopped(job), "fg")
    os.kill(sleep, signal.SIGTERM)
    assert _exit_code(shell) == 6


def test_a_reader_in_the_background_stops_until_fg(shell: Terminal) -> None:
    shell.type(f"{RUN} sh -c 'read line; exit 6' &\n")
    own = _weigh_under(shell)
    job = job_of(own, "sh")
    until(lambda: is_stopped(own) and is_stopped(job), "the reader to stop")
    shell.type("fg\n")
    until(lambda: not is_stopped(own) and not is_stopped(job), "fg")
    shell.type("\n")
    assert _exit_code(shell) == 6


# what a person types, and what the screen shows after it; a Ctrl-C drops what was not
# yet read
TALKS: dict[str, tuple[list[tuple[str, str]], int]] = {
    "a program that stops itself gives the shell back": (
        [
            (f"{RUN} sh -c 'kill -STOP $$; exit 6'\n", "Stopped"),
            ("", PROMPT),
            ("fg\n", ""),
        ],
        6,
    ),
    "weigh in weigh stops and goes on": (
        [
            (f"{RUN} {RUN} sh -c 'echo up; read line; exit 6'\n", "\nup"),
            (CTRL_Z, "Stopped"),
            ("fg\n\n", ""),
        ],
        6,
    ),
    "python is interactive under weigh": (
        [
            (f"{RUN} {sys.executable} -q\n", ">>> "),
            ("6 * 7\n", "42"),
            ("", ">>> "),
            (
                "import time; [time.sleep(0.01) for _ in iter(int, 1)]\n",
                r"iter\(int, 1\)\]\r?\n",
            ),
            (CTRL_C, "KeyboardInterrupt"),
            ("", ">>> "),
            ("raise SystemExit(8)\n", ""),
        ],
        8,
    ),
}


def talk(shell: Terminal, *lines: tuple[str, str]) -> int:
    """Type each line and wait for what it shows; return the exit code at the end."""
    for typed, shown in lines:
        shell.type(typed)
        shell.expect(shown)
    return _exit_code(shell)


@pytest.mark.parametrize("what", TALKS)
def test_at_a_terminal(shell: Terminal, what: str) -> None:
    lines, code = TALKS[what]
    assert talk(shell, *lines) == code


@pytest.mark.skipif(not shutil.which("less"), reason="no less here")
@pytest.mark.parametrize("line", [f"{RUN} less text", f"cat text | {RUN} less"])
def test_less_pages(weigh: Weigh, shell: Terminal, line: str) -> None:
    lines = "".join(f"line {n} end\n" for n in range(1, 101))
    Path(weigh.folder / "text").write_text(lines)
    pages = (("G", "line 100 end"), ("?line 50 \n", "line 60 end"), ("q", ""))
    assert talk(shell, (f"{line}\n", "line 20 end"), *pages) == 0
