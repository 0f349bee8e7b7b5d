"""Each note of a report: what brings it about, and what flag it names."""

import shutil
from collections.abc import Sequence
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
from weigh.units import GIB, HOUR, MIB, record_time_text

ASKED = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR)
ON_GPU = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR, gpus=1)
FULL = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7)


def like_full(**changes: Any) -> Task:
    """Return a task that used what it requested, but for some changes."""
    return Task(**({"wall_time": 5.0 * HOUR, "memory": 6 * GIB, "cpus": 3.7} | changes))


SMALL, KILLED = like_full(memory=2 * GIB), Task(state="OUT_OF_MEMORY", memory=2 * GIB)
BAD = Task(state="FAILED", node="node07")
EARLY = Task(state="FAILED", wall_time=5.0, memory=30 * MIB, gpu_memory=0)
ON_GRID = replace(ASKED, virtual_memory=12 * GIB)
TWO_GPUS = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR, gpus=2)
V100 = TargetGpu("V100", 32 * GIB)
# the tasks, an element each, what was requested, and what else is known of the job
JOBS: dict[str, tuple[list[Task], JobRequest, dict[str, Any]]] = {
    "used what it requested": ([FULL] * 3, ASKED, {}),
    "too much memory": ([SMALL] * 3, ASKED, {}),
    "two runs": ([Task(memory=2 * GIB, cpus=1.0)] * 2, ASKED, {}),
    "two elements of two tasks": (
        [like_full(memory=GIB, cpus=0.9)] * 4,
        *(ASKED, {"together": 2}),
    ),
    "one failure among many tasks": (
        [
            *[like_full(memory=512 * MIB, cpus=0.95)] * 11,
            Task(state="FAILED", wall_time=60.0, memory=MIB),
        ],
        *(ASKED, {"together": 4}),
    ),
    "memory that still rises": ([like_full(memory=GIB, growing=True)] * 3, ASKED, {}),
    "memory near the limit": (
        [like_full(memory=8 * GIB - 100 * MIB), FULL, FULL],
        *(ASKED, {}),
    ),
    "killed for memory": ([FULL, FULL, FULL, KILLED], ASKED, {}),
    "killed for address space, of which alone a script names a limit": (
        [Task(state="OUT_OF_MEMORY", memory=8 * MIB)],
        *(JobRequest(virtual_memory=100 * MIB), {"scheduler": "gridengine"}),
    ),
    "out of time": (
        [FULL, FULL, FULL, like_full(state="TIMEOUT", wall_time=6.0 * HOUR)],
        *(ASKED, {}),
    ),
    "idle CPUs": ([like_full(cpus=1.7)] * 3, ASKED, {}),
    # 3 GiB of address space + 20 %, for each of 4 slots
    "too much memory on Grid Engine": (
        [SMALL] * 3,
        *(ASKED, {"scheduler": "gridengine"}),
    ),
    # a failure of many comes first
    "a GPU never used": (
        [*[like_full(gpu_memory=0, busy=0.0)] * 3, *[Task(state="FAILED")] * 2],
        *(ON_GPU, {}),
    ),
    "a GPU never used while 0.8 of a CPU was": (
        [like_full(gpu_memory=0, busy=0.0, cpus=0.8)],
        *(ON_GPU, {}),
    ),
    "a GPU never used while less of a CPU was": (
        [like_full(gpu_memory=0, busy=0.0, cpus=0.79)],
        *(ON_GPU, {}),
    ),
    "a GPU that nobody requested nor used": (
        [like_full(gpu_memory=0, busy=0.0)] * 3,
        *(ASKED, {}),
    ),
    "a GPU that no run detected": ([FULL] * 3, ON_GPU, {}),
    "an idle GPU with room": ([like_full(gpu_memory=GIB, busy=8.0)] * 3, ON_GPU, {}),
    # the advice to pack can only be followed where tasks took turns
    "idle GPUs of a task each": (
        [
            like_full(gpu_memory=GIB, busy=8.0, node=f"node0{number}")
            for number in (1, 2, 3)
        ],
        *(ON_GPU, {"card": V100}),
    ),
    "an idle GPU that all tasks share": (
        [like_full(memory=GIB, gpu_memory=GIB, busy=8.0, cpus=0.9)] * 4,
        *(ON_GPU, {"card": V100, "together": 4}),
    ),
    "a GPU that all tasks share for seconds": (
        [Task(memory=GIB, wall_time=12.0, gpu_memory=GIB, busy=8.0)] * 4,
        *(ON_GPU, {"card": V100, "together": 4}),
    ),
    "a hot GPU": (
        [like_full(gpu_memory=9 * GIB, busy=80.0, slowed={"thermal": 60.0})] * 3,
        *(ON_GPU, {}),
    ),
    "more GPUs than used": (
        [like_full(gpu_memory=9 * GIB, busy=80.0)] * 3,
        *(TWO_GPUS, {}),
    ),
    # memory that ends a longer job comes first
    "a full GPU": (
        [like_full(gpu_memory=32 * GIB, busy=80.0, growing=True)] * 3,
        *(ON_GPU, {"card": V100}),
    ),
    "a GPU that a task filled, which failed of something else": (
        [like_full(state="FAILED", gpu_memory=31 * GIB, busy=80.0)],
        *(ON_GPU, {"card": V100}),
    ),
    "failures of one way": (
        [
            *(Task(state="FAILED", words=f"KeyError: {n}") for n in range(3)),
            *[FULL] * 3,
        ],
        *(ASKED, {}),
    ),
    "a node where all fail": ([BAD, BAD, FULL, FULL, FULL], ASKED, {}),
    "all failed, and used less than requested": ([EARLY] * 3, ON_GPU, {}),
    "one completed, and others failed early": (
        [Task(wall_time=600.0, cpus=1.0, gpu_memory=0), EARLY, EARLY],
        *(ON_GPU, {}),
    ),
    "a few minutes more than were used": (
        [Task(wall_time=9.0, memory=7 * GIB)] * 3,
        *(JobRequest(cpus=1, memory=8 * GIB, time_limit=900), {}),
    ),
    "one killed at once, which used more CPUs": (
        [
            *[Task(wall_time=600.0, cpus=0.1)] * 3,
            Task(state="OUT_OF_MEMORY", wall_time=0.8, cpus=1.6),
        ],
        *(ASKED, {}),
    ),
    # each slot has its part of the memory: 3 GiB are enough for the one advised
    "too many slots and too much memory on Grid Engine": (
        [like_full(memory=2 * GIB, cpus=1.0)] * 3,
        *(ON_GRID, {"scheduler": "gridengine"}),
    ),
    "too many slots on Grid Engine, where memory is well requested": (
        [like_full(memory=7 * GIB, cpus=1.0)] * 3,
        *(ON_GRID, {"scheduler": "gridengine"}),
    ),
    "killed for memory on Grid Engine": (
        [Task(state="OUT_OF_MEMORY", cpus=3.9)],
        *(ON_GRID, {"scheduler": "gridengine"}),
    ),
    "memory whose h_vmem would be more than now": (
        [like_full(memory=2 * GIB)] * 3,
        *(replace(ON_GRID, virtual_memory=3 * GIB), {"scheduler": "gridengine"}),
    ),
}


