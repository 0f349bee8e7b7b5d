"""Each note of a report: what brings it about, and what flag it names."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sessions import check_session
from some_jobs import JOB, SomeJob, Task, write_job
from transcript import check_texts

from weigh.flow.here import here_of
from weigh.flow.report.report import build_job_report
from weigh.model.job import JobRequest
from weigh.model.plan import TargetGpu
from weigh.model.report import ReportNote
from weigh.units import GIB, HOUR, parse_size

ASKED = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR)
ON_GPU = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR, gpus=1)
JOBS = tomllib.loads(Path(__file__).with_name("noted_jobs.toml").read_text())
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


def noted_job(name: str) -> SomeJob:
    """Return a job of the file."""
    given = dict(JOBS[name])
    tasks: list[Task] = []
    for row in given.pop("tasks"):
        fields = with_sizes(row)
        count, like = fields.pop("n", 1), fields.pop("like", "any")
        tasks += [replace(FULL if like == "full" else Task(), **fields)] * count
    card = V100 if given.pop("on_v100", False) else None
    wanted = replace(ASKED, **with_sizes(given.pop("wanted", {})))
    return SomeJob(tasks=tuple(tasks), wanted=wanted, card=card, **given)


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


def test_the_notes_on_each_job_are_as_they_were_reviewed(root: str) -> None:
    texts = {}
    for name in JOBS:
        notes = notes_of(root, noted_job(name))
        texts[name] = "".join(f"{note_text(note)}\n" for note in notes)
    check_texts(Path(__file__).with_name("report_notes.texts"), texts)


def test_the_advice_to_pack_names_the_task_file_that_is_still_there(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = noted_job("idle GPUs of a task each")
    monkeypatch.chdir(Path(root).parent)
    (gone,) = {note.flag for note in notes_of(root, job)}

    write_job(root, "again", replace(job, id="7"))
    Path("tasks.txt").touch()
    there = build_job_report(here_of(".", {"PATH": "", "WEIGH_POLL": "9h"}), "7").notes

    assert gone == "weigh plan TASKS"
    assert {note.flag for note in there} == {"weigh plan tasks.txt --replace"}


@pytest.mark.parametrize("order", [1, -1])
def test_the_strongest_note_comes_first(root: str, order: int) -> None:
    small = Task(memory=2 * GIB, cpus=1.0)
    killed = Task(state="OUT_OF_MEMORY", memory=8 * GIB)
    tasks = (small, killed, small, small)[::order]
    notes = notes_of(root, SomeJob(tasks=tasks, wanted=ASKED))
    weights = [note.weight for note in notes]
    assert weights == sorted(weights, reverse=True)
    assert "killed for memory" in notes[0].words


def test_worked_examples_of_notes() -> None:
    check_session(Path(__file__).with_name("notes.session"), {})
