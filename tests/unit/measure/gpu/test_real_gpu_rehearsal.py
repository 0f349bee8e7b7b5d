"""``make gpu``, rehearsed: the stub plays the card, a few lines torch.

It will meet a real card on somebody else's machine, once, and should not fail there for
a slip of its own.
"""

import json
import sys
from pathlib import Path

import pytest
from nvml_script import MIB, Script, uuid
from run_captured import run_captured

MEASURE = Path(__file__).parents[4] / "tools" / "real_gpu.py"
CONTEXT = 300 * MIB
TORCH = f"""
import atexit, fcntl, os
from types import SimpleNamespace
uint8, __version__ = "uint8", "played"
path, card, held, allocated = os.environ["NVML_STUB_SCRIPT"], None, 0, 0
def played():
    return dict(line.rstrip().split("=", 1) for line in open(path))
def hold(size):
    "Change what this process holds on the card."
    global held
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = played()
        there = lines[card + ".procs"].split(",")
        others = [one for one in there if one and one != f"{{os.getpid()}}:{{held}}"]
        mine = [f"{{os.getpid()}}:{{size}}"] if size else []
        lines[card + ".procs"] = ",".join(others + mine)
        lines[card + ".used"] = int(lines[card + ".used"]) + size - held
        held = size
        with open(path + ".new", "w") as new:
            new.writelines(f"{{key}}={{value}}\\n" for key, value in lines.items())
        os.rename(path + ".new", path)
def empty(size, dtype=None, device=None):
    global card, allocated
    if card is None:
        name = os.environ["CUDA_VISIBLE_DEVICES"]
        named = {{v: k[0] for k, v in played().items() if k.endswith(".uuid")}}
        card = named.get(name, name)
        atexit.register(hold, 0)
    allocated += (size if dtype else 4 * size) + 511 & ~511
    hold({CONTEXT} + reserved())
def reserved(index=0):
    return allocated + {2 * MIB - 1} & ~{2 * MIB - 1}
def properties(index):
    return SimpleNamespace(uuid=played()[card + ".uuid"].removeprefix("GPU-"))
cuda = SimpleNamespace(
    is_available=lambda: True,
    is_initialized=lambda: card is not None,
    current_device=lambda: 0,
    device_count=lambda: 1,
    synchronize=lambda: None,
    get_device_properties=properties,
    memory_reserved=reserved,
    max_memory_reserved=reserved,
    max_memory_allocated=lambda index=0: allocated,
)
"""


@pytest.mark.integrations
def test_each_part_of_make_gpu_measures_something(
    script: Script, tmp_path: Path
) -> None:
    script.gpus(1)
    (tmp_path / "torch.py").write_text(TORCH)
    done = run_captured(
        [sys.executable, MEASURE, tmp_path / "out", "--rehearse"],
        env=script.environment()
        | {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": uuid(0)},
    )
    table = (tmp_path / "out" / "gpu.md").read_text()
    rows = dict(json.loads((tmp_path / "out" / "gpu.json").read_text()))
    assert (done.returncode, done.stdout) == (0, table), done.stderr
    assert "failed" not in table
    assert "true" in next(v for k, v in rows.items() if k.startswith("fourth size"))
    assert "8 seen" in rows["8 busy processes"]
    assert "model 1,026" in rows["model of 1,024 MiB, batches of 256"]
    assert "no GPM" in rows["GPM as an ordinary user"]
