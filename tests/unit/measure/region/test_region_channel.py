"""What a program tells ``weigh run``."""

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from region_programs import Channel, places, run

from weigh.flow.run import channel as flow_channel
from weigh.measure.ranks import RankTracker
from weigh.measure.region import channel as wire
from weigh.measure.region.channel import RegionFile, read_channel
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    BatchTimes,
    MeasuringCost,
    ProgramEvent,
    ProgramPhase,
    ProgramRegions,
    RecordedRank,
    RunMeasurement,
    SampleSeries,
    Usage,
)
from weigh.probe.proc import ProcessReading
from weigh.units import MIB

CODE = """
with weigh.phase("load model"):
    with weigh.phase("weights"):
        pass
for _ in weigh.batches([[1, 2]] * 4, size=2):
    pass
weigh.event("epoch", 3)
"""


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return Channel(tmp_path / "channel")


def test_a_report_takes_nothing_from_the_record_and_times_are_since_the_run_began(
    channel: Channel,
) -> None:
    began = wire.clock()
    channel.run(f"{CODE}\nimport time; time.sleep(0.01)\n{CODE}\nweigh.report()")
    lasted = wire.clock() - began
    found = channel.regions(began)
    assert [one.calls for one in found.phases] == [2, 2]
    assert found.batches[0].count == 8
    outer, inner = found.phases
    times = [outer.start, inner.start, inner.end, outer.end, found.events[-1].time]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= lasted


def test_a_phase_entered_5_000_times_is_some_hundred_lines(channel: Channel) -> None:
    channel.run("for _ in range(5_000):\n  with weigh.phase('often'): pass\n")
    assert channel.regions().phases[0].calls == 5_000
    assert len(channel.lines()) < 500


