"""What is asked before a job is submitted; a shell on a node."""

from pathlib import Path

from scheduler_scripts import GRIDENGINE, SLURM, Answers, answering
from sessions import check_session

from weigh.flow.here import here_of
from weigh.flow.site.cluster import live_limits
from weigh.flow.submit.checks import excluding_if_others_fit
from weigh.flow.submit.interactive import interactive
from weigh.model.job import JobRequest
from weigh.schedulers import KINDS
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.slurm import cluster as slurm_cluster

CONFIG = CommandOutput(0, "MaxArraySize = 1001\nEnforcePartLimits = NO\n")
CLUSTERS: dict[str, Answers] = {
    "slurm": SLURM | {slurm_cluster.CONFIG: CONFIG},
    "gridengine": GRIDENGINE,
}


def test_worked_examples_of_live_limits(tmp_path: Path) -> None:
    here = here_of(str(tmp_path), {"HOME": str(tmp_path)})

    def awaited(scheduler: str, *replies: CommandOutput) -> dict[str, str | None]:
        """Return how jobs 7 and 8 stand, by these replies of the scheduler."""
        argvs = KINDS[scheduler].backend.awaited_argvs(("7", "8"))
        ask = answering(
            {**CLUSTERS[scheduler], **dict(zip(argvs, replies, strict=True))}
        )
        return dict(live_limits(scheduler, ("7", "8"), env={}, run_command=ask).jobs)

    def questions(scheduler: str) -> list[tuple[str, ...]]:
        asked: list[tuple[str, ...]] = []
        ask = answering(CLUSTERS[scheduler], asked)
        live_limits(scheduler, (), env={}, run_command=ask)
        return asked

    def shell(scheduler: str, *command: str, **wanted: object) -> str:
        request = JobRequest(**({"cpus": 0} | wanted))  # type: ignore[arg-type]
        ask = answering(CLUSTERS[scheduler])
        words = {"scheduler": scheduler, "run_command": ask}
        return " ".join(interactive(here, request, command, **words).argv)  # type: ignore[arg-type]

    def excluded(scheduler: str, queue: str | None, *nodes: str) -> tuple[str, ...]:
        request = JobRequest(cpus=1, queue=queue, exclude=nodes)
        ask = answering(CLUSTERS["slurm"])
        return excluding_if_others_fit(here, request, scheduler, ask).exclude

    helpers = (awaited, questions, shell, excluded)
    names = {one.__name__: one for one in helpers} | {"CommandOutput": CommandOutput}
    check_session(Path(__file__).with_name("live_limits.session"), names)
