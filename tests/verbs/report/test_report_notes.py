"""Each note of a report: what brings it about, and what flag it names."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sessions import check_session
from some_jobs import JOB, SomeJob, Task, write_job

from weigh.flow.here import here_of
from weigh.flow.report.report import build_job_report
from weigh.model.job import JobRequest
from weigh.model.plan import TargetGpu
from weigh.model.report import ReportNote
from weigh.units import GIB, HOUR, parse_size

ASKED = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR)
ON_GPU = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR, gpus=1)
V100 = TargetGpu("V100", 32 * GIB)
FULL = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7)


def with_sizes(given: dict[str, Any]) -> dict[str, Any]:
    """Return fields of a table: what has memory in its name is a size, "none" None."""
    fields = {name: None if value == "none" else value for name, value in given.items()}
    sizes = {
        name: parse_size(one)
        for name, one in fields.items()
        if "memory" in name and one
    }
    return fields | sizes


def some(count: int = 1, *, like: Task | None = None, **given: Any) -> list[Task]:
    """Return so many tasks of these fields."""
    return [replace(like or Task(), **with_sizes(given))] * count


def a_job(
    *tasks: list[Task],
    wanted: dict[str, Any] | None = None,
    on_v100: bool = False,
    **known: Any,
) -> SomeJob:
    return SomeJob(
        tasks=tuple(task for group in tasks for task in group),
        wanted=replace(ASKED, **with_sizes(wanted or {})),
        card=V100 if on_v100 else None,
        **known,
    )


def notes_of(root: str, job: SomeJob) -> list[ReportNote]:
    """Leave a job; return what its report says."""
    folder = Path(root).parent
    for made in (root, folder / "plan"):
        shutil.rmtree(made, ignore_errors=True)
    write_job(root, f"{folder}/plan/p", job)
    here = here_of(str(folder), {"PATH": "", "WEIGH_POLL": "9h"})
    return list(build_job_report(here, JOB).notes)


def note_text(note: ReportNote) -> str:
    finding = "!" if note.is_finding else " "
    weight = f"{note.weight:2.0f}"
    return "  ".join(filter(None, (finding, weight, note.about, note.words, note.flag)))


def test_worked_examples_of_jobs_with_notes(root: str) -> None:
    def noted(*tasks: list[Task], **known: Any) -> None:
        for note in notes_of(root, a_job(*tasks, **known)):
            print(note_text(note))

    names = {"noted": noted, "some": some, "full": partial(some, like=FULL)}
    check_session(Path(__file__).with_name("report_notes.session"), names)


def test_the_advice_to_pack_names_the_task_file_that_is_still_there(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ("node01", "node02", "node03")
    tasks = [some(like=FULL, gpu_memory="1G", busy=8.0, node=node) for node in nodes]
    job = a_job(*tasks, wanted={"gpus": 1}, on_v100=True)
    monkeypatch.chdir(Path(root).parent)
    (gone,) = {note.flag for note in notes_of(root, job)}

    write_job(root, "again", replace(job, id="7"))
    Path("tasks.txt").touch()
    there = build_job_report(here_of(".", {"PATH": "", "WEIGH_POLL": "9h"}), "7").notes

    assert gone == "weigh plan TASKS"
    assert {note.flag for note in there} == {"weigh plan tasks.txt --replace"}


def test_worked_examples_of_notes() -> None:
    check_session(Path(__file__).with_name("notes.session"), {})
