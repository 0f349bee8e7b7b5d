"""``weigh request``: what ``last`` stands for is asked for as a whole."""

import json
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
def test_the_request_of_the_last_job_holds_all_its_tasks_and_rounds(
    weigh: Weigh, hold: str, submitted: Callable[..., None], plan: tuple[str, ...]
) -> None:
    tasks = "".join(f"{hold} {mib}\n" for mib in (250, 160, 120))
    tasks += f"{hold} 90 && test -e mended\n"
    submitted(tasks, plan=("--memory", "400M", *plan))
    Path("mended").touch()
    code, _, err = weigh("resume", "last")
    assert code == 0, err
    assert weigh("status", "last", "--wait")[0] == 0

    for name in ((), ("last",)):
        words = ("request", "--for", "slurm", "--headroom", "20%", *name)
        _, out, err = weigh(*words)
        assert requested_mib(out) >= 1.19 * most_counted_by_kernel(), out
        said = " ".join(err.replace("#", "").split())
        assert "from 4 runs + 20 %, and 1 that did not complete" in said
        assert "4 different commands" in said
        assert "and 2 more" in said  # three are named


def test_the_request_after_a_scan_is_that_of_its_target(
    weigh: Weigh, hold: str
) -> None:
    sizes = ("scan", "mib=40,80,160", "--target", "mib=400")
    said = weigh(*sizes, "--", *hold.split(), "{mib}")[1]
    scan = next(iter(re.findall(r"scan-\w+", weigh("report", "last")[1])))

    requested = requested_mib(said)
    for words in (
        ("request",),
        ("request", scan),
        ("report", "last"),
        ("report", scan),
    ):
        assert requested_mib(weigh(*words)[1]) == requested, words
    # the target itself, as the kernel counts it
    weigh("run", "-q", "--", *hold.split(), "400")
    assert requested >= most_counted_by_kernel()


def test_the_runs_of_a_scan_without_a_target_are_no_repeats(
    weigh: Weigh, hold: str
) -> None:
    weigh("scan", "mib=40,80,160", "--", *hold.split(), "{mib}")

    err = " ".join(weigh("request")[2].replace("#", "").split())
    assert "from 3 runs + 0 %; the runs are of different sizes" in err
    assert "--target mib=" in err
    assert "vary" not in err
    assert "varies" not in err
    assert "different commands" not in err
    # one of them, by its own name, is one run, and two names are no scan
    one = json.loads(weigh("records", "--json")[1])["records"][0]
    for words in (one["id"],), (one["label"], one["id"]):
        assert "different sizes" not in weigh("request", *words)[2]


def test_a_scan_that_has_no_request_for_its_target_yet_gets_none(
    weigh: Weigh, hold: str
) -> None:
    weigh("scan", "mib=20,30,40", "--target", "mib=4000", "--", *hold.split(), "{mib}")

    code, out, err = weigh("request")
    assert (code, out) == (2, "")
    assert "no request for mib=4000 yet" in err
