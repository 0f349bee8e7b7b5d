import pytest
from captured_text import captured

from weigh.model.cluster import ClusterNode, NodeGpus
from weigh.model.record import SiteComplexes
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.gridengine import scheduler as gridengine_commands
from weigh.schedulers.gridengine.cluster import gridengine_cluster_limits
from weigh.schedulers.gridengine.scheduler import parse_qstat_job
from weigh.units import DAY, GIB, HOUR

HOSTS = gridengine_cluster.parse_hosts(captured("gridengine-8.1.9-qhost.txt"))
TOTALS = gridengine_cluster.parse_host_totals(captured("gridengine-8.1.9-host.txt"))
HEAD = (
    "HOSTNAME                ARCH         NCPU  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS\n"
    "-------------------------------------------------------------------------------\n"
    "global                  -               -     -       -       -       -       -\n"
)


def a_host(*lines: str, totals: str = "") -> ClusterNode:
    text = HEAD + "node7   lx26-amd64     16  0.02   62.9G    2.1G  2.0G  0.0\n"
    (host,) = gridengine_cluster.parse_hosts(text + "\n".join(lines))
    return gridengine_cluster.node_of_host(
        host, gridengine_cluster.parse_host_totals(f"complex_values {totals}")
    )


def test_a_node_of_8_1_9_reads_as_it_was() -> None:
    node = gridengine_cluster.node_of_host(HOSTS[0], TOTALS)
    assert node.queues == ("all.q", "short.q", "gpu.q")
    assert (node.state, node.cpus, node.cpus_used) == ("MIXED", 8, 3)
    assert node.gpus == (NodeGpus("v100", 4, 3),)


def test_the_table_of_6_2_reads_too() -> None:
    node = a_host(
        "   all.q                BIP   2/16", "    Host Resource(s):   hc:gpu=2.000000"
    )
    assert node.cpus_used == 2
    assert node.gpus == (NodeGpus("gpu", 2, 0),)


@pytest.mark.parametrize(
    ("listed", "totals", "gpus"),
    [
        ("hl:gpu_type=v100 hc:gpu=2.000000", "", NodeGpus("v100", 2, 0)),
        ("hl:GPU_MODEL=v100 hc:gpu=2.000000", "", NodeGpus("v100", 2, 0)),
        ("hc:gpu=1.000000", "gpu=4(0 1 2 3),gpu_type=v100", NodeGpus("gpu", 4, 3)),
    ],
)
def test_gpus_are_read_in_each_of_their_forms(
    listed: str, totals: str, gpus: NodeGpus
) -> None:
    node = a_host(f"   {listed}", "   gpu.q   BIP 0/3/16", totals=totals)
    assert node.gpus == (gpus,)


@pytest.mark.parametrize(
    ("queues", "state"),
    [
        (("0/0/16 au", "0/0/16 adu"), "DOWN: does not answer; disabled"),
        (("0/4/16 d", "0/0/16 D"), "DRAINING: disabled; disabled by the calendar"),
        (("0/0/16 d", "0/0/16"), "IDLE"),
        (("0/16/16",), "FULL"),
    ],
)
def test_a_host_is_as_its_queues_are(queues: tuple[str, ...], state: str) -> None:
    node = a_host(*(f"   {n}.q  BIP {queue}" for n, queue in enumerate(queues)))
    assert ": ".join(filter(None, (node.state, node.reason))) == state


def test_limits_of_single_hosts_do_not_hide_the_queues_own() -> None:
    text = "qname  a.q\nh_rt   48:00:00,[node7=24:00:00], \\\n     [node8=1:0:0]\n"
    (queue,) = gridengine_cluster.parse_queues(text)
    assert queue.time_limit == 2 * DAY


def test_a_queue_that_is_disabled_everywhere_is_closed() -> None:
    queues = gridengine_cluster.parse_queues(captured("gridengine-8.1.9-queues.txt"))
    opened = gridengine_cluster.with_states(queues, HOSTS)
    assert [queue.open for queue in opened] == [True, False, True]


