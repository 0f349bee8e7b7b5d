import sys
import types
from collections.abc import Mapping
from typing import Any

import pytest
from nvml_script import GIB, MIB, Script, uuid

from weigh.errors import GpuError, NoGpuError
from weigh.probe.gpu import GpuCounters, GpuReading
from weigh.probe.nvml import NvmlProbe, read_driver_version

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND_HERE, LOST = 3, 4, 13, 15
EVERYTHING = {
    "reserved": 500 * MIB,
    "util": 84,
    "memutil": 40,
    "power": 212_500,
    "smclock": 1530,
    "memclock": 877,
    "energy": 7_000_000,
    "ecc": 3,
    "rx": 2_000,
    "tx": 3_000,
    "xid": 0,
    "procs": f"71:{2 * GIB},72:{GIB}",
}


def probe(environment: Mapping[str, str] | None = None) -> NvmlProbe:
    return NvmlProbe(environment or {})


def test_a_gpu_is_described_by_its_driver(nvml: Script) -> None:
    nvml.gpus(2, reserved=500 * MIB)
    second = probe().devices()[1]
    assert (second.index, second.uuid, second.name) == (
        1,
        uuid(1),
        "Tesla V100-SXM2-32GB",
    )
    assert (second.memory_total, second.memory_reserved) == (32 * GIB, 500 * MIB)


_OLDER = {
    "fail.nvmlDeviceGetMemoryInfo_v2": NOT_FOUND_HERE,
    "fail.nvmlDeviceGetComputeRunningProcesses_v3": NOT_FOUND_HERE,
}
# what a card plays, with what else, and some of what is read of it
READINGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "every figure in our units": (
        {"used": 3 * GIB, **EVERYTHING},
        {},
        {
            "memory_used": 3 * GIB,
            "process_memory": {71: 2 * GIB, 72: GIB},
            "utilization": 84.0,
            "memory_utilization": 40.0,
            "power": 212.5,
            "sm_clock": 1530,
            "memory_clock": 877,
        },
    ),
    "older drivers the older way": (
        {"used": GIB, "procs": "71:4096"},
        _OLDER,
        {"memory_used": GIB, "process_memory": {71: 4096}},
    ),
    "processes whose memory is hidden by name": (
        {"procs": "71:na,72:4096"},
        {},
        {"process_memory": None, "processes": (71, 72)},
    ),
    "clients of MPS from a list of their own": (
        {"used": 3 * GIB, "procs": "50:1024", "mps": f"71:{2 * GIB},72:{GIB}"},
        {},
        {"process_memory": {50: 1024, 71: 2 * GIB, 72: GIB}},
    ),
    "reasons for low clocks without idleness": (
        {"reasons": 0x01 | 0x04 | 0x80},
        {},
        {"slowed": frozenset({"power", "power brake"})},
    ),
}


@pytest.mark.parametrize("what", READINGS)
def test_a_look_reads(nvml: Script, what: str) -> None:
    played, others, expected = READINGS[what]
    nvml.gpus(1, **played)
    for key, value in others.items():
        nvml.set(key, value)
    (reading,) = probe().read()
    assert {name: getattr(reading, name) for name in expected} == expected


def test_counters_come_in_our_units_and_errors_once_without_waiting(
    nvml: Script,
) -> None:
    nvml.gpus(1, **EVERYTHING)
    one = probe()
    counters = one.counters(uuid(0))
    assert (counters.energy, counters.ecc_errors, counters.xids) == (7000.0, 3, ())
    assert one.bus_traffic(uuid(0)) == (2_000_000, 3_000_000)
    nvml.set("0.xid", 31)
    assert [one.counters(uuid(0)).xids for _ in range(2)] == [(31,), ()]
    one.close()
    assert len(probe().devices()) == 1  # it can be let go and queried again


def test_what_a_gpu_does_not_support_is_none(nvml: Script) -> None:
    nvml.lines.update({"count": "1", "0.uuid": uuid(0)})
    nvml.set("0.name", "Odd Card")
    one = probe()
    assert one.read() == (GpuReading(uuid(0)),)
    assert one.counters(uuid(0)) == GpuCounters()
    assert one.bus_traffic(uuid(0)) == (None, None)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND_HERE, 999])
