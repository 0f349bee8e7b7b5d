from pathlib import Path

import pytest
from transcript import named_rows

from weigh.errors import UsageError
from weigh.gpu_models import (
    MODELS,
    GpuModel,
    find_gpu_model,
    gpu_models_called,
    is_gpu_of_kind,
    model_of_nvml_name,
)
from weigh.units import GIB, MIB

# names as nvidia-smi -L, Slurm's gres types and people write them; what nvidia-smi
# lists in MiB on idle cards, before the driver counted its reserve in and since
ROWS = named_rows(Path(__file__).with_name("gpu_names.texts"))


@pytest.mark.parametrize(("written", "name"), ROWS["names"])
def test_a_gpu_is_found_by_every_name_it_goes_by(written: str, name: str) -> None:
    assert find_gpu_model(written).name == name
    assert find_gpu_model(written.upper()).name == name


@pytest.mark.parametrize(("name", "mib"), ROWS["listed"])
def test_memory_is_what_the_gpu_lists_for_programs(name: str, mib: str) -> None:
    assert find_gpu_model(name).memory == int(mib) * MIB


@pytest.mark.parametrize(("nvml", "name", "mib"), ROWS["listed with a reserve"])
def test_the_drivers_reserve_is_not_promised_to_programs(
    nvml: str, name: str, mib: str
) -> None:
    total = int(mib) * MIB
    model = model_of_nvml_name(nvml, total)

    assert model is not None
    assert model.name == name
    assert 0.97 * total < model.memory <= total


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_is_found_by_its_own_name_and_fits_its_box(model: GpuModel) -> None:
    assert find_gpu_model(model.name) == model
    assert 0.88 * model.nominal * GIB < model.memory < 1.03 * model.nominal * GIB
    assert all(memory < model.memory for memory in model.mig.values())


@pytest.mark.parametrize(
    ("name", "says"),
    ROWS["mistakes"],
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


@pytest.mark.parametrize(
    ("nvml", "mib", "kinds"),
    [
        ("Tesla V100-SXM2-32GB", 32510, {"v100"}),
        ("NVIDIA A100-SXM4-40GB", 40960, {"a100"}),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864, {"a100_1g.5gb"}),
        ("NVIDIA C900", 500_000, {"c900"}),  # in no list
        ("NVIDIA A40", 46068, set()),
    ],
)
def test_a_run_is_of_the_kind_that_the_scheduler_names(
    nvml: str, mib: int, kinds: set[str]
) -> None:
    named = ("v100", "v100-16gb", "a10", "a100", "a100_1g.5gb", "c900", "own")

    assert kinds == {
        kind for kind in named if is_gpu_of_kind(nvml, mib * MIB, kind, {"own": GIB})
    }


def test_a_sites_own_size_decides_which_runs_are_of_a_kind() -> None:
    sites = {"v100": 32510 * MIB}

    assert not is_gpu_of_kind("Tesla V100-SXM2-16GB", 16160 * MIB, "v100", sites)
    assert is_gpu_of_kind("Tesla V100-SXM2-32GB", 32510 * MIB, "v100", sites)


def test_a_gpu_that_is_new_matches_nothing() -> None:
    assert model_of_nvml_name("NVIDIA C900", 500 * GIB) is None
    assert model_of_nvml_name("Tesla V100", 64 * GIB) is None
    assert model_of_nvml_name("Tesla V100") is None


@pytest.mark.parametrize(
    ("written", "name", "gib"),
    ROWS["slices"],
)
def test_a_mig_slice_has_the_memory_of_its_profile(
    written: str, name: str, gib: str
) -> None:
    model = find_gpu_model(written)

    assert model.name == name
    assert model.memory == round(float(gib) * GIB)


def test_a_sites_own_figure_wins() -> None:
    sites = {"v100": 31 * GIB, "Big Card": 200 * GIB}

    assert find_gpu_model("V100", sites=sites).name == "V100-32GB"
    assert find_gpu_model("V100", sites=sites).memory == 31 * GIB
    assert find_gpu_model("big card", sites=sites).memory == 200 * GIB
    assert find_gpu_model("T4", sites=sites) == find_gpu_model("T4")
