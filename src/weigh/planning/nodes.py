"""The command line of a task on several nodes: srun starts it once on each."""

import shlex

from weigh.planning.launchers import is_launcher
from weigh.planning.record_match import words_of

_STEP = (
    "srun --nodes={nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 "
    "--cpus-per-task=$SLURM_CPUS_PER_TASK"
)
# torchrun reads PET_ variables for options not given; the runner adds the port
_PLACE = (
    "PET_NNODES=$SLURM_NNODES PET_NODE_RANK=$SLURM_NODEID PET_MASTER_ADDR=$MASTER_ADDR "
    'exec "$0" -P -m weigh run -q -- bash -c "$1"'
)


def on_nodes(line: bytes, nodes: int, python: str) -> bytes:
    """Return *line* so that each of *nodes* nodes runs it, measured by weigh.

    *python* is the interpreter with weigh. A line that starts its own processes (srun,
    mpirun) is returned unchanged.
    """
    text = line.decode("utf-8", "surrogateescape").rstrip("\n")
    if nodes == 1 or any(map(is_launcher, words_of(text))):
        return line
    words = ("bash", "-c", _PLACE, python, text)
    started = f"{_STEP.format(nodes=nodes)} {shlex.join(words)}"
    return started.encode("utf-8", "surrogateescape")