@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetPowerUsage", "power"),
        ("nvmlDeviceGetClockInfo", "sm_clock"),
        ("nvmlDeviceGetMemoryInfo", "memory_used"),
    ],
)
def test_a_figure_that_fails_is_none_and_the_others_stay(
    nvml: Script, function: str, field: str, code: int
) -> None:
    known = {key: value for key, value in EVERYTHING.items() if key != "reserved"}
    nvml.gpus(1, used=GIB, **known)
    nvml.set(f"fail.{function}", code)
    (reading,) = probe().read()
    assert getattr(reading, field) is None
    assert reading.process_memory == {71: 2 * GIB, 72: GIB}


def test_no_process_is_not_the_same_as_hidden_ones(nvml: Script) -> None:
    nvml.gpus(1, procs="")
    assert probe().read()[0].process_memory == {}
    nvml.drop("0.procs")
    assert probe().read()[0].process_memory is None


def test_a_gpu_whose_memory_stayed_is_not_queried_for_anything_else(
    nvml: Script,
) -> None:
    nvml.gpus(2, used=GIB, **EVERYTHING)
    one = probe()
    one.read()
    assert one.read(activity=False) == ()
    nvml.lines["1.procs"] = f"71:{2 * GIB}"
    nvml.set("1.used", 2 * GIB)
    (changed,) = one.read(activity=False)
    assert changed == GpuReading(
        uuid(1),
        memory_used=2 * GIB,
        process_memory={71: 2 * GIB},
        processes=(71,),
    )
    assert len(one.read()) == 2
    nvml.drop("1.used")  # one that hides its memory is queried each time
    assert [look.memory_used for _ in "ab" for look in one.read(activity=False)] == (
        [None, None]
    )


def test_a_gpu_that_falls_off_the_bus_is_none_from_then_on(nvml: Script) -> None:
    nvml.gpus(2, used=GIB, **EVERYTHING)
    one = probe()
    assert one.read()[0].memory_used == GIB
    nvml.set("0.lost", LOST)
    assert one.read()[0].lost
    nvml.drop("0.lost")
    first, second = one.read()
    assert (first.memory_used, first.process_memory, first.lost) == (None, None, True)
    assert (second.memory_used, second.lost) == (GIB, False)


def test_gpus_that_a_cgroup_keeps_from_me_are_not_mine(nvml: Script) -> None:
    nvml.gpus(4)
    nvml.set("0.handle", NO_PERMISSION)
    nvml.set("2.handle", NO_PERMISSION)
    assert [one.index for one in probe().devices()] == [1, 3]
    assert [one.index for one in probe({"CUDA_VISIBLE_DEVICES": "1"}).devices()] == [3]


