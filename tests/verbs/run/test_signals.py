import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from processes import (
    PATIENCE,
    PORTABLE_WEIGH,
    WEIGH,
    Weigh,
    children_of,
    is_stopped,
    job_of,
    pending_signals,
    until,
)

PASSED_ON = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "CONT", "TSTP", "XCPU"]


def _number(name: str) -> signal.Signals:
    return signal.Signals[f"SIG{name}"]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", PASSED_ON)
def test_a_signal_to_weigh_reaches_the_job_once(weigh: Weigh, name: str) -> None:
    job = weigh.count_signals("-q")
    os.kill(job.weigh.pid, _number(name))
    job.wait_for(name)
    if name == "TSTP":  # the job only noted it
        assert not is_stopped(job.weigh.pid)
    assert job.finish() == {name: 1}
    assert job.weigh.wait(PATIENCE) == 3


# a job that writes a line for each signal, until it can read one
COUNTS = r"""
import os, signal, sys
got = []
def take(*_):
    got.append(1)
    os.write(1, b"got\n")  # print may be at work when the signal comes
signal.signal(signal.SIG{}, take)
print("ready", flush=True)
sys.stdin.readline()
sys.exit(40 + len(got))
"""


@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1", "USR2", "INT"])
def test_where_psutil_measures_a_signal_is_passed_on_once_and_int_left_to_the_terminal(
    weigh: Weigh, name: str
) -> None:
    weigh.program = PORTABLE_WEIGH
    job = (sys.executable, "-c", COUNTS.format(name))
    process, out = weigh.start_ready("-q", "--", *job, stdin=subprocess.PIPE)
    process.send_signal(_number(name))
    until(lambda: not pending_signals(process.pid) & 1 << _number(name) - 1)
    if name != "INT":
        assert out.readline() == b"got\n"
    process.communicate(b"\n")
    assert process.returncode == (40 if name == "INT" else 41)
    is_end = name in {"TERM", "HUP"}
    assert weigh.record()["state"] == ("CANCELLED" if is_end else "FAILED")


@pytest.mark.parametrize("name", ["TERM", "INT", "TSTP"])
def test_a_signal_to_the_whole_group_reaches_the_job_once(
    weigh: Weigh, name: str
) -> None:
    job = weigh.count_signals("-q", process_group=0)
    job.wait_for_witness()
    os.killpg(job.weigh.pid, _number(name))
    job.wait_for(name)
    assert job.finish() == {name: 1}


AT_ONCE = 0.02  # seconds, in which one sender signals all processes


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_scheduler_that_signals_every_process_reaches_the_job_once(
    weigh: Weigh, name: str
) -> None:
    for last in reversed(range(3)):
        job = weigh.count_signals("-q")
        job.wait_for_witness()
        began = time.monotonic()
        for pid in (job.weigh.pid, *children_of(job.weigh.pid)):
            os.kill(pid, _number(name))
        took = time.monotonic() - began
        job.wait_for(name)
        seen = job.finish()
        if took < AT_ONCE or seen == {name: 1} or not last:
            assert seen == {name: 1}
            return


def test_a_signal_to_the_group_does_not_swallow_the_next_to_weigh(weigh: Weigh) -> None:
    job = weigh.count_signals("-q", process_group=0)
    job.wait_for_witness()
    os.killpg(job.weigh.pid, signal.SIGUSR1)
    job.wait_for("USR1")
    os.kill(job.weigh.pid, signal.SIGUSR2)  # weigh has seen to USR1 when this is there
    job.wait_for("USR2")
    os.kill(job.weigh.pid, signal.SIGUSR1)
    job.wait_for("USR1", 2)
    assert job.finish() == {"USR1": 2, "USR2": 1}


GRACEFUL = """
import signal, sys
def end(number, frame): sys.exit(int(sys.argv[1]))
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True: signal.pause()
"""


@pytest.mark.parametrize(
    ("code", "state"), [(5, "CANCELLED"), (0, "COMPLETED"), (143, "CANCELLED")]
)
def test_a_job_that_ends_itself_on_term_keeps_its_exit_code(
    weigh: Weigh, code: int, state: str
) -> None:
    job = (sys.executable, "-c", GRACEFUL, str(code))
    process, _ = weigh.start_ready("-q", "--", *job)
    process.terminate()
    assert process.wait(PATIENCE) == code
    assert weigh.record()["state"] == state


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_job_that_a_passed_on_signal_ends_is_recorded(
    weigh: Weigh, name: str
) -> None:
    process = weigh.start("run", "-q", "--", "sleep", "60")
    job_of(process.pid, "sleep")
    process.send_signal(_number(name))
    assert process.wait(PATIENCE) == 128 + _number(name)
    record = weigh.record()
    assert record["signal"] == _number(name)
    assert record["state"] == ("FAILED" if name == "USR1" else "CANCELLED")
    assert not weigh.left()


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_signal_that_ends_the_whole_group_still_leaves_a_record(
    weigh: Weigh, name: str
) -> None:
    process = weigh.start("run", "-q", "--", "sleep", "60", process_group=0)
    job_of(process.pid, "sleep")
    until(lambda: len(children_of(process.pid)) > 1, "the witness")
    while process.poll() is None:  # a sender that insists
        os.killpg(process.pid, _number(name))
        time.sleep(0.001)
    assert process.returncode in (128 + _number(name), -_number(name))
    assert weigh.record()["signal"] == _number(name)


