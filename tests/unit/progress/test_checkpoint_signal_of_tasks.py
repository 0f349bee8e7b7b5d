"""Whom ``weigh exec`` sends a task's checkpoint signal to."""

import signal
import subprocess
import sys
from pathlib import Path

from exec_contexts import exec_context
from msgspec.structs import replace

from weigh.measure.checkpoint_signal import CheckpointSignal
from weigh.runner.attempt import LaunchedAttempt, LoopState, TaskAttempt
from weigh.runner.progress_watch import ProgressWatch, TaskProgress
from weigh.runner.slots import RunSlot, TaskPlan

HANDLER = (
    "import signal; signal.signal(signal.SIGUSR1, lambda *_: print('sent'));"
    "print('ready', flush=True); input()"
)


class LaterTasks(TaskPlan):
    """A plan whose file begins with its seventh task."""

    def number_of(self, task_number: int) -> int:
        return task_number + 6


def test_a_process_with_the_number_of_a_leader_that_was_reaped_gets_nothing(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    context = replace(
        exec_context(tmp_path, notify=told.append, timeout=60.0),
        plan=LaterTasks(),
        checkpoint=CheckpointSignal(signal.SIGUSR1, 30.0),
    )
    with subprocess.Popen(
        (sys.executable, "-c", HANDLER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        attempt = TaskAttempt(
            1,
            1,
            b"true",
            RunSlot(1),
            launch=LaunchedAttempt(pid=other.pid),
            state=LoopState(status=0),
        )
        task = TaskProgress(attempt, context, None)
        ProgressWatch(context, {})._signal(task, 31.0)
        output, _ = other.communicate("\n")

    assert output == ""
    assert told == [
        "task 7: no process has a handler for USR1, 29.0 s to the time limit"
    ]
