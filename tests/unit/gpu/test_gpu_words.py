"""What is said of GPUs: the rows of ``weigh run`` and of ``weigh top --gpus``."""

import json
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from weigh.measure.gpu_account import DEVICE_RISE, PER_PROCESS
from weigh.model.gpu import GpuOccupant, GpuState, GpuUsage
from weigh.render.gpu_lines import GpuListing, gpu_list, gpu_list_document, gpu_rows
from weigh.render.printable import width_of
from weigh.units import GIB

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


def test_one_used_gpu_is_one_row() -> None:
    assert words_of(V100) == (
        "  gpu      7.00 GiB of 32.0 GiB  busy 84 %, peak 99 %       V100-SXM2-32GB"
    )


def test_one_used_of_four_is_reported_with_what_to_request() -> None:
    idle = [changed(IDLE, index=index) for index in (1, 2, 3)]
    words = "1 of 4 GPUs used: request 1 (1, 2 and 3 never used)"
    assert words in words_of(V100, *idle)
    assert "request" not in words_of(V100, *idle, allocated=False)


def test_a_gpu_that_was_granted_in_vain_is_reported() -> None:
    assert words_of(IDLE) == "  gpu      the GPU was never used: request none"


def test_a_machines_own_gpus_are_no_matter_to_a_job_without() -> None:
    assert words_of(IDLE, IDLE, allocated=False) == ""


def test_a_figure_with_a_bias_is_reported() -> None:
    rise = changed(V100, process_peak_memory=None, source=DEVICE_RISE)
    assert "so other users' changes since are included" in words_of(rise)
    assert "others" not in words_of(V100)


def test_of_a_run_joined_midway_the_whole_gpu_is_a_bound() -> None:
    hidden = changed(
        V100,
        peak_memory=None,
        process_peak_memory=None,
        source=None,
        device_peak_memory=6 * GIB,
    )
    assert "gpu      up to 6.00 GiB of 32.0 GiB" in words_of(hidden)
    assert "memory of the whole GPU, others included" in words_of(hidden)


def test_memory_that_nobody_reported_is_not_zero() -> None:
    unknown = changed(V100, peak_memory=None, process_peak_memory=None, source=None)
    assert "memory unknown" in words_of(unknown)


def test_utilisation_that_mig_hides_is_left_out() -> None:
    hidden = changed(V100, utilization_mean=None, utilization_max=None)
    assert "busy" not in words_of(hidden)


def test_what_the_gpu_went_through_is_reported() -> None:
    words = words_of(
        changed(V100, ecc_errors=2, xids=(79,), throttle={"thermal": 12.0, "power": 9})
    )
    assert "2 uncorrected memory errors" in words
    assert "XID 79: GPU fault" in words
    assert "heat for 12.0 s" in words


def test_a_wrong_address_is_the_programs_own() -> None:
    assert "invalid address in the program" in words_of(changed(V100, xids=(31,)))


names = st.text(max_size=60)
sizes = st.none() | st.integers(0, 1 << 41)
shares = st.none() | st.floats(0, 100)


@given(
    usages=st.lists(
        st.builds(
            GpuUsage,
            uuid=names,
            name=names,
            memory_total=sizes,
            peak_memory=sizes,
            process_peak_memory=sizes,
            utilization_mean=shares,
            utilization_max=shares,
            source=st.sampled_from([None, PER_PROCESS, DEVICE_RISE]),
            ecc_errors=st.none() | st.integers(0, 10**6),
            device_peak_memory=sizes,
            xids=st.lists(st.integers(0, 140), max_size=6).map(tuple),
            index=st.integers(0, 15),
        ),
        max_size=4,
    ),
    allocated=st.booleans(),
)
def test_rows_fit_in_80_columns_whatever_the_gpu(
    usages: list[GpuUsage], *, allocated: bool
) -> None:
    lines = summary_lines(usages, allocated=allocated)
    assert all(len(line) <= 80 and line.isprintable() for line in lines)


def test_a_gpu_of_mine_is_one_line() -> None:
    assert listed(CARD) == (
        "  0  V100-SXM2-32GB  7.0 of 32.0 GiB  22 %  busy 84 %  mine: python 457520"
    )


def test_memory_taken_at_once_comes_with_the_variables_that_end_it() -> None:
    text = words_of(changed(V100, preallocated=24 * GIB))
    assert "24.0 GiB taken at once" in text
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in text
    assert "TF_FORCE_GPU_ALLOW_GROWTH=true" in text
    assert max(map(len, text.splitlines())) <= 80


def test_lines_are_aligned() -> None:
    idle = gpu_with(index=12, memory_used=0, memory_percent=0.0, utilization=0.0)
    first, second = gpu_list((CARD, idle))
    assert first.index("V100") == second.index("V100")
    assert first.index(" GiB") == second.index(" GiB")
    assert "idle" in second


def test_an_empty_gpu_that_was_granted_is_not_used() -> None:
    empty = gpu_with(occupants=(), memory_used=0, utilization=0.0)
    assert "allocated, not used" in listed(empty)
    assert listed(msgspec.structs.replace(empty, allocated=False)).endswith("free")


def test_mine_comes_before_others_on_the_same_gpu() -> None:
    other = GpuOccupant(7, user="bob", command="java", memory=9 * GIB, mine=False)
    assert listed(gpu_with(occupants=(other, MINE))).endswith("mine: python 457520 +1")
    assert listed(gpu_with(occupants=(other,))).endswith("bob: java 7")


def test_who_is_hidden_is_not_nobody() -> None:
    empty = gpu_with(occupants=(), memory_used=0, utilization=0.0)
    for hidden in (
        gpu_with(occupants=None),
        msgspec.structs.replace(empty, memory_used=2 * GIB),
        msgspec.structs.replace(empty, utilization=84.0),
    ):
        assert listed(hidden).endswith("processes hidden")
    assert "hidden" not in listed(empty)


def test_torchs_figures_are_next_to_nvmls_with_the_difference() -> None:
    with_torch = gpu_with(
        cuda_index=0,
        torch_current=True,
        torch_allocated=4 * GIB,
        torch_reserved=5 * GIB,
        outside_torch=GIB // 2,
    )
    assert gpu_list((with_torch,))[1] == (
        "     torch cuda:0, current: peak 4.00 GiB, reserved 5.00 GiB; outside 512 MiB"
    )


@given(
    st.lists(
        st.builds(
            GpuState,
            index=st.integers(0, 15),
            uuid=names,
            name=names,
            cuda_index=st.integers(0, 15),
            memory_used=sizes,
            memory_total=sizes,
            memory_percent=shares,
            utilization=shares,
            occupants=st.none()
            | st.lists(
                st.builds(GpuOccupant, st.integers(1, 1 << 22), names, names, sizes),
                max_size=3,
            ).map(tuple),
            torch_reserved=sizes,
            torch_allocated=sizes,
            outside_torch=sizes,
        ),
        max_size=3,
    )
)
def test_lines_fit_in_80_columns_whatever_is_on_the_gpu(gpus: list[GpuState]) -> None:
    for line in gpu_list(tuple(gpus)):
        assert width_of(line) <= 80
        assert line.isprintable()


def test_the_document_names_its_schema() -> None:
    document = json.loads(gpu_list_document(GpuListing((CARD,), ("a doubt",))))
    assert document["schema"] == "weigh.gpus/1"
    assert document["gpus"][0]["occupants"][0]["pid"] == 457520
    assert document["notes"] == ["a doubt"]
