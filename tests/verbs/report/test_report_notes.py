"""Each note of a report: what brings it about, and what flag it names."""

from pathlib import Path

import pytest
from some_jobs import JOB, SomeJob, Task, write_job

from weigh.flow.here import here_of
from weigh.flow.report.report import build_job_report
from weigh.model.job import JobRequest
from weigh.model.plan import TargetGpu
from weigh.model.report import ReportNote, ReportRow
from weigh.review.notes import failure_notes
from weigh.units import GIB, HOUR, MIB

ASKED = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR)
ON_GPU = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR, gpus=1)
FULL = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7)


def notes_of(
    root: str, *tasks: Task, wanted: JobRequest = ASKED, **how: str
) -> list[ReportNote]:
    """Make a job of these tasks, an element each; give what its report says."""
    job = SomeJob(tasks=tasks, wanted=wanted, **how)  # type: ignore[arg-type]
    write_job(root, f"{Path(root).parent}/plan/p", job)
    report = build_job_report(
        here_of(str(Path(root).parent), {"PATH": "", "WEIGH_POLL": "9h"}), JOB
    )
    return list(report.notes)


def one(notes: list[ReportNote], about: str) -> ReportNote:
    """Give the note about something, of which there is one."""
    (found,) = [note for note in notes if note.about == about]
    return found


def test_a_job_that_used_what_it_requested_gets_no_advice(root: str) -> None:
    assert notes_of(root, FULL, FULL, FULL) == []


def test_too_much_memory_names_the_flag_with_headroom(root: str) -> None:
    small = Task(wall_time=5.0 * HOUR, memory=2 * GIB, cpus=3.7)
    note = one(notes_of(root, small, small, small), "memory")
    assert note.flag == "--mem=2500M"
    assert "69 % less" in note.words
    assert note.is_finding


def test_advice_on_fewer_than_three_runs_is_reported(root: str) -> None:
    small = Task(memory=2 * GIB, cpus=1.0)
    notes = notes_of(root, small, small)
    flagged = [note for note in notes if note.flag]
    assert {note.about for note in flagged} == {"memory", "time", "CPUs"}
    assert all("(2 runs)" in note.words for note in flagged)
    assert one(notes, "basis").words.startswith("2 runs: run it three times")


def test_one_failure_among_many_tasks_leaves_advice_what_it_is(root: str) -> None:
    tasks = [Task(wall_time=5.0 * HOUR, memory=512 * MIB, cpus=0.95)] * 11
    bad = Task(state="FAILED", wall_time=60.0, memory=MIB)
    job = SomeJob(tasks=(*tasks, bad), together=4, wanted=ASKED)
    write_job(root, f"{Path(root).parent}/plan/p", job)
    report = build_job_report(
        here_of(str(Path(root).parent), {"PATH": "", "WEIGH_POLL": "9h"}), JOB
    )
    note = one(list(report.notes), "memory")
    assert not note.words.endswith(")")  # three elements: nothing to beware of
    assert "basis" not in {other.about for other in report.notes}


def test_memory_that_still_rises_is_no_reason_to_request_less(root: str) -> None:
    task = Task(wall_time=5.0 * HOUR, memory=GIB, cpus=3.7, growing=True)
    flags = [note.flag for note in notes_of(root, task, task, task)]
    assert not any(flag and flag.startswith("--mem") for flag in flags)


def test_memory_near_the_limit_is_a_finding(root: str) -> None:
    near = Task(wall_time=5.0 * HOUR, memory=8 * GIB - 100 * MIB, cpus=3.7)
    note = one(notes_of(root, near, FULL, FULL), "memory")
    assert note.is_finding
    assert note.flag == "--mem=9800M"


def test_a_task_killed_for_memory_requests_twice_that(root: str) -> None:
    killed = Task(state="OUT_OF_MEMORY", memory=2 * GIB)
    note = notes_of(root, FULL, FULL, FULL, killed)[0]
    assert (note.about, note.flag) == ("memory", "--mem=16G")


def test_a_task_out_of_time_requests_twice_that(root: str) -> None:
    late = Task(state="TIMEOUT", wall_time=6.0 * HOUR, memory=6 * GIB, cpus=3.7)
    note = one(notes_of(root, FULL, FULL, FULL, late), "time")
    assert note.flag == "--time=12:00:00"


def test_idle_cpus_name_how_many_are_enough(root: str) -> None:
    lazy = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=1.7)
    note = one(notes_of(root, lazy, lazy, lazy), "CPUs")
    assert note.flag == "--cpus-per-task=2"


def test_grid_engines_flags_are_its_own_and_count_virtual_size(root: str) -> None:
    small = Task(wall_time=5.0 * HOUR, memory=2 * GIB, cpus=3.7)
    notes = notes_of(root, small, small, small, scheduler="gridengine")
    # 3 GiB of address space + 20 %, for each of 4 slots
    assert one(notes, "memory").flag == "-l h_vmem=925M"


def test_a_gpu_never_used_while_the_cpus_worked_is_cpu_training(root: str) -> None:
    task = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7, gpu_memory=0, busy=0.0)
    note = one(notes_of(root, task, task, task, wanted=ON_GPU), "GPU")
    assert "the CPUs did the work" in note.words
    assert note.flag == "no --gres=gpu"
    assert note.is_finding


def test_an_idle_gpu_with_room_is_for_several_tasks(root: str) -> None:
    task = Task(
        wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7, gpu_memory=GIB, busy=8.0
    )
    notes = notes_of(root, task, task, task, wanted=ON_GPU)
    assert "busy 8 % of the time" in one(notes, "GPU").words


