"""``weigh report`` of jobs that real schedulers ran, with their accounting beside."""

import msgspec
from following import Weigh, until
from rigs import mainly

from weigh.model.job import FINAL
from weigh.model.report import JobReport
from weigh.schedulers import KINDS
from weigh.units import MIB

HOLDS = "python3 -c 'import time; x = bytearray(30 << 20); time.sleep(4)'"


@mainly("slurm")
def test_a_report_has_weighs_figures_and_the_accounts_of_each_element(
    weigh: Weigh,
) -> None:
    job = weigh.submit(weigh.plan(HOLDS, "sh -c 'echo no luck; exit 3'"))
    weigh.finish(job)

    def report() -> JobReport:
        return msgspec.json.decode(weigh("report", job, "--json")[1], type=JobReport)

    def accounted() -> list[int | None]:
        return [one.element for one in report().accounted if one.state in FINAL]

    expected = [0, 1] if weigh.scheduler in KINDS else []
    until(lambda: accounted() == expected)  # accounting may be a moment late
    told = report()
    assert told.states == {"COMPLETED": 1, "FAILED": 1}
    (memory,) = (one.most for one in told.measures if one.name == "memory")
    assert 30 * MIB < (memory or 0) < 60 * MIB
    assert [row.error for row in told.rows] == [None, "no luck"]
    for first in told.accounted[:1]:
        assert 30 * MIB < (first.max_rss or 0) < 150 * MIB
        assert 4 <= (first.wall_time or 0) < 60
