"""A real process that leaks in known steps, under ``weigh run``: carried on from there.

What other shapes are taken for: tests/unit/estimate/test_growth_shapes.py.
"""

import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from run_captured import run_captured

from weigh.estimate.growth import (
    extrapolate,
    growth_of,
    is_memory_growing,
    progress_of,
    time_needed,
)
from weigh.model.record import Record
from weigh.render.record_lines import render_summary
from weigh.units import MIB

SECONDS, STEPS = 3, 100
# keeps a quarter of a MiB of each step, beside what all steps need, at an even pace
LEAK = f"""
import time
import weigh
kept = [bytes([1]) * (20 << 20)]
started = time.monotonic()
for turn in range({STEPS}):
    kept.append(bytes([turn % 251 + 1]) * (1 << 18))
    weigh.event("step", turn + 1)
    until = started + (turn + 1) * {SECONDS} / {STEPS}
    time.sleep(max(0.0, until - time.monotonic()))
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures /proc")


def measured_leak(folder: Path) -> tuple[Record, str]:
    """Return the record of a run that kept its pace, and what weigh printed."""
    path = folder / "record.json"
    words = ("-m", "weigh", "run", "-o", path, "--", sys.executable, "-c", LEAK)
    for _ in range(8):
        done = run_captured([sys.executable, *words], check=True, cwd=folder)
        record = msgspec.json.decode(path.read_bytes(), type=Record)
        assert record.usage is not None
        interval = record.monitor.interval if record.monitor else None
        if is_even(record) and (interval or 0) < 0.1:
            return record, done.stderr
    pytest.skip("the machine is too busy for a program that keeps a pace")


def is_even(record: Record) -> bool:
    """Return whether no step, nor the end, came late by the program's own times."""
    steps = [(one.time, float(one.value or 0)) for one in record.events]
    first_time, first_step = steps[0]
    lags = [
        time - first_time - (step - first_step) * SECONDS / STEPS
        for time, step in steps
    ]
    assert record.usage is not None
    behind = record.usage.wall_time - steps[-1][0]
    return max(*lags, behind) < 0.05 * SECONDS


def test_a_leak_is_carried_on_to_ten_times_the_steps_and_reported_of_a_longer_run(
    tmp_path: Path,
) -> None:
    ahead = []
    for _ in range(3):  # where other work keeps weigh from looking, the curve has gaps
        record, printed = measured_leak(tmp_path)
        usage, series = record.usage, record.series
        progress = progress_of(record, total=10 * STEPS)
        assert usage is not None
        assert series is not None
        assert progress is not None
        growth = growth_of(series.t, series.memory)
        assert growth is not None
        found = extrapolate(growth, time_needed(record, progress))
        assert found.low <= found.value <= found.high
        assert usage.peak_memory is not None
        # a quarter of a MiB a step, on top of what this run held at its end
        truth = usage.peak_memory.value + 9 * STEPS * MIB // 4
        ahead.append(found.value / truth)
        if ahead[-1] == pytest.approx(1, rel=0.1):
            break
    else:
        pytest.fail(f"of the truth: {ahead}")

    # of three seconds it may be a start-up; of a minute, the same curve is growth
    assert (usage.growing, "rising" in printed) == (None, False)
    slow = replace(series, t=tuple(time * 60 / SECONDS for time in series.t))
    usage = replace(usage, growing=is_memory_growing(slow.t, slow.memory))
    shown = render_summary(replace(record, usage=usage, series=slow))
    assert "still rising at the end: " in shown