IN_FORK = """
import os, time
if os.fork() == 0:
  for _ in range(3):
    with weigh.phase('mine'): time.sleep(0.02)
  os._exit(0)
os.wait()
"""
AT_EXIT = """
import atexit
def late():
  for _ in range(3):
    with weigh.phase('late'): pass
atexit.register(late)
with weigh.phase('first'): pass
"""
IN_WORKERS = """
import multiprocessing, mine
with multiprocessing.get_context({!r}).Pool(2) as pool:
  assert pool.map(mine.work, [1, 2]) == [2, 4]
  pool.close(); pool.join()
"""
IN_JOBLIB = """
from joblib import Parallel, delayed
import mine
assert sum(Parallel(n_jobs=2)(delayed(mine.work)(n) for n in (1, 2))) == 6
"""
PROGRAMS = {
    # its calls are written as they end
    "a fork that leaves by os._exit": (IN_FORK, {"mine": 3}),
    "a handler at exit": (AT_EXIT, {"first": 1, "late": 3}),
    "forked workers": (IN_WORKERS.format("fork"), {"work": 2}),
    "spawned workers": (IN_WORKERS.format("spawn"), {"work": 2}),
    "joblib": (IN_JOBLIB, {"work": 2}),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_phases_of_each_process_are_in_the_record_and_in_no_other_report(
    channel: Channel, tmp_path: Path, program: str
) -> None:
    if program == "joblib":
        pytest.importorskip("joblib")
    (tmp_path / "mine.py").write_text(
        "import weigh\n"
        "@weigh.measured(name='work')\n"
        "def work(number):\n  return number * 2\n"
    )
    code, phases = PROGRAMS[program]
    done = channel.run(code, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert places(channel.regions().phases) == [
        (name, 0, calls) for name, calls in phases.items()
    ]
    if "work" in phases:
        assert run(code, PYTHONPATH=str(tmp_path)).stderr == ""


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_what_ended_before_a_kill_has_ended_in_the_record(
    channel: Channel, end: str
) -> None:
    channel.run(
        "import os, time\nwith weigh.phase('read'): time.sleep(0.001)\n"
        "with weigh.phase('load'): time.sleep(0.001)\n"
        f"with weigh.phase('train'):\n  {end}\n"
    )
    told = channel.regions(0.0, 1e9)
    found = {one.name: (one.calls, one.end == 1e9) for one in told.phases}
    assert found == {"read": (1, False), "load": (1, False), "train": (0, True)}


def test_a_file_that_was_never_there_means_a_report_of_ones_own(
    tmp_path: Path,
) -> None:
    done = run(
        "with weigh.phase('a'):\n  x = bytearray(100 << 20); del x\n"
        "with weigh.phase('b'): pass\n",
        WEIGH_CHANNEL=str(tmp_path / "elsewhere"),
    )
    assert list(tmp_path.iterdir()) == []
    first, title, *_ = done.stderr.splitlines()
    assert first.startswith("weigh: the file of weigh run is not here")
    assert title.startswith("weigh  -c")
    assert "<" in done.stderr.split("  b ")[1]  # the wrapper's ru_maxrss is let alone


def test_a_process_of_a_launcher_names_its_rank(channel: Channel) -> None:
    channel.run(CODE, RANK="1", WORLD_SIZE="2")
    found = channel.regions()
    assert [one.rank for one in found.phases] == [1, 1]
    (rank,) = found.ranks
    assert (rank.rank, bool(rank.peak_memory)) == (1, True)


def test_a_wrapper_that_has_gone_is_no_trouble(channel: Channel) -> None:
    done = channel.run(
        "import os\nwith weigh.phase('a'): pass\n"
        "os.unlink(os.environ['WEIGH_CHANNEL'])\n"
        "with weigh.phase('b'): pass\nweigh.event('c')\nprint('done')"
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert not channel.path.exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_line_and_stops_the_resets() -> None:
    said: list[str] = []
    file = RegionFile({"WEIGH_CHANNEL": "/dev/full"}, said.append)
    assert file.keep_peak(wire.RegionLine("1", memory=1 << 30)) is False
    file.write(wire.RegionLine("1", events=(ProgramEvent("a", 0.0),)))
    assert len(said) == 1
    assert "No space left" in said[0]


def test_a_disk_that_fills_up_within_a_line_leaves_the_report_to_the_program(
    channel: Channel,
) -> None:
    done = channel.run(
        "import os, resource\n"
        "with weigh.phase('first'): pass\n"
        "size = os.stat(os.environ['WEIGH_CHANNEL']).st_size + 50\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
        "with weigh.phase('full'): pass\n"
    )
    warning, title, *rows = done.stderr.splitlines()
    assert "No space left on device: regions are reported here instead" in warning
    assert title.startswith("weigh  -c")
    assert [row.split()[0] for row in rows[1:3]] == ["first", "full"]


def test_no_file_or_torn_and_foreign_lines_cost_nothing_else(channel: Channel) -> None:
    assert read_channel(f"{channel.path}.none", started=0.0) == ProgramRegions()
    channel.run(CODE)
    whole = channel.regions()
    text = channel.path.read_bytes()
    channel.path.write_bytes(
        b'{"line":"ph\n\xff\n{"line":"new"}\n[]\n' + text + b'{"li'
    )
    assert channel.regions() == whole


def test_lines_of_two_processes_of_a_rank_are_its_regions() -> None:
    rank, gpu = RecordedRank(3, "node", 7), GpuUsage("G", "V100", peak_memory=5)
    higher = msgspec.structs.replace(gpu, peak_memory=9)
    loop = BatchTimes(4, 10, 40, time_mean=0.5, start=101.0, end=106.0)
    bound = ProgramPhase(
        *("load", 0, 1, 102.0, 105.0, 3.0, 1.0, 1, 2, 50), source=wire.BOUND
    )
    exact = ProgramPhase("load", 0, 2, 101.0, 104.0, 2.0, 0.5, 3, 4, 50, source="exact")
    begun = ProgramPhase("train", 0, 0, 103.0, 103.0, 0.0, memory_before=5)
    short = BatchTimes(4, 1, 4, time_mean=0.1, start=99.0)
    event = ProgramEvent("epoch", 99.0, 1)
    lines = [
        wire.RegionLine("a", rank, 40, (gpu,), ((("load",), begun),), {"short": loop}),
        wire.RegionLine("b", rank, 90, (higher,), ((("load",), exact),)),
        wire.RegionLine("b", rank, 90, (higher,), ((("train",), begun),), {"a": loop}),
        wire.RegionLine(
            *("a", rank, 50, (gpu,), ((("load",), bound),), {"short": short}, (event,))
        ),
    ]
    found = wire.regions_of_lines(lines, started=100.0, ended=110.0)
    assert found == ProgramRegions(
        phases=(
            ProgramPhase(
                *("load", 0, 3, 1.0, 5.0, 5.0, 1.5, 3, 4, 50), rank=3, source="exact"
            ),
            ProgramPhase("train", 0, 0, 3.0, 10.0, 7.0, memory_before=5, rank=3),
        ),
        batches=(
            BatchTimes(4, 10, 40, time_mean=0.5, start=1.0, end=6.0),
            BatchTimes(4, 1, 4, time_mean=0.1, start=0.0, end=0.0),
        ),
        events=(ProgramEvent("epoch", 0.0, 1),),
        ranks=(RecordedRank(3, "node", 7, peak_memory=90),),
        peak_memory=90,
        wall_time=10.0,
        gpus=(higher,),
    )


def test_a_peak_is_kept_once_and_a_large_file_grows_slowly(
    channel: Channel,
) -> None:
    file = RegionFile({"WEIGH_CHANNEL": str(channel.path)}, print)
    for peak in (MIB, MIB + wire.MARK_SLACK, 2 * MIB):
        assert file.keep_peak(wire.RegionLine("1", memory=peak))
    assert [line.get("memory") for line in channel.lines()] == [None, MIB, 2 * MIB]
    later = wire.clock() + 100
    file.write_changes(wire.RegionLine("x" * MIB), later)
    assert (file.is_due(later + 3.9), file.is_due(later + 4.2)) == (False, True)


def test_a_program_that_closes_every_descriptor_gets_none_of_our_lines(
    channel: Channel, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    channel.run(
        "import os\nwith weigh.phase('a'): pass\n"
        "os.closerange(3, 64)\n"
        f"files = [open({str(theirs)!r}, 'ab', 0) for _ in range(20)]\n"
        "for _ in range(3):\n  with weigh.phase('b'): x = bytearray(50 << 20); del x\n"
    )
    assert theirs.read_bytes() == b""
    assert [one.name for one in channel.regions().phases] == ["a", "b"]


@given(st.permutations([("a",), ("a", "x"), ("a", "y"), ("b",), ("b", "x")]))
def test_phases_are_put_in_order_whatever_order_they_come_in(
    order: list[tuple[str, ...]],
) -> None:
    begun = {("a",): 5, ("a", "y"): 6, ("a", "x"): 7, ("b",): 1, ("b", "x"): 2}
    phases = {
        (-1, path): ProgramPhase(path[-1], len(path) - 1, 1, begun[path], 9.0, 1.0)
        for path in order
    }
    found = [(one.name, one.depth) for one in wire.in_order(phases)]
    assert found == [("b", 0), ("x", 1), ("a", 0), ("y", 1), ("x", 1)]


@pytest.mark.parametrize("folder", ["/nonexistent/tmp", "relative", None])
def test_a_channel_needs_neither_the_temporary_folder_nor_locks_of_files(
    folder: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", folder or str(tmp_path))
    if folder is None:  # Windows has no fcntl
        monkeypatch.setitem(sys.modules, "fcntl", None)
    made = flow_channel.PhaseChannel("test-of-a-missing-folder")
    try:
        path = made.environment()["WEIGH_CHANNEL"]
        assert (os.path.isabs(path), os.path.exists(path)) == (True, True)
        assert folder or path == str(
            tmp_path / ".weigh-test-of-a-missing-folder.regions"
        )
        made.close()
        assert not os.path.exists(path)
    finally:
        made.close()


class Environments:
    """One process number and the ranks it has, one after the other."""

    def __init__(self, *ranks: str) -> None:
        self.ranks = list(ranks)

    def environment(self, _: int) -> dict[str, str]:
        return {"RANK": self.ranks.pop(0), "WORLD_SIZE": "9"}

    def times(self, _: int) -> None:
        """Give no CPU times."""


def test_a_process_number_that_comes_again_is_queried_again() -> None:
    tree: Any = Environments("0", "7")
    ranks = RankTracker(tree)
    reading = ProcessReading(42, MIB, MIB, MIB, MIB, MIB, MIB, MIB)
    for now, readings in enumerate(([reading], [reading], [], [reading], [reading])):
        ranks.look(now, readings)
    assert [rank.rank for rank in ranks.ranks()] == [0, 7]
    assert {rank.host for rank in ranks.ranks()} == {os.uname().nodename}


def alone(regions: ProgramRegions) -> RunMeasurement:
    usage = Usage(wall_time=1.0)
    ended = (0.0, 1.0, 0, None)
    return RunMeasurement(
        *ended, usage, SampleSeries((), ()), MeasuringCost(), regions=regions
    )


OPEN_MPI = "{0}RANK=3 {0}SIZE=4".format("OMPI_COMM_WORLD_")


@pytest.mark.parametrize(
    ("env", "inner", "ranks"),
    [
        ("SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4", (), [3]),
        (OPEN_MPI, (), [3]),
        ("RANK=2 WORLD_SIZE=4", (), [2]),
        ("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1", (), []),
        ("", (), []),
        # ranks within the run count, and not its own
        ("RANK=2 WORLD_SIZE=4", (0, 1), []),
    ],
)
def test_a_run_started_once_a_rank_is_that_ranks(
    env: str, inner: tuple[int, ...], ranks: list[int]
) -> None:
    named = dict(word.split("=") for word in env.split())
    within = ProgramRegions(ranks=tuple(map(RecordedRank, inner)))
    found = flow_channel.with_own_rank(alone(within), named).ranks
    assert [one.rank for one in found] == ranks
