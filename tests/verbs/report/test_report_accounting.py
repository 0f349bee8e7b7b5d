"""What sacct, qacct and a log's GPU table say, beside weigh's own, and whom to believe.

The texts were captured from Slurm 22.05.8 and Grid Engine 8.1.9, the table from the job
log of a site.
"""

import io
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_jobs import JOB, Say, SomeJob, Task, write_job

from weigh.errors import SchedulerError
from weigh.model.report import AccountedElement, JobReport, ReportMeasure
from weigh.render.report_lines import report_screen_text
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
    assert (table.power_mean, table.sm_clock, table.energy) == (56.378, 1380.0, 0.0)
    assert table.one_look
    assert table.health == "Healthy"


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


def _of(most: float, *told: AccountedElement, killed: bool = False) -> ReportMeasure:
    ours = ReportMeasure(name="memory", unit="bytes", median=most, most=most)
    return with_other_figures([ours], told, (), scheduler="slurm", killed=killed)[0]


def test_a_zero_of_a_killed_job_is_shown_and_not_believed() -> None:
    told = AccountedElement(element=0, state="OUT_OF_MEMORY", max_rss=0)
    (figure,) = _of(5 * GIB, told).others
    assert figure.value == 0
    assert figure.word is not None
    assert "trust weigh's" in figure.word


def test_a_zero_alone_is_no_sample() -> None:
    """A script that sacct never sampled, and that weigh did not measure."""
    unknown = ReportMeasure(name="memory", unit="bytes", requested=GIB)
    told = AccountedElement(element=0, state="COMPLETED", max_rss=0, sampled=1.0)
    (measure,) = with_other_figures([unknown], (told,), (), scheduler="slurm")
    (figure,) = measure.others
    assert figure.word == "not zero: no sample was taken (sampled every 1 s)"


def test_what_sacct_saw_after_weigh_of_a_killed_task_is_believed() -> None:
    told = AccountedElement(element=0, state="FAILED", max_rss=5 * GIB)
    (figure,) = _of(GIB, told, killed=True).others
    assert figure.word is not None
    assert figure.word.endswith("use this")


def test_more_than_weigh_saw_is_called_an_upper_bound() -> None:
    (figure,) = _of(
        GIB, AccountedElement(element=0, state="COMPLETED", max_rss=2 * GIB)
    ).others
    assert figure.word is not None
    assert "upper bound" in figure.word


def test_figures_that_agree_are_shown_once() -> None:
    assert not _of(GIB, AccountedElement(element=0, max_rss=GIB + 10 * MIB)).others


def test_what_still_runs_is_no_figure_to_compare() -> None:
    assert not _of(
        GIB, AccountedElement(element=0, state="RUNNING", max_rss=3 * GIB)
    ).others


def test_where_accounting_is_missing_or_refuses_nothing_is_reported() -> None:
    def missing(_argv: tuple[str, ...], **_: object) -> CommandOutput:
        raise SchedulerError("sacct is not on this machine")

    def refuses(_argv: tuple[str, ...], **_: object) -> CommandOutput:
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


def test_a_job_that_slept_before_its_run_is_no_accounting_that_missed_something() -> (
    None
):
    cpus = ReportMeasure(name="cpus", unit="cpus", median=1.0, most=1.0)
    time = ReportMeasure(name="time", unit="seconds", median=600.0, most=600.0)
    told = AccountedElement(
        element=0, state="COMPLETED", wall_time=4200.0, cpu_time=650.0
    )
    (figure,) = with_other_figures([cpus, time], [told], (), scheduler="slurm")[
        0
    ].others
    assert figure.word == "over the whole job, including its set-up"


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


@pytest.mark.parametrize(
    ("sampled", "words"),
    [
        (30.0, "sampled every 30 s, peaks are missed: trust weigh's"),
        (10.0, "sampled every 10 s, peaks are missed: trust weigh's"),
        (0.0, "sampled at the end only, peaks are missed: trust weigh's"),
        (None, "sampled at unknown intervals, peaks may be missed"),
    ],
)
def test_a_smaller_figure_is_distrusted_where_its_interval_is_known(
    sampled: float | None, words: str
) -> None:
    told = AccountedElement(
        element=0, state="COMPLETED", max_rss=GIB // 2, wall_time=9.0, sampled=sampled
    )
    (figure,) = _of(GIB, told).others
    assert figure.word == words


def unmeasured(
    scheduler: str, requested: ElementRequest, *told: AccountedElement
) -> JobReport:
    """Report on a job without a record."""
    return compose_report(
        ReportFindings(
            title="job 1",
            unit="element",
            requested=requested,
            runs=(),
            elements=(),
            job="1",
            scheduler=scheduler,
            accounted=told,
        )
    )


def test_without_a_record_saccts_figures_stand_in_the_columns() -> None:
    asked = ElementRequest(scheduler="slurm", memory=GIB, cpus=4, time_limit=600)
    told = [
        AccountedElement(
            element=n,
            state="COMPLETED",
            max_rss=(100 + n) * MIB,
            cpu_time=100.0,
            wall_time=50.0,
            sampled=30.0,
        )
        for n in range(3)
    ]
    shown = " ".join(report_screen_text(unmeasured("slurm", asked, *told)).split())
    assert "memory 1.00 GiB 101 MiB 102 MiB" in shown
    assert "10 %" in shown
    assert "CPUs 4 2 2" in shown
    assert "time 00:10:00 50.0 s 50.0 s" in shown
    assert (
        "source sacct MaxRSS: sampled every 30 s: peaks in between are missed" in shown
    )


def test_without_a_record_grid_engines_address_space_is_compared_with_h_vmem() -> None:
    asked = ElementRequest(scheduler="gridengine", virtual_memory=GIB, time_limit=600)
    told = AccountedElement(
        element=0,
        state="COMPLETED",
        max_rss=100 * MIB,
        virtual_memory=512 * MIB,
        memory_asked=GIB,
        wall_time=50.0,
    )
    shown = " ".join(report_screen_text(unmeasured("gridengine", asked, told)).split())
    assert "memory 1.00 GiB 512 MiB" in shown
    assert "50 %" in shown
    assert "source qacct maxvmem: address space, which h_vmem limits" in shown


def test_without_a_sample_no_memory_is_made_up() -> None:
    asked = ElementRequest(scheduler="slurm", memory=GIB)
    told = AccountedElement(element=0, state="COMPLETED", max_rss=0, wall_time=1.0)
    memory = unmeasured("slurm", asked, told).measures[0]
    assert (memory.name, memory.requested, memory.most) == ("memory", GIB, None)
