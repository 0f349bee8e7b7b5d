"""Rows, requests and figures of a report, by values worked out by hand."""

import pytest
from msgspec.structs import replace

from weigh.model.job import ElementState
from weigh.model.record import (
    Allocation,
    Record,
    RecordedJob,
    RecordedRank,
    RepeatedRun,
    RunOutcome,
    Usage,
)
from weigh.model.report import (
    AccountedElement,
    OtherFigure,
    ReportMeasure,
    ReportRow,
)
from weigh.render.report_lines import report_note_lines
from weigh.review.advice import AdviceSubject, resource_notes
from weigh.review.elements import elements_of_runs, memory_at_once, single_run_element
from weigh.review.figures import (
    filled_measures,
    request_with_accounting,
    with_other_figures,
)
from weigh.review.notes import report_notes
from weigh.review.runs import (
    ElementRequest,
    ReviewedRun,
    row_of,
    runs_of_records,
)
from weigh.review.summary import ReportFindings, compose_report
from weigh.units import GIB, MIB

NOTHING = ElementRequest()


def a_record(**changes: object) -> Record:
    known = {
        "id": "0" * 12,
        "command": ("true",),
        "started": "2026-01-01T00:00:00Z",
        "state": "COMPLETED",
        "usage": Usage(wall_time=10.0),
    }
    return Record(**known | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scheduler", "index", "element"), [("slurm", 3, 3), ("gridengine", 3, 2)]
)
def test_a_row_has_the_task_and_attempt_of_its_record_and_counts_elements_from_0(
    scheduler: str, index: int, element: int
) -> None:
    job = RecordedJob(id="7", element=index, task=5, attempt=2)

    row = row_of(a_record(job=job, allocation=Allocation(scheduler=scheduler)))

    assert (row.job, row.element, row.task, row.attempt) == ("7", element, 5, 2)


def test_only_a_repeat_that_failed_has_a_reason() -> None:
    repeats = (
        RepeatedRun(Usage(wall_time=1.0), exit_code=0, signal=None),
        RepeatedRun(Usage(wall_time=2.0), exit_code=3, signal=None),
    )
    record = a_record(
        state="FAILED", outcome=RunOutcome("exit code 3"), repeats=repeats
    )

    rows = [run.row for run in runs_of_records([record])]

    assert [row.reason for row in rows] == [None, "exit code 3"]
    assert [(row.started or 0) - (rows[0].started or 0) for row in rows] == [0, 1]


@pytest.mark.parametrize(
    ("state", "started", "wall_time"),
    [
        (None, 100.0, 5.0),
        (ElementState(state="COMPLETED", started=90.0, ended=120.0), 90.0, 30.0),
        # the clocks of two machines do not mix
        (ElementState(state="RUNNING", started=90.0), 100.0, 5.0),
    ],
)
def test_start_and_end_of_an_element_are_of_one_source(
    state: ElementState | None, started: float, wall_time: float
) -> None:
    run = ReviewedRun(row=ReportRow(element=0, started=100.0, wall_time=5.0))

    (element,) = elements_of_runs([run], [state] if state else [], NOTHING)

    assert (element.started, element.wall_time) == (started, wall_time)


def test_accounting_completes_a_request_and_replaces_nothing() -> None:
    accounted = AccountedElement(
        element=0, cpus=4, memory_asked=GIB, time_limit=600, gpus=1, nodes=2
    )

    bare = request_with_accounting(NOTHING, [accounted])
    own = request_with_accounting(
        ElementRequest(cpus=2, memory=MIB, time_limit=60, gpus=3), [accounted]
    )

    assert (bare.cpus, bare.memory, bare.time_limit, bare.gpus) == (4, GIB, 600, 1)
    assert (own.cpus, own.memory, own.time_limit, own.gpus) == (2, MIB, 60, 3)
    assert (bare.nodes, own.nodes) == (2, 2)
    assert request_with_accounting(NOTHING, [AccountedElement(element=0)]).nodes == 1


