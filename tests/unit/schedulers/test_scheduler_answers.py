"""What schedulers print, read: what their rows and whole texts do not show."""

from pathlib import Path

import pytest
from captured_text import captured
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.model.cluster import ClusterNode, NodeGpus
from weigh.model.record import SiteComplexes
from weigh.schedulers import facts_from_environment, htcondor
from weigh.schedulers.gridengine import cluster as cell
from weigh.schedulers.gridengine import scheduler as gridengine
from weigh.schedulers.slurm import cluster, steps
from weigh.schedulers.slurm import scheduler as slurm
from weigh.schedulers.words import count_elements, format_ranges, parse_ranges
from weigh.units import GIB, MIB

# ---- Slurm

# squeue 22.05 -h -r -t all -o '%F|%K|%T|%S|%N|%r'
SQUEUE = captured("slurm-22.05-squeue-elements.txt")
# squeue 25.11 -h -r -t all -o '%F|%K|%T|%S|%N|%r|%o|%k|.'
TWO_LINES = """\
1|N/A|RUNNING|1795248320|cn1|None|(null)|two
lines|.
2|0|PENDING|N/A||Priority|/p/sent/wabc/job.sh|weigh:wabc|.
"""


@pytest.mark.parametrize(
    ("marks", "is_other"),
    [
        ("/home/u/.weigh/ab12/job.sh|weigh:ab12", False),
        ("/spool/script|weigh:ab12", False),
        ("/home/u/ab12.sh|a | b", False),
        ("/home/u/other.sh|my own | comment", False),
        ("/home/u/other.sh|mine |", False),
        ("/home/u/other.sh|two\nlines", False),
        ("/home/u/other\n.sh|one\n7|0|RUNNING", False),
        ("/home/u/other.sh|", True),
        ("(null)|(null)", True),
        ("/spool/script|weigh:cd34", True),
        ("/spool/script|of a user weigh:cd34", True),
    ],
)
def test_a_job_under_a_known_id_with_another_token_is_not_ours(
    marks: str, *, is_other: bool
) -> None:
    line = f"5|0|RUNNING|1795248320|cn1|None|{marks}|.\n"
    found = slurm.COMMANDS.with_other_token(line, {"5": "ab12", "6": "ef"})
    assert found == (frozenset({"5"}) if is_other else frozenset())
    states = slurm.COMMANDS.parse_queue(line)
    assert [(job, one[0].state) for job, one in states.items()] == [("5", "RUNNING")]


def test_a_comment_of_two_lines_is_that_of_one_job() -> None:
    states = slurm.COMMANDS.parse_queue(TWO_LINES)
    found = "1|(null)|two\nlines|.\n2|/p/sent/wabc/job.sh|a\nweigh:wabc|.\n"

    assert (states["1"][0].state, states["2"][0].state) == ("RUNNING", "PENDING")
    assert slurm.COMMANDS.parse_found(found, "wabc") == "2"


@pytest.mark.parametrize("text", [SQUEUE, TWO_LINES], ids=["states", "comments"])
def test_a_squeue_that_is_cut_off_is_no_answer(text: str) -> None:
    for end in range(1, len(text)):
        if not text[:end].endswith("\n"):
            with pytest.raises(FormatError, match="cut off"):
                slurm.COMMANDS.parse_queue(text[:end])


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("DefMemPerCPU = 1000", "default_memory_per_cpu"),
        ("DefMemPerNode = 1000", "default_memory"),
    ],
)
def test_the_cluster_s_defaults_fill_in_what_a_partition_leaves_open(
    setting: str, field: str
) -> None:
    told = cluster.slurm_cluster_limits(
        {
            cluster.PARTITIONS: captured("slurm-22.05-partition.txt"),
            cluster.CONFIG: f"{setting}\nEnforcePartLimits = ALL\n",
        }
    )
    assert told.enforced
    assert getattr(told.queues[0], field) == 1000 * MIB


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 20))
def test_a_range_counts_as_pythons_does(first: int, more: int, step: int) -> None:
    oracle = len(range(first, first + more + 1, step))
    assert count_elements(f"{first}-{first + more}:{step}") == oracle


@given(st.sets(st.integers(0, 500)), st.integers(1, 50))
def test_ranges_read_back_as_they_were(numbers: set[int], throttle: int) -> None:
    text = format_ranges(numbers)
    assert sorted(parse_ranges(text)) == sorted(numbers)
    assert not numbers or count_elements(f"{text}%{throttle}") == len(numbers)


def test_the_components_of_a_heterogeneous_step_are_one_step() -> None:
    first = {"SLURM_STEP_ID": "0", "SLURM_SRUN_COMM_PORT": "1", "SLURM_HET_SIZE": "2"}
    second = {**first, "SLURM_SRUN_COMM_PORT": "2"}
    assert steps.step_of(first) == steps.step_of(second)
    del first["SLURM_HET_SIZE"], second["SLURM_HET_SIZE"]
    assert steps.step_of(first) != steps.step_of(second)


@pytest.mark.parametrize(
    ("nodes", "node"),
    [("cn[1-2]", "cn2"), ("gpu7,cn2", "cn2"), ("n[1-2]", "cn1"), ("", "cn1")],
    ids=["of the job", "listed", "other names", "none"],
)
def test_a_node_that_has_another_nodes_variable_is_its_machine(
    nodes: str, node: str
) -> None:
    env = {"SLURMD_NODENAME": "cn1", "SLURM_JOB_NODELIST": nodes}
    assert steps.node_of(env, "cn2.cluster.example") == node


