import msgspec
import pytest

from weigh.flow.doctor.checklist import driver_check, oldest_driver, torch_check
from weigh.flow.doctor.doctor import diagnose
from weigh.model.doctor import (
    Check,
    Disk,
    Facts,
    Git,
    GpuFacts,
    JobFacts,
    Limits,
    Memory,
    Path,
    PythonEnvironment,
    Quota,
    Reach,
    SchedulerFacts,
    TorchBuild,
)
from weigh.render.doctor_lines import render_json, render_text
from weigh.units import GIB, KIB, MIB

SLURM = (SchedulerFacts(name="Slurm", found=("sbatch",)),)
CPU_TORCH = PythonEnvironment(
    kind="conda", prefix="/envs/a", name="a", torch=TorchBuild("2.4.0+cpu")
)
CUDA_TORCH = PythonEnvironment(
    kind="venv", prefix="/envs/b", name="b", torch=TorchBuild("2.4.0", "12.1")
)
GPU_FACTS = GpuFacts(names=("V100",), driver="550.54.15", cuda="12.4")
ALL_READINGS = Reach(
    perf_event=True,
    cgroup_peak=True,
    oom_kills=True,
    shared_pages=True,
    high_water=True,
    storage=True,
)


def found(name: str, **facts: object) -> Check:
    """Give the one check of that name."""
    diagnosis = diagnose(Facts(**facts))  # type: ignore[arg-type]
    checks = (*diagnosis.checks, *diagnosis.job)
    (check,) = [check for check in checks if check.name == name]
    return check


def a_disk(**changed: object) -> Disk:
    given = {
        "role": "home",
        "path": "/home/ann",
        "kind": "nfs4",
        "mount": "/home",
        "is_shared": True,
        "size": 1000 * GIB,
        "free": 500 * GIB,
        "files": 10**6,
        "files_free": 10**5,
        "writable": True,
    }
    return Disk(**(given | changed))  # type: ignore[arg-type]


def test_a_login_node_is_named_as_one() -> None:
    assert "login node" in found("place", schedulers=SLURM).text


def test_inside_a_job_the_job_is_named() -> None:
    assert "job 4711" in found("place", schedulers=SLURM, job_id="4711").text


def test_a_scheduler_that_does_not_answer_is_broken() -> None:
    trouble = "Unable to contact slurm controller"
    silent = (SchedulerFacts(name="Slurm", trouble=trouble),)
    check = found("scheduler", schedulers=silent)
    assert check.state == "broken"
    assert trouble in check.text
    assert check.cure


def test_a_missing_command_is_a_warning() -> None:
    partly = (SchedulerFacts(name="Slurm", missing=("sacct",)),)
    check = found("scheduler", schedulers=partly)
    assert (check.state, "sacct" in check.text) == ("warning", True)


def test_a_python_that_nodes_may_lack_comes_with_the_way_to_check_it() -> None:
    own = a_disk(is_shared=False, kind="ext4", path="/opt/venv")
    check = found(
        "nodes", schedulers=SLURM, interpreter=own, python="/opt/venv/bin/python"
    )
    assert check.state == "warning"
    assert check.cure is not None
    assert "srun /opt/venv/bin/python --version" in check.cure


def test_a_python_on_the_shared_disk_is_fine() -> None:
    assert found("nodes", schedulers=SLURM, interpreter=a_disk()).state == "ok"


def test_a_cpu_torch_is_broken_where_gpus_are_requested() -> None:
    job = JobFacts(kind="script", asks_gpus=True, environment=CPU_TORCH)
    check = found("torch", environment=CPU_TORCH, job=job)
    assert check.state == "broken"
    assert check.cure is not None
    assert "CUDA build" in check.cure


def test_a_cpu_torch_next_to_a_gpu_is_a_warning() -> None:
    assert found("torch", environment=CPU_TORCH, gpus=GPU_FACTS).state == "warning"


def test_a_cpu_torch_on_a_laptop_is_fine() -> None:
    assert found("torch", environment=CPU_TORCH).state == "ok"


