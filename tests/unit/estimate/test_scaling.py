import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weigh.errors import FormatError, UsageError
from weigh.estimate.scaling import CpuRow, cpu_efficiency, cpus_that_pay
from weigh.flow.scan.scan import alone_on, cpu_counts_of_axis, held_to
from weigh.model.record import CpuWait, Usage
from weigh.sweep.values import parse_axis


def rows_of(times: dict[int, float]) -> list[CpuRow]:
    shares = cpu_efficiency(times)
    return [
        CpuRow(cpus=n, wall_time=time, alone=time, efficiency=shares[n])
        for n, time in times.items()
    ]


@pytest.mark.parametrize(
    ("serial", "answer"), [(0.0, 8), (0.05, 4), (0.3, 2), (0.5, 1), (1.0, 1)]
)
def test_the_most_cpus_with_three_quarters_efficiency_pay(
    serial: float, answer: int
) -> None:
    times = {n: serial + (1 - serial) / n for n in (1, 2, 4, 8)}
    assert cpus_that_pay(rows_of(times)) == answer


def test_time_that_grows_with_cpus_advises_one() -> None:
    assert cpus_that_pay(rows_of({1: 1.0, 2: 1.4, 4: 2.0})) == 1


def test_efficiency_is_relative_to_the_fewest_cpus() -> None:
    assert cpu_efficiency({2: 3.0, 4: 2.0}) == {2: 1.0, 4: 0.75}


def waited(wanted: float, alone: float) -> Usage:
    wait = CpuWait(time=9.0, wanted=wanted, alone=alone, threads=4, cpus=2, others=1.0)
    return Usage(wall_time=10.0, cpu_time=4.0, cpus_used=0.4, cpu_wait=wait)


def test_threads_beyond_the_cpus_still_wait_for_each_other() -> None:
    assert alone_on(2, waited(2.0, 2.0)) == 2.0
    assert alone_on(1, waited(2.0, 2.0)) == 4.0
    assert alone_on(1, Usage(wall_time=10.0, cpu_time=4.0)) == 10.0


@pytest.mark.parametrize("text", ["cpus=0,1", "cpus=1.5,2", "cpus=a,b", "cpus=-1,2"])
def test_only_whole_numbers_of_cpus_are_scanned(text: str) -> None:
    with pytest.raises(FormatError, match="whole number"):
        cpu_counts_of_axis(parse_axis(text))


def test_one_number_of_cpus_is_no_scan() -> None:
    with pytest.raises(UsageError, match="one number"):
        cpu_counts_of_axis(parse_axis("cpus=4"))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_processes_are_held_to_the_first_cpus() -> None:
    here = sorted(os.sched_getaffinity(0))
    with held_to(1, here):
        assert os.sched_getaffinity(0) == set(here[:1])
    assert os.sched_getaffinity(0) == set(here)


def test_a_scan_of_cpus_asks_for_those_that_pay(tmp_path: Path) -> None:
    code = "import os; print(os.environ['OMP_NUM_THREADS'], *os.sched_getaffinity(0))"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weigh", "scan", "--json", "cpus=1,2", "--"),
            *(sys.executable, "-S", "-c", code),
        ],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        env={**os.environ, "WEIGH_DIR": str(tmp_path)},
    )
    made = json.loads(done.stdout)
    assert [row["cpus"] for row in made["rows"]] == [1, 2]
    assert made["request"]["cpus"] == made["cpus"]
    logs = [path.read_text().split() for path in sorted(tmp_path.rglob("*.log"))]
    assert [log[0] for log in logs] == ["1", "2"]
    assert len(logs[0]) == 2
