"""What is kept of a scheduler's answers, and for how long."""

from pathlib import Path
from typing import Any

import pytest
from sessions import check_session
from some_requests import a_submitted_job

from weigh.model.job import SubmittedJob
from weigh.schedulers import KINDS
from weigh.schedulers.client import (
    SchedulerClient,
    SchedulerPoll,
    SchedulerReach,
    save_poll,
)
from weigh.schedulers.command import CommandOutput
from weigh.units import DAY

NOW = 100.0 * DAY
Answer = str | CommandOutput | Exception


class KeptAnswers:
    """A store, and a scheduler whose commands print what a call has them print."""

    def __init__(self, folder: Path, scheduler: str, poll: SchedulerPoll) -> None:
        self.root, self.scheduler = str(folder), scheduler
        self.asked: list[str] = []
        self.meanwhile: Any = lambda: None  # happens once, while a command is asked
        save_poll(self.root, scheduler, poll)

    def client(self, **answers: Answer) -> SchedulerClient:
        """Return a client; commands without an answer print nothing."""

        def run(argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
            self.asked.append(argv[0])
            happens, self.meanwhile = self.meanwhile, lambda: None
            happens()
            answer = answers.get(argv[0], "")
            if isinstance(answer, Exception):
                raise answer
            return CommandOutput(0, answer) if isinstance(answer, str) else answer

        reach = SchedulerReach(
            run=run, env={}, root=self.root, user="me", clock=lambda: NOW
        )
        return SchedulerClient(KINDS[self.scheduler], reach)

    def states(
        self, *jobs: SubmittedJob, fresh: bool = False, **answers: Answer
    ) -> list[str]:
        """Return the states of all elements; ``asked`` has the commands for them."""
        self.asked.clear()
        snapshot = self.client(**answers).states(jobs, fresh=fresh)
        return [
            snapshot.of(job, number).state
            for job in jobs
            for number in range(job.elements)
        ]


def test_worked_examples_of_kept_answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def a_store(scheduler: str = "slurm", **poll: Any) -> KeptAnswers:
        folder = tmp_path_factory.mktemp("kept")
        return KeptAnswers(folder, scheduler, SchedulerPoll(**poll))

    def job(age: float, **known: object) -> SubmittedJob:
        return a_submitted_job(submitted=NOW - age, **known)

    names = {"DAY": DAY, "NOW": NOW, "a_store": a_store, "job": job}
    check_session(Path(__file__).with_name("kept_answers.session"), names)
