"""The check of torch at the start of a GPU job, with a stand-in for torch."""

import sys
from pathlib import Path

import pytest
from run_captured import CapturedRun, run_captured

from weigh.schedulers.job_script import TORCH_CHECK

STAND_IN = """
from types import SimpleNamespace
__version__ = "2.9"
version = SimpleNamespace(cuda={cuda!r}, hip=None)
cuda = SimpleNamespace(
    is_available=lambda: {there},
    get_arch_list=lambda: {built!r}.split(),
    get_device_capability=lambda: {capability},
    get_device_name=lambda: "Tesla P100",
)
"""
P100, A40, H200 = (6, 0), (8, 6), (9, 0)


def check(folder: Path, **words: object) -> CapturedRun:
    defaults = {"cuda": "12.8", "there": True, "built": "", "capability": A40}
    (folder / "torch.py").write_text(STAND_IN.format(**defaults | words))
    argv = [sys.executable, "-c", TORCH_CHECK]
    return run_captured(argv, env={"PYTHONPATH": str(folder)})


@pytest.mark.parametrize(
    ("built", "capability", "fits"),
    [
        ("sm_70 sm_80 sm_86", A40, True),
        ("sm_70 sm_80", A40, True),  # code of an older minor version runs
        ("sm_80 sm_90", P100, False),
        ("sm_89", A40, False),  # of a newer minor version it does not
        ("sm_50", P100, False),  # nor of another major one
        ("sm_50 compute_50", P100, True),  # unless it can be translated
        ("compute_90", A40, False),
        ("sm_90a", H200, True),
        ("sm_100 sm_120", H200, False),
        ("", P100, True),  # not known: no reason to stop a job
        ("sm_x", A40, True),
    ],
)
def test_a_gpu_that_torch_was_not_built_for_ends_the_job(
    tmp_path: Path,
    built: str,
    capability: tuple[int, int],
    *,
    fits: bool,
) -> None:
    done = check(tmp_path, built=built, capability=capability)
    assert (done.returncode == 0) == fits, done.stderr
    if not fits:
        assert done.stderr.startswith(
            f"weigh: torch 2.9 was built for {built}, and Tesla P100 on "
        )


def test_no_gpu_is_named_with_the_node(tmp_path: Path) -> None:
    done = check(tmp_path, there=False)
    assert "weigh: torch sees no GPU on " in done.stderr


def test_torch_for_other_gpus_is_left_alone(tmp_path: Path) -> None:
    assert check(tmp_path, cuda=None, built="gfx90a").returncode == 0
