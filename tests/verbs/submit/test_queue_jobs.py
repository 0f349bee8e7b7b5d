"""Elements that pull from one queue, at each scheduler: killed, cancelled, resumed."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from following import Weigh, until
from rigs import mainly

from weigh.store.identity import this_machine

ELEMENTS = 3


def _planned(weigh: Weigh, *lines: str) -> dict[str, Any]:
    """Plan these tasks for a few elements of two slots; return the plan."""
    (weigh.folder / "t.txt").write_text("".join(f"{line}\n" for line in lines))
    said = ("--memory", "50M", "--cpus", "1", "--node", "2")
    times = ("--time", "1s", "--hours", "10m")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("WEIGH_HEADROOM", "0")
        code, _, err = weigh("plan", "t.txt", *said, *times)
    assert code == 0, err
    path = weigh.folder / "plan/t/plan.json"
    plan: dict[str, Any] = json.loads(path.read_text())
    plan["elements"] = plan["elements"][:ELEMENTS]
    for name in ("plan.json", f"{plan['queue']['folder']}/plan.json"):
        (path.parent / name).write_text(json.dumps(plan))
    return plan


def _effects(folder: Path) -> Counter[str]:
    path = folder / "effects"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def _kill(weigh: Weigh, element: int) -> None:
    """Kill the weigh exec of an element, and its shell, without a last word."""
    marks = (str(weigh.folder).encode(), f"tasks_{element}.joblog".encode())
    for entry in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        if entry.isdecimal() and all(mark in words for mark in marks):
            os.kill(int(entry), signal.SIGKILL)


def _has_started(weigh: Weigh, element: int) -> bool:
    events = weigh.folder / f"plan/t/log/tasks_{element}.joblog.events.jsonl"
    return events.exists() and b'"started"' in events.read_bytes()


@mainly("gridengine", "htcondor")
def test_a_killed_element_leaves_its_tasks_to_the_others(weigh: Weigh) -> None:
    lines = [f"sleep 0.3; echo {n} >>effects" for n in range(1, 41)]
    plan = _planned(weigh, *lines)
    job = weigh.submit("plan/t", "--jobs", str(ELEMENTS))
    until(lambda: _has_started(weigh, 1))
    _kill(weigh, 1)
    assert weigh.finish(job) == {"COMPLETED": 40}
    effects = _effects(weigh.folder)
    assert set(effects) == {str(n) for n in range(1, 41)}
    again = [n for n, count in effects.items() if count > 1]
    assert len(again) <= 2  # in flight when it was killed: its two slots
    names = os.listdir(weigh.folder / "plan/t" / plan["queue"]["folder"])
    assert len([name for name in names if name.startswith("w.")]) <= ELEMENTS


@mainly("slurm")
def test_what_a_cancelled_job_left_is_pulled_in_another_round(weigh: Weigh) -> None:
    go = weigh.folder / "go"
    wait = f"until [ -e {go} ]; do sleep 0.1; done"
    lines = [f"echo {n} >>effects" for n in range(1, 5)]
    lines += [f"{wait}; echo {n} >>effects" for n in range(5, 21)]
    _planned(weigh, *lines)
    job = weigh.submit("plan/t", "--jobs", str(ELEMENTS))
    until(lambda: _has_started(weigh, 1))
    code, _, err = weigh("cancel", job)
    assert code == 0, err
    weigh.wait_for(job, lambda one: "RUNNING" not in one["elements"])
    go.touch()
    again = weigh.resume(job)
    assert len(again["again"]) == 1
    weigh.finish(again["again"][0]["job"]["id"])
    effects = _effects(weigh.folder)
    assert set(effects) == {str(n) for n in range(1, 21)}
    # a scheduler that kills the shell alone leaves what was in flight to end
    assert sum(effects.values()) <= 20 + 2 * ELEMENTS
    assert weigh.status(job)["tasks"] == {"COMPLETED": 20}


@mainly("local")
def test_silent_tasks_need_few_files_however_many_they_are(weigh: Weigh) -> None:
    _planned(weigh, *["true"] * 60)
    job = weigh.submit("plan/t")
    weigh.finish(job)
    (queue,) = (weigh.folder / "plan/t").glob("queue_*")
    files = list(queue.iterdir())  # one look: an element may come late
    inodes = {path.stat().st_ino for path in files}
    assert len([path for path in files if path.name.startswith("c")]) == 60
    owners = len([path for path in files if path.name.startswith("w.")])
    assert len(inodes) == owners + 2  # and the plan and its tasks
    logs = weigh.folder / "plan/t/log"
    weigh.wait_for(job, lambda _: not list(logs.glob("*.lock")))  # elements end later
    assert {path.suffix for path in logs.iterdir()} == {".joblog", ".jsonl", ".out"}


def test_a_queue_can_be_pulled_by_hand(here: Weigh) -> None:
    _planned(here, *(f"echo {n} >>effects" for n in range(1, 21)))
    pull = [sys.executable, "-m", "weigh", "exec", "--pull", "--json", "plan/t"]
    runs = [subprocess.run(pull, capture_output=True, check=True) for _ in range(2)]
    assert [json.loads(run.stdout)["done"] for run in runs] == [20, 20]
    assert [json.loads(run.stdout)["earlier"] for run in runs] == [0, 20]
    host = this_machine().host
    assert (here.folder / f"plan/t/log/{host}.joblog").exists()
    assert _effects(here.folder) == {str(n): 1 for n in range(1, 21)}