@pytest.mark.parametrize(
    ("played", "visible", "words"),
    [
        ({"handle": NO_PERMISSION}, None, "none was allocated"),
        ({"handle": NO_PERMISSION}, "0", "none was allocated"),
        ({}, "7", "hidden"),
        ({"mig": 0}, None, "in MIG mode, with no instance"),
        (None, None, "an NVIDIA driver is here, but no GPU"),
    ],
)
def test_why_none_of_the_gpus_is_mine_is_reported(
    nvml: Script, played: dict[str, int] | None, visible: str | None, words: str
) -> None:
    nvml.gpus(0 if played is None else 2, **(played or {}))
    one = probe({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert one.devices() == ()
    assert words in (one.absence or "")


def test_a_broken_gpu_is_reported_and_the_others_are_mine(nvml: Script) -> None:
    nvml.gpus(2)
    nvml.set("0.handle", LOST)
    one = probe()
    assert ([device.index for device in one.devices()], one.absence) == ([1], None)
    assert "GPU 0 cannot be read" in one.notes[0]


def split(nvml: Script) -> None:
    nvml.gpus(2, used=4 * GIB)
    nvml.set("0.mig", 3)
    for place in range(3):
        nvml.lines |= {
            f"0.mig{place}.uuid": f"MIG-{place}c-0",
            f"0.mig{place}.name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            f"0.mig{place}.total": str(5 * GIB),
            f"0.mig{place}.used": str(place * GIB),
            f"0.mig{place}.procs": f"9{place}:{GIB}",
        }
    nvml.set("0.mig2.handle", NO_PERMISSION)


def test_a_mig_instance_has_its_own_memory_and_no_utilisation(nvml: Script) -> None:
    split(nvml)
    one = probe({"CUDA_VISIBLE_DEVICES": "MIG-1c-0"})
    (device,), (reading,) = one.devices(), one.read()
    assert (device.mig_parent, device.memory_total) == (uuid(0), 5 * GIB)
    assert (reading.memory_used, reading.process_memory) == (GIB, {91: GIB})
    assert (reading.utilization, reading.power) == (None, None)


def test_instances_closed_to_me_are_not_mine(nvml: Script) -> None:
    split(nvml)
    assert [one.uuid for one in probe().devices()] == ["MIG-0c-0", "MIG-1c-0", uuid(1)]


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (9, NoGpuError, "not loaded"),
        (12, NoGpuError, "no NVIDIA driver"),
        (18, GpuError, "differ"),
        (4, GpuError, "closed to you"),
        (999, GpuError, "use another node"),
        (24, GpuError, "does not start"),
    ],
)
def test_why_nvml_does_not_start_is_one_clear_line(
    nvml: Script, code: int, kind: type[GpuError], words: str
) -> None:
    nvml.set("init", code)
    with pytest.raises(kind, match=words) as caught:
        probe()
    assert len(f"weigh: {caught.value}") <= 80


def test_a_passing_failure_does_not_add_the_drivers_own_memory(nvml: Script) -> None:
    nvml.gpus(1, used=GIB, reserved=600 * MIB)
    one = probe()
    nvml.set("fail.nvmlDeviceGetMemoryInfo_v2", 999)
    assert [reading.memory_used for reading in one.read()] == [GIB]


def test_an_old_package_of_that_name_comes_not_between(
    nvml: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-ml-py3 puts its module of 2017 over that of nvidia-ml-py."""
    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))
    nvml.gpus(1, used=GIB)
    assert [reading.memory_used for reading in probe().read()] == [GIB]


def test_the_driver_reports_its_version_and_its_cuda(nvml: Script) -> None:
    nvml.set("driver", "550.54.15")
    nvml.set("cuda", 12040)
    assert read_driver_version() == ("550.54.15", "12.4")
    nvml.set("init", 18)
    assert read_driver_version() == (None, None)


@pytest.mark.parametrize("nothing", [0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF])
def test_what_a_driver_fills_in_for_nothing_is_no_figure(
    nvml: Script, nothing: int
) -> None:
    known = ("used", "util", "memutil", "power", "smclock", "memclock", "energy", "rx")
    nvml.gpus(1, total=nothing, **dict.fromkeys(known, nothing))
    nvml.set("0.procs", f"71:{nothing}")
    one = probe()
    (reading,) = one.read()
    figures = (reading.memory_used, reading.utilization, reading.memory_utilization)
    assert figures == (None, None, None)
    assert (reading.power, reading.sm_clock, reading.memory_clock) == (None, None, None)
    assert reading.process_memory is None
    assert one.counters(uuid(0)).energy is None
    assert one.bus_traffic(uuid(0))[0] is None


def test_memory_taken_out_of_use_is_read_the_older_and_the_newer_way(
    nvml: Script,
) -> None:
    nvml.gpus(1, retired0=1, retired1=2, pending=1)
    older = GpuCounters(retired_pages=3, pending=True)
    assert probe().counters(uuid(0)) == older
    nvml.drop("0.retired0", "0.retired1", "0.pending")
    nvml.set("0.remapped", "1,2,0,1")
    newer = GpuCounters(remapped_rows=3, pending=False, failed=True)
    assert probe().counters(uuid(0)) == newer
    nvml.drop("0.remapped")
    assert probe().counters(uuid(0)) == GpuCounters()
