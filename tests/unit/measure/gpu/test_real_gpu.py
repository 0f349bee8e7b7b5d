"""Against a real NVIDIA card and torch: skipped, and says so, where there is none.

    pytest -m gpu tests/unit/measure/gpu/test_real_gpu.py -rP

prints the figures for docs/gpu.md. All of it happens in other processes, because the
stub may be loaded in this one. Only cards that are mine are used, the emptiest first.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_captured import run_captured

MIB = 1 << 20
SEGMENT = 20 * MIB  # what torch's allocator takes at once for middle-sized tensors
DEADLINE = 300
CARDS = """
import json, os, sys
from weigh.errors import GpuError
from weigh.probe.driver import gpu_may_be_present, kernel_module_version
def leave(**said):
    sys.exit(print(json.dumps(said)))
if not gpu_may_be_present(os.environ):
    leave(needs="an NVIDIA GPU")
try:
    import torch
except ImportError as error:
    leave(needs=error.name)
if not torch.cuda.is_available():
    leave(needs=f"a torch that can use the GPU (this one: {torch.__version__})")
from weigh.probe.nvml import NvmlProbe
everybody = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
try:
    mine, probe = NvmlProbe(os.environ).devices(), NvmlProbe(everybody)
except GpuError as error:
    leave(needs=f"an NVIDIA GPU: {error}")
