"""``weigh exec`` on the stub's cards: tasks that share one, and fill it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from nvml_script import GIB, Script
from run_captured import CapturedRun

# a task plays what it holds of a card, step by step; what it holds goes with it
TASK = """
import fcntl, json, os, signal, sys, time
from nvml_script import play, wait_until_read
name, card, end, *steps = sys.argv[1:]
def hold(memory):
    with open(os.environ["NVML_STUB_SCRIPT"] + ".held", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        held = json.loads(file.read() or "{}")
        held.setdefault(card, {})[str(os.getpid())] = memory
        file.truncate(0)
        file.write(json.dumps(held))
        procs = [f"{pid}:{size}" for pid, size in held[card].items() if size]
        play(card=card, used=sum(held[card].values()), procs=",".join(procs))
def stopped(*_):
    open("stopped", "w").close()
    hold(0)
    sys.exit(143)
signal.signal(signal.SIGTERM, stopped)
def wait_for(path):
    deadline = time.monotonic() + 60
    while not os.path.exists(path):
        time.sleep(0.02)
        assert time.monotonic() < deadline
for step in steps:
    if step.isalpha():
        wait_for(f"{step}.holds")
        continue
    hold(int(float(step) * (1 << 30)))
    wait_until_read(card)
    open(f"{name}.holds", "w").close()
if end.startswith("when:"):
    wait_for(end[5:])
hold(0)
open("ran", "a").write(name + "\\n")
tries = open("ran").read().count(name)
open(f"{name}.{tries}", "w").close()
if end == "oom" and tries == 1:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
"""


class Tasks:
    """A task file whose tasks play on the stub's cards."""

    def __init__(self, script: Script, folder: Path) -> None:
        self.script, self.folder = script, folder
        (folder / "task.py").write_text(TASK)

    def run(self, *lines: str, options: tuple[str, ...], cards: str) -> CapturedRun:
        """Run lines of name, card, how to end, and GiB held one after the other.

        Among them another's name: that holds something by then.
        """
        path = self.folder / "tasks.txt"
        path.write_text("".join(f"{sys.executable} task.py {line}\n" for line in lines))
        return self.execute(*options, cards=cards)

    def execute(self, *options: str, cards: str) -> CapturedRun:
        """Run the task file."""
        words = ("exec", *options, "tasks.txt")
        return self.script.weigh(self.folder, *words, CUDA_VISIBLE_DEVICES=cards)

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        """Give the events of one kind."""
        text = (self.folder / "tasks.txt.joblog.events.jsonl").read_text()
        events = [json.loads(line) for line in text.splitlines()]
        return [event for event in events if event["event"] == kind]


@pytest.fixture
def tasks(script: Script, tmp_path: Path) -> Tasks:
    return Tasks(script, tmp_path)


def test_the_youngest_on_a_full_gpu_is_stopped_and_runs_later(tasks: Tasks) -> None:
    tasks.script.gpus(1)
    done = tasks.run(
        "a 0 when:stopped 16",
        "b 0 when:stopped a 4 8 12 15.5",
        options=("--per-gpu", "2"),
        cards="0",
    )
    assert done.returncode == 0, done.stderr
    assert (
        "left on GPU 0: task 2 is stopped; it runs again next to fewer tasks"
        in done.stderr
    )
    ends = tasks.events_of("ended")
    states = sorted((one["seq"], one["attempt"], one["state"]) for one in ends)
    assert states == [(1, 1, "COMPLETED"), (2, 1, "PREEMPTED"), (2, 2, "COMPLETED")]


def test_a_full_gpu_stops_nobody_on_another(tasks: Tasks) -> None:
    tasks.script.gpus(2)
    done = tasks.run(
        "a 0 when:b.holds 31.5",
        "b 1 when:a.holds 31.5",
        options=("-j", "2"),
        cards="0,1",
    )
    assert done.returncode == 0, done.stderr
    assert [one["state"] for one in tasks.events_of("ended")] == ["COMPLETED"] * 2


def test_what_ran_out_of_a_gpus_memory_has_twice_as_much_next_to_others(
    tasks: Tasks,
) -> None:
    tasks.script.gpus(1)
    (tasks.folder / "ran").touch()
    done = tasks.run(
        "a 0 oom b c 5",
        "b 0 when:a.2 3",
        "c 0 when:a.2 3",
        options=("--per-gpu", "3"),
        cards="0",
    )
    assert done.returncode == 0, done.stderr
    first, second = (one for one in tasks.events_of("started") if one["seq"] == 1)
    assert (first["gpu_memory"], second["gpu_memory"]) == (None, 10 * GIB)
    # the others end only when the second try has its memory
    ended = [(one["seq"], one["state"]) for one in tasks.events_of("ended")]
    assert ended[0] == (1, "OUT_OF_MEMORY")
    assert sorted(ended[1:]) == [(seq, "COMPLETED") for seq in (1, 2, 3)]


def test_a_hung_collective_is_stuck_on_its_busy_gpu_and_a_silent_kernel_is_not(
    tasks: Tasks,
) -> None:
    tasks.script.gpus(1, util=100)
    counts = "for i in 1 2 3 4 5 6; do echo step $i/40; sleep .5; done"
    (tasks.folder / "tasks.txt").write_text(
        # a hung one takes some CPU time; of the other, only its GPU works
        f"{counts}; while :; do sleep .02; done\nsleep 8\n"
    )
    done = tasks.execute("--end-stuck=4", "-j", "2", cards="0")
    states = {one["seq"]: one["state"] for one in tasks.events_of("ended")}
    assert states == {1: "STUCK", 2: "COMPLETED"}
    assert "task 1 is stuck: no output for 4.00 s, and no progress after 6" in (
        done.stderr
    )
