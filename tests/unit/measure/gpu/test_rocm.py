"""AMD's GPUs, played by a stand-in for rocm-smi's library."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvml_script import GIB
from run_captured import CapturedRun, run_captured

from weigh.gpu_models import model_of_nvml_name
from weigh.probe.gpu import GpuDevice
from weigh.probe.rocm import visible_amd

CARDS = f"""\
count=2
0.name=AMD Instinct MI250X
0.id=0xdeadbeefdeadbeef
0.bus=0x600
0.total={64 * GIB}
0.used={3 * GIB}
0.busy=84
0.membusy=4294967295
0.power=212500000
0.energy=1000000
1.name=AMD Instinct MI250X
1.id=0xfeed
1.bus=0x300
1.total={64 * GIB}
1.used={GIB}
1.power_now=90000000
procs=71:0:{2 * GIB},72:0+1:na
"""
READ = """
import json, os, msgspec
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.errors import GpuError
assert gpu_may_be_present(os.environ)
try:
    one = open_probe(os.environ)
except GpuError as error:
    print(json.dumps({"error": str(error)}))
else:
    first = one.read()
    print(json.dumps(msgspec.to_builtins({
        "devices": one.devices(), "first": first, "absence": one.absence,
        "steady": one.read(activity=False),
        "counters": one.counters(one.devices()[0].uuid),
    } if one.devices() else {"absence": one.absence})))
    one.close()
"""
Weigh = Callable[..., CapturedRun]


@pytest.fixture
def played(rsmi_library: Path, tmp_path: Path) -> Weigh:
    """Run Python on a machine that has these cards."""
    script = tmp_path / "cards"
    script.write_text(CARDS)

    def run(*words: str, cards: str = CARDS, **env: str) -> Any:
        script.write_text(cards)
        kept = {k: v for k, v in os.environ.items() if "VISIBLE" not in k}
        place = {"LD_LIBRARY_PATH": str(rsmi_library.parent)}
        more = {"RSMI_STUB_SCRIPT": str(script), "WEIGH_DIR": str(tmp_path / "store")}
        return run_captured(
            [sys.executable, *words], env=kept | place | more | env, cwd=tmp_path
        )

    return run


def read(played: Weigh, **words: str) -> dict[str, Any]:
    done = played("-c", READ, **words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_gpus_are_described_in_the_order_of_their_addresses(played: Weigh) -> None:
    second, first = read(played)["devices"]
    assert (first["uuid"], first["name"]) == (
        "GPU-deadbeefdeadbeef",
        "AMD Instinct MI250X",
    )
    assert (first["index"], first["memory_total"]) == (0, 64 * GIB)
    assert second["uuid"] == "GPU-000000000000feed"


def test_memory_processes_power_and_energy_come_in_our_units(played: Weigh) -> None:
    found = read(played, HIP_VISIBLE_DEVICES="1")
    (reading,) = found["first"]
    assert reading["memory_used"] == 3 * GIB
    assert (reading["utilization"], reading["memory_utilization"]) == (84.0, None)
    assert reading["power"] == 212.5
    assert reading["processes"] == [71, 72]
    assert reading["process_memory"] is None  # one is on two cards: how much is where?
    assert found["steady"] == []
    assert found["counters"]["energy"] == pytest.approx(15.25)
    one = CARDS.replace(",72:0+1:na", "")
    (reading,) = read(played, cards=one, HIP_VISIBLE_DEVICES="1")["first"]
    assert reading["process_memory"] == {"71": 2 * GIB}


def test_a_newer_gpu_has_only_the_power_of_the_moment(played: Weigh) -> None:
    (reading,) = read(played, HIP_VISIBLE_DEVICES="0")["first"]
    assert (reading["power"], reading["utilization"]) == (90.0, None)


def test_why_there_is_no_gpu_is_one_clear_line(played: Weigh) -> None:
    assert "no AMD GPU" in read(played, cards="init=8\n")["error"]
    assert "error 6" in read(played, cards="init=6\n")["error"]
    assert "visible" in read(played, ROCR_VISIBLE_DEVICES="-1")["absence"]


DEVICES = [GpuDevice(n, f"GPU-{n:016x}", "MI250X") for n in range(3)]


@pytest.mark.parametrize(
    ("env", "indices"),
    [
        ({}, [0, 1, 2]),
        ({"ROCR_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, [0]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000001"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, [0]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_the_variables_of_amd_choose_in_their_order(
    env: dict[str, str], indices: list[int]
) -> None:
    assert [one.index for one in visible_amd(DEVICES, env)] == indices


def test_the_verbs_work_on_it(played: Weigh) -> None:
    one = CARDS.replace(",72:0+1:na", "")
    top = played("-m", "weigh", "top", "--gpus", cards=one, HIP_VISIBLE_DEVICES="1")
    assert "Instinct MI250X" in top.stdout
    assert "3.0 of 64.0 GiB" in top.stdout
    words = ("-m", "weigh", "run", "-o", "record.json", "--", "sleep", "0.5")
    run = played(*words, cards=one, HIP_VISIBLE_DEVICES="1")
    assert run.returncode == 0, run.stderr
    assert model_of_nvml_name("AMD Instinct MI250X", 64 * GIB) is not None
