"""What is said of GPUs: the rows of ``weigh run`` and of ``weigh top --gpus``."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from any_values import PLAIN, values_of
from hypothesis import given
from hypothesis import strategies as st
from transcript import check_texts

from weigh.measure.gpu_account import DEVICE_RISE, PER_PROCESS
from weigh.model.gpu import GpuOccupant, GpuState, GpuUsage
from weigh.model.record import ProgramSign, Usage
from weigh.render.gpu_lines import GpuListing, gpu_list, gpu_list_document, gpu_rows
from weigh.render.printable import width_of
from weigh.units import GIB
from weigh.usage_needs import preallocation_words, sign_words

V100 = GpuUsage(
    "GPU-a",
    "Tesla V100-SXM2-32GB",
    memory_total=32 * GIB,
    peak_memory=7 * GIB,
    process_peak_memory=7 * GIB,
    source=PER_PROCESS,
    utilization_mean=84.2,
    utilization_max=99.0,
    index=0,
)
IDLE = msgspec.structs.replace(V100, peak_memory=0, process_peak_memory=0)
MINE = GpuOccupant(457520, user="ada", command="python", memory=7 * GIB, mine=True)
CARD = GpuState(
    0,
    "GPU-a",
    "Tesla V100-SXM2-32GB",
    memory_used=7 * GIB,
    memory_total=32 * GIB,
    memory_percent=22.0,
    utilization=84.0,
    occupants=(MINE,),
    allocated=True,
)


def changed(usage: GpuUsage, **values: object) -> GpuUsage:
    return msgspec.structs.replace(usage, **values)


def gpu_with(**values: object) -> GpuState:
    return msgspec.structs.replace(CARD, **values)


def words_of(*usages: GpuUsage, allocated: bool = True) -> str:
    return "\n".join(summary_lines(usages, allocated=allocated))


def summary_lines(usages: Sequence[GpuUsage], *, allocated: bool) -> list[str]:
    rows = gpu_rows(usages, allocated=allocated)
    return [
        f"  {name:<9}{text}".rstrip() for name, text, in_summary in rows if in_summary
    ]


def listed(*gpus: GpuState) -> str:
    return "\n".join(gpu_list(gpus))


UNKNOWN = changed(V100, peak_memory=None, process_peak_memory=None, source=None)
EMPTY = gpu_with(occupants=(), memory_used=0, utilization=0.0)
OTHER = GpuOccupant(7, user="bob", command="java", memory=9 * GIB, mine=False)
RUNS = {
    "one used GPU": words_of(V100),
    "one used of four": words_of(
        V100, *(changed(IDLE, index=index) for index in (1, 2, 3))
    ),
    "one used of the machine's four": words_of(
        V100, *[changed(IDLE, index=1)] * 3, allocated=False
    ),
    "granted in vain": words_of(IDLE),
    "several granted in vain": words_of(IDLE, IDLE),
    "a machine's own, not used": words_of(IDLE, IDLE, allocated=False),
    "a figure with a bias": words_of(
        changed(V100, process_peak_memory=None, source=DEVICE_RISE)
    ),
    "joined midway": words_of(changed(UNKNOWN, device_peak_memory=6 * GIB)),
    "memory that nobody reported": words_of(UNKNOWN),
    "utilisation that MIG hides": words_of(
        changed(V100, utilization_mean=None, utilization_max=None)
    ),
    "errors and heat": words_of(
        changed(V100, ecc_errors=2, xids=(79,), slowed={"thermal": 12.0, "power": 9})
    ),
    "an address that is wrong": words_of(changed(V100, xids=(31,))),
}
LISTS = {
    "a GPU of mine": listed(CARD),
    "aligned": listed(
        CARD, gpu_with(index=12, memory_used=0, memory_percent=0.0, utilization=0.0)
    ),
    "granted, and empty": listed(EMPTY),
    "empty": listed(msgspec.structs.replace(EMPTY, allocated=False)),
    "mine before others": listed(gpu_with(occupants=(OTHER, MINE))),
    "of another user": listed(gpu_with(occupants=(OTHER,))),
    # who is hidden is not nobody
    "processes hidden": listed(gpu_with(occupants=None)),
    "memory of nobody": listed(msgspec.structs.replace(EMPTY, memory_used=2 * GIB)),
    "work of nobody": listed(msgspec.structs.replace(EMPTY, utilization=84.0)),
    "torch's figures": listed(
        gpu_with(
            cuda_index=0,
            torch_current=True,
            torch_allocated=4 * GIB,
            torch_reserved=5 * GIB,
            outside_torch=GIB // 2,
        )
    ),
}


def test_the_words_on_gpus_are_as_they_were_reviewed() -> None:
    check_texts(Path(__file__).with_name("gpu_words.texts"), RUNS | LISTS)


ANY = PLAIN | {str: st.text(max_size=60), int: st.integers(0, 1 << 41)}
INDEX, HEALTH = st.integers(0, 15), st.sampled_from([None, "healthy"])
ANY |= {float: st.floats(0, 100)}


@given(
    st.lists(values_of(GpuUsage, ANY, index=INDEX, health=HEALTH), max_size=3),
    st.lists(values_of(GpuState, ANY, index=INDEX, cuda_index=INDEX), max_size=3).map(
        tuple
    ),
    st.booleans(),
)
def test_rows_fit_in_80_columns_whatever_the_gpu(
    usages: list[GpuUsage],
    gpus: tuple[GpuState, ...],
    allocated: bool,  # noqa: FBT001
) -> None:
    for line in (*summary_lines(usages, allocated=allocated), *gpu_list(gpus)):
        assert width_of(line) <= 80
        assert line.isprintable()


def test_the_document_names_its_schema() -> None:
    document = json.loads(gpu_list_document(GpuListing((CARD,), ("a doubt",))))
    assert document["schema"] == "weigh.gpus/1"
    assert document["gpus"][0]["occupants"][0]["pid"] == 457520
    assert document["notes"] == ["a doubt"]


def filled_by(knob: str | None) -> Usage:
    sign = None if knob is None else ProgramSign("name", "advice", knob=knob)
    taken = changed(V100, preallocated=24 * GIB)
    return Usage(wall_time=9.0, gpus=(V100, taken, taken), sign=sign)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
        ("MALLOC_ARENA_MAX", None),
        (None, None),
    ],
)
def test_memory_taken_at_once_is_stated_once_with_the_setting_of_its_program(
    knob: str | None, value: str | None
) -> None:
    words = [*preallocation_words(filled_by(knob), "COMPLETED")]
    why = f"measure the need with {knob}={value}" if value else "it may need less"
    assert words == [f"24.0 GiB of a GPU taken at once: {why}"]


def test_a_program_that_takes_a_gpu_is_named_once_and_only_with_a_gpu() -> None:
    took = filled_by("--gpu-memory-utilization")
    assert not [*sign_words(took)]
    assert not [*sign_words(msgspec.structs.replace(took, gpus=()))]
    assert [*sign_words(msgspec.structs.replace(took, gpus=(V100,)))]
    assert [*sign_words(filled_by("MALLOC_ARENA_MAX"))]


@pytest.mark.parametrize("state", ["FAILED", "OUT_OF_MEMORY"])
def test_a_run_that_failed_may_have_filled_its_gpu_in_steps(state: str) -> None:
    assert not [*preallocation_words(filled_by(None), state)]
