import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from weigh.flow.doctor import facts as doctor_facts
from weigh.flow.doctor.checklist import torch
from weigh.flow.doctor.doctor import doctor
from weigh.model.doctor import GpuFacts
from weigh.probe.driver import read_driver_version
from weigh.schedulers.protocol import Reply


def silent(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    patience: float = 0,
) -> Reply:
    del env, cwd
    return Reply(trouble=f"{argv[0]} has not answered for {patience:g} s")


def scripted_nvml(monkeypatch: pytest.MonkeyPatch, driver: object) -> ModuleType:
    module = ModuleType("pynvml")
    error = type("NVMLError", (Exception,), {})
    functions = {
        "NVMLError": error,
        "nvmlInit": lambda: None,
        "nvmlInitWithFlags": None,
        "nvmlMemory_v2": 0,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: driver,
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12040,
    }
    for name, function in functions.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


@pytest.mark.parametrize("driver", ["550.54.15", b"550.54.15"])
def test_the_driver_reports_its_version_and_its_cuda(
    monkeypatch: pytest.MonkeyPatch, driver: object
) -> None:
    scripted_nvml(monkeypatch, driver)
    assert read_driver_version() == ("550.54.15", "12.4")


def test_a_driver_that_does_not_start_has_no_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = scripted_nvml(monkeypatch, "550.54.15")

    def refuse() -> None:
        raise module.NVMLError

    monkeypatch.setattr(module, "nvmlInit", refuse)
    assert read_driver_version() == (None, None)


def test_commands_that_hang_are_reported_and_the_page_is_whole(tmp_path: Path) -> None:
    (tmp_path / "sbatch").touch(mode=0o755)
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    page = doctor(str(tmp_path), env, job="", ask=silent)
    checks = {check.name: check for check in (*page.checks, *page.job)}
    assert checks["scheduler"].state == "broken"
    assert "sinfo has not answered for 10 s" in checks["scheduler"].text
    assert "git has not answered for 10 s" in checks["code"].text
    assert checks["home"].state == "ok"


def test_a_clock_that_is_behind_is_measured_by_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr("weigh.flow.doctor.facts.time.time", lambda: now() - 100)
    skew = doctor_facts._skew(str(tmp_path))
    assert skew == pytest.approx(100, abs=20)
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_agrees_has_no_skew_to_speak_of(tmp_path: Path) -> None:
    assert doctor_facts._skew(str(tmp_path)) == pytest.approx(0, abs=1)


def test_folders_on_one_disk_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_facts, "find_scratch", lambda _env: None)
    env = {"PATH": "", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    facts = doctor_facts.gather(str(tmp_path), env, silent)
    assert [disk.role for disk in facts.disks] == ["home"]


@pytest.mark.parametrize(
    ("env", "job"),
    [
        ({"SLURM_JOB_ID": "7"}, "7"),
        ({"JOB_ID": "8", "SGE_TASK_ID": "undefined"}, "8"),
        ({}, None),
    ],
)
def test_the_job_one_is_in_is_known(
    tmp_path: Path, env: dict[str, str], job: str | None
) -> None:
    facts = doctor_facts.gather(str(tmp_path), {"PATH": ""} | env, silent)
    assert facts.job_id == job


def test_no_gpu_is_no_fault() -> None:
    gpus = doctor_facts.read_gpus(dict(os.environ) | {"CUDA_VISIBLE_DEVICES": ""})
    assert gpus.trouble is None


# built for newer GPUs than the one that it meets
TORCH = """
from types import SimpleNamespace as N
__version__ = "2.9.0+cu130"
version = N(cuda="13.0")
cuda = N(
    is_available=lambda: True,
    get_arch_list=lambda: ["sm_80", "sm_90", "compute_90"],
    get_device_capability=lambda: ({major}, 0),
    get_device_name=lambda: "Tesla V100",
)
"""


@pytest.mark.parametrize(("major", "troubles"), [(7, 1), (8, 0)])
def test_a_torch_that_was_not_built_for_the_gpu_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, major: int, troubles: int
) -> None:
    packages = tmp_path / "lib/python3.11/site-packages/torch"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text(TORCH.format(major=major))
    (packages / "version.py").write_text('__version__ = "2.9.0"\ncuda = "13.0"\n')
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(doctor_facts, "gpu_may_be_present", lambda _env: True)
    monkeypatch.setattr(doctor_facts, "read_gpus", lambda _env: GpuFacts())
    env = {"PATH": f"{python.parent}:/usr/bin", "PYTHONPATH": str(packages.parent)}
    facts = doctor_facts.gather(str(tmp_path), env, silent)
    found = [check for check in torch(facts) if check.state == "broken"]
    assert len(found) == troubles
    for one in found:
        assert "built for sm_80 sm_90 compute_90, and Tesla V100" in one.text