def test_a_rocm_torch_is_no_cpu_torch() -> None:
    rocm = msgspec.structs.replace(CPU_TORCH, torch=TorchBuild("2.4", None, "6.0"))
    assert torch_check(rocm, is_requested=True, is_likely=True).state == "ok"


@pytest.mark.parametrize(
    ("driver", "cuda", "state"),
    [
        ("525.60.13", "12.8", "ok"),  # the oldest of NVIDIA's table for 12.x
        ("525.60.12", "12.1", "broken"),
        ("580.65.06", "13.0", "ok"),
        ("575.57.08", "13.0", "broken"),
        ("470.256.02", "11.8", "ok"),
        ("470.256.02", "12.1", "broken"),
        ("440.33", "10.2", "ok"),
        ("418.39", "10.2", "broken"),
    ],
)
def test_the_driver_must_be_new_enough_for_torchs_cuda(
    driver: str, cuda: str, state: str
) -> None:
    gpus = GpuFacts(names=("T4",), driver=driver, cuda="1.0")
    assert [check.state for check in driver_check(gpus, cuda)] == [state]


def test_nothing_is_reported_of_a_cuda_that_nobody_knows_yet() -> None:
    assert oldest_driver("99.1") is None
    assert list(driver_check(GPU_FACTS, "99.1")) == []


def test_a_driver_that_does_not_answer_is_broken() -> None:
    gpus = GpuFacts(trouble="the GPU driver has not answered for 10 s")
    assert found("GPU", gpus=gpus).state == "broken"


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "ok"),
        ({"free": 0}, "broken"),
        ({"free": 100 * MIB}, "broken"),
        ({"free": 100 * MIB, "role": "temporary"}, "warning"),
        ({"free": 9 * GIB}, "warning"),
        ({"free": 50 * GIB}, "ok"),
        ({"files_free": 0}, "broken"),
        ({"files_free": 10}, "warning"),
        ({"files": None, "files_free": None}, "ok"),
        ({"writable": False}, "warning"),
        ({"trouble": "has not answered for 10 s"}, "broken"),
    ],
)
def test_a_disk_is_judged_by_what_is_left(
    changed: dict[str, object], state: str
) -> None:
    disk = a_disk(**changed)
    assert found(disk.role, disks=(disk,)).state == state


@pytest.mark.parametrize(
    ("used", "files", "state"),
    [
        (8 * GIB, 10, "ok"),
        (9 * GIB, 10, "warning"),
        (10 * GIB, 10, "broken"),
        (GIB, 95_000, "warning"),
        (GIB, 100_000, "broken"),
    ],
)
def test_a_quota_is_judged_by_bytes_and_files(
    used: int, files: int, state: str
) -> None:
    quota = Quota(
        file_system="/home",
        used=used,
        limit=10 * GIB,
        files=files,
        files_limit=100_000,
    )
    assert found("quota", quotas=(quota,)).state == state


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (Limits(open_files=256, most_open_files=4096), "open files"),
        (Limits(processes=100), "processes"),
        (Limits(core=None), "core file"),
        (Limits(address_space=8 * GIB), "virtual memory"),
        (Limits(cpu_time=600), "killed after"),
        (Limits(locked_memory=64 * KIB, has_fast_network=True), "locked memory"),
        (Limits(file_size=GIB), "files can be at most"),
    ],
)
def test_a_tight_limit_is_a_warning_with_a_fix(limits: Limits, word: str) -> None:
    check = found("ulimit", limits=limits)
    assert check.state == "warning"
    assert word in check.text
    assert check.cure


def test_core_files_that_go_to_a_program_are_fine() -> None:
    assert found("ulimit", limits=Limits(core=None, core_is_piped=True)).state == "ok"


def test_memory_that_is_nearly_gone_is_a_warning() -> None:
    room = Memory(used=99 * MIB, limit=100 * MIB, is_grouped=True)
    assert found("memory", memory=room).state == "warning"


@pytest.mark.parametrize(
    ("skew", "state"), [(0.0, "ok"), (-5.0, "warning"), (300.0, "broken")]
)
def test_a_clock_is_judged_by_how_far_it_is_off(skew: float, state: str) -> None:
    assert found("clock", clock_skew=skew, clock_disk="/home/ann").state == state


