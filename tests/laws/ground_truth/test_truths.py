"""`weigh run` against the compiled programs that know their peak: a quick part of them.

At half of the sizes. benchmarks/measure.py runs all, at full size, quiet and busy.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weigh.units import MIB

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the programs are for Linux"
)
HERE = Path(__file__).parent
NEAR = 0.06
# a batch job gets no cgroup of weigh's own, and the tests' own has strangers in it
IN_A_JOB = {"PBS_JOBID": "1"}
_KINDS = """
    cow_late cow_slow cow_orphan shm_late shm_left tmpfs_file memfd pool mclapply joblib
    file_private file_shared nodump nodump_exec leader_threads leader_children
    page_tables thp_sparse madv_free dontneed mremaps clone_vm stacks moments hwm_below
    hwm_crowd sawtooth exec_chain ignored zombies spawns
"""
KINDS = _KINDS.split()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    program = tmp_path_factory.mktemp("truths") / "truths"
    command: list[str | Path] = [
        compiler,
        "-O1",
        "-pthread",
        "-o",
        program,
        HERE / "truths.c",
    ]
    # static: what a library adds to the base varies
    if subprocess.run([*command, "-static"], check=False).returncode:
        subprocess.run(command, check=True)
    return program


@pytest.mark.parametrize("where", ["a cgroup if there may be one", "a job"])
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_bounds_of_programs_that_know_their_peak(
    kind: str, where: str, programs: Path, tmp_path: Path
) -> None:
    record, truth = tmp_path / "record.json", tmp_path / "truth.json"
    subprocess.run(
        [
            *(sys.executable, "-m", "weigh", "run", "-q", "-o", record, "--"),
            *(programs, kind, "--truth", truth, "--scale", "0.5"),
            *("--folder", tmp_path),
        ],
        check=True,
        env={
            **os.environ,
            **(IN_A_JOB if where == "a job" else {}),
            "WEIGH_DIR": str(tmp_path / "store"),
        },
    )
    true = json.loads(truth.read_text())["peak_memory"]
    peak = json.loads(record.read_text())["usage"]["peak_memory"]
    known = 0.01 * true + MIB / 2  # the truth itself
    assert peak["low"] - known <= true <= peak["high"] + known, peak["source"]
    assert peak["value"] == pytest.approx(true, rel=NEAR), peak["source"]


def test_the_programs_are_those_of_the_benchmark(programs: Path) -> None:
    listed = subprocess.run([programs], check=True, capture_output=True, text=True)
    names = {line.split("\t")[0] for line in listed.stdout.splitlines()}
    assert set(KINDS) <= names
    assert len(names) >= 25
