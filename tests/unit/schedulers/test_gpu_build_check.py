"""The check of torch at the start of a GPU job, with a stand-in for torch."""

import sys
from pathlib import Path

from run_captured import CapturedRun, run_captured
from sessions import check_session

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
    # the file is written anew within a second: its compiled form would be the old one
    argv = [sys.executable, "-B", "-c", TORCH_CHECK]
    return run_captured(argv, env={"PYTHONPATH": str(folder)})


def test_worked_examples_of_builds_of_torch(tmp_path: Path) -> None:
    def runs(built: str, capability: tuple[int, int], **words: object) -> bool:
        """Return whether a job with such a torch goes on."""
        done = check(tmp_path, built=built, capability=capability, **words)
        reason = f"weigh: torch 2.9 was built for {built}, and Tesla P100 on "
        assert done.returncode == 0 or done.stderr.startswith(reason), done.stderr
        return done.returncode == 0

    names = {"runs": runs, "P100": P100, "A40": A40, "H200": H200}
    check_session(Path(__file__).with_name("gpu_build_check.session"), names)


def test_no_gpu_is_named_with_the_node(tmp_path: Path) -> None:
    done = check(tmp_path, there=False)
    assert "weigh: torch sees no GPU on " in done.stderr
