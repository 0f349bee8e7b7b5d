"""GPUs by the names that nvidia-smi -L, Slurm's gres types and people write.

What nvidia-smi lists in MiB is of idle GPUs, before the driver counted its reserve in
and since.
"""

from pathlib import Path

import pytest
from transcript import check_answers

from weigh.gpu_models import (
    MODELS,
    GpuModel,
    find_gpu_model,
    gpu_models_called,
    is_gpu_of_kind,
    model_of_nvml_name,
)
from weigh.units import GIB, MIB

SITES = {"v100": 31 * GIB, "Big Card": 200 * GIB}
# as a scheduler names kinds of GPUs, one of them by a figure of its site
KINDS = ("v100", "v100-16gb", "a10", "a100", "a100_1g.5gb", "c900", "own")


def model_text(model: GpuModel | None) -> str | None:
    return None if model is None else f"{model.name}, {model.memory / MIB:g} MiB"


def by_name(name: str) -> str | None:
    found = find_gpu_model(name)
    assert find_gpu_model(name.upper()) == found
    return model_text(found)


def by_driver(words: str) -> str | None:
    """Return the model of a name and the MiB that the driver lists."""
    name, _, mib = words.partition(" | ")
    model = model_of_nvml_name(name, int(mib) * MIB if mib else None)
    # the driver's reserve is not promised to programs
    assert model is None or not mib or 0.97 * int(mib) * MIB < model.memory
    return model_text(model)


def kinds_of(words: str) -> str:
    name, mib = words.split(" | ")
    size = int(mib) * MIB
    return " ".join(
        kind for kind in KINDS if is_gpu_of_kind(name, size, kind, {"own": GIB})
    )


def test_gpus_are_known_by_their_names_as_they_were_reviewed() -> None:
    sizes_of_name = {
        "models that a name may mean": lambda name: " ".join(
            model.name for model in gpu_models_called(name)
        ),
        "where the site states a size of v100 and of Big Card": lambda name: model_text(
            find_gpu_model(name, sites=SITES)
        ),
    }
    questions = {
        "a name": by_name,
        "a name and MiB of the driver": by_driver,
        "kinds of a run's GPU": kinds_of,
    }
    path = Path(__file__).with_name("gpu_names.texts")
    check_answers(path, questions | sizes_of_name)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_is_found_by_its_own_name_and_fits_its_box(model: GpuModel) -> None:
    assert find_gpu_model(model.name) == model
    assert 0.88 * model.nominal * GIB < model.memory < 1.03 * model.nominal * GIB
    assert all(memory < model.memory for memory in model.mig.values())


def test_a_sites_own_size_decides_which_runs_are_of_a_kind() -> None:
    sites = {"v100": 32510 * MIB}

    assert not is_gpu_of_kind("Tesla V100-SXM2-16GB", 16160 * MIB, "v100", sites)
    assert is_gpu_of_kind("Tesla V100-SXM2-32GB", 32510 * MIB, "v100", sites)
    (own,) = gpu_models_called("p100", sites={"p100": 12 * GIB})
    assert own.memory == 12 * GIB
