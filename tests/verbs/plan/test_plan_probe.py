"""``weigh plan --probe``: real tasks, side by side."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from called_weigh import called_apart

from weigh.model.plan import TogetherRun
from weigh.planning.bin_packing import most_work


def probed(folder: Path, lines: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "tasks.txt").write_text(lines)
    return called_apart(folder, "plan", "tasks.txt", "--probe", *words)


def test_tasks_that_only_wait_share_a_node_without_loss(tmp_path: Path) -> None:
    done = probed(tmp_path, "sleep 2\n" * 4, "--node", "3", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    counts = [one["count"] for one in plan["probe"]]
    assert counts == [1, 2, 3]
    assert len(plan["elements"]) == 2
    shards = list((tmp_path / "store").glob("records/**/*.jsonl"))
    # only the run alone is kept as a record
    assert sum(len(shard.read_text().splitlines()) for shard in shards) == 1


def test_tasks_that_wait_for_one_lock_do_not_gain_by_company(tmp_path: Path) -> None:
    line = "flock lock sleep 1\n"
    done = probed(tmp_path, line * 3, "--node", "3", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["probe"][-1]["slow_down"] > 1.5  # also where they begin one by one
    found = msgspec.convert(plan["probe"], list[TogetherRun])
    most = max(len(element["tasks"]) for element in plan["elements"])
    assert most == most_work(found).count


def test_each_task_is_held_against_one_of_its_own_kind_alone(tmp_path: Path) -> None:
    """A long task beside a short one takes no more time for it."""
    lines = "true short; sleep 0.2\nsleep 1.2\n"
    done = probed(tmp_path, lines, "--node", "2", "--json")
    assert done.returncode == 0, done.stderr
    together = json.loads(done.stdout)["probe"][-1]
    assert together["count"] == 2
    assert together["speed_up"] > 0.7  # 0.3 if compared with the short one


def test_a_task_that_fails_alone_is_reported_with_its_last_words(
    tmp_path: Path,
) -> None:
    done = probed(tmp_path, "echo no such data >&2; exit 3\n" * 2)
    assert done.returncode == 2
    assert "no such data" in done.stderr
    assert not (tmp_path / "plan").exists()


def test_a_stopped_probe_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("echo $$ > pid; exec sleep 300\n" * 2)
    probe = subprocess.Popen(
        [sys.executable, "-m", "weigh", "plan", "tasks.txt", "--probe"],
        cwd=tmp_path,
        env={**os.environ, "WEIGH_DIR": str(tmp_path / ".weigh")},
        stderr=subprocess.DEVNULL,
    )
    written = tmp_path / "pid"
    while not (written.exists() and written.read_text().strip()):
        assert probe.poll() is None
        time.sleep(0.05)
    probe.terminate()
    assert probe.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)
