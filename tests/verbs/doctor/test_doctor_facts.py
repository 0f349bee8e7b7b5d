import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from weigh.flow import doctor
from weigh.flow.doctor import diagnose_machine, folders_to_check
from weigh.flow.here import here_of
from weigh.schedulers.command import CommandOutput


def silent(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    patience: float = 0,
) -> CommandOutput:
    del env, cwd
    return CommandOutput(trouble=f"{argv[0]} has not answered for {patience:g} s")


def test_commands_that_hang_are_reported_and_the_page_is_whole(tmp_path: Path) -> None:
    (tmp_path / "sbatch").touch(mode=0o755)
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    page = diagnose_machine(
        here_of(str(tmp_path), env), job="run.sh", run_command=silent
    )
    checks = {check.name: check for check in (*page.checks, *page.job)}
    assert checks["scheduler"].state == "broken"
    assert "sinfo has not answered for 10 s" in checks["scheduler"].text
    assert "git has not answered for 10 s" in checks["code"].text
    assert checks["home"].state == "ok"
    assert "code" in {check.name for check in page.job}

    alone = diagnose_machine(here_of(str(tmp_path), env), run_command=silent)
    assert alone.job == ()
    names = {check.name for check in alone.checks}
    assert names == {check.name for check in page.checks} >= {"records"}


def test_a_check_that_does_not_end_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setattr(doctor, "PATIENCE", 0.1)
    ended = threading.Event()

    def endless(*_: object, **__: object) -> CommandOutput:
        ended.wait()
        return CommandOutput(0, "", "")

    here = here_of(str(tmp_path), {"PATH": str(tmp_path), "HOME": str(tmp_path)})
    page = diagnose_machine(here, run_command=endless)
    ended.set()
    found = {check.name: (check.state, check.text) for check in page.checks}
    assert found["scheduler"] == ("broken", "has not answered for 0.2 s")


def test_folders_on_one_disk_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_scratch", lambda _env: None)
    env = {"PATH": "", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    (tmp_path / "work").mkdir()
    here = here_of(f"{tmp_path}/work", env)
    checks = diagnose_machine(here, run_command=silent).checks
    (home,) = (one for one in checks if one.name in {"home", "folder", "temporary"})
    assert (home.name, f" {tmp_path} (" in home.text) == ("home", True)


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


@pytest.mark.parametrize(
    ("major", "gpu", "troubles"), [(7, True, 1), (8, True, 0), (7, False, 0)]
)
def test_a_torch_that_was_not_built_for_the_gpu_is_broken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    major: int,
    gpu: bool,  # noqa: FBT001 - a table
    troubles: int,
) -> None:
    packages = tmp_path / "lib/python3.11/site-packages/torch"
    packages.mkdir(parents=True)
    (packages / "__init__.py").write_text(TORCH.format(major=major))
    (packages / "version.py").write_text('__version__ = "2.9.0"\ncuda = "13.0"\n')
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(doctor, "gpu_may_be_present", lambda _env: gpu)
    env = {"PATH": f"{python.parent}:/usr/bin", "PYTHONPATH": str(packages.parent)}
    checks = doctor.torch_checks(env)
    found = [check for check in checks if check.state == "broken"]
    assert len(found) == troubles
    for one in found:
        assert "built for sm_80 sm_90 compute_90, and Tesla V100" in one.text


def test_scratch_is_a_variable_or_a_folder_for_every_user(tmp_path: Path) -> None:
    (tmp_path / "disk/scratch").mkdir(parents=True)
    assert doctor.find_scratch({}, str(tmp_path)) == "/disk/scratch/$USER"
    env = {"SCRATCH": str(tmp_path), "HOME": "/home/ada"}
    assert doctor.find_scratch(env) == "$SCRATCH"
    folders = dict(folders_to_check(here_of("/work", env)))
    assert folders["scratch"] == str(tmp_path)
    assert (folders["home"], folders["folder"]) == ("/home/ada", "/work")
