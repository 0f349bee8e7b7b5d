"""What sacct, qacct and a log's GPU table say, beside weigh's own, and whom to believe.

The texts were captured from Slurm 22.05.8 and Grid Engine 8.1.9, the table from the job
log of a site.
"""

import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
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
from weigh.units import GIB, MIB

SLURM, GRID_ENGINE = slurm_accounting.ACCOUNTING, gridengine_accounting.ACCOUNTING
COLUMNS = (
    "JobID|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|TotalCPU|MaxRSS|AllocTRES|"
    "NodeList|TRESUsageInMax|ConsumedEnergyRaw\n"
)
SACCT = f"""\
{COLUMNS}\
1_0|COMPLETED|5|5|600M|1|00:00.251||billing=1,cpu=1,mem=600M,node=1|cn1||
1_0.batch|COMPLETED|5|||1|00:00.251|212079K|cpu=1,mem=600M,node=1|cn1|\
cpu=00:00:00,energy=0,fs/disk=3045035,mem=212079K,pages=0,vmem=307876K|0
1_2|FAILED|1|5|600M|1|00:00.093||billing=1,cpu=1,mem=600M,node=1|cn1||
1_2.batch|FAILED|1|||1|00:00.093||cpu=1,mem=600M,node=1|cn1||0
1_3|OUT_OF_MEMORY|94000|5|600M|1|1-02:03:04||cpu=1,gres/gpu=2,mem=600M|cn1||
1_3.batch|FAILED|3|||1|00:01.112|0|cpu=1,mem=600M|cn1|\
cpu=00:00:02,gres/gpumem=1234M,gres/gpuutil=57|0
"""
QACCT = """\
==============================================================
qname        short.q
hostname     node07
jobnumber    42
taskid       2
start_time   Sat Nov 21 02:23:49 2026
end_time     Sat Nov 21 02:24:01 2026
slots        2
failed       0
exit_status  0
ru_wallclock 12s
ru_maxrss    207.828KB
cpu          3.250s
maxvmem      211.035MB
category     -l h_rt=600,h_vmem=1G -pe smp 2
"""
LIST = "JobID|JobName|State|Start|End|ElapsedRaw|NTasks|MaxRSS|Comment\n1|a|COMPLETED|"
LINE = "q:n:g:o:j:2:sge:0:1:1:9:0:0:3:.1:.1:4956.0" + 28 * ":0" + "\n"
TABLE = (Path(__file__).parent / "gpu_table.txt").read_text()


NEVER_RAN = f"{COLUMNS}3|CANCELLED by 0|0|10|16?|0|00:00:00|||None assigned||0\n"
PARSED: dict[str, tuple[Callable[[str], Iterable[msgspec.Struct]], str]] = {
    "sacct: the largest step counts": (SLURM.parse, SACCT),
    "sacct: a job that was cancelled while it waited used no time": (
        *(SLURM.parse, NEVER_RAN),
    ),
    "sacct of old: memory per node": (SLURM.parse, SACCT.replace("600M|1|", "4Gn|2|")),
    "sacct of old: memory per CPU": (SLURM.parse, SACCT.replace("600M|1|", "4Gc|2|")),
    "qacct: its kilobytes are 1024 kibibytes": (GRID_ENGINE.parse, QACCT),
    "a GPU table in the log": (read_tables, f"output of the job\n{TABLE}\n"),
}


def parsed_text(name: str) -> str:
    parse, text = PARSED[name]
    rows = [msgspec.structs.asdict(one).items() for one in parse(text)]
    known = [
        " ".join(f"{k}={v}" for k, v in row if v not in (None, ())) for row in rows
    ]
    return "".join(f"{row}\n" for row in known)


@given(st.text(max_size=300))
def test_no_text_makes_accounting_raise(text: str) -> None:
    for parse in (SLURM.parse, GRID_ENGINE.parse, read_tables):
        parse(text)
        parse(f"{SACCT}{QACCT}{TABLE}{text}")
    for source in (SLURM, GRID_ENGINE):
        for written in (text, f"{LIST}{text}", f"{QACCT}{text}", f"{LINE}{text}"):
            list(source.read_past(io.StringIO(written, newline="\n")))


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