def notes_of(
    root: str, tasks: Sequence[Task], wanted: JobRequest = ASKED, **how: Any
) -> list[ReportNote]:
    """Make a job of these tasks, an element each; return what its report says."""
    folder = Path(root).parent
    for made in (root, folder / "plan"):
        shutil.rmtree(made, ignore_errors=True)
    job = SomeJob(tasks=tuple(tasks), wanted=wanted, **how)
    write_job(root, f"{folder}/plan/p", job)
    here = here_of(str(folder), {"PATH": "", "WEIGH_POLL": "9h"})
    return list(build_job_report(here, JOB).notes)


def note_text(note: ReportNote) -> str:
    finding = "!" if note.is_finding else " "
    weight = f"{note.weight:2.0f}"
    return "  ".join(filter(None, (finding, weight, note.about, note.words, note.flag)))


def test_the_notes_on_each_job_are_as_they_were_reviewed(root: str) -> None:
    texts = {}
    for name, (tasks, wanted, how) in JOBS.items():
        notes = notes_of(root, tasks, wanted, **how)
        texts[name] = "".join(f"{note_text(note)}\n" for note in notes)
    check_texts(Path(__file__).with_name("report_notes.texts"), texts)


def test_the_advice_to_pack_names_the_task_file_that_is_still_there(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, wanted, how = JOBS["idle GPUs of a task each"]
    monkeypatch.chdir(Path(root).parent)
    (gone,) = {note.flag for note in notes_of(root, tasks, wanted, **how)}

    write_job(root, "again", SomeJob(tasks=tuple(tasks), wanted=wanted, id="7", **how))
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


def test_a_gpu_of_a_job_without_measured_runs_brings_no_note() -> None:
    requested = ElementRequest(scheduler="slurm", gpus=1)
    subject = AdviceSubject(elements=(), requested=requested, measures={})

    assert list(gpu_notes(subject)) == []


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        (FULL, "usage + 20 %"),
        (KILLED, "twice the memory that was exceeded, else usage + 20 %"),
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
    requested = ElementRequest(scheduler=name, cpus=1)
    subject = AdviceSubject(elements=(), requested=requested, measures={})
    notes = report_notes(subject, ())
    assert [(note.about, note.weight) for note in notes] == noted


@pytest.mark.parametrize("order", [1, -1])
def test_the_strongest_note_comes_first(root: str, order: int) -> None:
    small = Task(memory=2 * GIB, cpus=1.0)
    killed = Task(state="OUT_OF_MEMORY", memory=8 * GIB)
    notes = notes_of(root, [small, killed, small, small][::order])
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
