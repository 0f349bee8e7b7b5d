"""What is asked before a job is submitted; a shell on a node."""

import os
from pathlib import Path

import pytest
from scheduler_scripts import GRIDENGINE, SLURM, answering

from weigh.errors import UsageError
from weigh.flow.here import here_of
from weigh.flow.site.cluster import live_limits
from weigh.flow.submit.checks import excluding_if_others_fit
from weigh.flow.submit.interactive import interactive
from weigh.model.job import JobRequest
from weigh.schedulers import KINDS
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.units import GIB, HOUR

CLUSTER = SLURM | {
    slurm_cluster.CONFIG: CommandOutput(
        0, "MaxArraySize = 1001\nEnforcePartLimits = NO\n"
    ),
}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


def test_each_thing_is_queried_once_and_no_more(env: dict[str, str]) -> None:
    asked: list[tuple[str, ...]] = []
    live_limits("slurm", (), env=env, run_command=answering(CLUSTER, asked))
    assert len(asked) == len(set(asked)) == 3
    # a cell is asked about the GPUs of each host
    live_limits("gridengine", (), env=env, run_command=answering(GRIDENGINE, asked))
    assert gridengine_cluster.host_argv("rig") in asked


def of_squeue(*rows: str) -> CommandOutput:
    """Write rows of job, element, state."""
    return CommandOutput(
        0, "".join(f"{row}|N/A||None|(null)|(null)|.\n" for row in rows)
    )


def of_sacct(*rows: str) -> CommandOutput:
    """Write rows of job, state."""
    return CommandOutput(0, "".join(f"{row}|0:0|0:0|1|2|n1|None\n" for row in rows))


def of_qstat(job: str, letters: str) -> CommandOutput:
    row = f"<JB_job_number>{job}</JB_job_number><state>{letters}</state>"
    return CommandOutput(0, f"<job_info><job_list>{row}</job_list></job_info>")


NO_SUCH_JOB = CommandOutput(1, "", "slurm_load_jobs error: Invalid job id specified\n")
NOT_FOUND = CommandOutput(1, "", "error: job id 8 not found\n")
SILENT = CommandOutput(trouble="no answer")
FAILED_7 = "jobnumber 7\ntaskid undefined\nfailed 0\nexit_status 1\n"


@pytest.mark.parametrize(
    ("scheduler", "replies", "states"),
    [
        ("slurm", (NO_SUCH_JOB, of_sacct("7|FAILED")), {"7": "FAILED", "8": None}),
        # of an array the worst end counts, and what the queue lists goes on
        (
            "slurm",
            (
                of_squeue("7|0|RUNNING", "7|1|PENDING"),
                of_sacct("7_2|FAILED", "8_0|COMPLETED", "8_1|OUT_OF_MEMORY"),
            ),
            {"7": "PENDING", "8": "OUT_OF_MEMORY"},
        ),
        (
            "slurm",
            (of_squeue(), of_sacct("8|CANCELLED by 7")),
            {"7": None, "8": "CANCELLED"},
        ),
        # a job whose limit fell is listed twice
        (
            "slurm",
            (of_squeue(), of_sacct("7|RESIZING", "7|COMPLETED", "8|RESIZING")),
            {"7": "COMPLETED", "8": "RUNNING"},
        ),
        # unknown only if all answered
        ("slurm", (SILENT, of_sacct()), {}),
        ("slurm", (of_squeue("7|N/A|RUNNING"), SILENT), {"7": "RUNNING"}),
        (
            "gridengine",
            (of_qstat("9", "r"), CommandOutput(0, FAILED_7), NOT_FOUND),
            {"7": "FAILED", "8": None},
        ),
        ("gridengine", (of_qstat("8", "Eqw"), NOT_FOUND, SILENT), {"8": "PENDING"}),
    ],
)
def test_jobs_to_wait_for_have_their_worst_state(
    scheduler: str,
    replies: tuple[CommandOutput, ...],
    states: dict[str, str | None],
    env: dict[str, str],
) -> None:
    awaited = ("7", "8")
    argvs = KINDS[scheduler].backend.awaited_argvs(awaited)
    answers = (CLUSTER if scheduler == "slurm" else GRIDENGINE) | dict(
        zip(argvs, replies, strict=True)
    )

    live = live_limits(scheduler, awaited, env=env, run_command=answering(answers))

    assert live.jobs == states


def shell(env: dict[str, str], scheduler: str, *command: str, **wanted: object) -> str:
    answers = CLUSTER if scheduler == "slurm" else GRIDENGINE
    session = interactive(
        here_of(env["HOME"], env),
        JobRequest(**({"cpus": 0} | wanted)),  # type: ignore[arg-type]
        command,
        scheduler=scheduler,
        run_command=answering(answers),
    )
    return " ".join(session.argv)


def test_a_shell_under_grid_engine_is_qlogin_and_a_command_qrsh(
    env: dict[str, str],
) -> None:
    wanted = shell(env, "gridengine", queue="short.q", time_limit=HOUR // 4)
    with_gpu = shell(env, "gridengine", gpus=1)
    command = shell(env, "gridengine", "python3", "-c", "print(1)", memory=GIB)

    asks = "qlogin -now no -l h_vmem=6G -pe smp 2 -l h_rt=00:15:00 -q short.q"
    assert wanted == asks
    # one slot where each has a GPU of its own
    assert ("-l ngpus=1" in with_gpu, "-pe" in with_gpu) == (True, False)
    assert command.startswith("qrsh -pty yes -now no ")
    # a shell there reads it once more
    assert command.endswith(" python3 -c 'print(1)'")


def test_a_shell_that_no_node_can_give_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="the largest node of short has"):
        shell(env, "slurm", memory=900 * GIB)


@pytest.mark.parametrize(
    ("scheduler", "queue", "exclude", "is_kept"),
    [
        ("slurm", "gpu", ("node1",), True),
        ("slurm", "gpu", ("node1", "node2.site.org"), False),
        ("slurm", None, ("node1", "node2"), True),
        ("this machine", None, ("node1",), False),
    ],
)
def test_a_node_is_excluded_only_where_another_could_run_the_job(
    env: dict[str, str],
    scheduler: str,
    queue: str | None,
    exclude: tuple[str, ...],
    *,
    is_kept: bool,
) -> None:
    request = JobRequest(cpus=1, queue=queue, exclude=exclude)
    here = here_of("/", env)

    sent = excluding_if_others_fit(here, request, scheduler, answering(CLUSTER))

    assert sent.exclude == (exclude if is_kept else ())
