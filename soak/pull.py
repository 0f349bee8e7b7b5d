"""One queue on a real scheduler: what it holds, and what two killed elements cost.

    ci/isolated.sh .venv/bin/python soak/pull.py [--on gridengine] [--gpus]

300 tasks of .2 to 4 s run in 4 elements of 2 slots: first undisturbed, then while two
elements are killed at random. Each task writes when it begins and ends, and where; the
time that elements held is the scheduler's. With --gpus two tasks share a GPU.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from heal import PATHS, own, start, weigh

TASKS, ELEMENTS, SLOTS, KILLED = 300, 4, 2, 2
TASK = (
    'e=effects/{number}; w="${{SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID}} '
    '${{CUDA_VISIBLE_DEVICES:--}} $(hostname)"; echo "b $(date +%s.%N) $w" >>$e; '
    'sleep {time:.2f}; echo "e $(date +%s.%N) $w" >>$e'
)
PATIENCE = 900.0
Row = tuple[str, object, bool]


class Begun(NamedTuple):
    """One time that a task was begun; ``end`` is None if it did not end."""

    element: str
    gpu: str
    begin: float
    end: float | None


def main() -> int:
    """Print one line per promise; return 1 if one is broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=("slurm", "gridengine"), default="slurm")
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--tasks", type=int, default=TASKS)
    words = parser.parse_args()
    if os.geteuid() != 0:
        print("not run: a real scheduler needs root")
        return 0
    start(words.on)
    rows = [
        row
        for kills in (0, KILLED)
        for row in run(words.on, words.tasks, kills, gpus=words.gpus)
    ]
    return int(not all(holds for _, _, holds in rows))


