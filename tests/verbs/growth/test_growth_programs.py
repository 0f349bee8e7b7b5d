"""Real processes, of which is known what their memory does, under ``weigh run``."""

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from growing_programs import STEPS
from run_captured import run_captured

from weigh.estimate.growth import extrapolate, growth_of, progress_of, time_needed
from weigh.measure.series import is_series_growing
from weigh.model.progress import MemoryGrowth
from weigh.model.record import Record
from weigh.render.record_lines import render_summary
from weigh.units import MIB

PROGRAM = Path(__file__).with_name("growing_programs.py")
SECONDS = 3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures /proc")


@cache
def measured(kind: str) -> tuple[Record, str]:
    """Run one kind, once for all tests; give its record and what weigh said.

    On a busy machine the steps come late and in heaps: then it is run again.
    """
    for _ in range(4):
        record, said = measured_once(kind)
        if is_in_time(record):
            return record, said
    pytest.skip("the machine is too busy for a program that keeps a pace")


def is_in_time(record: Record) -> bool:
    """Return whether a run kept its pace, and weigh its own."""
    if record.usage is None or record.monitor is None:
        return True
    took, interval = record.usage.wall_time, record.monitor.interval
    return took < 1.2 * SECONDS and (interval or 0) < 0.1


def measured_once(kind: str) -> tuple[Record, str]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        done = run_captured(
            [
                *(sys.executable, "-m", "weigh", "run", "-o", path, "--"),
                *(sys.executable, PROGRAM, kind, str(SECONDS)),
            ],
            check=True,
            cwd=folder,
        )
        return msgspec.json.decode(path.read_bytes(), type=Record), done.stderr


def growth(kind: str) -> MemoryGrowth:
    series = measured(kind)[0].series
    assert series is not None
    found = growth_of(series.t, series.memory)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["leak", "touched"])
def test_memory_that_rises_to_the_end_is_found_and_reported(kind: str) -> None:
    record, said = measured(kind)
    assert record.usage is not None
    assert record.series is not None
    # of three seconds it may be start-up; of a minute, the same curve is growth
    assert (record.usage.growing, "rising" in said) == (None, False)
    series = msgspec.structs.replace(
        record.series, t=tuple(time * 60 / SECONDS for time in record.series.t)
    )
    usage = msgspec.structs.replace(
        record.usage, growing=is_series_growing(series.t, series.memory)
    )
    slow = msgspec.structs.replace(record, usage=usage, series=series)
    assert "still rising at the end: " in render_summary(slow)


@pytest.mark.parametrize("kind", ["replay", "teeth", "flat"])
def test_memory_that_found_its_level_is_not_reported_to_rise(kind: str) -> None:
    found = []
    for _ in range(3):  # a stall of the machine in three seconds may look like a rise
        record, said = measured(kind)
        assert record.usage is not None
        found.append((record.usage.growing, growth(kind).growing, "rising" in said))
        if not any(found[-1]):
            return
        measured.cache_clear()
    pytest.fail(f"reported to rise: {found}")


def test_a_buffer_that_fills_up_levels_out_when_it_is_full() -> None:
    usage = measured("replay")[0].usage
    since = growth("replay").since
    assert usage is not None
    assert since is not None
    assert 0.2 < since / usage.wall_time < 0.8  # of its steps it needs 40 %


def test_a_leak_is_carried_on_to_ten_times_the_steps() -> None:
    said = []
    for _ in range(3):  # where other work makes the steps uneven, so are the times
        record, _ = measured("leak")
        progress = progress_of(record, total=10 * STEPS)
        assert record.usage is not None
        assert record.usage.peak_memory is not None
        assert progress is not None
        ahead = extrapolate(growth("leak"), time_needed(record, progress))
        # a quarter of a MiB a step, on top of what this run held at its end
        truth = record.usage.peak_memory.value + 9 * STEPS * MIB // 4
        assert ahead.low <= ahead.value <= ahead.high
        if ahead.value == pytest.approx(truth, rel=0.1):
            return
        said.append(f"{ahead.value} instead of {truth}")
        measured.cache_clear()
    pytest.fail("\n".join(said))