OURS = {
    "memory": ReportMeasure(name="memory", unit="bytes", median=GIB, most=GIB),
    "gpu_memory": ReportMeasure(name="gpu_memory", unit="bytes", median=GIB, most=GIB),
    "gpu_utilization": ReportMeasure(
        name="gpu_utilization", unit="share", median=0.5, most=0.5
    ),
    "cpus": ReportMeasure(name="cpus", unit="cpus", median=1.0, most=1.0),
    "time": ReportMeasure(name="time", unit="seconds", median=100.0, most=100.0),
}


@pytest.mark.parametrize(
    ("name", "theirs", "value"),
    [
        ("memory", {"max_rss": 2 * GIB}, 2 * GIB),
        ("memory", {"max_rss": round(1.04 * GIB)}, None),  # nearly the same
        ("memory", {"max_rss": round(1.06 * GIB)}, round(1.06 * GIB)),
        ("gpu_memory", {"gpu_memory": 2 * GIB}, 2 * GIB),
        ("gpu_memory", {"gpu_memory": GIB}, None),
        ("gpu_utilization", {"gpu_utilization": 0.9}, 0.9),
        ("gpu_utilization", {"gpu_utilization": 0.51}, None),
        ("cpus", {"cpu_time": 300.0, "wall_time": 100.0}, 3.0),
        ("cpus", {"cpu_time": 109.0, "wall_time": 100.0}, None),  # a tenth of a CPU
        ("cpus", {"cpu_time": 111.0, "wall_time": 100.0}, 1.11),
        ("time", {"wall_time": 200.0}, 200.0),
        ("time", {"wall_time": 104.0}, None),
        ("time", {"cpu_time": 1.0}, None),
    ],
)
def test_a_figure_of_accounting_is_shown_where_it_differs(
    name: str, theirs: dict[str, float], value: float | None
) -> None:
    accounted = AccountedElement(element=0, state="COMPLETED", **theirs)  # type: ignore[arg-type]

    (measure,) = with_other_figures([OURS[name]], [accounted], (), scheduler="slurm")

    shown = [one.value for one in measure.others]
    assert shown == ([] if value is None else [pytest.approx(value)])


@pytest.mark.parametrize(
    ("cpu_time", "wall_time", "word"),
    [
        (50.0, 100.0, "misses what was killed or left the job: trust weigh's"),
        # a longer job has a lower mean
        (50.0, 200.0, "over the whole job, including its set-up"),
        (300.0, 100.0, "over the whole job, including its set-up"),
    ],
)
def test_less_cpu_time_in_the_same_time_is_not_trusted(
    cpu_time: float, wall_time: float, word: str
) -> None:
    accounted = AccountedElement(
        element=0, state="COMPLETED", cpu_time=cpu_time, wall_time=wall_time
    )

    found = with_other_figures(
        [OURS["time"], OURS["cpus"]], [accounted], (), scheduler="slurm"
    )

    assert [one.word for one in found[1].others] == [word]


@pytest.mark.parametrize(
    ("scheduler", "virtual", "shown"),
    [
        ("gridengine", 3 * GIB, [3]),
        ("gridengine", None, []),
        ("slurm", 3 * GIB, []),
    ],
)
def test_address_space_is_a_figure_of_its_own_where_it_is_accounted(
    scheduler: str, virtual: int | None, shown: list[int]
) -> None:
    theirs = AccountedElement(
        element=0, state="COMPLETED", max_rss=GIB, virtual_memory=virtual
    )

    (found,) = with_other_figures([OURS["memory"]], [theirs], (), scheduler=scheduler)

    assert [one.value for one in found.others] == [size * GIB for size in shown]


@pytest.mark.parametrize(("theirs", "shown"), [(11.5, []), (12.5, [12.5])])
def test_accounting_has_whole_seconds(theirs: float, shown: list[float]) -> None:
    ours = ReportMeasure(name="time", unit="seconds", median=10.0, most=10.0)
    accounted = AccountedElement(element=0, state="COMPLETED", wall_time=theirs)

    (found,) = with_other_figures([ours], [accounted], (), scheduler="slurm")

    assert [one.value for one in found.others] == shown


