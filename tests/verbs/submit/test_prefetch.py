"""A job that needs a download first: without a GPU, and before it."""

import msgspec
import pytest
from following import Weigh
from rigs import mainly

from weigh.model.job import SubmittedJob
from weigh.schedulers import KINDS
from weigh.store import jobs

FETCH = "sleep 0.5; echo model >model"


def prefetch_of(weigh: Weigh) -> SubmittedJob:
    """Return the first job that was submitted."""
    return jobs.read_jobs(str(weigh.folder / ".weigh"))[0]


@mainly("gridengine")
def test_the_job_begins_after_its_prefetch(weigh: Weigh) -> None:
    job = weigh.submit(weigh.plan("cat model >copy"), "--prefetch", FETCH)

    assert weigh.finish(job) == {"COMPLETED": 1}
    assert (weigh.folder / "copy").read_text() == "model\n"
    assert prefetch_of(weigh).request.gpus == 0


@mainly("slurm")
def test_a_prefetch_can_make_the_environment_of_the_tasks(weigh: Weigh) -> None:
    make = "test -d env || { sleep 1; python3 -m venv --without-pip env; }"
    task = "python -c 'import sys; print(sys.prefix)' >prefix"
    options = ("--venv", "env", "--imports", "json", "--prefetch", make)
    job = weigh.submit(weigh.plan(task), *options)

    assert weigh.finish(job) == {"COMPLETED": 1}
    prefix = (weigh.folder / "prefix").read_text().strip()
    assert prefix == str(weigh.folder / "env")


@pytest.mark.parametrize(
    ("options", "task"),
    [
        ((), "./env/bin/python -V >version"),
        (("--venv", "env"), "python -V >version"),
        (("--setup", "source env/bin/activate"), "python -V >version"),
    ],
)
def test_without_a_scheduler_nothing_is_looked_for_before_the_prefetch(
    here: Weigh, options: tuple[str, ...], task: str
) -> None:
    make = "sleep 0.5; python3 -m venv --without-pip env"
    job = here.submit(here.plan(task), "--prefetch", make, *options)

    assert here.finish(job) == {"COMPLETED": 1}


@mainly("slurm")
def test_the_tasks_do_not_run_where_the_prefetch_failed(weigh: Weigh) -> None:
    weigh.needs_waiting()
    job = weigh.submit(weigh.plan("touch ran"), "--prefetch", "false")
    weigh.finish(prefetch_of(weigh).id)

    weigh.wait_for(job, lambda one: one["tasks"] != {"RUNNING": 1})
    kind = KINDS.get(weigh.scheduler)
    if kind is not None and not kind.backend.RULES.checks_needs:  # it waits for ever
        weigh.wait_for(
            job, lambda one: one["waiting"] and one["waiting"][0]["hopeless"]
        )
        weigh("cancel", job)
    assert "COMPLETED" not in weigh.finish(job)
    assert not (weigh.folder / "ran").exists()


def test_a_cluster_that_no_setting_names_is_refused(here: Weigh) -> None:
    code, _, err = here("submit", here.plan("true"), "--cluster", "gpu")

    assert (code, "[cluster.named.gpu]" in err) == (2, True)


def test_a_job_does_not_wait_for_one_of_another_cluster(
    here: Weigh,
) -> None:
    job = here.submit(here.plan("true", name="a"))
    known = jobs.read_jobs(str(here.folder / ".weigh"))[0]
    other = msgspec.structs.replace(known, id="77", scheduler="slurm@cpu")
    jobs.append_job(str(here.folder / ".weigh"), other)

    code, _, err = here(
        "submit", here.plan("true", name="b"), "--on", "local", "--after", "77"
    )

    assert (code, "runs at slurm@cpu" in err) == (2, True)
    here.finish(job)
