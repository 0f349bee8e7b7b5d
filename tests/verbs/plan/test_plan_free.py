"""Cards free now, beside what a plan would do with each kind."""

import stat
from pathlib import Path

import msgspec
import pytest

from weigh.flow.plan.plan import free_of, with_free_gpus
from weigh.model.cluster import Cluster, GpuCount
from weigh.model.plan import Capacity, Plan, PlanRequest, TargetGpu
from weigh.schedulers.protocol import Reply
from weigh.units import GIB

PLAN = Plan(
    name="rl",
    task_file="rl.txt",
    tasks=1,
    headroom=0.2,
    gpu=TargetGpu("V100-32GB", 32 * GIB),
    capacity=Capacity(),
    request=PlanRequest(1, gpus=1, gpu="V100-32GB"),
    kinds=(),
    elements=(),
)


def seen(**free: int) -> Cluster:
    gpus = tuple(
        GpuCount(name=name, total=8, free=count) for name, count in free.items()
    )
    return Cluster(scheduler="slurm", user="me", time="", gpus=gpus)


def plan_for(card: str, word: str | None = None) -> Plan:
    return msgspec.structs.replace(
        PLAN,
        gpu=TargetGpu(card, 32 * GIB),
        request=PlanRequest(1, gpus=1, gpu=word or card),
    )


def test_a_kind_is_counted_by_whatever_the_site_calls_it() -> None:
    there = seen(v100=3, a100_80gb=2, titan=1)
    assert free_of(plan_for("V100-32GB"), there) == 3
    assert free_of(plan_for("A100-80GB"), there) == 2
    assert free_of(plan_for("A100-40GB"), there) is None


def test_a_name_of_the_sites_own_is_known_by_that_name() -> None:
    assert free_of(plan_for("big", "Big"), seen(big=4)) == 4


def test_a_slice_of_a_gpu_is_another_kind_than_the_gpu() -> None:
    there = seen(**{"a100_1g.5gb": 7, "a100": 1})
    assert free_of(plan_for("A100-40GB:1g.5gb"), there) == 7
    assert free_of(plan_for("A100-40GB"), there) == 1


def test_without_a_scheduler_nothing_is_queried_or_reported(tmp_path: Path) -> None:
    def never(*_: object, **__: object) -> Reply:
        pytest.fail("nobody was to be asked")

    assert with_free_gpus([PLAN], {"PATH": str(tmp_path)}, ask=never) == (PLAN,)


@pytest.mark.parametrize("reply", [Reply(1), Reply(0, "what?"), Reply(trouble="slow")])
def test_a_scheduler_in_trouble_leaves_the_plan_as_it_is(
    tmp_path: Path, reply: Reply
) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("")
    sinfo.chmod(stat.S_IRWXU)

    (found,) = with_free_gpus(
        [PLAN], {"PATH": str(tmp_path)}, ask=lambda *_, **__: reply
    )

    assert found.free_now is None