@pytest.mark.parametrize(
    ("held", "sampled", "is_trusted"),
    [(GIB // 2, 30.0, False), (GIB // 2, None, True), (2 * GIB, 30.0, True)],
)
def test_less_gpu_memory_is_not_trusted_where_samples_are_known_to_be_rare(
    held: int,
    sampled: float | None,
    is_trusted: bool,  # noqa: FBT001 - a table
) -> None:
    accounted = AccountedElement(
        element=0, state="COMPLETED", gpu_memory=held, sampled=sampled
    )

    (found,) = with_other_figures(
        [OURS["gpu_memory"]], [accounted], (), scheduler="slurm"
    )

    (word,) = [one.word or "" for one in found.others]
    assert word.endswith("trust weigh's") is not is_trusted


def test_a_zero_of_accounting_is_no_sample() -> None:
    accounted = AccountedElement(element=0, state="COMPLETED", max_rss=0, sampled=1.0)

    (found,) = with_other_figures([OURS["memory"]], [accounted], (), scheduler="slurm")

    (word,) = [one.word for one in found.others]
    assert word == "not zero: no sample was taken (sampled every 1 s)"


def test_a_report_spans_the_attempts_that_began() -> None:
    began = ReviewedRun(row=ReportRow(started=1.0, wall_time=2.0, state="FAILED"))
    again = ReviewedRun(row=ReportRow(started=4.0, wall_time=5.0, state="COMPLETED"))
    waits = ReviewedRun(row=ReportRow(state="PENDING"))
    runs = (began, again, waits)
    elements = tuple(single_run_element(run, NOTHING) for run in runs)

    report = compose_report(
        ReportFindings(title="t", requested=NOTHING, runs=runs, elements=elements)
    )

    assert (report.started, report.ended) == (1.0, 9.0)


def asked_notes(
    measure: ReportMeasure, requested: ElementRequest
) -> list[tuple[str | None, float]]:
    """Return flags and weights of the notes on one element that completed."""
    need = round(measure.most or 0) if measure.name == "memory" else None
    run = ReviewedRun(
        row=ReportRow(started=0.0, wall_time=100.0, state="COMPLETED"), need=need
    )
    element = single_run_element(run, requested)
    subject = AdviceSubject(
        elements=[element], requested=requested, measures={measure.name: measure}
    )
    return [(note.flag, note.weight) for note in resource_notes(subject)]


@pytest.mark.parametrize(
    ("name", "used", "requested", "note"),
    [
        # 7 of 10: well requested; below: 20 % more than was used, rounded up
        ("memory", 700 * MIB, {"memory": 1000 * MIB}, None),
        ("memory", 600 * MIB, {"memory": 1000 * MIB}, ("--mem=720M", 60 * 0.28)),
        # a gain of less than 100 MiB
        ("memory", 100 * MIB, {"memory": 200 * MIB}, None),
        ("memory", 899 * MIB, {"memory": 1000 * MIB}, None),
        ("memory", 900 * MIB, {"memory": 1000 * MIB}, ("--mem=1080M", 80)),
        ("time", 4200.0, {"time_limit": 6000}, None),
        ("time", 3000.0, {"time_limit": 6000}, ("--time=01:00:00", 30 * 0.4)),
        ("time", 5400.0, {"time_limit": 6000}, ("--time=02:00:00", 78)),
        # as much as the least that is requested
        ("time", 10.0, {"time_limit": 300}, None),
        ("cpus", 3.2, {"cpus": 4}, None),
        (
            "cpus",
            2.1,
            {"cpus": 4},
            ("--cpus-per-task=2", 50 * 0.5),
        ),  # a tenth of a CPU is noise
        ("cpus", 2.2, {"cpus": 4}, ("--cpus-per-task=3", 50 * 0.25)),
    ],
)
def test_a_flag_is_advised_from_a_threshold_on(
    name: str,
    used: float,
    requested: dict[str, int],
    note: tuple[str, float] | None,
) -> None:
    measure = ReportMeasure(name=name, unit="bytes", median=used, most=used)  # type: ignore[arg-type]

    notes = asked_notes(measure, ElementRequest(scheduler="slurm", **requested))  # type: ignore[arg-type]

    # what wastes more comes first, and what loses work before it
    expected: list[object] = [] if note is None else [(note[0], pytest.approx(note[1]))]
    assert notes == expected


@pytest.mark.parametrize(("elapsed", "advised"), [(None, True), (200.0, False)])
def test_what_accounting_saw_counts_where_weigh_saw_only_a_part_of_the_job(
    elapsed: float | None, *, advised: bool
) -> None:
    requested = ElementRequest(scheduler="slurm", memory=1000 * MIB)
    seen = {"memory": 800.0 * MIB, "time": elapsed}
    measures = {
        name: replace(
            OURS[name],
            others=tuple(
                OtherFigure(source="sacct", value=value)
                for value in [seen[name]]
                if value is not None
            ),
        )
        for name in ("memory", "time")
    }
    row = ReportRow(started=0.0, wall_time=100.0, state="COMPLETED")
    element = single_run_element(ReviewedRun(row=row, need=100 * MIB), requested)

    notes = resource_notes(
        AdviceSubject(elements=[element], requested=requested, measures=measures)
    )

    assert any(note.flag == "--mem=120M" for note in notes) is advised


@pytest.mark.parametrize(("runs", "notes"), [(1, 1), (2, 0)])
def test_the_ranks_of_one_run_alone_are_compared(runs: int, notes: int) -> None:
    ranks = tuple(
        RecordedRank(number, host="n1", peak_memory=size * MIB)
        for number, size in enumerate((100, 100, 400))
    )
    records = [a_record(id=f"{number:012x}", ranks=ranks) for number in range(runs)]
    elements = [single_run_element(run, NOTHING) for run in runs_of_records(records)]

    found = report_notes(
        AdviceSubject(elements=elements, requested=NOTHING, measures={}), ()
    )

    words = [note.words for note in found if note.about == "ranks"]
    assert len(words) == notes
    assert all(one.startswith("largest: rank 2 on n1, 400 MiB") for one in words)


def test_an_element_that_never_ran_held_nothing() -> None:
    waits = ReviewedRun(row=ReportRow(state="PENDING"))
    ran = ReviewedRun(row=ReportRow(started=0.0, wall_time=1800.0, state="COMPLETED"))
    requested = ElementRequest(cpus=4, memory=2 * GIB)

    report = compose_report(
        ReportFindings(
            title="t",
            requested=requested,
            runs=(waits, ran),
            elements=tuple(single_run_element(run, requested) for run in (waits, ran)),
        )
    )

    assert report.cpu_hours == 2.0


def test_memory_is_compared_with_h_vmem_where_nothing_else_was_requested() -> None:
    requested = ElementRequest(virtual_memory=GIB)
    accounted = AccountedElement(element=0, state="COMPLETED", virtual_memory=GIB // 2)
    blank = ReportMeasure(name="memory", unit="bytes")

    (filled,), source = filled_measures(
        [blank], [accounted], requested, scheduler="gridengine"
    )

    assert (filled.requested, filled.most, filled.efficiency) == (GIB, GIB // 2, 0.5)
    assert source.startswith("qacct maxvmem")


def test_runs_are_of_their_element_and_one_without_runs_has_a_state() -> None:
    states = [ElementState(state="PENDING")] * 3
    rows = [ReportRow(element=number, started=0.0) for number in (1, 1, None)]

    found = elements_of_runs([ReviewedRun(row=row) for row in rows], states, NOTHING)

    assert [(one.number, len(one.runs)) for one in found] == [(0, 1), (1, 2), (2, 0)]
    assert [one.state for one in found] == states


@pytest.mark.parametrize(("wall_time", "most"), [(1.001, 7), (1.002, 7), (1.1, 14)])
def test_runs_that_follow_each_other_overlap_by_no_rounding(
    wall_time: float, most: int
) -> None:
    rows = (
        ReportRow(started=0.0, wall_time=wall_time, memory=7),
        ReportRow(started=1.0, wall_time=1.0, memory=7),
    )

    for ordered in (rows, rows[::-1]):
        assert memory_at_once([ReviewedRun(row=row) for row in ordered]) == most


def test_the_title_of_a_doubt_on_accounting_is_not_cut() -> None:
    accounted = AccountedElement(element=0, doubts=("a node has no 1 EiB",))
    report = compose_report(
        ReportFindings(
            title="t",
            requested=NOTHING,
            runs=(),
            elements=(),
            accounted=(accounted,),
        )
    )
    lines = [line for note in report.notes for line in report_note_lines(note)]
    assert "  figures   a node has no 1 EiB" in lines
