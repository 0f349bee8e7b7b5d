"""Real processes, of which is known what their memory does, under ``weigh run``."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from growing_programs import STEPS

from weigh.estimate.growth import extrapolate, growth_of, progress_of, time_needed
from weigh.model.growth import Growth
from weigh.model.record import Record
from weigh.units import MIB

PROGRAM = Path(__file__).with_name("growing_programs.py")
SECONDS = 3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures /proc")


@cache
def measured(kind: str) -> tuple[Record, str]:
    """Run one kind, once for all tests; give its record and what weigh said."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "weigh", "run", "-o", path, "--"),
                *(sys.executable, PROGRAM, kind, str(SECONDS)),
            ],
            check=True,
            capture_output=True,
            text=True,
            cwd=folder,
        )
        return msgspec.json.decode(path.read_bytes(), type=Record), done.stderr


def growth(kind: str) -> Growth:
    series = measured(kind)[0].series
    assert series is not None
    found = growth_of(series.t, series.memory)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["leak", "touched"])
def test_memory_that_rises_to_the_end_is_found_and_reported(kind: str) -> None:
    record, said = measured(kind)
    assert record.usage is not None
    assert (record.usage.growing, growth(kind).growing) == (True, True)
    assert "still rising at the end: " in said


@pytest.mark.parametrize("kind", ["replay", "teeth", "flat"])
def test_memory_that_found_its_level_is_not_reported_to_rise(kind: str) -> None:
    record, said = measured(kind)
    assert record.usage is not None
    assert (record.usage.growing, growth(kind).growing) == (False, False)
    assert "rising" not in said


def test_a_buffer_that_fills_up_levels_out_when_it_is_full() -> None:
    full = 0.4 * SECONDS  # of its steps it needs 40
    since = growth("replay").since
    assert since is not None
    assert full / 2 < since < 0.8 * SECONDS


def test_a_leak_is_carried_on_to_ten_times_the_steps() -> None:
    record, _ = measured("leak")
    progress = progress_of(record, total=10 * STEPS)
    assert record.usage is not None
    assert record.usage.peak_memory is not None
    assert progress is not None
    ahead = extrapolate(growth("leak"), time_needed(record, progress))
    # a quarter of a MiB a step, on top of what this run held at its end
    truth = record.usage.peak_memory.value + 9 * STEPS * MIB // 4
    assert ahead.value == pytest.approx(truth, rel=0.1)
    assert ahead.low <= ahead.value <= ahead.high
