import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import msgspec
import pytest

from weigh.flow import doctor
from weigh.flow.doctor import (
    code_check_of,
    disk_check,
    environment_checks,
    gpu_checks,
    nodes_checks,
    records_checks,
    scheduler_checks,
    torch_check,
)
from weigh.flow.here import here_of
from weigh.model.doctor import (
    CheckState,
    DiskSpace,
    DoctorCheck,
    DoctorDiagnosis,
    PythonEnvironment,
    TorchBuild,
)
from weigh.probe import nvml
from weigh.render.doctor_lines import doctor_document, doctor_page
from weigh.schedulers.command import CommandOutput
from weigh.units import GIB, MIB

CPU_BUILD = TorchBuild("2.4.0+cpu")
CPU_TORCH = PythonEnvironment(kind="conda", prefix="/envs/a", name="a", torch=CPU_BUILD)


@pytest.fixture
def login(tmp_path: Path) -> dict[str, str]:
    """Give the environment of a login node of Slurm."""
    for name in ("sbatch", "sinfo"):
        (tmp_path / name).touch(mode=0o755)
    return {"PATH": str(tmp_path)}


def with_disk(monkeypatch: pytest.MonkeyPatch, **changed: object) -> None:
    """Let every folder be on this disk."""
    given = {
        "path": "/nowhere/ann",
        "kind": "nfs4",
        "is_shared": True,
        "size": 1000 * GIB,
        "free": 500 * GIB,
        "files_free": 10**5,
        "writable": True,
    }
    disk = DiskSpace(**(given | changed))  # type: ignore[arg-type]
    monkeypatch.setattr(doctor, "read_disk", lambda *_: disk)


DOWN = "Unable to contact slurm controller"


@pytest.mark.parametrize(
    ("path", "reply", "state", "word"),
    [
        (None, CommandOutput(trouble=DOWN), "broken", DOWN),
        (None, CommandOutput(0, "", ""), "warning", "sacct"),
        ("", CommandOutput(0, "", ""), "ok", "jobs run on this machine (weigh exec)"),
    ],
)
def test_a_scheduler_answers_with_all_its_commands_or_jobs_run_here(
    login: dict[str, str], path: str | None, reply: CommandOutput, state: str, word: str
) -> None:
    env = login if path is None else {"PATH": path}
    (check,) = scheduler_checks(env, lambda *_, **__: reply)
    assert (check.state, word in check.text) == (state, True)
    assert (check.cure is None) == (state == "ok")


def test_commands_of_a_scheduler_without_a_cluster_are_no_matter_where_one_answers(
    login: dict[str, str],
) -> None:
    for name in ("qsub", "qstat", "scontrol", "squeue", "sacct", "scancel", "srun"):
        (Path(login["PATH"]) / name).touch(mode=0o755)

    def answer(argv: Sequence[str], **_: object) -> CommandOutput:
        unset = "critical error: Please set the environment variable SGE_ROOT."
        return CommandOutput(*((1, "", unset) if argv[0][0] == "q" else (0, "", "")))

    assert [check.text for check in scheduler_checks(login, answer)] == [
        "Slurm answers"
    ]


