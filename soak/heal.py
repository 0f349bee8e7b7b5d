"""A mix of failures on a real scheduler, healed without a person. Run it as root.

    ci/isolated.sh .venv/bin/python soak/heal.py [--tasks 200] [--on gridengine]

Of the tasks 10 % need more memory than planned, 5 % more time, 1 % have a bug; with
Slurm a node is set down and a job of a higher partition preempts others meanwhile. An
ordinary user submits them once. At the end only the bugs may be left.

With --races N, N small plans are healed while three more senders try the same, the
controller is stopped, in every third race killed, and in every second race a sender.
"""

import argparse
import json
import os
import pwd
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

CI = Path(__file__).parents[1] / "ci"
USER = "researcher"
SOURCES = Path(__file__).parents[1] / "src"
PATHS = f"{SOURCES}:{Path(msgspec.__file__).parents[1]}"
PYTHON = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
MORE = """PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=urgent Nodes=cn[1-3] PriorityTier=100 State=UP
"""
TASK = """\
import os, sys, time
kind, number, amount = sys.argv[1], sys.argv[2], int(sys.argv[3])
effects = os.open(f"effects/{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
if kind == "memory":
    held = bytearray(amount << 20)
    held[::4096] = b"x" * len(held[::4096])
if kind == "space":
    held = bytearray(amount << 20)
if kind == "bug":
    raise ValueError(f"task {number}")
time.sleep(amount if kind == "time" else 1)
os.write(effects, b"done\\n")
"""
PATIENCE = 3600.0


def main() -> int:
    """Run the mix; print one line per promise; return 1 if one is broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--on", choices=("slurm", "gridengine"), default="slurm")
    parser.add_argument("--rounds", default="4")
    parser.add_argument("--no-database", action="store_true")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--races", type=int, default=0)
    words = parser.parse_args()
    if os.geteuid() != 0:
        print("not run: a real scheduler needs root")
        return 0
    more = "AuthInfo=cred_expire=5,ttl=20" if words.races else MORE
    rig = {"WEIGH_RIG_DB": "0"} if words.no_database else {}
    start(words.on, WEIGH_RIG_MORE=more, **rig)
    if words.races:
        results = [race(number) for number in range(1, words.races + 1)]
        print(f"{results.count(True)} of {len(results)} races as promised")
        return int(not all(results))
    folder = Path(tempfile.mkdtemp(prefix="heal-"))
    prepare(folder, words.tasks, words.on)
    began = time.time()
    print(
        weigh(
            folder,
            "submit",
            "plan/p",
            "--on",
            words.on,
            f"--heal=rounds={words.rounds},memory=4G",
            "--setup",
            f"export PYTHONPATH={PATHS}",
            "--time",
            "1m",
        )
    )
    if words.on == "slurm" and not words.no_faults:
        faults(folder)
    standing = wait(folder)
    print(weigh(folder, "status", "p"))
    return judge(folder, standing, words.tasks, time.time() - began)


def start(scheduler: str, **rig: str) -> None:
    """Start a scheduler, and take over the variables that name it."""
    up = subprocess.run(
        [CI / f"{scheduler}-up.sh"],
        env={**os.environ, **rig},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = [line.removeprefix("export ") for line in up.stdout.splitlines()]
    os.environ.update(dict(line.split("=", 1) for line in lines))


RACE = """\
echo x >>ran1; [ -e a ] || { touch a; exit 9; }
echo x >>ran2
echo x >>ran3; [ -e b ] || { touch b; exit 7; }
"""


def race(number: int) -> bool:
    """Let four senders race for the second round; return whether one sent it."""
    folder = Path(tempfile.mkdtemp(prefix="race-"))
    (folder / "tasks.txt").write_text(RACE)
    own(folder)
    needs = ("--memory", "60M", "--cpus", "1", "--time", "2m", "--name", "p")
    weigh(folder, "plan", "tasks.txt", *needs)
    path = ("--setup", f"export PYTHONPATH={PATHS}", "--no-checks")
    weigh(folder, "submit", "plan/p", "--heal", *path)
    ran = [folder / f"ran{task}" for task in (1, 2, 3)]
    end = time.monotonic() + PATIENCE
    while not all(path.exists() for path in ran):
        assert time.monotonic() < end, "the array did not run"
        time.sleep(1)
        help_on(folder, standing_of(folder))
    time.sleep(2 * random.random())
    command = [*become(), PYTHON, "-m", "weigh", "resume", "--heal", "p"]
    senders = [
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(3)
    ]
    time.sleep(3 * random.random())
    with stopped_controller(killed=number % 3 == 0):
        time.sleep(4 * random.random())
        if number % 2 == 0:
            senders[0].kill()
    for sender in senders:
        sender.wait()
    standing, helps = wait(folder, helped=True), list(HELPED)
    HELPED.clear()
    counts = [path.read_text().count("x") for path in ran]
    holds = counts == [2, 1, 2] and standing["tasks"] == {"COMPLETED": 3}
    print(f"race {number}: {counts}, jobs {standing['jobs']}", *helps, flush=True)
    if not holds:
        print(weigh(folder, "status", "p"))
        for sent in sorted((folder / "plan/p/sent").rglob("*")):
            is_text = sent.is_file() and sent.name != "job.sh"
            print(sent, sent.read_text()[:2000] if is_text else "")
    return holds


@contextmanager
def stopped_controller(*, killed: bool) -> Iterator[None]:
    """Stop the controller meanwhile, and then let it go on, or kill and restart it."""
    file = Path(os.environ["SLURM_CONF"]).parents[1] / "pid/slurmctld.pid"
    pid = int(file.read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if killed:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)
            subprocess.run(("setsid", "slurmctld"), check=True)
        else:
            os.kill(pid, signal.SIGCONT)
        while subprocess.run(("squeue", "-h"), capture_output=True).returncode:  # noqa: PLW1510
            time.sleep(0.5)


def own(folder: Path) -> None:
    """Give a folder to the user."""
    user = pwd.getpwnam(USER)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)


def prepare(folder: Path, tasks: int, scheduler: str) -> None:
    """Write the program, the tasks and the plan, all of them the user's."""
    (folder / "effects").mkdir()
    (folder / "task.py").write_text(TASK)
    kinds = [kind_of(number) for number in range(1, tasks + 1)]
    if scheduler == "gridengine":  # it limits address space
        kinds = [
            ("space", 12 * amount) if kind == "memory" else (kind, amount)
            for kind, amount in kinds
        ]
    (folder / "tasks.txt").write_text(
        "".join(
            f"python3 task.py {kind} {number} {amount}\n"
            for number, (kind, amount) in enumerate(kinds, 1)
        )
    )
    own(folder)
    needs = ("--memory", "60M", "--cpus", "1", "--time", "2s")
    packs = ("--node", "4", "--hours", "1m", "--name", "p")
    print(weigh(folder, "plan", "tasks.txt", *needs, *packs))


