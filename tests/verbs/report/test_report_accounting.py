"""What sacct, qacct and a log's GPU table say, beside weigh's own, and whom to believe.

The table is from the job log of a site; tests/unit/schedulers reads captured texts.
"""

import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_jobs import JOB, Say, SomeJob, Task, write_job
from transcript import check_answers, check_texts
from written_programs import write_program

from weigh.errors import SchedulerError
from weigh.model.report import AccountedElement, ReportMeasure
from weigh.render.report_lines import report_screen_text
from weigh.render.words import unit_value_text
from weigh.review.figures import with_other_figures
from weigh.review.runs import ElementRequest
from weigh.review.summary import ReportFindings, compose_report
from weigh.schedulers import accounting
from weigh.schedulers.accounting import read_tables
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine import accounting as gridengine_accounting
from weigh.schedulers.slurm import accounting as slurm_accounting
from weigh.units import GIB, MIB, parse_size

COLUMNS = (
    "JobID|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|TotalCPU|MaxRSS|AllocTRES|"
    "NodeList|TRESUsageInMax|ConsumedEnergyRaw\n"
)
# a step of which the GPU's figures count, and a job that was cancelled while it waited
SACCT = f"""\
{COLUMNS}\
1_3|OUT_OF_MEMORY|94000|5|600M|1|1-02:03:04||cpu=1,gres/gpu=2,mem=600M|cn1||
1_3.batch|FAILED|3|||1|00:01.112|0|cpu=1,mem=600M|cn1|\
cpu=00:00:02,gres/gpumem=1234M,gres/gpuutil=57|0
"""
NEVER_RAN = f"""\
{COLUMNS}\
3|CANCELLED by 0|0|10|16?|0|00:00:00|||None assigned||0
"""
TABLE = (Path(__file__).parent / "gpu_table.txt").read_text()


def test_steps_of_sacct_and_a_gpu_table_in_the_log_are_read() -> None:
    (killed,) = slurm_accounting.ACCOUNTING.parse(SACCT)
    (waited,) = slurm_accounting.ACCOUNTING.parse(NEVER_RAN)
    assert (killed.wall_time, killed.cpu_time, killed.max_rss) == (94000, 93784, 0)
    assert (killed.gpus, killed.gpu_memory) == (2, 1234 * MIB)
    assert killed.gpu_utilization == 0.57
    assert (waited.wall_time, waited.cpu_time, waited.memory_asked) == (None, 0, None)

    (table,) = read_tables(f"output of the job\n{TABLE}\n")
    assert (table.gpu, table.gpu_memory, table.one_look) == ("1", 2205155328, True)
    assert (table.utilization, table.process_utilization) == (0.39, 0.16)


@given(st.text(max_size=300))
def test_no_text_makes_grid_engine_s_accounting_raise(text: str) -> None:
    line = "q:n:g:o:j:2:sge:0:1:1:9:0:0:3:.1:.1:4956.0" + 28 * ":0" + "\n"
    for written in (text, line + text):
        lines = io.StringIO(written, newline="\n")
        list(gridengine_accounting.ACCOUNTING.read_past(lines))


@given(st.integers(0, len(TABLE)))
def test_a_gpu_table_cut_off_anywhere_never_gives_another_peak(end: int) -> None:
    assert {table.gpu_memory for table in read_tables(TABLE[:end])} <= {2205155328}


def ours(name: str, figure: float) -> ReportMeasure:
    unit = {"cpus": "cpus", "time": "seconds", "gpu_utilization": "share"}
    return ReportMeasure(
        name=name,  # type: ignore[arg-type]
        unit=unit.get(name, "bytes"),  # type: ignore[arg-type]
        median=figure or None,
        most=figure or None,
    )


def accounted(**known: Any) -> AccountedElement:
    fields: dict[str, Any] = {"element": 0, "state": "COMPLETED"}
    return AccountedElement(**(fields | known))


