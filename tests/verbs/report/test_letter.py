"""``weigh report JOB --ticket`` of somebody else's job: a message in plain words."""

import pytest

from weigh.flow.follow.view import View
from weigh.flow.report.report import Material
from weigh.flow.report.ticket import _letter
from weigh.model.job import JobRequest, OwnScript, Submitted
from weigh.model.record import State
from weigh.model.report import Accounted
from weigh.render.report_ticket import render_ticket
from weigh.review.requested import Requested
from weigh.schedulers.protocol import Snapshot
from weigh.units import GIB


def material(state: State, *, used: int) -> Material:
    job = Submitted(
        scheduler="slurm",
        id="259",
        name="align",
        folder="/p",
        cwd="/",
        script="/p/job.sh",
        elements=1,
        tasks=1,
        submitted=0.0,
        request=JobRequest(),
        own=OwnScript(foreign=True),
    )
    snapshot = Snapshot(states={}, asked=0.0)
    figures = Accounted(
        element=0,
        state=state,
        node="cn1",
        wall_time=600.0,
        cpu_time=1200.0,
        max_rss=used,
        cpus=4,
        memory_asked=16 * GIB,
        time_limit=3600,
    )
    return Material(
        title="align 259",
        requested=Requested(scheduler="slurm"),
        runs=(),
        elements=(),
        views=(View(job, None, (), (), snapshot),),  # type: ignore[arg-type]
        scheduler="slurm",
        accounted=(figures,),
    )


@pytest.mark.parametrize(
    ("state", "used", "words"),
    [
        ("OUT_OF_MEMORY", 15 * GIB, ("out of memory", "at least 15", "--mem=32G")),
        ("TIMEOUT", 15 * GIB, ("time limit", "--time=02:00:00")),
        ("COMPLETED", 2 * GIB, ("completed", "small part", "--mem=2900M")),
        ("COMPLETED", 12 * GIB, ("16.0 GiB, CPUs 4, 01:00:00", "2.00 of 4 CPUs")),
    ],
)
def test_the_message_has_what_happened_and_what_to_write(
    state: State, used: int, words: tuple[str, ...]
) -> None:
    text = render_ticket(_letter(material(state, used=used), ()))

    assert "your job 259 (align)" in " ".join(text.split())
    assert [word for word in words if word not in " ".join(text.split())] == []
    assert max(map(len, text.splitlines())) <= 80


def test_a_job_that_used_its_request_gets_no_advice() -> None:
    text = render_ticket(_letter(material("COMPLETED", used=12 * GIB), ()))

    assert "What to change" not in text
