import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.probe.gpu import GpuDevice
from weigh.probe.visible import names_none, visible_devices

CARDS = tuple(
    GpuDevice(index, f"GPU-{index}a{index}b", "V100", bus=f"0000:0{index}:00.0")
    for index in range(4)
)
SPLIT = msgspec.structs.replace(CARDS[0], is_split=True)
PARTS = tuple(
    GpuDevice(
        0,
        f"MIG-{place}c0",
        "V100 MIG 1g",
        mig_parent=SPLIT.uuid,
    )
    for place in range(2)
)


def seen(value: str | None, devices: tuple[GpuDevice, ...] = CARDS) -> list[str]:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    return [one.uuid for one in visible_devices(devices, environment).devices]


def notes(value: str | None, devices: tuple[GpuDevice, ...], **more: str) -> str:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    return "\n".join(visible_devices(devices, environment | more).notes)


def uuids(*indices: int) -> list[str]:
    return [CARDS[index].uuid for index in indices]


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2, 3]),
        # none that names no GPU first
        *[(value, []) for value in ("", " ", "-1", "NoDevFiles", "none", "-1,0", "9")],
        # numbers choose and order
        ("2", [2]),
        ("3,1", [3, 1]),
        (" 1 , 0 ", [1, 0]),
        ("1gpu,2", [1, 2]),
        ("+1", [1]),
        # the first that is not valid ends the list
        *[(value, [2]) for value in ("2,-1,0", "2,9,0", "2,x,0", "2,,0", "2,GPU-0a0b")],
        # a GPU named twice hides all
        *[(value, []) for value in ("1,1", "0,1,0", "GPU-1a1b,GPU-1a1b")],
        # the beginning of a UUID names its GPU, unless several have it
        ("GPU-3a,GPU-0a0b", [3, 0]),
        ("GPU-", []),
        ("GPU-9", []),
        ("GPU-1a,GPU-9,GPU-2a", [1]),
    ],
)
def test_the_variable_chooses_as_cuda_does(
    value: str | None, indices: list[int]
) -> None:
    assert seen(value) == uuids(*indices)


def test_a_list_that_is_cut_short_is_reported() -> None:
    assert "no GPU, or more than one, is 'x'" in notes("2,x,0", CARDS)


@pytest.mark.parametrize("value", ["2 3", "2;3", "2gpu", "2.0"])
def test_a_number_with_more_behind_it_is_reported(value: str) -> None:
    assert f"CUDA reads {value!r} as 2" in notes(value, CARDS)
    assert notes("2,3", CARDS) == notes("GPU-2a", CARDS) == ""


def test_numbers_count_by_pci_bus_whatever_nvml_states() -> None:
    assert seen("0", tuple(reversed(CARDS))) == uuids(0)


def test_a_gpu_in_mig_mode_stands_for_its_instances() -> None:
    devices = (SPLIT, *PARTS, *CARDS[1:])
    assert seen("MIG-1c", devices) == seen("MIG-1c0", devices) == [PARTS[1].uuid]
    assert seen("0", devices) == [part.uuid for part in PARTS]
    assert seen("1", devices) == uuids(1)


def test_several_instances_are_mine_and_one_process_gets_the_first() -> None:
    assert "one MIG instance only" in notes(None, (SPLIT, *PARTS))


def test_a_gpu_in_mig_mode_without_instances_is_no_gpu() -> None:
    assert seen(None, (SPLIT,)) == []


def test_different_gpus_make_the_order_a_guess() -> None:
    mixed = (CARDS[0], msgspec.structs.replace(CARDS[1], name="A100"))
    assert "CUDA_DEVICE_ORDER" in notes("1", mixed)
    assert notes("1", mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID") == ""
    assert notes("GPU-1a", mixed) == notes("1,0", CARDS) == ""


@given(st.text("0123456789,-GPUMIabc /x", max_size=30))
def test_whatever_the_value_no_gpu_comes_twice(value: str) -> None:
    chosen = seen(value, (SPLIT, *PARTS, *CARDS[1:]))
    assert len(chosen) == len(set(chosen))


@given(st.text("0123456789,-GPUMIabc /x", max_size=30))
def test_names_none_never_hides_a_gpu_that_is_mine(value: str) -> None:
    if names_none({"CUDA_VISIBLE_DEVICES": value}):
        assert seen(value) == []