def test_a_hot_gpu_is_reported(root: str) -> None:
    hot = Task(
        wall_time=5.0 * HOUR,
        memory=6 * GIB,
        cpus=3.7,
        gpu_memory=9 * GIB,
        busy=80.0,
        throttle={"thermal": 600.0},
    )
    note = one(notes_of(root, hot, hot, hot, wanted=ON_GPU), "GPU")
    assert note.words.startswith("slowed down by heat for up to 10 m 00 s")


def test_growing_memory_is_reported_with_how_to_carry_it_on(root: str) -> None:
    task = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7, growing=True)
    note = one(notes_of(root, task, task, task), "memory")
    assert note.flag == "weigh request --steps TOTAL --done N"


def test_failures_of_one_way_are_one_note_whatever_their_numbers(root: str) -> None:
    bad = [
        Task(state="FAILED", words=f"KeyError: {n}", memory=6 * GIB) for n in range(3)
    ]
    note = one(notes_of(root, *bad, FULL, FULL, FULL), "failed")
    assert note.words == ("3 tasks alike, the first is task 1: KeyError: 0")


def test_a_node_where_all_fail_is_named(root: str) -> None:
    bad = Task(state="FAILED", node="node07")
    note = one(notes_of(root, bad, bad, FULL, FULL, FULL), "failed")
    assert ", all on node07:" in note.words


def test_a_slow_node_is_named_with_the_flag_that_leaves_it_out(root: str) -> None:
    slow = Task(wall_time=5.6 * HOUR, memory=6 * GIB, cpus=3.7, node="node07")
    quick = Task(wall_time=4.0 * HOUR, memory=6 * GIB, cpus=3.7)
    note = one(notes_of(root, *[slow] * 8, *[quick] * 8), "node07")
    assert note.words == "its 8 tasks took 1.4x as long as the others"
    assert note.flag == "--exclude=node07"


def test_a_slow_node_of_grid_engine_has_its_flag(root: str) -> None:
    slow = Task(wall_time=5.6 * HOUR, memory=6 * GIB, cpus=3.7, node="node07")
    quick = Task(wall_time=4.0 * HOUR, memory=6 * GIB, cpus=3.7)
    notes = notes_of(root, *[slow] * 8, *[quick] * 8, scheduler="gridengine")
    assert one(notes, "node07").flag == "-l h=!node07"


def test_a_slow_task_or_two_are_no_slow_node(root: str) -> None:
    slow = Task(wall_time=5.6 * HOUR, memory=6 * GIB, cpus=3.7, node="node07")
    quick = Task(wall_time=4.0 * HOUR, memory=6 * GIB, cpus=3.7)
    assert "node07" not in {n.about for n in notes_of(root, slow, slow, *[quick] * 8)}


def test_tasks_of_seconds_are_no_reason_to_exclude_a_node(root: str) -> None:
    slow = Task(wall_time=3.0, memory=6 * GIB, cpus=3.7, node="node07")
    quick = Task(wall_time=1.9, memory=6 * GIB, cpus=3.7)
    assert "node07" not in {n.about for n in notes_of(root, *[slow] * 8, *[quick] * 8)}


def test_a_task_that_needed_a_retry_is_counted(root: str) -> None:
    again = Task(wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7, attempts=2)
    note = one(notes_of(root, again, FULL, FULL), "retried")
    assert note.words.startswith("1 task succeeded only after a retry")


@pytest.mark.parametrize("order", [1, -1])
def test_the_strongest_note_comes_first(root: str, order: int) -> None:
    small = Task(memory=2 * GIB, cpus=1.0)
    killed = Task(state="OUT_OF_MEMORY", memory=8 * GIB)
    notes = notes_of(root, *[small, killed, small, small][::order])
    weights = [note.weight for note in notes]
    assert weights == sorted(weights, reverse=True)
    assert "killed for memory" in notes[0].words


def test_more_gpus_than_used_names_how_many_are_enough(root: str) -> None:
    two = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR, gpus=2)
    task = Task(
        wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7, gpu_memory=9 * GIB, busy=80.0
    )
    note = one(notes_of(root, task, task, task, wanted=two), "GPU")
    assert note.flag == "--gres=gpu:1"


def test_a_full_gpu_is_reported(root: str) -> None:
    task = Task(
        wall_time=5.0 * HOUR, memory=6 * GIB, cpus=3.7, gpu_memory=32 * GIB, busy=80.0
    )
    wanted = JobRequest(cpus=4, memory=8 * GIB, time_limit=6 * HOUR, gpus=1)
    job = SomeJob(tasks=(task,) * 3, wanted=wanted, card=TargetGpu("V100", 32 * GIB))
    write_job(root, f"{Path(root).parent}/plan/p", job)
    report = build_job_report(
        here_of(str(Path(root).parent), {"PATH": "", "WEIGH_POLL": "9h"}), JOB
    )
    assert "100 % of the GPU's memory" in one(list(report.notes), "GPU mem").words


@pytest.mark.parametrize("unit", ["task", "element"])
def test_failures_name_what_a_row_is(unit: str) -> None:
    alike = [
        ReportRow(task=n, element=n, state="FAILED", error="no disk") for n in (3, 4)
    ]
    waiting = ReportRow(task=5, element=5, state="PENDING")
    words = [note.words for note in failure_notes([*alike, waiting], unit)]

    assert words[0] == f"2 {unit}s alike, the first is {unit} 3: no disk"
    assert words[1].startswith(f"1 {unit} has not ended")
    (killed,) = failure_notes([ReportRow(task=3, state="FAILED", signal=9)], unit)
    assert killed.words == f"{unit} 3: killed by signal 9"