@pytest.mark.parametrize("delay", [0, 0.02, 0.04, 0.09])
def test_term_at_any_moment_leaves_nothing_running(weigh: Weigh, delay: float) -> None:
    process = weigh.start("run", "-q", "--repeat", "3", "--", "sleep", "60")
    time.sleep(delay)
    process.terminate()
    assert process.wait(PATIENCE) in (143, -15)
    until(lambda: not weigh.left(), "everything to end")


def test_repeats_end_with_a_job_that_was_stopped(weigh: Weigh) -> None:
    job = (sys.executable, "-c", GRACEFUL, "0")
    process, out = weigh.start_ready("-q", "--repeat", "3", "--", *job)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert out.read() == b""


def test_a_signal_to_the_group_leaves_the_repeats_to_come(weigh: Weigh) -> None:
    words = ("-q", "--repeat", "2", "--", sys.executable, "-c")
    script = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1});"
        "print('ready', flush=True); signal.sigwait({signal.SIGUSR1})"
    )
    process, out = weigh.start_ready(*words, script, process_group=0)
    os.killpg(process.pid, signal.SIGUSR1)
    assert out.readline() == b"ready\n"
    os.killpg(process.pid, signal.SIGUSR1)
    assert process.wait(PATIENCE) == 0


@pytest.mark.skipif(not shutil.which("nohup"), reason="no nohup here")
def test_under_nohup_a_hang_up_changes_nothing(each_weigh: Weigh) -> None:
    job = ("sh", "-c", "echo; read line; exit 4")
    pipe = {"stdin": subprocess.PIPE, "process_group": 0}
    process, _ = each_weigh.start_ready("-q", "--", *job, prefix=["nohup"], **pipe)
    os.killpg(process.pid, signal.SIGHUP)
    os.kill(process.pid, signal.SIGHUP)
    process.communicate(b"\n")
    assert process.returncode == 4
    assert each_weigh.record()["state"] == "FAILED"


def test_in_the_background_of_a_script_int_stays_ignored(weigh: Weigh) -> None:
    inner = " ".join([*WEIGH, "run", "-q", "--", "sh", "-c", "'echo; read l; exit 4'"])
    script = f"exec 3<&0; {inner} <&3 & echo $! >&2; wait $!; echo code $?"
    with subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=weigh.env(),
        cwd=weigh.folder,
    ) as shell:
        assert shell.stdout is not None
        assert shell.stderr is not None
        pid = int(shell.stderr.readline())
        shell.stdout.readline()
        os.kill(pid, signal.SIGINT)
        until(lambda: not pending_signals(pid) & 1 << signal.SIGINT - 1)
        assert shell.communicate(b"\n", timeout=PATIENCE)[0] == b"code 4\n"


def test_stopped_for_long_and_continued_weigh_goes_on_next_to_a_stopped_job(
    weigh: Weigh,
) -> None:
    # longer than weigh ever sleeps: then its wait for a signal ends with none
    process = weigh.start("run", "-q", "--", "sleep", "60", process_group=0)
    job = job_of(process.pid, "sleep")
    os.kill(job, signal.SIGTSTP)  # the job on its own: weigh still listens
    until(lambda: is_stopped(job))
    process.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(process.pid), "weigh to stop")
    time.sleep(1.2)
    process.send_signal(signal.SIGCONT)
    until(lambda: not is_stopped(process.pid), "weigh to go on")
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    os.kill(job, signal.SIGCONT)
    assert process.wait(PATIENCE) == 143


@pytest.mark.skipif(not shutil.which("timeout"), reason="no timeout here")
def test_the_term_of_timeout_reaches_the_job_once(weigh: Weigh) -> None:
    job = weigh.count_signals("-q", prefix=["timeout", "600"])
    (own,) = until(lambda: children_of(job.weigh.pid))
    job.wait_for_witness(own)
    os.kill(job.weigh.pid, signal.SIGALRM)  # its time is over
    job.wait_for("TERM")
    assert job.finish(own) == {"TERM": 1, "CONT": job.counts()["CONT"]}
    assert job.weigh.wait(PATIENCE) == 124
