"""Against a real NVIDIA card and torch: skipped, and says so, where there is none.

All of it happens in other processes, because the stub may be loaded in this one.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
SEGMENT = 20 * MIB  # what torch's allocator takes at once for middle-sized tensors
CARDS = """
import json, os
from weigh.errors import GpuError
from weigh.probe.nvml import NvmlProbe
try:
    print(json.dumps([one.uuid for one in NvmlProbe(os.environ).devices()]))
except GpuError:
    print("[]")
"""
HOLDS = """
import json, os, sys, time, torch
from weigh.probe.nvml import NvmlProbe
probe = NvmlProbe(os.environ)
before = probe.read()[0].memory_used
torch.zeros(1, device="cuda")
torch.cuda.synchronize()
reading = probe.read()[0]
context = (reading.process_memory or {}).get(os.getpid(), reading.memory_used - before)
context -= torch.cuda.memory_reserved()
held = torch.zeros(int(sys.argv[2]) << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
time.sleep(0.2)
said = {"reserved": torch.cuda.max_memory_reserved(), "context": context}
said["uuid"] = str(torch.cuda.get_device_properties(0).uuid)
with open(sys.argv[1], "w") as file:
    json.dump(said, file)
time.sleep(float(sys.argv[3]))
"""
TWO = """
import subprocess, sys
command = [sys.executable, "-c", sys.argv[1]]
started = [subprocess.Popen([*command, path, "1024", "2"]) for path in sys.argv[2:]]
sys.exit(max(one.wait() for one in started))
"""


def clean() -> dict[str, str]:
    hidden = ("CUDA_", "NVML_STUB")
    return {k: v for k, v in os.environ.items() if not k.startswith(hidden)}


@pytest.fixture(scope="module")
def cards() -> list[str]:
    """Give the UUIDs of the cards here."""
    if find_spec("torch") is None:
        pytest.skip("needs torch")
    if not os.path.exists("/dev/nvidiactl"):
        pytest.skip("needs an NVIDIA GPU")
    said = subprocess.check_output([sys.executable, "-c", CARDS], env=clean())
    found: list[str] = json.loads(said)
    if not found:
        pytest.skip("needs an NVIDIA GPU that NVML shows")
    return found


def weighed(tmp_path: Path, *command: str, **environment: str) -> Any:
    """Run under ``weigh run``; give the record."""
    path = tmp_path / "record.json"
    subprocess.run(
        [sys.executable, "-m", "weigh", "run", "-q", "-o", path, "--", *command],
        env=clean() | environment,
        cwd=tmp_path,
        check=True,
    )
    return json.loads(path.read_text())


@pytest.mark.gpu
def test_the_peak_is_torchs_allocation_and_its_context(
    cards: list[str], tmp_path: Path
) -> None:
    said = tmp_path / "said"
    command = [sys.executable, "-c", HOLDS, str(said), "4096", "0"]
    record = weighed(tmp_path, *command, CUDA_VISIBLE_DEVICES=cards[0])
    truth = json.loads(said.read_text())
    (gpu,) = record["usage"]["gpus"]
    expected = truth["reserved"] + truth["context"]
    assert gpu["peak_memory"] == pytest.approx(expected, abs=SEGMENT)


@pytest.mark.gpu
def test_every_number_of_a_card_is_the_one_that_cuda_shows(
    cards: list[str], tmp_path: Path
) -> None:
    for number in range(len(cards)):
        said = tmp_path / f"said{number}"
        record = weighed(
            tmp_path,
            *[sys.executable, "-c", HOLDS, str(said), "64", "0"],
            CUDA_VISIBLE_DEVICES=str(number),
            CUDA_DEVICE_ORDER="PCI_BUS_ID",
        )
        (gpu,) = record["usage"]["gpus"]
        truth = json.loads(said.read_text())["uuid"].removeprefix("GPU-")
        assert gpu["uuid"].removeprefix("GPU-") == truth


@pytest.mark.gpu
def test_two_processes_count_together(cards: list[str], tmp_path: Path) -> None:
    said = [tmp_path / "one", tmp_path / "two"]
    command = [sys.executable, "-c", TWO, HOLDS, *map(str, said)]
    record = weighed(tmp_path, *command, CUDA_VISIBLE_DEVICES=cards[0])
    truths = [json.loads(path.read_text()) for path in said]
    expected = sum(truth["reserved"] + truth["context"] for truth in truths)
    (gpu,) = record["usage"]["gpus"]
    assert gpu["peak_memory"] == pytest.approx(expected, abs=2 * SEGMENT)


@pytest.mark.gpu
def test_sampling_at_20_hz_takes_little_of_a_core(
    cards: list[str], tmp_path: Path
) -> None:
    assert cards
    record = weighed(tmp_path, sys.executable, "-c", "import time; time.sleep(10)")
    monitor = record["monitor"]
    share = monitor["cpu_time"] / record["usage"]["wall_time"]
    assert share < 0.02 * (1 + len(cards))
    assert monitor["samples"] > 100
