"""A pid namespace that shows the /proc of another one: its numbers are strangers'."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import WEIGH, Weigh

NEXT_PID = Path("/proc/sys/kernel/ns_last_pid")
WARNING = b"/proc shows another pid namespace: only the largest process counts"

# The shell is process 1. It starts a process with the number of a child of the test,
# and weigh with the number of the test itself: in /proc, one is the other's parent.
STRANGER = """
next=/proc/sys/kernel/ns_last_pid
echo $(($2 - 1)) >$next; sleep 60 & stranger=$!
[ $stranger = $2 ] || exit 90
echo $(($1 - 1)) >$next
shift 2
"$@" & weigh=$!
{signal}
wait $weigh
code=$?
kill -0 $stranger || exit 91
exit $code
"""


def test_the_largest_process_is_measured_and_no_stranger_waited_for_or_opened(
    weigh: Weigh, under_foreign_proc: tuple[str, ...]
) -> None:
    hold = f"{sys.executable} -c 'bytearray(200 << 20)'"
    job = ("sh", "-c", f"{hold}; echo out; echo err >&2; exit 7")
    done = weigh.run("--progress", "--", *job, prefix=under_foreign_proc)
    assert (done.returncode, done.stdout) == (7, b"out\n")
    assert b"err\n" in done.stderr
    assert WARNING in done.stderr
    assert b"behind" not in done.stderr
    assert weigh.record()["usage"]["max_process_memory"] > 200 << 20


@pytest.mark.parametrize("signal", ["", "sleep 1; kill -TERM $weigh"])
def test_no_process_of_another_namespace_is_signalled(
    weigh: Weigh, under_foreign_proc: tuple[str, ...], signal: str
) -> None:
    if not os.access(NEXT_PID, os.W_OK):
        pytest.skip("the next process id cannot be chosen here")
    job = ("sleep", "30") if signal else ("sh", "-c", "exit 7")
    with subprocess.Popen(["sleep", "60"]) as child:
        words = (
            *under_foreign_proc, "sh", "-c", STRANGER.replace("{signal}", signal), "sh",
            str(os.getpid()), str(child.pid),
        )  # fmt: skip
        options = () if signal else ("--no-wait-orphans",)
        done = weigh.run(*options, "--", *job, prefix=words)
        child.kill()
    assert done.returncode == (143 if signal else 7), done.stderr


def test_attach_refuses_where_it_cannot_distinguish_processes(
    weigh: Weigh, under_foreign_proc: tuple[str, ...]
) -> None:
    done = weigh.run("--attach", "1", prefix=under_foreign_proc)
    assert done.returncode != 0
    assert b"/proc shows another pid namespace" in done.stderr


@pytest.mark.parametrize("options", [(), ("--timeout", "20")])
def test_exec_runs_every_task_next_to_strangers(
    weigh: Weigh, under_foreign_proc: tuple[str, ...], options: tuple[str, ...]
) -> None:
    tasks = weigh.folder / "tasks.txt"
    tasks.write_text("sleep 0.1\nexit 3\n(sleep 0.2; touch late) &\n")
    done = subprocess.run(
        [*under_foreign_proc, *WEIGH, "exec", *options, "tasks.txt"],
        capture_output=True,
        env=weigh.env(),
        cwd=weigh.folder,
        timeout=60,
        check=False,
    )
    assert b"2 of 3 tasks done" in done.stdout, done.stderr
