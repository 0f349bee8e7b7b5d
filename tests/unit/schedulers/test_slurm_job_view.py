"""``scontrol show job`` read back: what Slurm recorded as the request.

The first is as 22.05.8 printed it; the others are written after the forms of the later
versions: ReqTRES and AllocTRES from 23.02 on, TresPerJob with ``gres/`` from 23.11 on.
"""

import pytest
from captured_text import captured

from weigh.model.job import RecordedRequest
from weigh.schedulers.slurm.scheduler import COMMANDS
from weigh.schedulers.slurm.script import parse_scontrol_job
from weigh.units import GIB, MIB

V22 = captured("slurm-22.05-scontrol-job.txt")


V23 = V22.replace(
    "TRES=cpu=1,mem=100M,node=1,billing=1,gres/gpu=1,gres/gpu:v100=1",
    "ReqTRES=cpu=1,mem=100M,node=1,billing=1,gres/gpu=1,gres/gpu:v100=1 "
    "AllocTRES=(null)",
)
V24 = V23.replace("TresPerNode=gres:gpu:v100:1", "TresPerNode=gres/gpu:v100:1").replace(
    "Reason=None", "Reason=Priority FailedNode=(null)"
)


@pytest.mark.parametrize("text", [V22, V23, V24], ids=["22.05", "23.02", "24.05"])
def test_what_was_requested_is_read_in_each_version(text: str) -> None:
    told = parse_scontrol_job(text)

    assert told is not None
    assert (told.memory, told.cpus, told.gpus) == (100 * MIB, 1, 1)
    assert told.gpu_types == ("v100",)
    assert (told.time_limit, told.queue, told.account) == (300, "gpu", "lab")
    assert (told.elements, told.throttle) == (25, 3)


def test_a_name_that_looks_like_an_answer_is_none() -> None:
    named = V22.replace("JobName=a6.sh", "JobName=x TimeLimit=9-0 UserId=me Account=q")

    told = parse_scontrol_job(named)

    assert told is not None
    assert (told.time_limit, told.account) == (300, "lab")


@pytest.mark.parametrize(
    ("written", "size"),
    [("62.50G", 62 * GIB + 512 * MIB), ("4G", 4 * GIB), ("0", None)],
)
def test_memory_is_read_as_slurm_writes_it(written: str, size: int | None) -> None:
    told = parse_scontrol_job(V22.replace("mem=100M", f"mem={written}"))

    assert told is not None
    assert told.memory == size


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error: Invalid job id\n", "=\n"])
def test_an_answer_without_a_job_reports_nothing(text: str) -> None:
    assert parse_scontrol_job(text) is None


UNTRACKED = "TRES=cpu=1,mem=100M,node=1,billing=1"


def shown(
    request: str, *, tres: str = UNTRACKED, tasks: int = 1, nodes: str = "1"
) -> RecordedRequest:
    """Read a job where AccountingStorageTRES lacks gres/gpu, Slurm's default."""
    text = (
        V22.replace(V22[V22.index("TRES=") : V22.index(" Socks")], tres)
        .replace("TresPerNode=gres:gpu:v100:1", request)
        .replace("NumTasks=1", f"NumTasks={tasks}")
        .replace("NumNodes=1", f"NumNodes={nodes}")
    )
    told = parse_scontrol_job(text)
    assert told is not None
    return told


@pytest.mark.parametrize(
    ("request_", "gpus", "types"),
    [
        ("TresPerNode=gres:gpu:v100:2", 2, ("v100",)),
        ("TresPerNode=gres/gpu:v100:2", 2, ("v100",)),
        ("TresPerNode=gres:gpu:2", 2, ()),
        ("TresPerNode=gres:gpu", 1, ()),
        ("TresPerNode=gpu:v100:2 NtasksPerTRES:0", 2, ("v100",)),
        ("TresPerNode=gres:gpu:v100", 1, ("v100",)),
        ("TresPerJob=gres:gpu:a100_80gb:3", 3, ("a100_80gb",)),
        ("TresPerJob=gres/gpu=3", 3, ()),
        ("TresPerNode=gres:gpu:v100:1,gres:gpu:a100:1", 2, ("a100", "v100")),
        ("TresPerNode=gres:shard:4,gres:gpu:1", 1, ()),
        ("TresPerSocket=gres:gpu:1", None, ()),
        ("Power=", 0, ()),
        ("TresPerNode=gres:shard:4", 0, ()),
    ],
)
def test_gpus_are_read_where_the_site_does_not_track_them(
    request_: str, gpus: int | None, types: tuple[str, ...]
) -> None:
    told = shown(request_)

    assert (told.gpus, told.gpu_types) == (gpus, types)


def test_gpus_of_each_node_and_of_each_task_are_added_up() -> None:
    assert shown("TresPerNode=gres:gpu:2", nodes="3-4").gpus == 6
    assert shown("TresPerTask=gres:gpu:1", tasks=4).gpus == 4


def test_the_default_memory_is_not_that_of_a_job_which_asks_for_it_by_gpu() -> None:
    assert shown("MemPerTres=gres:gpu:500 TresPerJob=gres:gpu:2").memory is None


def test_memory_of_each_node_is_added_up_where_memory_is_not_tracked() -> None:
    assert shown("Power=", tres="TRES=cpu=2,node=2", nodes="2-2").memory == 200 * MIB


def test_the_elements_of_an_array_that_has_begun_are_all_counted() -> None:
    begun = V22.replace("JobId=2 ", "JobId=3 ", 1).replace(
        "ArrayTaskId=0-24%3 ArrayTaskThrottle=3", "ArrayTaskId=25"
    )

    told = parse_scontrol_job(begun + V22)

    assert told is not None
    assert (told.elements, told.throttle) == (26, 3)


def test_the_parts_of_a_heterogeneous_job_are_not_taken_for_all_of_it() -> None:
    assert (
        parse_scontrol_job(V22.replace("JobId=2 ", "JobId=2 HetJobId=2 "))
        == RecordedRequest()
    )


@pytest.mark.parametrize(
    ("state", "shared", "cpus"),
    [("RUNNING", "NO", None), ("PENDING", "NO", 1), ("RUNNING", "OK", 1)],
)
def test_what_whole_nodes_have_is_not_what_a_started_job_requested(
    state: str, shared: str, cpus: int | None
) -> None:
    text = V22.replace("=PENDING", f"={state}").strip() + f" OverSubscribe={shared} \n"

    found = COMMANDS.parse_understood(text)

    assert found is not None
    assert found.cpus == cpus
    assert found.time_limit == 300
