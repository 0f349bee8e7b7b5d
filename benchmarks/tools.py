"""The tools set side by side: how each is started, and where it says what it saw.

Each at its own default settings, with descendants included where that is an option.
"""

import csv
import itertools
import json
import os
import shlex
import sys
from collections.abc import Callable
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20


class Reading(NamedTuple):
    """What a tool says a command used; None where it does not say."""

    memory: float | None = None
    cpu_time: float | None = None
    write_bytes: float | None = None
    low: float | None = None
    high: float | None = None


class Tool(NamedTuple):
    """One tool: *argv* wraps a command, *read* finds its answer in the same folder."""

    name: str
    argv: Callable[[list[str], str], list[str]]
    read: Callable[[str], Reading]


def find_tools(peers: str) -> tuple[list[Tool], list[str]]:
    """Find the tools there are: weigh beside this Python, peers in the folder *peers*.

    Returns:
        The tools, and a line for each one that is missing.
    """
    wanted = {
        "weigh": (_next_to_python("weigh"), _weigh),
        "GNU time": ("/usr/bin/time", _gnu_time),
        "resource-tracker": (f"{peers}/python", _resource_tracker),
        "con-duct": (f"{peers}/con-duct", _con_duct),
        "psrecord": (f"{peers}/psrecord", _psrecord),
    }
    found, missing = [], []
    for name, (path, build) in wanted.items():
        if os.access(path, os.X_OK) and _importable(name, peers):
            found.append(build(os.path.abspath(path)))
        else:
            missing.append(f"{name} left out: no {path} that has it")
    return found, missing


def _next_to_python(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(sys.executable)), name)


def _importable(name: str, peers: str) -> bool:
    if name != "resource-tracker":
        return True
    lib = os.path.join(os.path.dirname(os.path.abspath(peers)), "lib")
    return any("resource_tracker" in folders for _, folders, _ in os.walk(lib))


def _weigh(path: str) -> Tool:
    def read(folder: str) -> Reading:
        with open(f"{folder}/record.json", encoding="utf-8") as file:
            usage = json.load(file)["usage"]
        peak = usage["peak_memory"]
        return Reading(
            memory=peak["value"],
            cpu_time=usage["cpu_time"],
            write_bytes=usage["write_bytes"],
            low=peak["low"],
            high=peak["high"],
        )

    return Tool(
        "weigh",
        lambda argv, to: [path, "run", "-q", "-o", f"{to}/record.json", "--", *argv],
        read,
    )


def _gnu_time(path: str) -> Tool:
    def read(folder: str) -> Reading:
        with open(f"{folder}/time.txt", encoding="utf-8") as file:
            peak, user, system, outputs = file.read().split("\n")[-2].split()
        return Reading(
            memory=int(peak) * 1024,
            cpu_time=float(user) + float(system),
            write_bytes=int(outputs) * 512,  # blocks, as the kernel counts them
        )

    return Tool(
        "GNU time",
        lambda argv, to: [path, "-f", "%M %U %S %O", "-o", f"{to}/time.txt", *argv],
        read,
    )


def _resource_tracker(path: str) -> Tool:
    def read(folder: str) -> Reading:
        with open(f"{folder}/tracker.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return Reading(
            memory=max((float(row["memory_mib"]) for row in rows), default=0) * MIB,
            cpu_time=sum(float(row["utime"]) + float(row["stime"]) for row in rows),
            write_bytes=sum(int(row["disk_write_bytes"]) for row in rows),
        )

    script = os.path.join(HERE, "resource_tracker_run.py")
    return Tool(
        "resource-tracker",
        lambda argv, to: [path, script, f"{to}/tracker.csv", *argv],
        read,
    )


def _con_duct(path: str) -> Tool:
    def read(folder: str) -> Reading:
        with open(f"{folder}/duct_info.json", encoding="utf-8") as file:
            said = json.load(file)["execution_summary"]
        percent, seconds = said["average_pcpu"] or 0, said["wall_clock_time"]
        return Reading(memory=said["peak_rss"], cpu_time=percent / 100 * seconds)

    options = ["run", "-q", "-c", "none", "-o", "none", "--clobber", "-p"]
    return Tool(
        "con-duct",
        lambda argv, to: [path, *options, f"{to}/duct_", *argv],
        read,
    )


def _psrecord(path: str) -> Tool:
    """Wrap psrecord, at 20 Hz because by default it keeps a whole core busy."""

    def read(folder: str) -> Reading:
        with open(f"{folder}/ps.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        times = [float(row["elapsed_time"]) for row in rows]
        steps = [new - old for old, new in itertools.pairwise([0, *times])]
        return Reading(
            memory=max((float(row["mem_real"]) for row in rows), default=0) * MIB,
            cpu_time=sum(
                float(row["cpu"]) / 100 * step
                for row, step in zip(rows, steps, strict=True)
            ),
            write_bytes=max((float(row["write_bytes"]) for row in rows), default=0),
        )

    options = ["--include-children", "--include-io", "--interval", "0.05"]
    return Tool(
        "psrecord",
        lambda argv, to: [
            *(path, *options, "--log-format", "csv", "--log", f"{to}/ps.csv"),
            shlex.join(argv),
        ],
        read,
    )
