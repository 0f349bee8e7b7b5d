import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvml_script import GIB, MIB, Script, uuid
from run_captured import CapturedRun, run_captured

from weigh.flow.watch.gpus import list_gpus
from weigh.model.gpu import GpuState
from weigh.probe.driver import gpu_may_be_present
from weigh.probe.gpu_libraries import read_torch
from weigh.probe.nvml import NvmlProbe

CLICK = """
import sys
from weigh.cli.top import top
sys.exit(top.main(["--gpus", *sys.argv[1:]], standalone_mode=False))
"""


def weigh_gpus(script: Script, *options: str, **environment: str) -> CapturedRun:
    return run_captured(
        [sys.executable, "-c", CLICK, *options], env=script.environment() | environment
    )


def my_gpus(environment: Mapping[str, str] | None = None) -> tuple[GpuState, ...]:
    return list_gpus(environment or {}, factory=NvmlProbe).gpus


def test_my_gpus_are_a_line_each(script: Script) -> None:
    script.gpus(2, used=7 * GIB, util=84, procs=f"{os.getpid()}:{7 * GIB}")
    done = weigh_gpus(script)
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert "V100-SXM2-32GB" in first
    assert "7.0 of 32.0 GiB" in first
    assert f"{os.getpid()}" in second


def test_only_what_cuda_would_show_is_listed(script: Script) -> None:
    script.gpus(4)
    done = weigh_gpus(script, "--json", CUDA_VISIBLE_DEVICES="2,0")
    document = json.loads(done.stdout)
    assert [gpu["index"] for gpu in document["gpus"]] == [2, 0]
    assert [gpu["cuda_index"] for gpu in document["gpus"]] == [0, 1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("init=9", "not loaded"),
        ("init=12", "no NVIDIA driver here"),
        ("count=2", "no GPU is yours: CUDA_VISIBLE_DEVICES is empty"),
    ],
)
def test_no_gpu_is_a_line_on_stderr_and_no_failure(
    script: Script, line: str, words: str
) -> None:
    key, _, value = line.partition("=")
    script.set(key, value)
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if key == "count" else {}
    done = weigh_gpus(script, **hidden)
    assert (done.returncode, done.stdout) == (0, "")
    assert words in done.stderr


def test_a_process_on_a_gpu_has_its_owner_and_name_unless_it_is_of_elsewhere(
    nvml: Script,
) -> None:
    nvml.gpus(1, procs=f"{os.getpid()}:{GIB},{1 << 30}:4096")
    ((mine, other),) = (gpu.occupants or () for gpu in my_gpus())
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert (mine.mine, mine.command, mine.memory) == (True, name, GIB)
    assert (other.pid, other.command, other.mine) == (1 << 30, None, None)


def test_what_a_scheduler_granted_is_allocated(nvml: Script) -> None:
    nvml.gpus(1)
    assert my_gpus()[0].allocated is False
    assert my_gpus({"SLURM_JOB_GPUS": "0"})[0].allocated is True
    assert my_gpus({"CUDA_VISIBLE_DEVICES": "0"})[0].allocated is True


def cuda(*uuids: str | None, started: bool = True) -> SimpleNamespace:
    """Return as much of torch.cuda as is asked for."""
    named = [SimpleNamespace(**({"uuid": one} if one else {})) for one in uuids]
    return SimpleNamespace(
        is_initialized=lambda: started,
        device_count=lambda: len(uuids),
        current_device=lambda: 1,
        get_device_properties=named.__getitem__,
        memory_reserved=lambda index: (index + 1) * GIB,
        max_memory_allocated=lambda index: (index + 2) * GIB,
        max_memory_reserved=lambda index: (index + 3) * GIB,
    )


BY_UUID = [uuid(1).removeprefix("GPU-"), uuid(0).removeprefix("GPU-")]
MINE = f"{{pid}}:{GIB + 450 * MIB}"  # the test is a process of its own


# what torch calls its GPUs, what the driver says of each, and what is listed of them
@pytest.mark.parametrize(
    ("uuids", "played", "listed"),
    [
        (BY_UUID, {}, {"cuda_index": [1, 0], "torch_current": [True, False]}),
        (BY_UUID, {}, {"torch_allocated": [3 * GIB, 2 * GIB]}),
        # an older torch counts as CUDA does
        ([None, None], {}, {"torch_current": [False, True]}),
        ([None], {"procs": MINE}, {"outside_torch": [450 * MIB]}),
        # where processes are hidden the difference is not named
        (
            [None],
            {"used": 9 * GIB},
            {"torch_reserved": [3 * GIB], "outside_torch": [None]},
        ),
    ],
)
def test_what_torch_holds_is_listed_with_its_gpu(
    nvml: Script,
    monkeypatch: pytest.MonkeyPatch,
    uuids: list[str | None],
    played: dict[str, object],
    listed: dict[str, list[object]],
) -> None:
    known = {name: str(word).format(pid=os.getpid()) for name, word in played.items()}
    nvml.gpus(len(uuids), **known)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda(*uuids)))
    gpus = my_gpus()
    for field, values in listed.items():
        assert [getattr(gpu, field) for gpu in gpus] == values


def test_a_torch_that_has_not_used_cuda_is_left_alone() -> None:
    assert read_torch(SimpleNamespace(cuda=cuda(None, started=False))) == ()
    assert read_torch(None) == ()


KNOWS = {"etc/ld.so.cache": b"ld.so-1.7.0\0libnvidia-ml.so.1\0"}
NODE = {"dev/nvidiactl": b""}
UNLOADED = {"sys/module/other": b""}  # the kernel lists its modules: no driver's


@pytest.mark.parametrize(
    ("files", "may_be"),
    [
        ({}, False),
        (NODE, True),
        ({"proc/driver/nvidia": b""}, True),
        ({"dev/dxg": b""}, True),
        (KNOWS, True),
        # a driver left behind without its module
        (NODE | UNLOADED, False),
        (KNOWS | UNLOADED, False),
        (NODE | UNLOADED | {"sys/module/nvidia": b""}, True),
        (KNOWS | UNLOADED | {"sys/module/nvidia": b""}, True),
    ],
)
def test_a_gpu_may_be_where_files_of_a_driver_are(
    tmp_path: Path, files: dict[str, bytes], *, may_be: bool
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert gpu_may_be_present({}, root=str(tmp_path)) == may_be
    assert not gpu_may_be_present({"CUDA_VISIBLE_DEVICES": ""}, root=str(tmp_path))


def test_a_gpu_may_be_where_the_library_is_on_the_path(script: Script) -> None:
    folder = str(script.library.parent)
    assert gpu_may_be_present({"LD_LIBRARY_PATH": f"/nowhere::{folder}"})


def test_asking_whether_a_gpu_may_be_here_loads_nothing() -> None:
    code = (
        "import sys; from weigh.probe.driver import gpu_may_be_present as ask;"
        "ask({}); print({'weigh.probe.nvml', 'ctypes', 'threading'} & set(sys.modules))"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said == "set()\n"
