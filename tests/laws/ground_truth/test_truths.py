"""`weigh run` against the compiled programs that know their peak: a quick part of them.

At half of the sizes. benchmarks/measure.py runs all, at full size, quiet and busy.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from memory_groups import alone_in_a_group
from run_captured import run_captured

from weigh.units import MIB

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the programs are for Linux"
)
HERE = Path(__file__).parent
NEAR = 0.06
TIGHT = 1.2  # times the value that the upper bound may be, where the value is right
LATE = 0.06  # seconds from look to look: on a busy machine, where only bounds are sure
# a batch job gets no group of weigh's own, and the tests' own has strangers in it
IN_A_JOB = {"PBS_JOBID": "1"}
_IN_A_JOB = """
    cow_late cow_slow cow_orphan shm_late shm_left shm_sysv tmpfs_file memfd pool
    churn50 mclapply joblib moved_forks file_private file_shared nodump nodump_exec
    leader_threads leader_children page_tables thp_sparse madv_free dontneed mremaps
    clone_vm stacks moments alternate hwm_below late_pair spike_beside retaken
    shm_each
    hwm_crowd sawtooth exec_chain ignored zombies spawns
"""
_IN_A_CGROUP = """
    cow_slow shm_late shm_left tmpfs_file memfd pool joblib file_private file_shared
    nodump_exec page_tables moments hwm_below sawtooth exec_chain ignored
"""
KINDS = _IN_A_JOB.split()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs gcc")
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


_HERE = "a cgroup"
_LATER = (
    "a cgroup in which a larger job was before"  # its mark shows nothing of this one
)
_AFTER = ("sh", "-c", 'dd if=/dev/zero of=/dev/null bs=300M count=1 && exec "$@"', "sh")
_JOB = "a job"
_FIRST_VERSION = "the first cgroup version counts droppable kernel memory"
_MISSES = {
    (_HERE, "file_private"): _FIRST_VERSION,
    (_HERE, "file_shared"): _FIRST_VERSION,
    (_HERE, "page_tables"): _FIRST_VERSION,
}
# what is in both lists is measured the one way here, and the other way there
_TWICE = _IN_A_CGROUP.split()
_ELSEWHERE = {(_HERE, kind) for kind in _TWICE[::2]} | {
    (_JOB, kind) for kind in _TWICE[1::2]
}


def marks(where: str, kind: str) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.as_root] if where != _JOB else []
    if (where, kind) in _MISSES:
        found.append(pytest.mark.xfail(reason=_MISSES[where, kind], strict=False))
    if (where, kind) in _MISSES or (where, kind) in _ELSEWHERE:
        found.append(pytest.mark.integrations)
    return found


CASES = [
    pytest.param(kind, where, marks=marks(where, kind))
    for where, kinds in (
        (_HERE, _TWICE),
        (_LATER, ["spike_beside", "shm_left"]),
        (_JOB, KINDS),
    )
    for kind in kinds
]


@contextmanager
def shared_memory_of_the_machine(how: int) -> Iterator[None]:
    """Keep the stranger away from programs of which it would hide the memory.

    What nobody maps is looked for where the machine has more of it.
    """
    with open(HERE / "truths.c", "rb") as file:
        fcntl.flock(file, how)
        yield


@pytest.mark.few(35)
@pytest.mark.parametrize(("kind", "where"), CASES)
def test_value_and_bounds_of_programs_that_know_their_peak(
    kind: str, where: str, programs: Path, tmp_path: Path
) -> None:
    said = []
    for number in range(3):  # other tests keep the machine busy: one of three must do
        folder = tmp_path / str(number)
        folder.mkdir()
        with shared_memory_of_the_machine(fcntl.LOCK_SH):
            true, peak, interval = measured(kind, where, programs, folder)
        known = 0.01 * true + MIB / 2  # the truth itself
        if where != _JOB:  # of weigh's own files, the kernel caches names as well
            known += 2 * MIB
        holds = peak["low"] - known <= true <= peak["high"] + known
        is_near = abs(peak["value"] / true - 1) <= NEAR
        is_tight = peak["high"] <= TIGHT * peak["value"] or not is_near
        if holds and is_tight and (is_near or interval > LATE):
            return
        parts = (f"{name} {peak[name] / true:.2f}" for name in ("value", "low", "high"))
        said.append(f"{', '.join(parts)} of the truth; {peak['source']}")
    pytest.fail("\n".join(said))


def test_the_curve_shows_processes_that_start_after_a_higher_peak(
    programs: Path, tmp_path: Path
) -> None:
    said = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        true, _, _ = measured("late_pair", _JOB, programs, folder)
        record = json.loads((folder / "record.json").read_text())
        curve = record["series"]["memory"]
        after = curve[curve.index(max(curve)) :]
        # how long both take to start is the machine's business
        said.append(max(m for m in after if m < 0.75 * true) / (true / 2))
        if abs(said[-1] - 1) <= NEAR:
            return
    pytest.fail(f"of what both hold: {said}")


_STRANGER = """
import os, sys
with open(sys.argv[1], "wb") as file:
    for _ in iter(int, 1):
        file.write(bytes(32 << 20))
        if file.tell() > 256 << 20:
            file.seek(0)
            file.truncate()
"""


@pytest.fixture
def stranger() -> Iterator[None]:
    """Another program of this user fills /dev/shm, and empties it, again and again."""
    with (
        shared_memory_of_the_machine(fcntl.LOCK_EX),
        tempfile.NamedTemporaryFile(dir="/dev/shm") as file,
        subprocess.Popen([sys.executable, "-c", _STRANGER, file.name]) as program,
    ):
        yield
        program.kill()


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("kind", ["hwm_below", "shm_left", "tmpfs_file", "memfd"])
def test_memory_that_no_process_of_the_job_had_is_not_the_jobs(
    kind: str, programs: Path, tmp_path: Path
) -> None:
    said = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        true, peak, _ = measured(kind, _JOB, programs, folder)
        said.append((peak["value"] / true, (peak["high"] - peak["value"]) / MIB))
        if abs(said[-1][0] - 1) <= NEAR and said[-1][1] < 96:
            return
    pytest.fail(f"of the truth, and MiB to the upper bound: {said}")


def measured(
    kind: str, where: str, programs: Path, folder: Path
) -> tuple[int, dict[str, Any], float]:
    """Return the truth in bytes, what weigh measured, and how often: in seconds."""
    record, truth = folder / "record.json", folder / "truth.json"
    with ExitStack() as stack:
        prefix = stack.enter_context(alone_in_a_group()) if where != _JOB else ()
        subprocess.run(
            [
                *prefix,
                *(_AFTER if where == _LATER else ()),
                *(sys.executable, "-m", "weigh", "run", "-q", "-o", record, "--"),
                *(programs, kind, "--truth", truth, "--scale", "0.5"),
                *("--folder", folder),
            ],
            check=True,
            env={
                **os.environ,
                **(IN_A_JOB if where != _HERE else {}),
                "WEIGH_DIR": str(folder / "store"),
            },
        )
    true = int(json.loads(truth.read_text())["peak_memory"])
    seen = json.loads(record.read_text())
    assert max(seen["series"]["memory"]) == seen["usage"]["peak_memory"]["value"]
    return true, seen["usage"]["peak_memory"], float(seen["monitor"]["interval"])


def test_the_programs_are_those_of_the_benchmark(programs: Path) -> None:
    listed = run_captured([programs], check=True)
    names = {line.split("\t")[0] for line in listed.stdout.splitlines()}
    assert set(KINDS) <= names
    assert len(names) >= 25