used = {one.uuid: one.memory_used for one in probe.read()}
numbers = [one.uuid for one in probe.devices()]
driver = kernel_module_version()
leave(cards=[{
    "uuid": one.uuid,
    "name": f"{one.name}, driver {driver}, torch {torch.__version__}",
    "number": None if one.mig_parent else numbers.index(one.uuid),
    "free": (one.memory_total or 0) - (one.memory_reserved or 0) - used[one.uuid],
} for one in mine])
"""
# takes so many MiB for 0.2 s
HOLDS = """
import json, os, sys, time, torch, weigh
from weigh.probe.nvml import NvmlProbe
path, size = sys.argv[1:]
probe = NvmlProbe(os.environ)
before = probe.read()[0].memory_used
torch.empty(1, device="cuda")
torch.cuda.synchronize()
reading = probe.read()[0]
listed = reading.process_memory or {}
context = listed.get(os.getpid(), reading.memory_used - before)
context -= torch.cuda.memory_reserved()
held = torch.empty(int(size) << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
(gpu,) = weigh.gpus()
said = {
    "reserved": torch.cuda.max_memory_reserved(),
    "context": context,
    "is_listed": os.getpid() in listed,
    "outside_torch": gpu.outside_torch,
    "uuid": None if uuid is None else str(uuid).removeprefix("GPU-"),
}
with open(path, "w") as file:
    json.dump(said, file)
time.sleep(0.2)
"""
PHASE = """
import json, sys, torch, weigh
torch.empty(1, device="cuda")
torch.cuda.synchronize()
with weigh.phase("hold"):
    held = torch.empty(int(sys.argv[2]) << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
said = {
    "torch_allocated": torch.cuda.max_memory_allocated(),
    "torch_reserved": torch.cuda.max_memory_reserved(),
}
with open(sys.argv[1], "w") as file:
    json.dump(said, file)
"""
# grows to a share of the card, in steps, and stays there for a moment
GROWS = """
import sys, time, torch
kept, size, step = [], int(sys.argv[1]), int(sys.argv[2])
for _ in range(size // step):
    kept.append(torch.empty(step << 20, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    time.sleep(0.2)
time.sleep(1)
"""
KERNELS = """
import json, torch, weigh
a = torch.rand(8192, 8192, device="cuda")
work = lambda: a @ a
work()
times = {str(sync): weigh.timeit(work, number=5, repeat=3, sync=sync).minimum
         for sync in (True, False)}
print(json.dumps(times))
"""
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu_list() -> list[dict[str, Any]]:
    """Give the cards that are mine, the emptiest first."""
    said = subprocess.run(
        [sys.executable, "-c", CARDS],
        env=os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        stdout=subprocess.PIPE,
        timeout=DEADLINE,
        check=True,
    )
    found = json.loads(said.stdout)
    if not found.get("cards"):
        pytest.skip(f"needs {found.get('needs', 'an NVIDIA GPU that is mine')}")
    return sorted(found["cards"], key=lambda card: -card["free"])


@pytest.fixture
def uuid(gpu_list: list[dict[str, Any]]) -> str:
    """Give the emptiest card's UUID."""
    return str(gpu_list[0]["uuid"])


@pytest.fixture
def size(gpu_list: list[dict[str, Any]]) -> int:
    """Give how many MiB to hold: 4 GiB, if the card has as much again."""
    return min(4096, int(gpu_list[0]["free"]) // MIB // 2)


def weighed(tmp_path: Path, *command: str, **environment: str) -> Any:
    """Run under ``weigh run``; give the record."""
    path = tmp_path / "record.json"
    hidden = ("CUDA_", "PYTORCH_", "WEIGH_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    subprocess.run(
        [sys.executable, "-m", "weigh", "run", "-q", "-o", path, "--", *command],
        env=clean | environment,
        cwd=tmp_path,
        timeout=DEADLINE,
        check=True,
    )
    return json.loads(path.read_text())


def held(tmp_path: Path, size: int, **environment: str) -> tuple[Any, Any]:
    """Hold *size* MiB for 0.2 s; give the record and what the program says."""
    said = tmp_path / "said"
    command = [sys.executable, "-c", HOLDS, str(said), str(size)]
    record = weighed(tmp_path, *command, **environment)
    return record, json.loads(said.read_text())


def test_a_peak_of_a_fifth_of_a_second_is_found_with_its_context(
    gpu_list: list[dict[str, Any]], uuid: str, size: int, tmp_path: Path
) -> None:
    record, truth = held(tmp_path, size, CUDA_VISIBLE_DEVICES=uuid)
    (gpu,) = record["usage"]["gpus"]
    expected = truth["reserved"] + truth["context"]
    print(
        f"{gpu_list[0]['name']}: {size} MiB held 0.2 s: reserved by torch "
        f"{truth['reserved'] / MIB:.1f}, context {truth['context'] / MIB:.1f}, peak "
        f"{gpu['peak_memory'] / MIB:.1f} MiB by {gpu['source']}"
    )
    assert gpu["peak_memory"] >= size * MIB
    assert gpu["peak_memory"] == pytest.approx(expected, abs=SEGMENT)
    if truth["is_listed"]:  # else the driver hides processes here
        assert truth["outside_torch"] == pytest.approx(truth["context"], abs=SEGMENT)


def test_a_phase_has_torchs_counters_and_the_gpus_rise(
    uuid: str, size: int, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    command = [sys.executable, "-c", PHASE, str(said), str(size)]
    record = weighed(tmp_path, *command, CUDA_VISIBLE_DEVICES=uuid)
    truth = json.loads(said.read_text())
    (phase,) = record["phases"]
    (gpu,) = phase["gpus"]
    print(f"phase of {size} MiB: {gpu}")
    assert {name: gpu[name] for name in truth} == truth
    assert gpu["peak"] - gpu["before"] == pytest.approx(size * MIB, abs=SEGMENT)


def test_every_number_of_a_gpu_is_the_one_that_cuda_shows(
    gpu_list: list[dict[str, Any]], tmp_path: Path
) -> None:
    for card in gpu_list:
        if card["number"] is None:
            pytest.skip("the card is split into MIG instances")
        record, truth = held(
            tmp_path,
            64,
            CUDA_VISIBLE_DEVICES=str(card["number"]),
            CUDA_DEVICE_ORDER="PCI_BUS_ID",
        )
        if truth["uuid"] is None:
            pytest.skip("needs a torch that tells UUIDs")
        (gpu,) = record["usage"]["gpus"]
        assert gpu["uuid"] == card["uuid"] == f"GPU-{truth['uuid']}"


def test_nvidia_smi_reports_the_same_memory(uuid: str, tmp_path: Path) -> None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        pytest.skip("needs nvidia-smi")
    query = "--query-gpu=memory.total,memory.used"
    words = [tool, query, "--format=csv,noheader,nounits", "-i", uuid]
    said = run_captured(words, check=True).stdout
    total, used = (int(word) * MIB for word in said.split(","))
    record = weighed(tmp_path, "sleep", "0.5", CUDA_VISIBLE_DEVICES=uuid)
    (gpu,) = record["usage"]["gpus"]
    print(
        f"nvidia-smi {used / MIB:.0f} MiB, weigh {gpu['memory_before'] / MIB:.0f} MiB"
    )
    assert gpu["memory_total"] == pytest.approx(total, abs=MIB)
    assert gpu["memory_before"] == pytest.approx(used, abs=SEGMENT)


def test_the_work_of_kernels_is_timed_and_not_their_launch(
    uuid: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KERNELS],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": uuid, "WEIGH_REPORT": "0"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        timeout=DEADLINE,
        check=True,
    )
    times = json.loads(done.stdout)
    print(f"a product: {times['True']:.2e} s, its launch {times['False']:.2e} s")
    assert times["True"] > times["False"]


def test_tasks_that_do_not_fit_together_are_guarded(
    gpu_list: list[dict[str, Any]], uuid: str, tmp_path: Path
) -> None:
    (tmp_path / "grows.py").write_text(GROWS)
    size = int(gpu_list[0]["free"] * 0.6) // MIB
    line = f"{sys.executable} grows.py {size} {size // 12}\n"
    (tmp_path / "tasks.txt").write_text(2 * line)
    own = {"CUDA_VISIBLE_DEVICES": uuid, "WEIGH_DIR": str(tmp_path / "store")}
    subprocess.run(
        [sys.executable, "-m", "weigh", "exec", "--per-gpu=2", "tasks.txt"],
        env=os.environ | own,
        cwd=tmp_path,
        timeout=DEADLINE,
        check=True,
    )
    text = (tmp_path / "tasks.txt.joblog.events.jsonl").read_text()
    events = [json.loads(line) for line in text.splitlines()]
    ends = [(one["seq"], one["state"]) for one in events if one["event"] == "ended"]
    print(f"two tasks of 60 %: {ends}")
    assert sorted(seq for seq, state in ends if state == "COMPLETED") == [1, 2]
    assert len(ends) > 2
