"""Each note of a report: what brings it about, and what flag it names."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from some_jobs import BEGAN, JOB, SomeJob, Task, record_of, write_job
from transcript import check_texts

from weigh.flow.here import here_of
from weigh.flow.report.report import build_job_report
from weigh.model.job import JobRequest
from weigh.model.plan import TargetGpu
from weigh.model.report import ReportNote, ReportRow
from weigh.review.advice import AdviceSubject
from weigh.review.elements import resource_measures, single_run_element
from weigh.review.notes import failure_notes, gpu_notes, report_notes
from weigh.review.runs import ElementRequest, runs_of_records
from weigh.units import GIB, HOUR, parse_size, record_time_text

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


@pytest.mark.parametrize(
    ("starts", "full"),
    # all at once; two and one after them; one after the other, by rounded times
    [((0.0, 0.0, 0.0), None), ((0.0, 0.0, 9.0), 25), ((0.0, 4.999), 12)],
)
def test_runs_outside_a_job_share_a_gpu_by_what_all_of_them_hold(
    starts: tuple[float, ...], full: int | None
) -> None:
    began = [
        replace(
            record_of(Task(wall_time=5.0, gpu_memory=4 * GIB, busy=0.0), number),
            started=record_time_text(BEGAN + start),
        )
        for number, start in enumerate(starts)
    ]
    runs = runs_of_records(began)
    requested = ElementRequest(gpu_memory=32 * GIB)
    elements = [single_run_element(run, requested) for run in runs]
    measures = {str(one.name): one for one in resource_measures(elements, requested)}
    subject = AdviceSubject(elements=elements, requested=requested, measures=measures)

    words = [note.words for note in gpu_notes(subject)]

    advice = "several tasks per GPU would do more"
    assert words == [f"busy 0 % of the time and {full} % full: {advice}"] * bool(full)


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        (FULL, "usage + 20 %"),
        (
            Task(state="OUT_OF_MEMORY"),
            "twice the memory that was exceeded, else usage + 20 %",
        ),
    ],
)
def test_the_rule_of_a_request_is_that_of_how_its_run_ended(
    task: Task, rule: str
) -> None:
    (run,) = runs_of_records([record_of(task)])
    requested = ElementRequest()
    elements = [single_run_element(run, requested)]
    subject = AdviceSubject(elements=elements, requested=requested, measures={})
    notes = {note.about: note.words for note in report_notes(subject, [run.row])}
    assert notes["request"] == rule


@pytest.mark.parametrize(
    ("name", "noted"), [("local", []), ("slurm", []), ("lsf", [("scheduler", 50)])]
)
def test_whose_flags_are_shown_is_noted_of_an_unknown_scheduler(
    name: str, noted: list[tuple[str, int]]
) -> None:
    requested = ElementRequest(scheduler=name, cpus=1, gpus=1)
    subject = AdviceSubject(elements=(), requested=requested, measures={})
    notes = report_notes(subject, ())  # none on GPUs without measured runs
    assert [(note.about, note.weight) for note in notes] == noted


@pytest.mark.parametrize("order", [1, -1])
def test_the_strongest_note_comes_first(root: str, order: int) -> None:
    small = Task(memory=2 * GIB, cpus=1.0)
    killed = Task(state="OUT_OF_MEMORY", memory=8 * GIB)
    tasks = (small, killed, small, small)[::order]
    notes = notes_of(root, SomeJob(tasks=tasks, wanted=ASKED))
    weights = [note.weight for note in notes]
    assert weights == sorted(weights, reverse=True)
    assert "killed for memory" in notes[0].words


@pytest.mark.parametrize("unit", ["task", "element"])
def test_failures_name_what_a_row_is(unit: str) -> None:
    alike = [
        ReportRow(task=n, element=n, state="FAILED", error="no disk") for n in (3, 4)
    ]
    waiting = ReportRow(task=5, element=5, state="PENDING")
    words = [note.words for note in failure_notes([*alike, waiting], unit)]

    assert words[0] == f"2 {unit}s alike, the first is {unit} 3: no disk"
    assert words[1].startswith(f"1 {unit} has not ended")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ReportRow(task=3, state="FAILED", signal=9), "killed by signal 9"),
        (ReportRow(task=3, state="FAILED", signal=9, error="x"), "signal 9, after: x"),
        (ReportRow(task=3, state="FAILED", signal=9, reason="why"), "why"),
        (ReportRow(task=3, state="STUCK", error="epoch 3"), "stuck, after: epoch 3"),
        (ReportRow(task=3, state="STUCK"), "stuck"),
        (ReportRow(task=3, state="DIVERGED", error="nan"), "diverged, after: nan"),
        (ReportRow(task=3, state="NODE_FAIL"), "node fail"),
    ],
)
def test_a_failure_is_named_by_its_cause_and_what_was_printed_before(
    row: ReportRow, words: str
) -> None:
    (note,) = failure_notes([row])

    assert note.words == f"task 3: {words}"