def kind_of(number: int) -> tuple[str, int]:
    """Return what a task does, and how many MiB or seconds it needs."""
    if number % 10 == 3:
        return "memory", (100, 350, 600)[number // 10 % 3]
    if number % 20 == 7:
        return "time", 75
    return ("bug", 0) if number % 100 == 50 else ("ok", 0)


def weigh(folder: Path, *argv: str) -> str:
    """Run weigh as the user; return what it prints."""
    ran = subprocess.run(
        (*become(), PYTHON, "-m", "weigh", *argv),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode not in {0, 1}:
        sys.exit(f"weigh {' '.join(argv)}: {ran.stderr}")
    return ran.stdout if "--json" in argv else ran.stdout + ran.stderr


def become() -> tuple[str, ...]:
    """Return the command that runs another one as the user."""
    return ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which the user runs weigh."""
    ours = {"HOME": str(folder), "WEIGH_POLL": "0s", "PYTHONPATH": PATHS}
    return {**os.environ, **ours, "WEIGH_HEADROOM": "0"}


def faults(folder: Path) -> None:
    """Set a node down, and preempt what runs on another one."""
    end = time.monotonic() + PATIENCE
    while len(list((folder / "effects").iterdir())) < 20:
        assert time.monotonic() < end
        time.sleep(0.5)
    node = ("scontrol", "update", "nodename=cn2")
    subprocess.run((*node, "state=down", "reason=test"), check=True)
    urgent = ("sbatch", "-p", "urgent", "-w", "cn3", "--exclusive", "--mem=0", "-t1")
    subprocess.run((*urgent, "-o/dev/null", "--wrap=sleep 3"), check=True)
    time.sleep(5)
    subprocess.run((*node, "state=resume"), check=False, stderr=subprocess.DEVNULL)


HELPED: list[str] = []


def wait(folder: Path, *, helped: bool = False) -> dict[str, Any]:
    """Wait until no healer sends a further round; return the standing.

    With *helped* all tasks done are enough, and what `weigh status` asks for is done: a
    killed controller forgets jobs, and takes some that ended for running.
    """
    end = time.monotonic() + PATIENCE
    while True:
        standing = standing_of(folder)
        is_done = helped and set(standing["tasks"]) == {"COMPLETED"}
        if standing["healing"]["stopped"] is not None or is_done:
            return standing
        assert time.monotonic() < end, json.dumps(standing, indent=1)
        if helped:
            help_on(folder, standing)
        time.sleep(5)


def standing_of(folder: Path) -> dict[str, Any]:
    """Return what `weigh status` shows."""
    shown = json.loads(weigh(folder, "status", "p", "--json"))
    return cast("dict[str, Any]", shown["jobs"][0])


def help_on(folder: Path, standing: dict[str, Any]) -> None:
    """Run the commands that `weigh status` names."""
    for command in standing["healing"]["blocked"]:
        HELPED.append(command)
        subprocess.run(command.split(), check=False)
    if standing["healing"]["state"] not in {"PENDING", "RUNNING"}:
        HELPED.append("weigh resume --heal p")
        weigh(folder, "resume", "--heal", "p")


def judge(folder: Path, standing: dict[str, Any], tasks: int, took: float) -> int:
    """Compare what happened with what is promised."""
    bugs = sum(kind_of(number)[0] == "bug" for number in range(1, tasks + 1))
    events = list(read_events(folder))
    attempts = [one for one in events if one["event"] == "ended"]
    small = list(too_small(folder))
    ends = Counter(
        path.read_text().count("done") for path in (folder / "effects").iterdir()
    )
    again = done_again(folder)
    by_job = held_and_used(folder, attempts)
    for job, (had, ran) in by_job.items():
        print(f"job {job}: {had:.0f} s of slots held, {ran:.0f} s used")
    held, used = (sum(column) for column in zip(*by_job.values(), strict=True))
    rows = [
        ("arrays", len(standing["healing"]["rounds"]) + 1, True),
        ("done", standing["tasks"].get("COMPLETED"), None),
        (
            "left",
            standing["tasks"].get("FAILED"),
            standing["tasks"].get("FAILED") == bugs,
        ),
        ("tasks done twice: in flight when killed", ends[2], True),
        ("tasks that weigh knew to be done before", again, again == 0),
        ("attempts", len(attempts), True),
        ("attempts known to be too small", len(small), not small),
        ("slot time held / used", round(held / used, 2) if held else None, True),
        ("seconds", round(took), True),
    ]
    rows[1] = ("done", rows[1][1], rows[1][1] == tasks - bugs)
    for name, value, holds in rows:
        print(f"{name:<40}{value!s:>8}  {'' if holds else 'NOT AS PROMISED'}")
    for one in small:
        print(one)
    return int(not all(holds for _, _, holds in rows))


def read_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield all events of all rounds, each with its joblog."""
    for path in sorted((folder / "plan/p").rglob("*.events.jsonl")):
        for line in path.read_text().splitlines():
            yield {**json.loads(line), "path": str(path)}


def done_again(folder: Path) -> int:
    """Return how many tasks were run again although their end was written."""
    starts: dict[tuple[str, int], str] = {}
    done: Counter[str] = Counter()
    for one in read_events(folder):
        if one["event"] == "started":
            starts[one["path"], one["seq"]] = one["task"]
        elif one["event"] == "ended" and one["state"] == "COMPLETED":
            done[starts[one["path"], one["seq"]]] += 1
    return sum(count > 1 for count in done.values())


def too_small(folder: Path) -> Iterator[str]:
    """Yield the attempts with no more memory than one that ran out of it before."""
    known: dict[str, int] = {}
    starts: dict[tuple[str, int], dict[str, Any]] = {}
    for one in sorted(read_events(folder), key=lambda event: event["time"]):
        if one["event"] == "started":
            starts[one["path"], one["seq"]] = one
            memory = one.get("memory") or 0
            if memory and memory <= known.get(one["task"], 0) and not one.get("alone"):
                yield f"{one['task']}: {memory} after {known[one['task']]}"
        elif one["event"] == "ended" and one["state"] == "OUT_OF_MEMORY":
            start = starts[one["path"], one["seq"]]
            before = known.get(start["task"], 0)
            known[start["task"]] = max(before, start.get("memory") or 0)


def held_and_used(
    folder: Path, attempts: Sequence[dict[str, Any]]
) -> dict[str, tuple[float, float]]:
    """Return the CPU seconds that each job held, by accounting, and its attempts' time.

    An attempt without an end ran until its element was killed.
    """
    argv = ("sacct", "-a", "-X", "-n", "-P", "-o", "JobID,AllocCPUS,ElapsedRaw,End")
    seconds = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    ran = subprocess.run(argv, env=seconds, capture_output=True, text=True, check=False)
    held: Counter[str] = Counter()
    ends: dict[str, float] = {}
    for row in ran.stdout.splitlines():
        element, cpus, elapsed, ended = row.split("|")
        held[element.partition("_")[0]] += int(cpus or 0) * int(elapsed or 0)
        ends[element] = float(ended) if ended.isdigit() else 0.0
    ended_ones = {(one["path"], one["seq"], one["attempt"]) for one in attempts}
    cut = [
        one
        for one in read_events(folder)
        if one["event"] == "started"
        and (one["path"], one["seq"], one["attempt"]) not in ended_ones
    ]
    (store,) = folder.rglob("jobs.jsonl")
    found: dict[str, tuple[float, float]] = {}
    for line in store.read_text().splitlines():
        job = json.loads(line)
        logs = os.path.join(job["folder"], "log")
        if job.get("is_healer"):
            continue
        used = sum(
            one.get("wall_time") or 0.0
            for one in attempts
            if os.path.dirname(one["path"]) == logs
        )
        for one in cut:
            if os.path.dirname(one["path"]) == logs:
                number = os.path.basename(one["path"]).split(".")[0].rpartition("_")[2]
                used += max(0.0, ends.get(f"{job['id']}_{number}", 0.0) - one["time"])
        found[job["id"]] = held[job["id"]], used
    return found


if __name__ == "__main__":
    sys.exit(main())