def run(on: str, tasks: int, kills: int, *, gpus: bool) -> list[Row]:
    """Run all tasks once; kill so many elements meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="pull-"))
    elements, slots = planned(folder, tasks, gpus=gpus)
    path = ("--setup", f"export PYTHONPATH={PATHS}")
    began = time.monotonic()
    print(weigh(folder, "submit", "plan/p", "--on", on, *path))
    if kills:
        kill(folder, kills)
    state = wait(folder)
    took = time.monotonic() - began
    found = list(effects(folder))
    used = sum(one.end - one.begin for runs in found for one in runs if one.end)
    held = held_time(on) * slots
    again = [runs for runs in found if len(runs) > 1]
    twice = [runs for runs in found if sum(one.end is not None for one in runs) > 1]
    rows: list[Row] = [
        ("elements, killed", (elements, kills), True),
        ("tasks done", state.get("COMPLETED"), state.get("COMPLETED") == tasks),
        ("tasks with an effect", len(found), len(found) == tasks),
        ("begun again: in flight when killed", len(again), len(again) <= kills * slots),
        ("of these, ended both times", len(twice), len(twice) <= kills * slots),
        ("begun while the first one lived", alive(again), not alive(again)),
        ("seconds", round(took), True),
    ]
    if not kills:
        ratio = round(held / used, 3)
        rows.append(("slot time held / used", ratio, ratio <= 1.1))
    if gpus:
        most = most_on_a_gpu(found)
        rows.append(("most tasks on a GPU at once", most, most == slots))
    for name, value, holds in rows:
        print(f"{name:<36}{value!s:>8}  {'' if holds else 'NOT AS PROMISED'}")
    return rows


def planned(folder: Path, tasks: int, *, gpus: bool) -> tuple[int, int]:
    """Plan the tasks; return how many elements there are, and their slots."""
    chosen = random.Random(tasks)
    (folder / "effects").mkdir()
    (folder / "tasks.txt").write_text(
        "".join(
            f"{TASK.format(number=number, time=chosen.uniform(0.2, 4))}\n"
            for number in range(1, tasks + 1)
        )
    )
    own(folder)
    needs = ("--memory", "60M", "--cpus", "1", "--time", "4s")
    place = ("--gpu", "v100=8GiB", "--gpu-memory", "4GiB") if gpus else ()
    packs = ("--node", str(SLOTS), "--hours", "10m", "--name", "p")
    print(weigh(folder, "plan", "tasks.txt", *needs, *place, *packs))
    path = folder / "plan/p/plan.json"
    plan = json.loads(path.read_text())
    plan["elements"] = plan["elements"][:ELEMENTS]
    for name in ("plan.json", f"{plan['queue']['folder']}/plan.json"):
        (path.parent / name).write_text(json.dumps(plan))
    return len(plan["elements"]), plan["queue"]["slots"]


def kill(folder: Path, count: int) -> None:
    """Kill so many elements at random, each with all that it runs."""
    log = folder / "plan/p/log"
    end = time.monotonic() + PATIENCE
    while len(list(log.glob("*.events.jsonl"))) < ELEMENTS:
        assert time.monotonic() < end, "the elements did not start"
        time.sleep(0.2)
    for element in random.sample(range(ELEMENTS), count):
        time.sleep(random.uniform(1, 15))
        marks = (str(folder).encode(), f"tasks_{element}.joblog".encode())
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            words = Path(f"/proc/{pid}/cmdline")
            try:
                if all(mark in words.read_bytes() for mark in marks):
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                continue


def wait(folder: Path) -> dict[str, int]:
    """Wait until no element is left; return the states of the tasks."""
    end = time.monotonic() + PATIENCE
    while True:
        standing = json.loads(weigh(folder, "status", "p", "--json"))["jobs"][0]
        if not {"PENDING", "RUNNING", "UNKNOWN"} & set(standing["elements"]):
            return dict(standing["tasks"])
        assert time.monotonic() < end, json.dumps(standing, indent=1)
        time.sleep(1)


def effects(folder: Path) -> Iterator[list[Begun]]:
    """Yield each time that a task was begun, by task."""
    for path in (folder / "effects").iterdir():
        runs: list[Begun] = []
        for word, at, element, gpu, _ in map(str.split, path.read_text().splitlines()):
            if word == "b":
                runs.append(Begun(element, gpu, float(at), None))
                continue
            place = max(n for n, one in enumerate(runs) if one.element == element)
            runs[place] = runs[place]._replace(end=float(at))
        yield runs


def alive(again: Sequence[Sequence[Begun]]) -> int:
    """Return how many tasks were begun anew before their first run ended."""
    pairs = [(one, other) for runs in again for one, other in pairwise(runs)]
    return sum(one.end is not None and one.end > other.begin for one, other in pairs)


def most_on_a_gpu(found: Sequence[Sequence[Begun]]) -> int:
    """Return the most tasks that ran on one GPU at the same time.

    Where the scheduler names no GPUs, an element has one.
    """
    moments = [
        (at, step, one.element if one.gpu == "-" else one.gpu)
        for runs in found
        for one in runs
        for at, step in ((one.begin, 1), (one.end or one.begin, -1))
    ]
    now, most = Counter[str](), 0
    for _, step, gpu in sorted(moments):
        now[gpu] += step
        most = max(most, now[gpu])
    return most


def held_time(on: str) -> float:
    """Return the seconds for which elements of the last job ran, by accounting."""
    time.sleep(5)  # until accounting has them
    if on == "slurm":
        argv = ("sacct", "-a", "-X", "-n", "-P", "--name=p", "-o", "ElapsedRaw,JobID")
        rows = [line.split("|") for line in said(argv).splitlines()]
        last = max(int(job.partition("_")[0]) for _, job in rows)
        ours = [float(s) for s, job in rows if int(job.partition("_")[0]) == last]
        return sum(ours)
    rows = [line.split() for line in said(("qacct", "-j", "p")).splitlines()]
    pairs = [(row[0], row[1]) for row in rows if len(row) > 1]
    jobs = [int(value) for name, value in pairs if name == "jobnumber"]
    clocks = [float(v.rstrip("s")) for name, v in pairs if name == "ru_wallclock"]
    return sum(s for s, job in zip(clocks, jobs, strict=True) if job == max(jobs))


def said(argv: Sequence[str]) -> str:
    """Return what a command prints."""
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