def test_a_python_that_nodes_may_lack_comes_with_the_way_to_check_it(
    login: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_disk(monkeypatch, is_shared=False, kind="ext4")
    (check,) = nodes_checks(login)
    assert check.state == "warning"
    assert check.cure is not None
    assert "try srun " in check.cure


def test_a_python_on_the_shared_disk_is_fine(
    login: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_disk(monkeypatch)
    assert [check.state for check in nodes_checks(login)] == ["ok"]
    assert nodes_checks({"PATH": ""}) == []
    assert nodes_checks(login | {"SLURM_JOB_ID": "7"}) == []


def test_a_path_without_python_is_a_warning() -> None:
    (check,) = environment_checks({"PATH": ""})
    assert (check.state, check.text) == ("warning", "no python on PATH")


@pytest.mark.parametrize(
    ("active", "state"),
    [
        (("CONDA_PREFIX",), "ok"),
        (("VIRTUAL_ENV",), "ok"),
        (("CONDA_PREFIX", "VIRTUAL_ENV"), "warning"),
    ],
)
def test_two_environments_at_once_are_a_warning(
    active: tuple[str, ...], state: str
) -> None:
    env = {"PATH": os.path.dirname(sys.executable)} | dict.fromkeys(active, "/env")
    (check,) = environment_checks(env)
    assert check.state == state


@pytest.mark.parametrize("state", ["ok", "warning", "broken"])
def test_a_torch_for_cpus_is_judged_by_the_need_for_a_gpu(state: CheckState) -> None:
    check = torch_check(CPU_TORCH, CPU_BUILD, state)
    assert check.state == state
    assert (check.cure or "").endswith("conda's a (/envs/a)" * (state != "ok"))
    for build, kind in (("12.1", None), "CUDA 12.1"), ((None, "6.0"), "ROCm 6.0"):
        of_gpu = torch_check(CPU_TORCH, TorchBuild("2.4", *build), state)
        assert (of_gpu.state, of_gpu.text) == ("ok", f"torch 2.4, built for {kind}")


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "ok"),
        ({"free": 0}, "broken"),
        ({"free": 100 * MIB}, "broken"),
        ({"free": 100 * MIB, "role": "temporary"}, "warning"),
        ({"free": 9 * GIB}, "warning"),
        ({"free": 15 * GIB}, "ok"),  # 1.5 %, in which much fits
        ({"free": 9 * GIB, "size": 400 * GIB}, "ok"),  # 2.25 %
        ({"free": 9 * GIB, "size": 500 * GIB}, "warning"),
        ({"files_free": 999}, "broken"),
        ({"files_free": 1000}, "ok"),
        ({"files_free": 10, "role": "scratch"}, "warning"),
        ({"files_free": None}, "ok"),
        ({"writable": False}, "warning"),
        ({"trouble": "has not answered for 10 s"}, "broken"),
    ],
)
def test_a_disk_is_judged_by_what_is_left(
    changed: dict[str, object], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = str(changed.pop("role", "home"))
    with_disk(monkeypatch, **changed)
    check = disk_check(role, "/nowhere/ann")
    assert check.state == state
    assert (check.cure is None) == (state == "ok")


def test_a_disk_that_refuses_a_file_as_over_quota_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_disk(monkeypatch)
    with pytest.raises(OSError) as refused:  # noqa: PT011 - which, the kernel decides
        Path("/proc/self/a-file").touch()
    check = disk_check("home", "/proc/self")
    assert check.state == "broken"
    assert check.text.endswith(f" cannot be written: {refused.value.strerror}")
    (check,) = records_checks(here_of("/", {"PATH": "", "WEIGH_DIR": "/proc/self"}))
    assert check.text.endswith(f": {refused.value.strerror}")


@pytest.mark.parametrize(
    ("names", "absence", "text"),
    [
        ([], None, "no GPU here"),
        ([], "the driver is older", "the driver is older"),
        (["T4", "A100", "T4"], None, "1 x A100, 2 x T4, driver 550.1 (CUDA 12.4)"),
    ],
)
def test_gpus_are_counted_by_name(
    names: list[str], absence: str | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [SimpleNamespace(name=name) for name in names]
    probe = SimpleNamespace(devices=lambda: devices, absence=absence, close=list)
    monkeypatch.setattr(doctor, "gpu_may_be_present", lambda _env: True)
    monkeypatch.setattr(doctor, "open_probe", lambda _env: probe)
    monkeypatch.setattr(nvml, "read_driver_version", lambda: ("550.1", "12.4"))
    (check,) = gpu_checks({"PATH": ""})
    assert (check.state, check.text) == ("ok", text)


def test_without_a_gpu_a_login_node_names_the_way_to_check_a_node(
    login: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "gpu_may_be_present", lambda _env: False)
    (there,), (within,) = gpu_checks(login), gpu_checks(login | {"SLURM_JOB_ID": "7"})
    assert there.text == f"{within.text}; for a node, run weigh doctor in a job there"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("system", "the system (/p)"),
        ("conda", "conda's a (/p)"),
        ("venv", "the venv /p"),
    ],
)
def test_an_environment_is_named_by_its_kind(
    kind: Literal["system", "conda", "venv"], words: str
) -> None:
    found = PythonEnvironment(kind=kind, prefix="/p", name="a")
    assert doctor.environment_words(found) == words


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "ok"),
        ({"writable": False}, "broken"),
        ({"kind": "tmpfs", "is_shared": False}, "warning"),
        ({"kind": "ext4", "is_shared": False}, "warning"),
    ],
)
def test_records_must_go_where_they_stay(
    changed: dict[str, object],
    state: str,
    login: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_disk(monkeypatch, **changed)
    assert [one.state for one in records_checks(here_of(str(tmp_path), login))] == [
        state
    ]


# of git status --porcelain=v2 --branch
COMMIT = "# branch.oid 1\n"
BRANCH = f"{COMMIT}# branch.upstream origin/main\n# branch.ab "


@pytest.mark.parametrize(
    ("status", "state", "word"),
    [
        (f"{BRANCH}+0 -1\n", "ok", "pushed to origin/main"),
        (f"{BRANCH}+2 -0\n", "warning", "committed, but not pushed"),
        (COMMIT, "warning", "not pushed"),
        (f"{COMMIT}1 .M N... 100644 a b x y\n? new file\n", "warning", "2 files"),
        ("# branch.oid (initial)\n", "warning", "0 files"),
    ],
)
def test_code_is_ticked_when_committed_and_pushed(
    status: str, state: str, word: str
) -> None:
    check = code_check_of(status)
    assert check.state == state
    assert word in check.text


def test_no_line_of_the_page_is_wider_than_a_terminal() -> None:
    words = "a rather long sentence about a disk, " * 4
    checks = (
        DoctorCheck("home", "broken", words, words),
        DoctorCheck("GPU", "ok", "none"),
    )
    page = DoctorDiagnosis(host="login3", checks=checks, job=checks)
    lines = doctor_page(page)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "  2 broken"


def test_a_path_is_left_whole_to_be_copied() -> None:
    path = "/" + "a" * 100
    check = DoctorCheck(
        "home", "warning", f"{path} cannot be written", "choose another"
    )
    lines = doctor_page(DoctorDiagnosis(host="h", checks=(check,)))
    assert any(path in line for line in lines)


def test_the_document_states_its_schema_and_whether_something_is_broken() -> None:
    document = msgspec.json.decode(
        doctor_document(DoctorDiagnosis(host="h", checks=()))
    )
    assert document["schema"] == "weigh.doctor/1"
    assert document["broken"] is False
