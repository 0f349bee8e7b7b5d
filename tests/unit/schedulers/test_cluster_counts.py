from hypothesis import given
from hypothesis import strategies as st

from weigh.flow.site.cluster import (
    count_gpus,
    count_queues,
    count_users,
    takes_jobs,
)
from weigh.model.cluster import ClusterJob, ClusterNode, NodeGpus, QueueLimits

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


def a_job(**changed: object) -> ClusterJob:
    given = {"user": "ann", "queue": "q", "state": "RUNNING"}
    return ClusterJob(**(given | changed))  # type: ignore[arg-type]


@given(st.lists(nodes(), max_size=12))
def test_every_gpu_is_counted_in_one_place(some: list[ClusterNode]) -> None:
    for one in count_gpus(some):
        assert one.used + one.free + one.blocked + one.down == one.total


@given(st.lists(nodes(), max_size=12))
def test_a_gpu_is_free_only_where_a_cpu_and_memory_are(some: list[ClusterNode]) -> None:
    usable = sum(
        gpus.total - gpus.used
        for node in some
        for gpus in node.gpus
        if takes_jobs(node)
        and node.state != "FULL"
        and (node.cpus_used or 0) < 8
        and (node.memory_used or 0) < 100
    )
    assert sum(one.free for one in count_gpus(some)) == usable


def test_idle_gpus_next_to_busy_cpus_are_blocked() -> None:
    node = ClusterNode(
        name="n", state="MIXED", cpus=8, cpus_used=8, gpus=(NodeGpus("a100", 4, 1),)
    )
    (one,) = count_gpus([node])
    assert (one.used, one.free, one.blocked) == (1, 0, 3)


def test_cpus_of_nodes_out_of_use_are_not_free() -> None:
    up = ClusterNode(name="a", state="IDLE", queues=("q",), cpus=8, cpus_used=2)
    down = ClusterNode(name="b", state="DOWN", queues=("q",), cpus=8, cpus_used=0)
    (queue,) = count_queues([QueueLimits(name="q")], [up, down], [])
    assert (queue.nodes, queue.nodes_down) == (2, 1)
    assert (queue.cpus, queue.cpus_free) == (16, 6)


def test_a_job_that_may_go_to_two_queues_waits_in_both() -> None:
    job = a_job(state="PENDING", queue="a,b", elements=5)
    limits = [QueueLimits(name="a"), QueueLimits(name="b"), QueueLimits(name="c")]
    counted = count_queues(limits, [], [job])
    assert [queue.waiting for queue in counted] == [5, 5, 0]


def test_users_are_counted_by_what_runs() -> None:
    jobs = [
        a_job(user="bob", cpus=2, gpus=1),
        a_job(user="ann", cpus=9),
        a_job(user="bob", cpus=2, gpus=1, elements=2),
        a_job(user="bob", state="PENDING", elements=7, gpus=7),
    ]
    bob, ann = count_users(jobs)
    assert (bob.user, bob.running, bob.waiting, bob.gpus, bob.cpus) == (
        "bob",
        3,
        7,
        2,
        4,
    )
    assert (ann.user, ann.running) == ("ann", 1)