KILLED = "a task was killed for memory"
# what weigh measured, and what accounting reports
FIGURES: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
    "a zero of a killed job": (
        {"memory": 5 * GIB},
        {"state": "OUT_OF_MEMORY", "max_rss": 0},
    ),
    "a zero where weigh measured nothing": (
        {"memory": 0},
        {"max_rss": 0, "sampled": 1.0},
    ),
    "a zero beside a figure": ({"memory": GIB}, {"max_rss": 0, "sampled": 1.0}),
    f"{KILLED}, and sacct saw more": (
        {"memory": GIB},
        {"state": "FAILED", "max_rss": 5 * GIB},
    ),
    "more than weigh measured": ({"memory": GIB}, {"max_rss": 2 * GIB}),
    "4 % more": ({"memory": GIB}, {"max_rss": round(1.04 * GIB)}),
    "6 % more": ({"memory": GIB}, {"max_rss": round(1.06 * GIB)}),
    "a job that still runs": (
        {"memory": GIB},
        {"state": "RUNNING", "max_rss": 3 * GIB},
    ),
    "a job that slept before its run": (
        {"cpus": 1.0, "time": 600.0},
        {"wall_time": 4200.0, "cpu_time": 650.0},
    ),
    **{
        f"less, sampled every {sampled} s": (
            {"memory": GIB, "gpu_memory": GIB},
            {"max_rss": GIB // 2, "gpu_memory": GIB // 2, "sampled": sampled},
        )
        for sampled in (30.0, 10.0, 0.0, None)
    },
    "more GPU memory, sampled rarely": (
        {"gpu_memory": GIB},
        {"gpu_memory": 2 * GIB, "sampled": 30.0},
    ),
    "as much GPU memory": ({"gpu_memory": GIB}, {"gpu_memory": GIB}),
    "a busier GPU": ({"gpu_utilization": 0.5}, {"gpu_utilization": 0.9}),
    "a GPU as busy": ({"gpu_utilization": 0.5}, {"gpu_utilization": 0.51}),
    **{
        f"{cpu} s of CPU time in {wall} s beside 1 CPU in 100 s": (
            {"cpus": 1.0, "time": 100.0},
            {"cpu_time": cpu, "wall_time": wall},
        )
        for cpu, wall in [(109, 100), (111, 100), (300, 100), (50, 100), (50, 200)]
    },
    **{
        f"{theirs} s beside {time} s": ({"time": time}, {"wall_time": theirs})
        for time, theirs in [(100.0, 104.0), (10.0, 11.5), (10.0, 12.5)]
    },
    "no time at all": ({"time": 100.0}, {"cpu_time": 1.0}),
    **{
        f"address space of {scheduler}": (
            {"memory": GIB},
            {"max_rss": GIB, "virtual_memory": 3 * GIB},
        )
        for scheduler in ("slurm", "gridengine")
    },
    "no address space of gridengine": ({"memory": GIB}, {"max_rss": GIB}),
}
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


def figures_text(name: str) -> str:
    measures, theirs = FIGURES[name]
    text = ""
    for one in with_other_figures(
        [ours(*measure) for measure in measures.items()],
        (accounted(**theirs),),
        (),
        scheduler="gridengine" if "gridengine" in name else "slurm",
        killed=name.startswith(KILLED),
    ):
        for figure in one.others:
            value = unit_value_text(figure.value, one.unit)
            text += f"{one.name}  {figure.source} {value}: {figure.word}\n"
    return text


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
    texts = {name: parsed_text(name) for name in PARSED}
    texts |= {name: figures_text(name) for name in FIGURES}
    texts |= {name: report_text(name) for name in UNMEASURED}
    check_texts(Path(__file__).with_name("accounting.texts"), texts)


def test_how_often_slurm_samples_is_read_from_its_configuration() -> None:
    def interval(config: str) -> float | None:
        return slurm_accounting.parse_interval(config.replace("; ", "\n"))

    path = Path(__file__).with_name("intervals.texts")
    check_answers(path, {"seconds between samples": interval})


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
