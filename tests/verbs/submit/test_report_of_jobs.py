"""``weigh report`` of jobs that real schedulers ran, with their accounting beside."""

import time

import msgspec
from following import PATIENCE, Weigh
from rigs import mainly

from weigh.model.job import FINAL
from weigh.model.report import JobReport, ReportMeasure
from weigh.schedulers import KINDS
from weigh.units import MIB

HOLDS = "python3 -c 'import time; x = bytearray(30 << 20); time.sleep(4)'"
ACCOUNTANTS = frozenset(KINDS)


def report(weigh: Weigh, job: str, elements: int) -> JobReport:
    """Report on a job; accounting may be a moment late."""
    end = time.monotonic() + PATIENCE
    while True:
        code, out, err = weigh("report", job, "--json")
        assert code == 0, err
        told = msgspec.json.decode(out, type=JobReport)
        ended = [one for one in told.accounted if one.state in FINAL]
        late = weigh.scheduler in ACCOUNTANTS and len(ended) < elements
        if not late or time.monotonic() > end:
            return told
        time.sleep(0.5)


def measure(told: JobReport, name: str) -> ReportMeasure:
    """Return one measure of a report."""
    return next(one for one in told.measures if one.name == name)


@mainly("slurm")
def test_a_report_has_weighs_figures_and_the_accounts_of_each_element(
    weigh: Weigh,
) -> None:
    job = weigh.submit(weigh.plan(HOLDS, "sh -c 'echo no luck; exit 3'"))
    weigh.finish(job)
    told = report(weigh, job, 2)
    assert told.states == {"COMPLETED": 1, "FAILED": 1}
    assert 30 * MIB < (measure(told, "memory").most or 0) < 60 * MIB
    assert [row.error for row in told.rows] == [None, "no luck"]
    if weigh.scheduler not in ACCOUNTANTS:
        assert told.accounted == ()
        return
    assert [one.element for one in told.accounted] == [0, 1]
    first = told.accounted[0]
    assert first.max_rss is not None
    assert 30 * MIB < first.max_rss < 150 * MIB
    assert 4 <= (first.wall_time or 0) < 60
