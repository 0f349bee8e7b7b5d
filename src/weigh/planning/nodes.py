"""The command line of a task on several nodes: srun starts it once on each."""

import shlex

from weigh.planning.launchers import is_launcher
from weigh.planning.record_match import task_line_words

_STEP = (
    "srun --nodes={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 "
    "--cpus-per-task=$SLURM_CPUS_PER_TASK"
)
# torchrun reads PET_ variables for options not given; the runner adds the port
_PLACE = (
    "PET_NNODES=$SLURM_NNODES PET_NODE_RANK=$SLURM_NODEID PET_MASTER_ADDR=$MASTER_ADDR "
    'exec "$0" -P -m weigh run -q -- bash -c "$1"'
)


def line_run_on_nodes(task_line: bytes, node_count: int, python: str) -> bytes:
    """Return *task_line* so that each of *node_count* nodes runs it, measured by weigh.

    *python* is the interpreter with weigh. A line that starts its own processes (srun,
    mpirun) is returned unchanged.
    """
    text = task_line.decode("utf-8", "surrogateescape").rstrip("\n")
    if node_count == 1 or any(map(is_launcher, task_line_words(text))):
        return task_line
    # bash puts *python* into $0 and the task's line into $1, so that neither is parsed
    # again
    words = ("bash", "-c", _PLACE, python, text)
    started = f"{_STEP.format(nodes=node_count)} {shlex.join(words)}"
    return started.encode("utf-8", "surrogateescape")