def test_readings_that_cannot_be_taken_are_named() -> None:
    some = msgspec.structs.replace(ALL_READINGS, perf_event=False)
    check = found("reach", reach=some)
    assert (check.state, "perf_event" in check.text) == ("warning", True)
    assert found("reach", reach=ALL_READINGS).state == "ok"


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
    changed: dict[str, object], state: str
) -> None:
    assert found("records", schedulers=SLURM, store=a_disk(**changed)).state == state


@pytest.mark.parametrize(
    ("git", "state", "word"),
    [
        (Git(upstream="origin/main", ahead=0, commit="1"), "ok", "pushed"),
        (Git(upstream="origin/main", ahead=2, commit="1"), "warning", "2 commits"),
        (Git(commit="1"), "warning", "not pushed"),
        (Git(changed=3, untracked=1, commit="1"), "warning", "3 changed, 1 new"),
        (Git(), "warning", "nothing at all"),
    ],
)
def test_code_is_ticked_when_committed_and_pushed(
    git: Git, state: str, word: str
) -> None:
    check = found("code", job=JobFacts(git=git))
    assert check.state == state
    assert word in check.text


def test_data_on_a_disk_of_this_machine_alone_is_a_warning() -> None:
    data = (Path("data.csv", "ext4", is_shared=False), Path("x", "nfs4", True))
    check = found("data", schedulers=SLURM, job=JobFacts(data=data))
    assert check.state == "warning"
    assert "data.csv" in check.text


def test_sizes_are_ticked_when_records_stand_behind_them() -> None:
    known = JobFacts(kind="plan", asks_gpus=True, runs=3, gpu_runs=1)
    assert found("RAM", job=known).text == "known from 3 runs"
    assert found("GPUs", job=known).state == "ok"
    unknown = JobFacts(kind="plan", asks_gpus=True)
    assert found("RAM", job=unknown).state == "warning"
    assert found("GPUs", job=unknown).state == "warning"


def test_a_script_that_is_not_there_is_broken() -> None:
    job = JobFacts(file="run.sh", trouble="it is not there")
    assert found("script", job=job).state == "broken"


def test_no_line_of_the_page_is_wider_than_a_terminal() -> None:
    job = JobFacts(
        file="a-rather-long-name-of-a-script.sh",
        trouble="it is not there",
        environment=CPU_TORCH,
        git=Git(changed=3),
    )
    facts = Facts(
        host="login3",
        schedulers=SLURM,
        environment=CPU_TORCH,
        disks=(a_disk(free=0),),
        limits=Limits(core=None, open_files=3),
        reach=Reach(),
        job=job,
    )
    lines = render_text(diagnose(facts))
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "  2 broken, 7 warnings"


def test_a_path_is_left_whole_to_be_copied() -> None:
    path = "/" + "a" * 100
    lines = render_text(diagnose(Facts(disks=(a_disk(path=path, writable=False),))))
    assert any(path in line for line in lines)


def test_every_line_that_is_not_well_has_a_fix() -> None:
    facts = Facts(
        schedulers=(SchedulerFacts(name="Slurm", trouble="down", missing=("sacct",)),),
        interpreter=a_disk(is_shared=False),
        environment=CPU_TORCH,
        gpus=GpuFacts(trouble="broken"),
        disks=(a_disk(free=0), a_disk(role="scratch", writable=False)),
        quotas=(Quota(file_system="/home", used=2, limit=1),),
        limits=Limits(open_files=3, core=None, cpu_time=3, file_size=3),
        memory=Memory(99, 100, is_grouped=False),
        clock_skew=99.0,
        reach=Reach(),
        store=a_disk(writable=False),
        job=JobFacts(git_trouble="no git"),
    )
    diagnosis = diagnose(facts)
    for check in (*diagnosis.checks, *diagnosis.job):
        assert (check.cure is None) == (check.state == "ok"), check


def test_the_document_states_its_schema_and_whether_something_is_broken() -> None:
    document = msgspec.json.decode(render_json(diagnose(Facts(host="h"))))
    assert document["schema"] == "weigh.doctor/1"
    assert document["broken"] is False
