"""``weigh request``: what ``last`` stands for is asked for as a whole."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Weigh = Callable[..., tuple[int, str, str]]

# holds MIB of memory, and writes what the kernel has counted for it
HOLD = """\
import resource, sys, time
held = bytearray(int(sys.argv[1]) << 20)
held[::4096] = b"x" * len(held[::4096])
time.sleep(0.3)
with open("peaks", "a") as peaks:
    peaks.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}\\n")
"""


@pytest.fixture
def hold() -> str:
    """Return the start of a command that holds as many MiB as its argument says."""
    Path("hold.py").write_text(HOLD)
    return f"{sys.executable} hold.py"


def requested_mib(out: str) -> int:
    found = re.search(r"--mem=(\d+)M", out)
    assert found is not None, out
    return int(found[1])


def most_counted_by_kernel() -> int:
    return max(map(int, Path("peaks").read_text().split()))


@pytest.mark.parametrize("plan", [(), ("--hours", "1")], ids=["elements", "queue"])
def test_the_request_of_the_last_job_holds_all_its_tasks(
    weigh: Weigh, hold: str, submitted: Callable[..., None], plan: tuple[str, ...]
) -> None:
    tasks = "".join(f"{hold} {mib}\n" for mib in (250, 160, 120, 90))
    submitted(tasks, plan=("--memory", "400M", *plan))

    for name in ((), ("last",)):
        words = ("request", "--for", "slurm", "--headroom", "20%", *name)
        _, out, err = weigh(*words)
        assert requested_mib(out) >= 1.19 * most_counted_by_kernel(), out
        assert "from 4 runs + 20 %" in err
        assert "4 different commands" in err
        assert "and 1 more" in err  # three are named


def test_the_request_of_a_resumed_job_holds_the_tasks_of_all_its_rounds(
    weigh: Weigh, hold: str, submitted: Callable[..., None]
) -> None:
    tasks = f"{hold} 200\n{hold} 60 && test -e mended\n"
    submitted(tasks, plan=("--memory", "400M"))
    Path("mended").touch()
    code, _, err = weigh("resume", "last")
    assert code == 0, err
    assert weigh("status", "last", "--wait")[0] == 0

    _, out, err = weigh("request", "--for", "slurm", "--headroom", "20%")
    assert requested_mib(out) >= 1.19 * most_counted_by_kernel(), out
    assert "from 2 runs + 20 %, and 1 that did not complete" in err
