"""What a program with ``import weigh`` tells the ``weigh run`` around it."""

import glob
import sys
from pathlib import Path
from typing import Any

from processes import Weigh

MIB = 1 << 20
TELLS = """
import weigh
with weigh.phase("load"):
    held = bytearray(96 << 20)
del held
for batch in weigh.batches([[1, 2, 3]] * 4, size=3):
    weigh.event("step", len(batch))
"""


def record_of(weigh: Weigh, program: str, *options: str) -> dict[str, Any]:
    done = weigh.run(*options, "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    return weigh.record()


def test_phases_batches_and_events_become_the_records(weigh: Weigh) -> None:
    record = record_of(weigh, TELLS)
    # the high-water mark was reset, which does not lower the peak
    peak = record["usage"]["peak_memory"]
    assert 96 * MIB < peak["low"] <= peak["value"] < 140 * MIB
    (phase,) = record["phases"]
    assert (phase["name"], phase["calls"]) == ("load", 1)
    assert 96 * MIB < phase["peak_memory"] < 140 * MIB
    assert (record["batches"]["count"], record["batches"]["samples"]) == (4, 12)
    assert [event["value"] for event in record["events"]] == [3] * 4


def test_each_repeat_reports_for_itself(weigh: Weigh) -> None:
    record = record_of(weigh, TELLS, "--repeat=2")
    assert [phase["calls"] for phase in record["phases"]] == [1]


def test_the_event_file_is_gone_afterwards(weigh: Weigh, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = weigh.run(
        "--", sys.executable, "-c", TELLS, env=weigh.env(TMPDIR=str(folder))
    )
    assert done.returncode == 0
    assert glob.glob(f"{folder}/*") == []
