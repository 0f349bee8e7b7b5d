"""What accounting shows of jobs whose needs are known: recorded, and varied."""

import io
import random

from captured_text import captured

from weigh.model.report import AccountedElement, PastJob
from weigh.schedulers.slurm import accounting as slurm
from weigh.units import MIB

COLUMNS = "JobID|State|ElapsedRaw|ReqMem|AllocCPUS|NNodes|NTasks|MaxRSS|AveRSS"
COLUMNS += "|TRESUsageInTot|Start|End|JobName"


def jobs(text: str) -> list[PastJob]:
    return [*slurm.ACCOUNTING.read_past(io.StringIO(text, newline="\n"))]


def of_rows(*rows: str) -> list[PastJob]:
    return jobs("\n".join((COLUMNS, *rows, "")))


def one_of(*rows: str) -> AccountedElement:
    (job,) = of_rows(*rows)
    return job.accounted


# in MiB: four tasks, of which the largest had 103; steps side by side, and one after
# the other; on two nodes, one of which was not sampled; a part of a heterogeneous job;
# a job that was requeued
HELD = {"1": 400, "2": 300, "3": 200, "6": 100, "4+0": 50, "11": 60}


def test_a_job_holds_what_its_programs_held_at_once() -> None:
    found = jobs(captured("slurm-22.05-sacct-past.txt"))

    assert {*HELD} <= {one.id for one in found}
    for one in found:
        if mebibytes := HELD.get(one.id):
            assert 0 <= (one.accounted.max_rss or 0) / MIB - mebibytes <= 20, one.id


def test_the_sweep_agrees_with_looking_at_each_second() -> None:
    chance = random.Random(5)
    for _ in range(300):
        spans = []
        for _ in range(chance.randint(1, 9)):
            start = chance.randint(10, 30)
            length = chance.randint(1, 12)
            spans.append((start, start + length, chance.randint(1, 99)))
        looked = max(
            sum(size for start, end, size in spans if start <= second < end)
            for second in range(10, 50)
        )
        steps = (
            f"1.{n}|COMPLETED|9||1|1|1|{size}M|{size}M||{start}|{end}|x"
            for n, (start, end, size) in enumerate(spans)
        )
        found = one_of("1|COMPLETED|60|2G|4|1|||||0|60|x", *steps)
        assert found.max_rss == looked * MIB


def test_names_of_delimiters_and_newlines_cost_no_other_row() -> None:
    chance = random.Random(5)
    names = ["".join(chance.choices("ab|\n\t ", k=12)) for _ in range(60)]
    rows = [f"{n}|COMPLETED|{n}|2G|1|1|||||0|60|{name}" for n, name in enumerate(names)]

    found = of_rows(*rows)

    assert [job.id for job in found] == [str(n) for n in range(60)]
    assert [job.name for job in found] == [name.partition("\n")[0] for name in names]
    assert [job.accounted.wall_time for job in found] == [float(n) for n in range(60)]
