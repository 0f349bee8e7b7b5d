import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sessions import check_session

from weigh.flow.scan.scan import held_to


def test_worked_examples_of_numbers_of_cpus() -> None:
    check_session(Path(__file__).with_name("scaling.session"), {})


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
