import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from called_weigh import called_apart as weigh
from hypothesis import given
from hypothesis import strategies as st
from scheduler_scripts import GRIDENGINE, SLURM, Answers, answering

from weigh.errors import WeighError
from weigh.flow.site.cluster import (
    count_gpus,
    count_queues,
    query_cluster,
)
from weigh.model.cluster import (
    ClusterJob,
    ClusterNode,
    ClusterState,
    NodeGpus,
    QueueLimits,
)
from weigh.render.cluster_lines import cluster_document, cluster_screen
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.slurm import cluster as slurm_cluster

SYSTEMS = {"slurm": SLURM, "gridengine": GRIDENGINE}


def seen(system: str, changed: Answers | None = None) -> ClusterState:
    answers = SYSTEMS[system] | dict(changed or {})
    return query_cluster({}, scheduler=system, run_command=answering(answers))


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_cluster_is_asked_each_thing_once_and_read_back_as_it_was(
    system: str,
) -> None:
    asked: list[tuple[str, ...]] = []
    ask = answering(SYSTEMS[system], asked)

    whole = query_cluster({}, scheduler=system, run_command=ask)

    assert len(asked) == len(set(asked))
    assert max(map(len, cluster_screen(whole))) <= 80
    assert msgspec.json.decode(cluster_document(whole), type=ClusterState) == whole
    assert json.loads(cluster_document(whole))["schema"] == "weigh.cluster/1"


def test_a_scheduler_that_does_not_answer_is_reported_in_one_line() -> None:
    down = CommandOutput(
        1, "", "slurm_load_nodes: Unable to contact slurm controller\n"
    )
    with pytest.raises(
        WeighError, match="Unable to contact slurm controller"
    ) as caught:
        seen("slurm", {slurm_cluster.NODES: down})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("system", "jobs", "note"),
    [
        ("slurm", CommandOutput(trouble="slow"), "squeue does not answer: slow"),
        ("gridengine", CommandOutput(0, "<job_info><job_li"), "qstat's answer is cut"),
    ],
)
def test_without_jobs_the_rest_is_shown(
    system: str, jobs: CommandOutput, note: str
) -> None:
    argv = {"slurm": slurm_cluster, "gridengine": gridengine_cluster}[system].JOBS
    found = seen(system, {argv: jobs})
    assert found.gpus
    assert found.notes[0].startswith(note)


def test_settings_that_change_the_answers_are_taken_away() -> None:
    told: dict[str, str] = {}

    def ask(*_: object, env: Mapping[str, str], **__: object) -> CommandOutput:
        told.update(env)
        return CommandOutput(0)

    of_user = {"SQUEUE_FORMAT": "%i", "SBATCH_PARTITION": "gpu", "HOME": "/h"}
    query_cluster(of_user, scheduler="slurm", run_command=ask)
    assert (told["HOME"], {*of_user} & {*told}) == ("/h", {"HOME"})


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


def test_cpus_of_nodes_out_of_use_are_not_free() -> None:
    up = ClusterNode(name="a", state="IDLE", queues=("q",), cpus=8, cpus_used=2)
    down = ClusterNode(name="b", state="DOWN", queues=("q",), cpus=8, cpus_used=0)
    loaded = ClusterNode(name="c", state="FULL", queues=("q",), cpus=8, cpus_used=1)
    (queue,) = count_queues([QueueLimits(name="q")], [up, down, loaded], [])
    assert (queue.nodes, queue.nodes_down) == (3, 1)
    assert (queue.cpus, queue.cpus_free) == (24, 6)


def test_a_job_that_may_go_to_two_queues_waits_in_both() -> None:
    job = ClusterJob(state="PENDING", queue="a,b", elements=5)
    counted = count_queues([QueueLimits(name=name) for name in "abc"], [], [job])
    assert [queue.waiting for queue in counted] == [5, 5, 0]
