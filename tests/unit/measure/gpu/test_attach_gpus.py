"""``weigh run --attach`` beside the stub's cards: the job was at work before."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_script import GIB, Script, uuid
from processes import PATIENCE, until

WAITS = "import sys; print('ready', flush=True); sys.stdin.readline()"


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """Give a process with a card of its own that runs until it reads a line."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS],
        env={"CUDA_VISIBLE_DEVICES": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_what_a_process_holds_on_its_gpu_is_measured(
    script: Script, tmp_path: Path, job: subprocess.Popen[str]
) -> None:
    script.gpus(2, used=3 * GIB, procs=f"{job.pid}:{2 * GIB}")
    path, store = tmp_path / "record.json", tmp_path / "store"
    words = ["run", "-q", "-o", str(path), "--attach", str(job.pid)]
    weigh = subprocess.Popen(
        [sys.executable, "-m", "weigh", *words],
        env=script.environment() | {"WEIGH_DIR": str(store)},
    )
    until(lambda: list(store.glob("running/*.json")), "weigh to watch")
    script.lines["1.procs"] = f"{job.pid}:{5 * GIB}"
    script.set("1.used", 6 * GIB)
    time.sleep(0.5)
    weigh.send_signal(signal.SIGINT)
    assert weigh.wait(PATIENCE) == 0
    record = json.loads(path.read_text())
    (gpu,) = record["usage"]["gpus"]
    assert (gpu["uuid"], gpu["memory_before"]) == (uuid(1), GIB)
    assert gpu["peak_memory"] == gpu["process_peak_memory"] == 5 * GIB
    assert max(record["series"]["gpu_memory"][0]) == 5 * GIB