def accounting_words(row: str) -> str:
    """Return what is told of accounting's figures: NAME=FIGURE of weigh's | theirs.

    ``killed`` is of a job one of whose tasks was killed for memory, ``from`` of another
    scheduler than Slurm.
    """
    own, theirs = (
        dict(word.split("=") for word in words.split()) for words in row.split(" | ")
    )
    scheduler, killed = theirs.pop("from", "slurm"), theirs.pop("killed", "")
    measures = with_other_figures(
        [ours(name, read_figure(text) or 0) for name, text in own.items()],
        (accounted(**{name: read_figure(text) for name, text in theirs.items()}),),
        (),
        scheduler=scheduler,
        killed=bool(killed),
    )
    words = (
        f"{one.name}: {figure.source} {unit_value_text(figure.value, one.unit)}, "
        f"{figure.word}"
        for one in measures
        for figure in one.others
    )
    return " + ".join(words) or "nothing"


def read_figure(text: str) -> Any:
    """Return a size, a number, a state, or None."""
    if (text.isupper() and text.isalpha()) or "_" in text:
        return text
    if text == "none":
        return None
    return parse_size(text) if text[-1].isalpha() else float(text)


SAMPLED = [
    accounted(
        element=n,
        max_rss=(100 + n) * MIB,
        cpu_time=100.0,
        wall_time=50.0,
        sampled=30.0,
    )
    for n in range(3)
]
ADDRESS_SPACE = accounted(
    max_rss=100 * MIB, virtual_memory=512 * MIB, memory_asked=GIB, wall_time=50.0
)
# jobs without a record: scheduler, request, and what accounting reports
UNMEASURED: dict[str, tuple[ElementRequest, list[AccountedElement]]] = {
    "a job that sacct alone knows": (
        ElementRequest(scheduler="slurm", memory=GIB, cpus=4, time_limit=600),
        SAMPLED,
    ),
    "a job of Grid Engine, whose address space is limited": (
        ElementRequest(scheduler="gridengine", virtual_memory=GIB, time_limit=600),
        [ADDRESS_SPACE],
    ),
    "a job without a sample of its memory": (
        ElementRequest(scheduler="slurm", memory=GIB),
        [accounted(max_rss=0, wall_time=1.0)],
    ),
}


def report_text(name: str) -> str:
    requested, told = UNMEASURED[name]
    findings = ReportFindings(
        title="job 1",
        unit="element",
        requested=requested,
        runs=(),
        elements=(),
        job="1",
        scheduler=requested.scheduler,
        accounted=tuple(told),
    )
    return f"{report_screen_text(compose_report(findings))}\n"


def test_figures_of_accounting_are_judged_as_they_were_reviewed() -> None:
    def interval(config: str) -> float | None:
        return slurm_accounting.parse_interval(config.replace("; ", "\n"))

    asked = {
        "figures of weigh | of accounting": accounting_words,
        "seconds between samples of Slurm, by its configuration": interval,
    }
    check_answers(Path(__file__).with_name("figures.texts"), asked)


def test_jobs_without_a_record_are_reported_as_they_were_reviewed() -> None:
    texts = {name: report_text(name) for name in UNMEASURED}
    check_texts(Path(__file__).with_name("accounting.texts"), texts)


def test_where_accounting_is_missing_or_refuses_nothing_is_reported() -> None:
    def missing(_argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
        raise SchedulerError("sacct is not on this machine")

    def refuses(_argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
        return CommandOutput(1, SACCT, "Slurm accounting storage is disabled")

    assert accounting.accounting_of_job("slurm", "1", run=missing, env={}) == ()
    assert accounting.accounting_of_job("slurm", "1", run=refuses, env={}) == ()
    assert accounting.accounting_of_job("local", "1", run=missing, env={}) == ()


def test_a_sacct_on_path_is_queried_once_for_the_whole_job(
    root: str, say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = SomeJob(tasks=(Task(memory=GIB), Task(memory=GIB)))
    write_job(root, f"{Path(root).parent}/plan/p", job)
    line = f"{JOB}_0|COMPLETED|3600|360|8G|4|54:00||cpu=4|n1||"
    step = f"{JOB}_0.batch|COMPLETED|3600|||4|54:00|3G|cpu=4|n1||0"
    answer = f"echo >>{tmp_path}/asked\necho '{COLUMNS}{line}\n{step}'"
    fake = write_program(tmp_path / "bin/sacct", answer)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}/bin")
    _, out, _ = say("report", JOB)
    assert "sacct MaxRSS: 3.00 GiB" in out
    assert (tmp_path / "asked").read_text() == "\n"
