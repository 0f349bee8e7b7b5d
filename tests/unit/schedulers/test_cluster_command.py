import json
from pathlib import Path

import pytest
from called_weigh import called_apart as weigh
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.flow.site.cluster import count_gpus
from weigh.model.cluster import ClusterNode, NodeGpus


def test_worked_examples_of_clusters() -> None:
    check_session(Path(__file__).with_name("cluster.session"), {})


@pytest.mark.parametrize(
    "system",
    [
        pytest.param("slurm", marks=pytest.mark.slurm),
        pytest.param("gridengine", marks=pytest.mark.gridengine),
    ],
)
def test_the_real_daemons_are_read(
    system: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    env = request.getfixturevalue(system)

    done = weigh(tmp_path, "cluster", "--on", system, "--json", **env)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["nodes"]
    assert sum(queue["nodes"] for queue in document["queues"]) >= 1
    assert all(node["cpus"] for node in document["nodes"])


STATES = ("IDLE", "MIXED", "FULL", "DRAINING", "RESERVED", "DOWN", "UNKNOWN")


@st.composite
def nodes(draw: st.DrawFn) -> ClusterNode:
    total = draw(st.integers(0, 8))
    return ClusterNode(
        name=draw(st.text("abc", min_size=1, max_size=3)),
        state=draw(st.sampled_from(STATES)),
        queues=("q",),
        cpus=8,
        cpus_used=draw(st.integers(0, 8)),
        memory=100,
        memory_used=draw(st.integers(0, 110)),
        gpus=(NodeGpus("v100", total, draw(st.integers(0, total))),),
    )


@given(st.lists(nodes(), max_size=12))
def test_every_gpu_is_counted_once_and_free_only_where_a_cpu_and_memory_are(
    some: list[ClusterNode],
) -> None:
    usable = sum(
        gpus.total - gpus.used
        for node in some
        for gpus in node.gpus
        if node.takes_jobs
        and node.state != "FULL"
        and (node.cpus_used or 0) < 8
        and (node.memory_used or 0) < 100
    )
    counted = count_gpus(some)
    assert sum(one.free for one in counted) == usable
    for one in counted:
        assert one.used + one.free + one.blocked + one.down == one.total
