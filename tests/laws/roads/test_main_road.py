"""The main road: sweep, run, plan, submit, each on its defaults or drawn options.

It is driven to its end. Every task runs exactly once, every screen says the same, and
what is left is exactly what failed; resumed, all is done, and nothing is left running.
"""

import os
import random

import pytest
from roads import Road

from weigh.planning.queue_order import AT_ONCE

IS_LONG = os.environ.get("WEIGH_FUZZ") == "long"
SEEDS = 20 if IS_LONG else 3
HANGS = ("--time", "40s")  # of which what hangs takes all but the grace period


class DrawnRoad:
    """A sweep and options as a user may type them, drawn by *seed*."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        # above, below and at the number of elements that run at once
        counts = [AT_ONCE + 2, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 1, 2, 30, 40]
        self.tasks = counts[seed % len(counts)] if seed < 4 else draw.choice(counts)
        self.words = ["--seconds", draw.choice(["0", "0.05", "0.2"])]
        if draw.random() < 0.4:
            self.words += ["--mb", draw.choice(["4", "30"])]
        kinds = ["exit", "bug", "kill", "once", *(["hang"] if IS_LONG else [])]
        self.fails = None if seed % 2 == 0 else draw.choice(kinds)
        self.each = draw.choice([1, 3, 5]) if self.fails else 0
        if self.fails == "hang":
            self.each = 5  # each takes all the time that it is granted
        if self.fails:
            self.words += ["--fails", self.fails, "--each", str(self.each)]
        self.runs = 1 if seed == 0 else draw.choice([0, 1, 1, 3])
        self.plan = list[str]()
        if self.runs == 0:
            time = draw.choice(["20s", "1m", "5m"])
            self.plan += f"--memory 150M --time {time}".split()
        if seed:
            options = "--node 2", "--per-gpu 3", "--hours 1", "", ""
            self.plan += draw.choice(options).split()
        throttle = [] if draw.random() < 0.6 or not seed else ["--jobs", "3"]
        self.submit = [*throttle, *(HANGS if self.fails == "hang" else ())]

    def is_bad(self, number: int) -> bool:
        """Return whether a task fails."""
        return bool(self.each) and number % self.each == 0

    def words_of(self, number: int) -> tuple[str, ...]:
        """Return the words of a task."""
        return ("--x", str(number), *self.words)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_task_runs_once_and_each_screen_shows_it(road: Road, seed: int) -> None:
    drawn = DrawnRoad(seed)
    road.program()
    job = ("python3", "job.py", "--x")
    for number in range(1, drawn.runs + 1):
        road("run", "-q", "--", *job, str(number), *drawn.words, ok=tuple(range(256)))
    road.forget()
    for path in road.folder.glob("ran.*"):  # what fails only once
        path.unlink()

    road("sweep", f"x=1..{drawn.tasks}", "--", *job, "{x}", *drawn.words)
    road("plan", "tasks.txt", *drawn.plan)
    road.submit("plan/tasks", *drawn.submit)
    road.wait()
    numbers = range(1, drawn.tasks + 1)
    good = {drawn.words_of(n): 1 for n in numbers if not drawn.is_bad(n)}
    assert road.ended() == good
    road.check_screens()

    if len(good) < drawn.tasks:
        if drawn.fails == "hang":
            road.fix()
        road("resume", "last")
        road.wait()
        states = road.check_screens()
        if states.get("COMPLETED", 0) < drawn.tasks:
            assert drawn.fails != "once"
            road.fix()
            road("resume", "last", "--also", "bugs")
            road.wait()
            road.check_screens()
    assert road.ended() == {drawn.words_of(n): 1 for n in numbers}
    assert "all tasks are done" in road("resume", "last")
    road.check_nothing_runs()


def test_screens_agree_while_tasks_run(road: Road) -> None:
    road.program()
    road("sweep", "x=1..5", "--", "python3", "job.py", "--x", "{x}", "--seconds", "0.3")
    road("plan", "tasks.txt", "--memory", "150M", "--time", "1m")
    road.submit("plan/tasks")
    seen = 0
    while seen < 5:
        before = road.states()
        between = road.read("report", "last")["states"]
        after = road.states()
        counts = [one.get("COMPLETED", 0) for one in (before, between, after)]
        assert counts == sorted(counts)
        assert sum(between.values()) == 5
        assert {*between} <= {"COMPLETED", "RUNNING", "PENDING"}
        seen = counts[-1]
    road.check_screens()


@pytest.mark.long
def test_only_the_task_that_hangs_is_left_and_gets_more_time(road: Road) -> None:
    if not IS_LONG and road.scheduler != "local":
        pytest.skip("its time limit takes a minute or more: in make soak")
    road.program()
    words = ("--fails", "hang", "--each", "5")
    road("sweep", "x=1..8", "--", "python3", "job.py", "--x", "{x}", *words)
    road("plan", "tasks.txt", "--memory", "150M", "--time", "1s")
    road.submit("plan/tasks", *HANGS)
    assert road.wait() == {"COMPLETED": 7, "TIMEOUT": 1}
    road.check_screens()
    road.fix()
    assert "1 task" in road("resume", "last")
    assert road.wait() == {"COMPLETED": 8}
    assert {*road.ended().values()} == {1}
    road.check_screens()


def test_a_lost_node_leaves_only_the_tasks_that_ran_on_it_or_waited(road: Road) -> None:
    if road.scheduler != "local":
        pytest.skip("other tests use the nodes, too")
    at_once = min(AT_ONCE, len(os.sched_getaffinity(0)))
    road.program()
    (road.folder / "tasks.txt").write_text(
        "".join(
            f"python3 job.py --x {x} --fails hang --each {1 if x > 3 else 0}\n"
            for x in range(1, at_once + 4)
        )
    )
    road("plan", "tasks.txt", "--memory", "50M", "--time", "1m")
    road.submit("plan/tasks")
    road.wait_for_tasks_that_hang(at_once)
    road.lose_node()

    done = sum(road.ended().values())
    states = road.wait()
    assert states.pop("COMPLETED", 0) == done
    assert sum(states.values()) == at_once + 3 - done
    road.check_screens()
    road.fix()
    road("resume", "last")
    assert road.wait() == {"COMPLETED": at_once + 3}
    assert {*road.ended().values()} == {1}
    road.check_screens()
    road.check_nothing_runs()


def test_only_the_task_that_lacks_memory_is_left_and_gets_more(road: Road) -> None:
    if road.scheduler != "slurm":
        pytest.skip("only Slurm limits the memory of all processes together")
    road.program()
    (road.folder / "tasks.txt").write_text(
        "".join(
            f"python3 job.py --x {x} --mb {300 if x == 5 else 5} --seconds 1\n"
            for x in range(1, 9)
        )
    )
    road("plan", "tasks.txt", "--memory", "80M", "--time", "1m", "--hours", "1")
    road.submit("plan/tasks")
    states = road.wait()
    for _ in range(3):
        assert states in ({"COMPLETED": 7, "OUT_OF_MEMORY": 1}, {"COMPLETED": 8})
        road.check_screens()
        if states.get("OUT_OF_MEMORY"):
            assert "1 task" in road("resume", "last")
            states = road.wait()
    assert states == {"COMPLETED": 8}
    assert {*road.ended().values()} == {1}
    road.check_screens()
