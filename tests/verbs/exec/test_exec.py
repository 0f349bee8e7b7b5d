"""``weigh exec`` from end to end: real tasks, real files."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from batches import HOLD, Batch
from called_weigh import called_here, work_alone_in
from processes import PATIENCE, until
from sessions import check_session
from transcript import check_transcript

from weigh.config import EXEC_KEYS
from weigh.units import MIB

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
    "recorded": lambda batch, _: by_task(
        (one["job"]["task"], [one["job"]["attempt"], one["state"], one["exit_code"]])
        for one in batch.records()
    ),
    "signals_of_tasks": lambda batch, _: [one["signal"] for one in batch.records()],
    "outputs": lambda batch, _: outputs(batch.output),
    "outputs_of_then": lambda batch, _: outputs(Path(f"{batch.joblog}.then.out")),
    "then_done": lambda _, done: json.loads(done.stdout)["then"]["done"],
    "holds": lambda batch, _: {
        path.name: path.read_text() for path in batch.folder.iterdir() if path.is_file()
    },
    "longer_than_half_a_second": lambda batch, _: sorted(
        one.seq for one in batch.entries() if one.wall_time > 0.5
    ),
    "peaks": lambda batch, _: of_tasks(
        batch, lambda one: one["usage"]["peak_memory"]["value"] // MIB
    ),
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
    "output": lambda batch, _: "".join(outputs(batch.output).values()),
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


def outputs(folder: Path) -> dict[str, str]:
    files = folder.iterdir() if folder.exists() else ()
    return {path.name: path.read_text() for path in files}


def run_of_promise(batch: Batch, given: dict[str, Any]) -> Done:
    """Run what a table gives, and take from it all but what is expected."""
    write_files(batch, given.pop("files", {}))
    if "removed" in given:
        (batch.folder / given.pop("removed")).unlink()
    if tasks := given.pop("tasks", []) * given.pop("repeat", 1):
        batch.write(*map(filled, tasks))
    options, env = shlex.split(given.pop("options", "")), given.pop("env", {})
    words = {"signals", "line", "meanwhile", "pause"}
    what = {name: given.pop(name) for name in words & given.keys()}
    if not what:
        limit = given.pop("limit", None)
        shell = ("bash", "-c", f'ulimit {limit}; "$@"', "bash") if limit else ()
        return batch.run(*options, before=shell, **env)
    started = batch.start(*options, **env)
    said = ""
    if "line" in what:
        said = batch.next_line(started)
        assert what["line"] in said
    else:
        until(batch.ran)
    for number, name in enumerate(what.get("signals", "").split()):
        if number:
            said = batch.next_line(started)
            assert "SIG" in said
            time.sleep(what.get("pause", 0))
        started.send_signal(signal.Signals[f"SIG{name}"])
    write_files(batch, what.get("meanwhile", {}))
    # what survives SIGKILL may hold the pipes
    started.wait(PATIENCE)
    is_killed = what.get("signals") == "KILL"
    out, err = ("", "") if is_killed else started.communicate()
    return Done(started.args, started.returncode, out, said + err)


def write_files(batch: Batch, files: dict[str, str]) -> None:
    for name, text in files.items():
        (batch.folder / name).write_text(text)


def filled(task: str) -> str:
    task = task.replace("{hold}", f"{{python}} {HOLD}")
    task = task.replace("{words of 3 MiB}", " ".join(["x" * 1000] * 3000))
    return task.replace("{python}", sys.executable)


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
                found = _FOUND[key](batch, done)
                if key == "peaks":
                    assert all(a <= found[task] < b for task, (a, b) in value.items())
                elif key == "holds":
                    assert {name: found.get(name, "") for name in value} == value
                else:
                    assert found == value, key


def test_what_cannot_be_run_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of a line ``## NAME TEXT`` stay for the next commands."""

    def given(words: str) -> None:
        name, _, text = words.partition(" ")
        text = text.replace("150000-LETTERS", "x" * 150_000) + "\n"
        # as they stand in the file: \\n, \\0 and \\xff
        content = text.encode().decode("unicode_escape").encode("latin-1")
        (tmp_path / name).write_bytes(content)

    work_alone_in(tmp_path, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path = Path(__file__).with_name("exec.transcript")
    check_transcript(path, called_here(capsys), {str(tmp_path): "FOLDER"}, given)
    assert {path.name for path in tmp_path.iterdir()} == {"tasks.txt", "weigh.toml"}


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
    assert 60 << 20 < big["usage"]["peak_memory"]["value"] < 90 << 20
    assert big["usage"]["wall_time"] > 0.3
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
    done = batch.run("-j", "1")
    assert done.returncode == 0, done.stderr
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
    both = "until [ $(wc -l < ran) = 2 ]; do sleep 0.1; done"  # a slot for each
    line = f'{sys.executable} -c "{show}" >> ran; {both}'
    batch.write(line, line)
    done = batch.run("-j", "2", *words)
    assert done.returncode == 0, done.stderr
    lines = (batch.folder / "ran").read_text().splitlines()
    first, second = (set(line.split()) for line in lines)
    assert first
    assert second
    assert min(2, len(first & second)) == common


def test_tasks_side_by_side_meet_at_ports_of_their_own(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    show = 'echo "$MASTER_ADDR $MASTER_PORT $WEIGH_PORT $PET_MASTER_PORT" >> ran'
    line = f"{show}; until [ $(wc -l < ran) = 3 ]; do sleep 0.1; done"
    batch.write(line, line, line)
    batch.run("--jobs", "3")
    said = [row.split() for row in (batch.folder / "ran").read_text().splitlines()]
    assert {address for address, *_ in said} == {"127.0.0.1"}
    assert all(len(set(ports)) == 1 for _, *ports in said)
    assert len({port for _, port, *_ in said}) == 3


def test_worked_examples_of_a_summary() -> None:
    check_session(Path(__file__).with_name("exec_lines.session"), {})


def test_every_key_of_the_table_is_an_option() -> None:
    from weigh.cli.exec import exec_  # noqa: PLC0415 - the test's own subject

    assert {option.name for option in exec_.params} >= set(EXEC_KEYS)