# ---- Grid Engine

QSTAT = captured("gridengine-8.1.9-qstat-states.xml")
COMPLEXES = captured("gridengine-8.1.9-complexes.txt")
HEAD = (
    "HOSTNAME                ARCH         NCPU  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS\n"
    "-------------------------------------------------------------------------------\n"
    "global                  -               -     -       -       -       -       -\n"
)


def a_host(*lines: str, totals: str = "") -> ClusterNode:
    text = HEAD + "node7   lx26-amd64     16  0.02   62.9G    2.1G  2.0G  0.0\n"
    (host,) = cell.parse_hosts(text + "\n".join(lines))
    return cell.node_of_host(host, cell.parse_host_totals(f"complex_values {totals}"))


@pytest.mark.parametrize(
    ("listed", "totals", "gpus"),
    [
        # as 6.2 lists them, and later versions
        ("    Host Resource(s):   hc:gpu=2.000000", "", NodeGpus("gpu", 2, 0)),
        ("   hl:gpu_type=v100 hc:gpu=2.000000", "", NodeGpus("v100", 2, 0)),
        ("   hl:GPU_MODEL=v100 hc:gpu=2.000000", "", NodeGpus("v100", 2, 0)),
        ("   hc:gpu=1.000000", "gpu=4(0 1 2 3),gpu_type=v100", NodeGpus("gpu", 4, 3)),
    ],
)
def test_gpus_are_read_in_each_of_their_forms(
    listed: str, totals: str, gpus: NodeGpus
) -> None:
    node = a_host(listed, "   gpu.q   BIP 0/3/16", totals=totals)
    assert node.gpus == (gpus,)


@pytest.mark.parametrize(
    ("queues", "used", "state"),
    [
        (("0/0/16 au", "0/0/16 adu"), 0, "DOWN: does not answer; disabled"),
        (("0/4/16 d", "0/0/16 D"), 4, "DRAINING: disabled; disabled by the calendar"),
        (("0/0/16 d", "0/0/16"), 0, "IDLE"),
        (("0/16/16",), 16, "FULL"),
        (("0/2/16 a", "0/0/16 d"), 2, "FULL"),  # a load threshold is exceeded
        (("0/2/16 a", "0/0/16"), 2, "MIXED"),
        (("2/16",), 2, "MIXED"),  # as 6.2 writes it
    ],
)
def test_a_host_is_as_its_queues_are(
    queues: tuple[str, ...], used: int, state: str
) -> None:
    node = a_host(*(f"   {n}.q  BIP {queue}" for n, queue in enumerate(queues)))
    assert ": ".join(filter(None, (node.state, node.reason))) == state
    assert node.cpus_used == used


def test_what_a_job_takes_once_is_not_taken_by_each_slot() -> None:
    each, once = (
        f"ngpus               ngpus       INT         <=    YES         {column}"
        for column in ("YES", "JOB")
    )
    assert each in COMPLEXES
    text = COMPLEXES.replace(each, once)
    limits = cell.gridengine_cluster_limits({cell.COMPLEXES: text}, {})
    assert "ngpus" not in limits.per_slot
    assert cell.gridengine_cluster_limits({}, {}).resources is None


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
    text = f"{gpu} {gpu} INT <= YES {column} 0 0\n{extra}"
    words = None if gpu == "ngpus" else SiteComplexes(gpus=gpu)

    assert gridengine.COMMANDS.parse_slots(text, words) == word


def test_a_qstat_that_is_cut_off_is_noticed() -> None:
    for end in range(10, len(QSTAT) - 2, 50):
        with pytest.raises(FormatError):
            gridengine.COMMANDS.parse_queue(QSTAT[:end])


def test_elements_to_cancel_are_named_as_each_scheduler_does() -> None:
    some = (0, 1, 2, 5)

    assert slurm.COMMANDS.cancel_argv("7", some) == ("scancel", "7_[0-2,5]")
    assert slurm.COMMANDS.cancel_argv("7", None) == ("scancel", "7")
    assert gridengine.COMMANDS.cancel_argv("7", some) == ("qdel", "7.1-3", "7.6")


# ---- HTCondor, recorded from 23.9.6 on Debian 13 (ci/htcondor-up.sh)

QUEUE = captured("htcondor-23.9-queue.json")
AD = Path(__file__).with_name("htcondor_job.ad.txt").read_text()


def test_a_job_is_found_by_its_token() -> None:
    assert htcondor.COMMANDS.parse_found(QUEUE, "token-gpus") == "27"
    assert htcondor.COMMANDS.parse_found(QUEUE, "token") is None
    with pytest.raises(FormatError):
        htcondor.COMMANDS.parse_queue(QUEUE[:-20])


def test_a_job_reads_its_own_description(tmp_path: Path) -> None:
    path = tmp_path / ".job.ad"
    path.write_text(AD)
    env = {"_CONDOR_JOB_AD": str(path)}

    allocation, job = facts_from_environment(env)

    assert allocation is not None
    assert job is not None
    assert (allocation.cpus, allocation.memory, allocation.gpus) == (4, 2 * GIB, 2)
    assert (job.id, job.element, job.attempt) == ("27", 3, 2)
    assert htcondor.TEXT.end_time(env) == 1795379927 + 300


@pytest.mark.parametrize("content", [None, "", "ClusterId = x\n", "\0\xff"])
def test_a_description_that_cannot_be_read_is_no_job(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / ".job.ad"
    if content is not None:
        path.write_text(content)

    assert facts_from_environment({"_CONDOR_JOB_AD": str(path)}) == (None, None)
