"""Which command frees the elements of a job that are held."""

from pathlib import Path

import pytest
from some_requests import a_submitted_job

from weigh.flow.follow.healing import healing_of
from weigh.flow.follow.view import JobView, work_of
from weigh.flow.submit.rounds import SubmissionRounds
from weigh.model.job import (
    ON_HOLD,
    STUCK,
    ElementState,
    OwnScript,
)
from weigh.schedulers.protocol import JobSnapshot
from weigh.schedulers.this_machine import LocalScheduler
from weigh.store.identity import this_machine

LOCAL = LocalScheduler(env={}, root="", machine=this_machine())


@pytest.mark.parametrize(
    ("scheduler", "number", "reason", "command"),
    [
        ("slurm", 5, "JobHeldUser", "scontrol release 7_5"),
        ("gridengine", 4, STUCK, "qmod -cj 7.5"),
        ("gridengine", 4, ON_HOLD, "qrls 7.5"),
    ],
)
def test_of_a_users_array_the_element_is_named_by_its_index(
    tmp_path: Path, scheduler: str, number: int, reason: str, command: str
) -> None:
    job = a_submitted_job(
        scheduler=scheduler,
        name="f.sh",
        folder=str(tmp_path),
        cwd=str(tmp_path),
        script="f.sh",
        elements=2,
        tasks=2,
        own=OwnScript(indices="5,9"),
    )
    held = ElementState(state="PENDING", reason=reason)
    runs = ElementState(state="RUNNING")
    snapshot = JobSnapshot({"7": {number: held, number + 4: runs}}, asked=1.0)
    # `look` puts why an element is stuck in place of the scheduler's word
    explained = ElementState(state="PENDING", reason="explained")
    view = JobView(job, LOCAL, (explained, runs), (), snapshot, work_of(job))
    rounds = SubmissionRounds(str(tmp_path), root="", reach=lambda _: LOCAL)

    assert healing_of([view], rounds).blocked == (command,)
