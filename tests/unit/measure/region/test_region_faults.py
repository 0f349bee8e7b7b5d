"""Nothing that goes wrong in measuring reaches the program."""

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from region_programs import TrackWith, places, report_of, run

from weigh.flow.run.regions import batches, event, measured, phase
from weigh.measure.region import tracker as region_tracker
from weigh.measure.region.tracker import RegionTracker
from weigh.probe.own_memory import OwnMemory


class Failing(OwnMemory):
    """Memory that can be read so many times."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def read(self) -> tuple[int, int]:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("a bug")
        return 100, 100


@pytest.mark.parametrize("looks", [0, 1, 6])
def test_a_failure_inside_turns_measuring_off_with_one_line(
    looks: int, track_with: TrackWith, capsys: pytest.CaptureFixture[str]
) -> None:
    track_with(RegionTracker({}, memory=Failing(looks)))

    @measured
    def double(number: int) -> int:
        return number * 2

    for _ in range(2):
        with phase("load"):
            assert double(2) == 4
        assert list(batches([[1], [2]])) == [[1], [2]]
    said = capsys.readouterr().err
    assert said == "weigh: regions are no longer measured: RuntimeError: a bug\n"


class Interrupted(OwnMemory):
    """Memory during whose third reading a handler of the program runs."""

    looks = 0

    def read(self) -> tuple[int, int]:
        self.looks += 1
        if self.looks == 3:
            signal.raise_signal(signal.SIGUSR1)
        return 100, 100


def test_a_time_limit_of_the_program_that_strikes_in_weigh_is_not_lost(
    track_with: TrackWith,
) -> None:
    def time_is_over(*_: object) -> None:
        raise TimeoutError("mine")

    before = signal.signal(signal.SIGUSR1, time_is_over)
    process = track_with(RegionTracker({}, memory=Interrupted()))
    try:
        with phase("load"):
            pass
        with pytest.raises(TimeoutError, match="mine"):
            phase("load").__enter__()
    finally:
        signal.signal(signal.SIGUSR1, before)
    with phase("next"):
        pass
    assert process.tracker is not None
    assert places(process.tracker.regions().phases) == [("load", 0, 1), ("next", 0, 1)]


def test_a_python_without_ctypes_has_the_times() -> None:
    done = run(
        "import sys; sys.modules['ctypes'] = None\n"
        "with weigh.phase('load') as region: pass\n"
        "print(region.wall_time > 0, region.peak_memory)"
    )
    assert done.stdout == "True None\n"
    assert done.stderr.splitlines()[-1].split()[-3:] == ["-"] * 3  # no memory at all


def test_a_fork_counts_its_own_phases_afresh_and_none_of_its_parent() -> None:
    done = run(
        "import os, sys\n"
        "with weigh.phase('outer'):\n"
        "  if os.fork() == 0:\n"
        "    with weigh.phase('mine'): pass\n"
        "    print([(p.name, p.depth) for p in weigh.report().phases]); sys.exit()\n"
        "  os.wait()\n"
        "sys.exit()"
    )
    assert done.stdout.splitlines()[-1] == "[('mine', 0)]"
    assert (done.returncode, done.stderr.count("outer")) == (0, 1)


def test_a_fork_in_the_midst_of_another_threads_region_does_not_hang() -> None:
    done = run(
        "import os, threading\n"
        "with weigh.phase('first'): pass\n"
        "stop = threading.Event()\n"
        "def spin():\n"
        "  while not stop.is_set():\n"
        "    with weigh.phase('thread'): pass\n"
        "thread = threading.Thread(target=spin); thread.start()\n"
        "for _ in range(50):\n"
        "  if os.fork() == 0:\n"
        "    with weigh.phase('child'): pass\n"
        "    os._exit(0)\n"
        "  os.wait()\n"
        "stop.set(); thread.join(); print('done')",
        PYTHONWARNINGS="ignore::DeprecationWarning",
    )
    assert done.stdout == "done\n"


def test_threads_that_begin_at_once_share_one_account_each_at_its_own_depth(
    track_with: TrackWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(RegionTracker):
        def __init__(self, *words: Any, **options: Any) -> None:
            time.sleep(0.01)
            super().__init__(*words, **options)

    process = track_with(None)
    monkeypatch.setattr(region_tracker, "RegionTracker", Slow)
    monkeypatch.setattr(region_tracker, "_finish_at_exit", list)

    def work() -> None:
        for _ in range(50):
            with phase("thread"), phase("inside"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    with phase("main"):
        for thread in threads:
            thread.join()
    assert process.tracker is not None
    found = places(process.tracker.regions().phases)
    assert sorted(found) == [("inside", 1, 400), ("main", 0, 1), ("thread", 0, 400)]


def test_a_region_inside_a_finaliser_does_not_lock_up() -> None:
    told = report_of(
        "import gc\n"
        "class Late:\n"
        "  def __init__(self): self.me = self\n"
        "  def __del__(self):\n"
        "    with weigh.phase('late'): pass\n"
        "gc.set_threshold(1)\n"
        "for _ in range(200):\n"
        "  Late()\n"
        "  with weigh.phase('work'): pass\n"
        "gc.collect()\n"
    )
    assert {one["name"]: one["calls"] for one in told["phases"]}["work"] == 200


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-", ""])
def test_a_stderr_that_takes_nothing_does_not_change_the_exit_code(
    stream: str,
) -> None:
    code = "import weigh\nwith weigh.phase('a'): pass"
    command = f'exec "$0" -c "$1" {stream}'
    done = subprocess.run(["sh", "-c", command, sys.executable, code], check=False)
    assert done.returncode == 0


def test_a_report_is_written_at_the_end_if_something_new_was_measured() -> None:
    program = "with weigh.phase('load'): pass"
    assert "load" in run(program).stderr
    assert run("weigh.phase, weigh.batches([])").stderr == ""
    assert run(program, WEIGH_REPORT="0").stderr == ""
    done = run(f"{program}\nweigh.report()")
    assert (done.stdout.count("load"), done.stderr) == (1, "")


class Tensor:
    """What has the number of a tensor, or raises, also as text."""

    def __init__(self, item: Any, text: str | None = None) -> None:
        self._item, self._text = item, text

    def item(self) -> object:
        return self._item()

    def __str__(self) -> str:
        assert self._text is not None
        return self._text


def fail() -> None:
    raise RuntimeError("several numbers")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *((value, value) for value in (3, 0.5, "done", None)),
        (True, 1),
        (10**30, 1e30),
        (10**400, f"1{199 * '0'}"),
        ([1, 2], "[1, 2]"),
        (Tensor(lambda: 7), 7),
        (Tensor(fail), "a Tensor"),
        (Tensor(fail, "t"), "t"),
        ("\udcff", "?"),
    ],
)
def test_an_event_takes_whatever_it_is_given(
    tracker: RegionTracker, given: object, kept: object
) -> None:
    event("epoch", given)
    (seen,) = tracker.regions().events
    assert (seen.name, seen.value, type(seen.value)) == ("epoch", kept, type(kept))


def test_events_without_end_are_kept_up_to_a_number(
    tracker: RegionTracker, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(10_100):
        event("step", number)
    assert len(tracker.regions().events) == 10_000
    assert "only the first" in capsys.readouterr().err


MEASURES = """
import os, sys; os.environ['CUDA_VISIBLE_DEVICES'] = ''
with weigh.phase('a'): pass
list(weigh.batches([[1]])); weigh.event('b')
heavy = 'weigh.probe.nvml rich numpy torch psutil click asyncio subprocess'.split()
print([name for name in heavy if name in sys.modules])
"""
ALONE = "import sys\nprint([n for n in sys.modules if n.startswith('weigh.')])"
REPORTS = "import weigh.cli.report, weigh.flow.report.report\nprint(weigh.report)"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        pytest.param(MEASURES, "[]", id="nothing heavy"),
        pytest.param(ALONE, "['weigh._version']", id="none of its rooms"),
        # not the module, also after that was loaded
        pytest.param(REPORTS, "<function report", id="the function"),
    ],
)
def test_importing_weigh_loads(code: str, printed: str) -> None:
    assert run(code).stdout.startswith(printed)
