"""HTCondor's answers, recorded from 23.9.6 on Debian 13 (ci/htcondor-up.sh)."""

import json
from pathlib import Path

import pytest
from captured_text import captured

from weigh.errors import FormatError, UsageError
from weigh.model.cluster import NodeGpus
from weigh.model.job import STUCK
from weigh.schedulers import facts_from_environment, htcondor
from weigh.units import GIB, KIB, MIB

QUEUE = captured("htcondor-23.9-queue.json")
HISTORY = captured("htcondor-23.9-history.json")
SLOTS = captured("htcondor-23.9-status.json")
AD = Path(__file__).with_name("htcondor_job.ad.txt").read_text()


def ads(recorded: str) -> dict[str, int]:
    """Return the numbers of the recorded jobs by their names."""
    return {ad["JobBatchName"]: ad["ClusterId"] for ad in json.loads(recorded)}


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("held", "FAILED", STUCK),
        ("byuser", "PENDING", "on hold by its user"),
        ("never", "PENDING", None),
        ("gpus", "RUNNING", None),
    ],
)
def test_jobs_in_the_queue_have_these_states(
    name: str, state: str, reason: str | None
) -> None:
    element = htcondor.COMMANDS.parse_queue(QUEUE)[str(ads(QUEUE)[name])][0]

    assert (element.state, element.reason) == (state, reason)
    assert element.ended is None or element.is_final


@pytest.mark.parametrize(
    ("name", "state", "code", "signal"),
    [
        ("good", "COMPLETED", 0, None),
        ("code", "FAILED", 3, None),
        ("signal", "FAILED", None, 11),
        ("removed", "CANCELLED", None, 15),
        ("memory", "OUT_OF_MEMORY", None, None),
        ("time", "TIMEOUT", None, 15),
    ],
)
def test_jobs_in_the_history_ended_so(
    name: str, state: str, code: int | None, signal: int | None
) -> None:
    element = htcondor.COMMANDS.parse_ended(HISTORY)[str(ads(HISTORY)[name])][0]

    assert (element.state, element.exit_code, element.signal) == (state, code, signal)
    assert element.node == "localhost"
    assert element.started is not None
    assert element.ended is not None
    assert element.started <= element.ended


def test_the_processes_of_a_cluster_are_the_elements_of_a_job() -> None:
    assert sorted(
        htcondor.COMMANDS.parse_ended(HISTORY)[str(ads(HISTORY)["good"])]
    ) == [0, 1]


def test_a_user_who_removes_a_job_that_was_once_too_large_has_cancelled_it() -> None:
    (ad,) = (a for a in json.loads(HISTORY) if a["JobBatchName"] == "memory")
    ad["RemoveReason"] = "via condor_rm (by user researcher)"

    ((element,),) = (
        states.values()
        for states in htcondor.COMMANDS.parse_ended(json.dumps([ad])).values()
    )

    assert element.state == "CANCELLED"


def test_why_a_job_is_on_hold_is_in_its_own_words() -> None:
    why = htcondor.COMMANDS.parse_why(QUEUE)

    assert why is not None
    assert "Failed to execute" in why


@pytest.mark.parametrize("out", ["", "\n", "[\n]\n"])
def test_an_empty_queue_has_no_jobs(out: str) -> None:
    assert htcondor.COMMANDS.parse_queue(out) == {}
    assert htcondor.ACCOUNTING.parse(out) == ()


@pytest.mark.parametrize("out", [QUEUE[:-20], "condor_q: error", '{"ClusterId": 1}'])
def test_half_an_answer_is_none(out: str) -> None:
    with pytest.raises(FormatError):
        htcondor.COMMANDS.parse_queue(out)
    assert htcondor.COMMANDS.parse_ended(out) == {}
    assert htcondor.COMMANDS.parse_understood(out) is None


def test_an_expression_of_a_user_is_no_number() -> None:
    number = ads(QUEUE)["byuser"]
    (ad,) = (ad for ad in json.loads(QUEUE) if ad["ClusterId"] == number)

    understood = htcondor.COMMANDS.parse_understood(json.dumps([ad]))

    assert understood is not None
    assert (understood.memory, understood.cpus) == (None, 1)


def test_a_job_is_found_by_its_token() -> None:
    assert htcondor.COMMANDS.parse_found(QUEUE, "token-gpus") == str(ads(QUEUE)["gpus"])
    assert htcondor.COMMANDS.parse_found(QUEUE, "token") is None


def test_accounts_are_in_bytes_and_seconds() -> None:
    number = ads(HISTORY)["memory"]
    of_it = [ad for ad in json.loads(HISTORY) if ad["ClusterId"] == number]

    (one,) = htcondor.ACCOUNTING.parse(json.dumps(of_it))

    assert (one.memory_asked, one.max_rss) == (100 * MIB, 319056 * KIB)
    assert (one.state, one.cpus, one.wall_time) == ("OUT_OF_MEMORY", 1, 3.0)


def test_a_node_is_the_sum_of_its_slots() -> None:
    (node,) = htcondor.nodes_of_slots(SLOTS)

    assert (node.cpus, node.cpus_used, node.state) == (8, 1, "IDLE")
    assert (node.memory, node.memory_used) == (32000 * MIB, 2 * GIB)
    assert node.gpus == (NodeGpus("Tesla V100-SXM2-32GB", 4, 2),)


def test_static_slots_and_a_drained_node_are_counted() -> None:
    sizes = {"TotalSlotCpus": 1, "Cpus": 1, "TotalSlotMemory": 1000, "Memory": 1000}
    slots = [
        {"Machine": name, "State": state, **sizes}
        for name, state in (("a", "Claimed"), ("a", "Unclaimed"), ("b", "Drained"))
    ]

    a, b = htcondor.nodes_of_slots(json.dumps(slots))

    assert (a.cpus, a.cpus_used, a.state) == (2, 1, "IDLE")
    assert (b.cpus_used, b.state) == (0, "DRAINING")


def test_the_pool_is_shown_by_its_own_commands() -> None:
    with pytest.raises(UsageError, match="condor_status shows its slots"):
        htcondor.KIND.site.read_cluster(lambda _: [], {})


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
