"""What sacct, qacct and a log's GPU table say, beside weigh's own, and whom to believe.

The texts were captured from Slurm 22.05.8 and Grid Engine 8.1.9, the table from the job
log of a site.
"""

import io
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_jobs import JOB, Say, SomeJob, Task, write_job
from transcript import check_texts

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
from weigh.units import GIB, KIB, MIB

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


def test_sacct_gives_each_element_what_it_requested_and_its_largest_step() -> None:
    first, failed, killed = slurm_accounting.ACCOUNTING.parse(SACCT)
    assert (first.element, first.max_rss) == (0, 212079 * KIB)
    assert (first.memory_asked, first.time_limit, first.cpus) == (600 * MIB, 300, 1)
    assert (first.wall_time, first.cpu_time) == (5.0, 0.251)
    assert failed.max_rss is None  # no sample was taken: not a zero
    assert killed.state == "OUT_OF_MEMORY"
    assert (killed.gpus, killed.gpu_memory) == (2, 1234 * MIB)
    assert killed.cpu_time == 86400 + 2 * 3600 + 3 * 60 + 4


def test_an_element_that_never_ran_used_no_time() -> None:
    # Slurm 22.05, an array cancelled while it waited
    text = f"{COLUMNS}3|CANCELLED by 0|0|10|16?|0|00:00:00|||None assigned||0\n"

    (element,) = slurm_accounting.ACCOUNTING.parse(text)

    assert (element.wall_time, element.memory_asked) == (None, None)


@pytest.mark.parametrize(("text", "size"), [("4Gn", 4 * GIB), ("4Gc", 8 * GIB)])
def test_sacct_of_old_requested_per_node_or_per_cpu(text: str, size: int) -> None:
    line = SACCT.replace("|600M|1|", f"|{text}|2|")
    assert slurm_accounting.ACCOUNTING.parse(line)[0].memory_asked == size


def test_qacct_counts_what_it_calls_kilobytes_as_1024_kibibytes() -> None:
    (one,) = gridengine_accounting.ACCOUNTING.parse(QACCT)
    assert one.max_rss == round(207.828 * MIB)
    assert one.virtual_memory == math.ceil(211.035 * MIB)
    assert (one.element, one.wall_time, one.cpu_time) == (1, 12.0, 3.25)
    assert (one.memory_asked, one.time_limit) == (2 * GIB, 600)


def test_a_gpu_table_of_the_log_is_read() -> None:
    (table,) = read_tables(f"output of the job\n{TABLE}\n")
    assert (table.gpu, table.gpu_memory) == ("1", 2205155328)
    assert (table.utilization, table.process_utilization) == (0.39, 0.16)
    assert table.one_look


@given(st.text(max_size=300))
def test_no_text_makes_accounting_raise(text: str) -> None:
    for parse in (
        slurm_accounting.ACCOUNTING.parse,
        gridengine_accounting.ACCOUNTING.parse,
        read_tables,
    ):
        parse(text)
        parse(f"{SACCT}{QACCT}{TABLE}{text}")
    for source in (slurm_accounting.ACCOUNTING, gridengine_accounting.ACCOUNTING):
        for written in (text, f"{LIST}{text}", f"{QACCT}{text}", f"{LINE}{text}"):
            list(source.read_past(io.StringIO(written, newline="\n")))


@given(st.integers(0, len(TABLE)))
def test_a_gpu_table_cut_off_anywhere_never_gives_another_peak(end: int) -> None:
    assert {table.gpu_memory for table in read_tables(TABLE[:end])} <= {2205155328}


def ours(most: float | None = GIB) -> ReportMeasure:
    return ReportMeasure(name="memory", unit="bytes", median=most, most=most)


def accounted(**known: Any) -> AccountedElement:
    fields: dict[str, Any] = {"element": 0, "state": "COMPLETED"}
    return AccountedElement(**(fields | known))


WHOLE_JOB = accounted(wall_time=4200.0, cpu_time=650.0)
CPUS = ReportMeasure(name="cpus", unit="cpus", median=1.0, most=1.0)
TEN_MINUTES = ReportMeasure(name="time", unit="seconds", median=600.0, most=600.0)
KILLED = "a task was killed for memory"
# what weigh measured, and what accounting reports
FIGURES: dict[str, tuple[list[ReportMeasure], AccountedElement]] = {
    "a zero of a killed job": (
        [ours(5 * GIB)],
        accounted(state="OUT_OF_MEMORY", max_rss=0),
    ),
    "a zero where weigh measured nothing": (
        [ReportMeasure(name="memory", unit="bytes", requested=GIB)],
        accounted(max_rss=0, sampled=1.0),
    ),
    f"{KILLED}, and sacct saw more": (
        [ours()],
        accounted(state="FAILED", max_rss=5 * GIB),
    ),
    "more than weigh measured": ([ours()], accounted(max_rss=2 * GIB)),
    "nearly the same": ([ours()], accounted(max_rss=GIB + 10 * MIB)),
    "a job that still runs": ([ours()], accounted(state="RUNNING", max_rss=3 * GIB)),
    "a job that slept before its run": ([CPUS, TEN_MINUTES], WHOLE_JOB),
    **{
        f"less, sampled every {sampled} s": (
            [ours()],
            accounted(max_rss=GIB // 2, wall_time=9.0, sampled=sampled),
        )
        for sampled in (30.0, 10.0, 0.0, None)
    },
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
    measures, told = FIGURES[name]
    killed = name.startswith(KILLED)
    text = ""
    for one in with_other_figures(
        measures, (told,), (), scheduler="slurm", killed=killed
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
    texts = {name: figures_text(name) for name in FIGURES}
    texts |= {name: report_text(name) for name in UNMEASURED}
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
    fake = tmp_path / "bin" / "sacct"
    fake.parent.mkdir()
    line = f"{JOB}_0|COMPLETED|3600|360|8G|4|54:00||cpu=4|n1||"
    step = f"{JOB}_0.batch|COMPLETED|3600|||4|54:00|3G|cpu=4|n1||0"
    fake.write_text(
        f"#!/bin/sh\necho >>{tmp_path}/asked\necho '{COLUMNS}{line}\n{step}'\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}/bin")
    _, out, _ = say("report", JOB)
    assert "sacct MaxRSS: 3.00 GiB" in out
    assert (tmp_path / "asked").read_text() == "\n"


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ("JobAcctGatherFrequency  = 30\nJobAcctGatherType = jobacct_gather/linux", 30),
        ("JobAcctGatherFrequency  = task=10\n", 10),
        ("JobAcctGatherFrequency  = energy=60,task=15,network=0\n", 15),
        (
            "JobAcctGatherFrequency  = energy=60\n",
            30,
        ),  # the default of what is left out
        ("JobAcctGatherFrequency  = 0\n", 0),
        ("JobAcctGatherFrequency  = 30\nJobAcctGatherType = (null)\n", None),
        ("JobAcctGatherFrequency  = 30\nJobAcctGatherType = jobacct_gather/none", None),
        ("JobAcctGatherFrequency  = (null)\n", None),
        ("JobAcctGatherFrequency  = task=\n", None),
        ("", None),
    ],
)
def test_how_often_slurm_samples_is_read_from_its_configuration(
    config: str, seconds: float | None
) -> None:
    assert slurm_accounting.parse_interval(config) == seconds