def test_jobs_of_8_1_9_count_elements() -> None:
    jobs = gridengine_cluster.parse_qstat_jobs(captured("gridengine-8.1.9-qstat.xml"))
    waiting = next(job for job in jobs if job.elements > 1)
    assert (waiting.elements, waiting.queue) == (10, "gpu.q")
    assert jobs[-1].state == "PENDING"


COMPLEXES = captured("gridengine-8.1.9-complexes.txt")
ANSWERS = {
    gridengine_cluster.HOSTS: captured("gridengine-8.1.9-qhost.txt"),
    gridengine_cluster.QUEUES: captured("gridengine-8.1.9-queues.txt"),
    gridengine_cluster.COMPLEXES: COMPLEXES,
}
RIG = {"rig": TOTALS}


def test_what_may_be_requested_is_known_by_both_its_names() -> None:
    told = gridengine_cluster_limits(ANSWERS, RIG)

    assert told.resources is not None
    assert {"h_vmem", "ngpus", "gpu_type", "mf", "mem_free"} <= set(told.resources)
    assert "load_avg" not in told.resources


def test_queues_have_their_time_and_the_cell_s_memory_for_a_slot() -> None:
    queues = gridengine_cluster_limits(ANSWERS, RIG).queues

    limits = {queue.name: queue.time_limit for queue in queues}
    assert limits == {"all.q": 2 * DAY, "short.q": HOUR / 2, "gpu.q": 4 * HOUR}
    assert queues[0].default_memory_per_cpu == GIB


def test_a_host_has_the_memory_that_the_site_gave_it() -> None:
    (node,) = gridengine_cluster_limits(ANSWERS, RIG).nodes

    assert node.memory == 32 * GIB
    assert node.gpu_count() == 4


def test_what_each_slot_takes_is_distinguished_from_what_a_job_takes_once() -> None:
    assert "ngpus" in gridengine_cluster_limits(ANSWERS, RIG).per_slot
    once = COMPLEXES.replace(
        "ngpus               ngpus       INT         <=    YES         YES",
        "ngpus               ngpus       INT         <=    YES         JOB",
    )

    assert once != COMPLEXES
    told = gridengine_cluster_limits(ANSWERS | {gridengine_cluster.COMPLEXES: once}, {})
    assert "ngpus" not in told.per_slot


def test_what_was_not_answered_is_not_known() -> None:
    assert gridengine_cluster_limits({}, {}).resources is None


@pytest.mark.parametrize(
    ("gpu", "column", "extra", "word"),
    [
        ("ngpus", "YES", "", ""),
        ("ngpus", "YES", "ncpus ncpus INT <= YES NO 0 0\n", "ncpus"),
        ("ngpus", "JOB", "", None),
        ("tesla", "YES", "", ""),  # the site's own word
    ],
)
def test_how_cpus_are_requested_next_to_gpus_follows_from_the_cell(
    gpu: str, column: str, extra: str, word: str | None
) -> None:
    cell = f"{gpu} {gpu} INT <= YES {column} 0 0\n{extra}"
    words = None if gpu == "ngpus" else SiteComplexes(gpus=gpu)

    assert gridengine_commands.COMMANDS.parse_slots(cell, words) == word


CAPTURED = captured("gridengine-8.1.9-qstat-job.txt")


def test_what_was_requested_is_read() -> None:
    told = parse_qstat_job(CAPTURED)

    assert told is not None
    assert (told.virtual_memory, told.cpus, told.gpus) == (4 * GIB, 2, 1)
    assert told.gpu_types == ("v100",)
    assert (told.time_limit, told.queue) == (300, "short")
    assert (told.elements, told.throttle) == (5, 2)


def test_a_job_that_requests_nothing_has_one_slot() -> None:
    told = parse_qstat_job("job_number:                 7\n")

    assert told is not None
    assert (told.cpus, told.elements, told.queue) == (1, None, None)


def test_gpus_under_a_name_of_the_site_s_own_are_not_counted_as_none() -> None:
    told = parse_qstat_job(CAPTURED.replace("ngpus=1", "tesla=1"))

    assert told is not None
    assert told.gpus is None


def test_a_job_that_is_not_there_reports_nothing() -> None:
    assert parse_qstat_job("Following jobs do not exist: \n999\n") is None
