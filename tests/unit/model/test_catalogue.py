from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import UsageError
from weigh.gpu_models import (
    MODELS,
    GpuModel,
    find_gpu_model,
    gpu_models_called,
    model_of_nvml_name,
)
from weigh.units import GIB, MIB

# what nvidia-smi -L, Slurm's gres types and people call them
NAMES = Path(__file__).with_name("gpu_names.txt").read_text().splitlines()


# what nvidia-smi lists on idle cards, before the driver counted its reserve in
LISTED_MIB = [
    ("P4", 7611),
    ("P40", 22919),
    ("P100-12GB", 12198),
    ("P100-16GB", 16280),
    ("V100-16GB", 16160),
    ("V100-32GB", 32510),
    ("T4", 15109),
    ("A10", 22731),
    ("A30", 24258),
    ("A40", 45634),
    ("A100-40GB", 40536),
    ("A100-80GB", 81251),
    ("RTX3090", 24268),
]
# and on newer drivers, which count it in
LISTED_WITH_RESERVE = [
    ("Tesla V100-SXM2-32GB", "V100-32GB", 32768),
    ("NVIDIA A100-SXM4-80GB", "A100-80GB", 81920),
    ("NVIDIA H100 80GB HBM3", "H100-80GB", 81559),
    ("NVIDIA H100 NVL", "H100-94GB", 95830),
    ("NVIDIA H200", "H200", 143771),
    ("NVIDIA GH200 480GB", "GH200", 97871),
    ("NVIDIA B200", "B200", 183359),
    ("NVIDIA L4", "L4", 23034),
    ("NVIDIA GeForce RTX 4090", "RTX4090", 24564),
]


@pytest.mark.parametrize(("written", "name"), [line.split(" = ") for line in NAMES])
def test_a_gpu_is_found_by_every_name_it_goes_by(written: str, name: str) -> None:
    assert find_gpu_model(written).name == name
    assert find_gpu_model(written.upper()).name == name


@pytest.mark.parametrize(("name", "mib"), LISTED_MIB)
def test_memory_is_what_the_gpu_lists_for_programs(name: str, mib: int) -> None:
    assert find_gpu_model(name).memory == mib * MIB


@pytest.mark.parametrize(("nvml", "name", "mib"), LISTED_WITH_RESERVE)
def test_the_drivers_reserve_is_not_promised_to_programs(
    nvml: str, name: str, mib: int
) -> None:
    model = model_of_nvml_name(nvml, mib * MIB)

    assert model is not None
    assert model.name == name
    assert 0.97 * mib * MIB < model.memory <= mib * MIB


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_is_found_by_its_own_name_and_fits_its_box(model: GpuModel) -> None:
    assert find_gpu_model(model.name) == model
    assert 0.88 * model.nominal * GIB < model.memory < 1.03 * model.nominal * GIB
    assert all(memory < model.memory for memory in model.mig.values())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("v100", "V100-16GB or V100-32GB"),
        ("tesla_v100", "V100-16GB or V100-32GB"),
        ("A100", "A100-40GB or A100-80GB"),
        ("V100-64GB", "V100-16GB or V100-32GB"),
        ("v1000-32gb", "did you mean V100-32GB"),
        ("toaster", "--gpu-memory"),
        ("", "--gpu-memory"),
        ("T4:1g.5gb", "no such GPU"),
        ("9g.900gb", r"no such GPU: '9g\.900gb'"),
    ],
)
def test_a_name_that_settles_nothing_states_what_would(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_gpu_model(name)


@pytest.mark.parametrize(
    ("name", "called"),
    [("p100", ["P100-12GB", "P100-16GB"]), ("v100l", ["V100-32GB"])],
)
def test_a_name_of_two_sizes_means_the_smaller_first(
    name: str, called: list[str]
) -> None:
    assert [model.name for model in gpu_models_called(name)] == called
    # a site's own figure settles it
    (own,) = gpu_models_called(name, sites={name: 12 * GIB})
    assert own.memory == 12 * GIB


def test_a_total_that_no_driver_lists_is_believed() -> None:
    model = model_of_nvml_name("NVIDIA A40", 47000 * MIB)

    assert model is not None
    assert (model.name, model.memory) == ("A40", 47000 * MIB)


def test_a_gpu_that_is_new_matches_nothing() -> None:
    assert model_of_nvml_name("NVIDIA C900", 500 * GIB) is None
    assert model_of_nvml_name("Tesla V100", 64 * GIB) is None
    assert model_of_nvml_name("Tesla V100") is None


@pytest.mark.parametrize(
    ("written", "name", "gib"),
    [
        ("A100-40GB:1g.5gb", "A100-40GB:1g.5gb", 4.75),
        ("1g.5gb", "A100-40GB:1g.5gb", 4.75),
        ("a100_3g.40gb", "A100-80GB:3g.40gb", 39.25),
        ("nvidia_h100_80gb_hbm3_3g.40gb", "H100-80GB:3g.40gb", 39.5),
        ("NVIDIA H200 MIG 1g.18gb", "H200:1g.18gb", 16),
        ("NVIDIA A30 MIG 1g.6gb+me", "A30:1g.6gb", 5.81),
        ("1g.10gb", "A100-80GB:1g.10gb", 9.5),  # the GPU that gives it least
    ],
)
def test_a_mig_slice_has_the_memory_of_its_profile(
    written: str, name: str, gib: float
) -> None:
    model = find_gpu_model(written)

    assert model.name == name
    assert model.memory == round(gib * GIB)


def test_a_sites_own_figure_wins() -> None:
    sites = {"v100": 31 * GIB, "Big Card": 200 * GIB}

    assert find_gpu_model("V100", sites=sites).name == "V100-32GB"
    assert find_gpu_model("V100", sites=sites).memory == 31 * GIB
    assert find_gpu_model("big card", sites=sites).memory == 200 * GIB
    assert find_gpu_model("T4", sites=sites) == find_gpu_model("T4")


@given(
    st.text(max_size=40)
    | st.from_regex(r"[a-z]{0,3}[0-9]{1,4}[-_:]\d?g", fullmatch=True)
)
def test_no_name_that_nvml_may_give_breaks_it(name: str) -> None:
    model = model_of_nvml_name(name, 32 * GIB)

    assert model is None or model.memory > 0
