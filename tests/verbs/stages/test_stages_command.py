import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from called_weigh import called_apart
from processes import PATIENCE, until

from weigh.flow.follow.tasks import last_lines_of_output
from weigh.units import MIB

WEIGH = (sys.executable, "-m", "weigh")
HOLD = "x = bytearray({0} << 20); import time; time.sleep({1})"
# holds 60 MiB until another does, and half a second more
MEETS = """
import os, time
x = bytearray(60 << 20)
open({0!r}, "w")
while not os.path.exists({1!r}): time.sleep(0.02)
time.sleep(0.5)
"""


def python(program: str) -> str:
    return shlex.join((sys.executable, "-c", program))


def write(folder: Path, **steps: str) -> None:
    text = "".join(
        f"[[stage]]\nname = {json.dumps(name)}\nrun = {json.dumps(line)}\n"
        for name, line in steps.items()
    )
    (folder / "steps.toml").write_text(text)


def records(folder: Path) -> list[dict[str, Any]]:
    shards = sorted((folder / "store/records").glob("*/*.jsonl"))
    return [json.loads(line) for one in shards for line in one.read_text().splitlines()]


def names(record: dict[str, Any]) -> Sequence[str]:
    return [phase["name"] for phase in record["phases"]]


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The phases of one run with steps of each kind, by their names."""
    folder = tmp_path_factory.mktemp("steps")
    steps = {
        "prepare": "echo one",
        "one": python(HOLD.format(30, 0.4)),
        "two": f"{python(MEETS.format('a', 'b'))} & {python(MEETS.format('b', 'a'))}; "
        "wait",
        "short": python("x = bytearray(40 << 20)"),
        "busy": python("import time\nwhile time.process_time() < 0.3: pass"),
        "idle": "sleep 0.3; echo three",
    }
    write(folder, **steps)
    done = called_apart(folder, "run", "steps.toml")
    assert (done.returncode, done.stdout) == (0, "one\nthree\n")
    (record,) = records(folder)
    assert names(record) == [*steps]
    return {phase["name"]: phase for phase in record["phases"]}


def test_a_step_is_a_phase_with_its_times(phases: dict[str, dict[str, Any]]) -> None:
    busy, idle = phases["busy"], phases["idle"]
    assert (idle["calls"], idle["depth"]) == (1, 0)
    assert idle["wall_time"] >= 0.3
    assert busy["cpu_time"] >= 0.3
    assert idle["cpu_time"] < 0.1


@pytest.mark.skipif(sys.platform != "linux", reason="reads a tree from /proc")
def test_a_step_s_peak_is_that_of_all_its_processes(
    phases: dict[str, dict[str, Any]],
) -> None:
    peaks = {name: phase["peak_memory"] / MIB for name, phase in phases.items()}
    assert 30 < peaks["one"] < 60
    assert 120 < peaks["two"] < 170
    assert 40 < peaks["short"] < 70  # however short it is
    assert peaks["idle"] < 20


def test_the_first_failure_ends_it_with_its_exit_code(tmp_path: Path) -> None:
    write(tmp_path, prepare="true", train="exit 7", collect="touch was-run")
    done = called_apart(tmp_path, "run", "steps.toml", "lr=2")
    assert done.returncode == 7
    assert not (tmp_path / "was-run").exists()
    (record,) = records(tmp_path)
    assert (record["state"], record["exit_code"]) == ("FAILED", 7)
    assert names(record) == ["prepare", "train"]
    assert "go on with: weigh run steps.toml:train lr=2\n" in done.stderr


def test_it_goes_on_at_a_step_with_settings_for_it_and_the_record(
    tmp_path: Path,
) -> None:
    write(tmp_path, prepare="touch was-run", train='echo "$lr $name"')
    done = called_apart(tmp_path, "run", "steps.toml:train", "lr=0.1", "name=a b")
    assert done.stdout == "0.1 a b\n"
    assert not (tmp_path / "was-run").exists()
    (record,) = records(tmp_path)
    assert names(record) == ["train"]
    assert record["parameters"] == {"lr": 0.1, "name": "a b"}


def test_under_weigh_run_there_is_still_one_record_and_one_output_file(
    tmp_path: Path,
) -> None:
    write(tmp_path, prepare="touch was-run", train="true")
    inner = (*WEIGH, "run", "steps.toml")
    output = ("-o", "record.json")
    refused = called_apart(tmp_path, "run", "-q", "--", *inner, *output)
    assert (refused.returncode, "the outer one" in refused.stderr) == (125, True)
    assert not (tmp_path / "was-run").exists()
    assert (
        called_apart(tmp_path, "run", "--label", "mine", "--", *inner).returncode == 0
    )
    record = records(tmp_path)[-1]
    assert (record["label"], names(record)) == ("mine", ["prepare", "train"])


@pytest.mark.skipif(sys.platform != "linux", reason="weigh exec needs Linux")
def test_tasks_of_exec_may_be_stages(tmp_path: Path) -> None:
    write(tmp_path, prepare="true", train=python(HOLD.format(30, 0.3)))
    line = shlex.join((*WEIGH, "run", "steps.toml"))
    (tmp_path / "tasks.txt").write_text(f"{line} lr=1\n{line} lr=2\n")
    assert called_apart(tmp_path, "exec", "tasks.txt").returncode == 0
    found = records(tmp_path)
    assert [names(record) for record in found] == [["prepare", "train"]] * 2
    assert all(record["phases"][1]["peak_memory"] > 30 * MIB for record in found)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("nowhere.toml",), "cannot read nowhere.toml"),
        (("steps.toml:fit",), "there are: train"),
        (("steps.toml", "lr"), "not a setting"),
        (("steps.toml", "a-b=1"), "not a setting"),
    ],
)
def test_what_cannot_be_run_is_reported_before_anything_is(
    tmp_path: Path, argv: Sequence[str], said: str
) -> None:
    write(tmp_path, train="touch was-run")
    done = called_apart(tmp_path, "run", *argv)
    assert done.returncode == 125
    assert said in done.stderr
    assert not (tmp_path / "was-run").exists()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["TERM", "INT", "USR1"])
def test_a_signal_reaches_the_step_that_runs(tmp_path: Path, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    trap = f"trap 'kill $!; echo told; exit 0' {name}; sleep 60 & touch ready; wait"
    write(tmp_path, train=trap, collect="echo collected; kill -PIPE $$; echo alive")
    env = {**os.environ, "WEIGH_DIR": str(tmp_path / "store")}
    argv = (*WEIGH, "run", "steps.toml", "-q")
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as run:
        until((tmp_path / "ready").exists)
        run.send_signal(number)
        out, _ = run.communicate(timeout=PATIENCE)
    # after a warning it goes on; a step has the signals of a shell
    is_warning = name == "USR1"
    assert out == (b"told\ncollected\n" if is_warning else b"told\n")
    assert run.returncode == 128 + (signal.SIGPIPE if is_warning else number)


def test_why_a_step_failed_stands_before_what_weigh_states_of_it(
    tmp_path: Path,
) -> None:
    output = tmp_path / "1.out"
    output.write_text(
        "ValueError: NaN\n\n"
        'weigh: step "train" ended with exit code 1; not run: "predict"\n'
        'weigh: go on with: weigh run e.toml --from "train"\n'
    )

    assert last_lines_of_output(str(output)) == ("ValueError: NaN",)
