"""A distributed run under one weigh: a part for each rank."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import Weigh, until
from written_programs import write_program

from weigh.flow.run.rank_group import NodeLock
from weigh.measure.ranks import rank_in_environment

MIB = 1 << 20
# what torchrun does to its workers, and each holds more than the one before
LAUNCHER = """
import os, subprocess, sys
workers = []
for rank in range(2):
    env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
    code = f"import time; held = bytearray({32 + 64 * rank} << 20); time.sleep(0.6)"
    workers.append(subprocess.Popen([sys.executable, "-c", code], env=env))
sys.exit(max(worker.wait() for worker in workers))
"""


def test_each_rank_has_its_part_in_one_record(weigh: Weigh) -> None:
    done = weigh.run("--", sys.executable, "-c", LAUNCHER)
    record = weigh.record()
    ranks = record["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    small, large = (rank["peak_memory"] for rank in ranks)
    assert 32 * MIB < small < 64 * MIB < 96 * MIB < large < 128 * MIB
    assert b"ranks    2, each between" in done.stderr


ODD_NUMBERS = ("", " 1", "9" * 30, "-1", "0", "1", "2", "0x1", "\u0663", "\ud800")
NAMES = st.sampled_from(["RANK", "WORLD_SIZE", "PMI_RANK"])


@given(st.dictionaries(NAMES, st.sampled_from(ODD_NUMBERS)))
def test_an_odd_environment_is_no_trouble(env: dict[str, str]) -> None:
    own = rank_in_environment(env)
    assert own is None or own.rank >= 0


def test_what_runs_on_other_machines_makes_the_figures_a_lower_bound(
    weigh: Weigh, tmp_path: Path
) -> None:
    far = write_program(tmp_path / "ssh", "sleep 2")
    holds = "held=$(head -c 40000000 /dev/zero | tr '\\0' x)"  # more than weigh
    near = write_program(tmp_path / "mpirun", f"{holds}\n{far} other-node prog")
    done = weigh.run("--", str(near))
    (missing,) = weigh.record()["missing"]
    assert "ssh" in missing
    assert b"at least" in done.stderr
    assert b"request  #SBATCH" not in done.stderr


def test_a_copy_over_ssh_is_no_rank_elsewhere(weigh: Weigh, tmp_path: Path) -> None:
    far = write_program(tmp_path / "ssh", "sleep 0.4")
    weigh.run("-q", "--", "sh", "-c", f"{far} host cp a b; true")
    assert weigh.record()["missing"] == []


@pytest.fixture
def name() -> Iterator[str]:
    name = f"test-{os.getpid()}"
    yield name
    Path(f"/dev/shm/weigh-step-{os.getuid()}-{name}").unlink()


def test_another_rank_has_the_lock_once_its_holder_was_killed(name: str) -> None:
    first = f"from weigh.flow.run.rank_group import NodeLock; l = NodeLock({name!r})"
    code = f"{first}; print(l.take(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        lock = NodeLock(name)
        assert not lock.take()
        holder.kill()
    assert lock.take()


def test_files_of_steps_of_yesterday_go_unless_their_step_runs(name: str) -> None:
    ours = Path(f"/dev/shm/weigh-step-{os.getuid()}-{name}")
    ended, running = (ours.with_name(f"{ours.name}-{n}") for n in range(2))
    for path in (ours, ended):
        path.touch()
    other = NodeLock(f"{name}-1")
    assert other.take()
    for path in (ours, ended, running):
        os.utime(path, (0, 0))
    NodeLock(name)
    assert [path.exists() for path in (ours, ended, running)] == [True, False, True]
    running.unlink()


def peaks_of_nodes(paths: Iterable[Path]) -> list[int]:
    """Return the peak of each node in files of records that are there; else 0."""
    peaks = [0]
    for path in paths:
        with suppress(OSError, ValueError):
            document = json.loads(path.read_text())
            nodes = document.get("record", document).get("nodes", ())
            peaks += [(node.get("peak_memory") or {}).get("value", 0) for node in nodes]
    return peaks


def test_a_rank_that_clears_its_environment_is_in_the_figures_of_its_node(
    weigh: Weigh, tmp_path: Path
) -> None:
    """Two ranks as srun starts them; the second is the larger one."""
    hold = """
import os, sys, time
held = bytearray(int(sys.argv[1]) << 20)
while not os.path.exists("go"): time.sleep(0.01)
"""
    runs = []
    for rank, size in ((0, "20"), (1, "150")):
        env = weigh.env(
            SLURM_JOB_ID=str(os.getpid()),
            SLURM_STEP_ID="0",
            SLURM_PROCID=str(rank),
            SLURM_STEP_NUM_TASKS="2",
        )
        words = [sys.executable, "-c", hold, size]
        output = ["-q", "-o", f"{rank}.json"]
        runs.append(weigh.start("run", *output, "--", "env", "-i", *words, env=env))
    # held until whoever watches the node has written that it has seen both
    until(lambda: max(peaks_of_nodes(weigh.store.glob("running/*.json"))) > 170 * MIB)
    (tmp_path / "go").touch()
    assert [run.wait() for run in runs] == [0, 0]
    written = peaks_of_nodes(tmp_path / f"{rank}.json" for rank in (0, 1))
    assert max(written) > 170 * MIB


def test_the_runs_of_each_rank_in_a_step_are_counted(name: str) -> None:
    counts = [NodeLock(name).count_run(rank) for rank in (0, 70_000, 0, 1, 0)]
    assert counts == [0, 0, 1, 0, 2]
