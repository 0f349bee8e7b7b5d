"""Slurm's job steps: the one by which weigh watches a job on each of its nodes.

Facts from srun(1), and measured on Slurm 22.05: a step with ``--overlap --mem=0`` waits
for no resources and holds none back from the job's own steps, and its number is used up
only when it starts. Its output is not mixed within lines below 4 kB.
"""

from collections.abc import Mapping, Sequence

from weigh.schedulers import slurm as text
from weigh.schedulers.words import positive_number, whole_number

NODE = "SLURMD_NODENAME"
SAME: tuple[str, ...] = (text.JOB_VARIABLE, NODE)
_COMPONENTS = "SLURM_HET_SIZE"  # of a heterogeneous job
GROUP = "job_"  # and the job's number: the name of its control group
# one step's settings, inherited from the shell that a step started in, change another's
_SETTINGS_OF_STEPS = """
    SLURM_BCAST SLURM_CONSTRAINT SLURM_CONTAINER SLURM_CORE_SPEC SLURM_CPUS_PER_
    SLURM_CPU_BIND SLURM_DISTRIBUTION SLURM_EXACT SLURM_EXPORT SLURM_GRES SLURM_GPU
    SLURM_HINT SLURM_HOSTFILE SLURM_IMMEDIATE SLURM_LABELIO SLURM_MEM_
    SLURM_MPI_TYPE SLURM_NETWORK SLURM_NTASKS SLURM_NPROCS SLURM_RESV_PORTS
    SLURM_SEND_LIBS SLURM_STEP SLURM_TASKS_PER SLURM_TASK_ SLURM_THREAD SLURM_TRES
    SLURM_UNBUFFERED SLURM_WAIT SLURM_WHOLE SLURM_KILL_BAD_EXIT SLURM_EXCLUSIVE
    SLURM_OVERLAP SLURM_MULTI_PROG SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STDERRMODE
    SLURM_PROLOG SLURM_EPILOG SLURM_TIMELIMIT SLURM_RELATIVE
"""
# it waits for nothing, takes nothing from the job's own steps, and ends nothing
_OF_WATCHERS = """
    --overlap --ntasks-per-node=1 --cpus-per-task=1 --mem=0 --mpi=none --export=ALL
    --input=all --cpu-bind=none --no-kill --wait=0 --kill-on-bad-exit=0 --quiet
    --job-name=weigh
"""
_OF_STEPS = tuple(_SETTINGS_OF_STEPS.split())


def step_of(env: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return what all tasks of one srun have in common, and no other srun's."""
    step = env.get("SLURM_STEP_ID")
    if env.get(_COMPONENTS):  # each component has a port of its own
        return step, None
    # job ids are used again one day
    return step, env.get("SLURM_SRUN_COMM_PORT")


def node_of(env: Mapping[str, str], host_name: str) -> str | None:
    """Return the name of this node, the machine *host_name*, in the job of *env*.

    MPICH's daemons set the variable of the first node on all: where the job's nodes are
    called as their machines are, the machine's name counts.
    """
    name = host_name.partition(".")[0]
    if name in text.node_names(env.get("SLURM_JOB_NODELIST", "")):
        return name
    return env.get(NODE)


def nodes_of(env: Mapping[str, str]) -> int | None:
    """Return the number of the allocation's nodes; None outside a job."""
    if not env.get(text.JOB_VARIABLE):
        return None
    return (
        positive_number(env.get("SLURM_JOB_NUM_NODES"))
        or positive_number(env.get("SLURM_NNODES"))
        or 1
    )


def watch_argv(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    job: str | None = None,
    nodes: int | None = None,
) -> tuple[str, ...]:
    """Return the command that runs *command* once on each node of a job.

    That is the job of *env*; from outside of it, *job* on so many *nodes*.
    """
    components = positive_number(env.get(_COMPONENTS))
    count = nodes or nodes_of(env) or 1
    where = (
        (f"--het-group=0-{components - 1}",)
        if components and job is None
        else (f"--nodes={count}", f"--ntasks={count}")
    )
    # with GPUs the step sees those of the job, whose use weigh measures
    gpus = () if _has_gpus(env) else ("--gres=none",)
    of_job = () if job is None else (f"--jobid={job}",)
    return ("srun", *of_job, *where, *gpus, *_OF_WATCHERS.split(), *command)


def watch_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the settings of another step."""
    return {k: v for k, v in env.items() if not k.startswith(_OF_STEPS)}


def job_query() -> tuple[str, ...]:
    """Return the command that lists the user's jobs with the session of each."""
    fields = "JobID:24,AllocSID:24,NumNodes:24,StateCompact:24"
    return "squeue", "--me", "--noheader", "-O", fields


def parse_job(command_output: str, session: int) -> tuple[str, int] | None:
    """Read the running job that *session* allocated, and the number of its nodes.

    None if there is none, or several: then it is not known which is meant.
    """
    found = []
    for line in command_output.splitlines():
        words = line.split()
        if len(words) == 4 and words[1] == str(session) and words[3] == "R":  # noqa: PLR2004 - see job_query
            found.append((words[0], whole_number(words[2]) or 1))
    return found[0] if len(found) == 1 else None


def _has_gpus(env: Mapping[str, str]) -> bool:
    names = ("SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS", "SLURM_GPUS")
    return any(env.get(name) for name in names)
