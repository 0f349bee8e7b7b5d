"""``weigh exec`` from end to end: real tasks, real files."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from batches import HOLD, Batch
from processes import PATIENCE

from weigh.config import EXEC_KEYS

Done = subprocess.CompletedProcess[str]
PROMISES = tomllib.loads(Path(__file__).with_name("batches.toml").read_text())
_FOUND: dict[str, Callable[[Batch, Done], Any]] = {
    "ran": lambda batch, _: batch.ran(),
    "ran_in_any_order": lambda batch, _: sorted(batch.ran()),
    "ended": lambda batch, _: {str(n): [*end] for n, end in batch.ended().items()},
    "joblog_lines": lambda batch, _: len(batch.entries()),
    "attempts": lambda batch, _: by_task(
        (event["seq"], event["attempt"]) for event in batch.events_of("ended")
    ),
    "alone": lambda batch, _: [event["alone"] for event in batch.events_of("ended")],
    "reasons": lambda batch, _: [one["reason"] for one in batch.events_of("ended")],
    "parameters": lambda batch, _: of_tasks(batch, lambda one: one["parameters"]),
    "phases": lambda batch, _: of_tasks(
        batch, lambda one: [phase["name"] for phase in one["phases"]]
    ),
    "evidence": lambda batch, _: of_tasks(
        batch, lambda one: (one["outcome"] or {}).get("evidence", [])
    ),
    "records": lambda batch, _: len(batch.records()),
    "again": lambda batch, _: [event["again"] for event in batch.events_of("ended")],
    "states": lambda batch, _: by_task(
        (record["job"]["task"], record["state"]) for record in batch.records()
    ),
    "signals_of_tasks": lambda batch, _: [one["signal"] for one in batch.records()],
    "outputs": lambda batch, _: outputs(batch),
    "folder": lambda batch, _: os.listdir(batch.folder),
    "is_nothing_left": lambda batch, _: not batch.marked(),
    "slots": lambda _, done: json.loads(done.stdout)["slots"],
    "result": lambda _, done: {
        name: json.loads(done.stdout)[name]
        for name in ("schema", "tasks", "done", "failed")
    },
    "exit_codes_named": lambda _, done: [
        line for line in (done.stdout + done.stderr).splitlines() if "exit code" in line
    ],
    "stdout": lambda _, done: done.stdout,
    "stderr": lambda _, done: done.stderr,
    "stderr_lines": lambda _, done: done.stderr.count("\n"),
}
_TEXTS: dict[str, Callable[[Batch, Done], str]] = {
    "output": lambda batch, _: "".join(outputs(batch).values()),
    "evidence": lambda batch, _: str(batch.records()[-1]["outcome"]["evidence"]),
    "stdout": lambda _, done: done.stdout,
    "stderr": lambda _, done: done.stderr,
}


def by_task(pairs: Iterable[tuple[int, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for task, value in pairs:
        found.setdefault(str(task), []).append(value)
    return found


def of_tasks(batch: Batch, read: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    return {str(one["job"]["task"]): read(one) for one in batch.records()}


def outputs(batch: Batch) -> dict[str, str]:
    files = batch.output.iterdir() if batch.output.exists() else ()
    return {path.name: path.read_text() for path in files}


def run_of_promise(batch: Batch, given: dict[str, Any]) -> Done:
    """Run what a table gives, and take from it all but what is expected."""
    for name, text in given.pop("files", {}).items():
        (batch.folder / name).write_text(text)
    if "removed" in given:
        (batch.folder / given.pop("removed")).unlink()
    if tasks := given.pop("tasks", []) * given.pop("repeat", 1):
        hold = f"{sys.executable} {HOLD}"
        lines = (task.replace("{python}", sys.executable) for task in tasks)
        batch.write(*(line.replace("{hold}", hold) for line in lines))
    options, env = shlex.split(given.pop("options", "")), given.pop("env", {})
    if "signal" not in given:
        limit = f'ulimit {given.pop("limit", "-c 0")}; "$@"'
        return batch.run(*options, before=("bash", "-c", limit, "bash"), **env)
    started = batch.begin(*options, **env)
    started.send_signal(signal.Signals["SIG" + given.pop("signal")])
    return Done(started.args, started.wait(PATIENCE), "", "")


@pytest.mark.parametrize("promise", PROMISES)
def test_exec_keeps(batch: Batch, promise: str) -> None:
    for table in PROMISES[promise]:
        expected = dict(table)
        done = run_of_promise(batch, expected)
        assert done.returncode == expected.pop("code", 0), done.stderr
        for key, value in expected.items():
            text, _, way = key.rpartition("_")
            if way in {"has", "lacks"}:
                assert (value in _TEXTS[text](batch, done)) == (way == "has"), key
            else:
                assert _FOUND[key](batch, done) == value, key


def test_a_line_needs_no_shell_or_gets_bash(batch: Batch) -> None:
    batch.write(f"{sys.executable} -c 'print(1)'", "[[ a == a ]] && echo $BASH")
    batch.run()
    assert (batch.output / "1.out").read_text() == "1\n"
    assert (batch.output / "2.out").read_text().endswith("bash\n")
    assert batch.record(1)["command"] == [sys.executable, "-c", "print(1)"]
    assert batch.record(2)["command"][:2] == ["bash", "-c"]


def test_each_task_has_a_record_of_what_it_used(batch: Batch) -> None:
    hold = "a = bytearray(60 << 20); sum(range(9**6)); import time; time.sleep(0.3)"
    batch.write(f'{sys.executable} -c "{hold}"', "true")
    batch.run("-j", "2")
    big, small = batch.record(1), batch.record(2)
    assert (big["state"], big["exit_code"]) == ("COMPLETED", 0)
    assert 60 << 20 < big["usage"]["peak_memory"]["value"] < 90 << 20
    assert big["usage"]["wall_time"] > 0.3
    assert (big["job"]["task"], big["job"]["attempt"]) == (1, 1)
    assert small["usage"]["peak_memory"]["source"] == "launcher floor"


@pytest.mark.integrations
def test_the_whole_time_of_a_task_that_was_stopped_is_estimated(batch: Batch) -> None:
    batch.write('for i in $(seq 200); do echo "step $i/200"; sleep 0.05; done')
    assert batch.run("--timeout", "5").returncode == 1
    (end,) = batch.events_of("ended")
    assert end["needs"] > 9  # seconds: the pauses alone are 10


def test_threads_of_numeric_libraries_follow_the_slots_share(batch: Batch) -> None:
    cpus = len(os.sched_getaffinity(0))
    batch.write("echo $OMP_NUM_THREADS $MKL_NUM_THREADS >> ran")
    batch.run("-j", "1")
    batch.run("-j", "1", "--no-resume", OMP_NUM_THREADS="7")
    words = batch.ran()
    assert words == [str(cpus), str(cpus), "7"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
@pytest.mark.parametrize(("words", "common"), [((), 0), (("--no-pin",), 2)])
def test_slots_have_disjoint_cores_unless_they_are_not_pinned(
    batch: Batch, words: tuple[str, ...], common: int
) -> None:
    cores = "' '.join(map(str, os.sched_getaffinity(0)))"
    show = f"import os, sys; sys.stdout.write({cores} + chr(10))"
    line = f'{sys.executable} -c "{show}" >> ran; sleep 0.2'
    batch.write(line, line)
    batch.run("-j", "2", *words)
    lines = (batch.folder / "ran").read_text().splitlines()
    first, second = (set(line.split()) for line in lines)
    assert first
    assert second
    assert min(2, len(first & second)) == common


def test_every_key_of_the_table_is_an_option() -> None:
    from weigh.cli.exec import exec_  # noqa: PLC0415 - the test's own subject

    assert {option.name for option in exec_.params} >= set(EXEC_KEYS)
