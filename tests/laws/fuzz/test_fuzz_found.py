"""Texts that once ended in a traceback or never ended, each read in its way now."""

import msgspec
import pytest
import written
from broken_text import DEEP
from readers import READERS

from weigh.model.cluster import ClusterNode
from weigh.model.job import SubmittedJob
from weigh.schedulers.slurm.cluster import parse_nodes
from weigh.schedulers.words import parse_ranges
from weigh.store.jobs import chain_of

HUGE = "9" * 5000  # more digits than int() takes
NESTED = '{"a":' * DEEP
SPOILED_LINES = {
    "jobs": written.JOBS,
    "scans": written.SCANS,
    "channel": written.CHANNEL,
    "events": written.EVENTS,
    "record.heads": written.RECORDS,
}


@pytest.mark.parametrize("name", SPOILED_LINES)
def test_a_line_nested_too_deep_is_stepped_over(name: str) -> None:
    whole = SPOILED_LINES[name]

    assert READERS[name].read(f"{whole}{NESTED}\n") == READERS[name].read(whole)


def test_a_count_of_gpus_beyond_any_range_is_none() -> None:
    [node] = parse_nodes(f"NodeName=cn1 Gres=gpu:v100:{HUGE} State=IDLE")

    assert isinstance(node, ClusterNode)
    assert node.gpus == ()


def test_jobs_that_resume_each_other_are_a_chain_all_the_same() -> None:
    jobs = [
        msgspec.json.decode(line, type=SubmittedJob)
        for line in written.JOBS.replace('"resumes":null', '"resumes":"8"').splitlines()
    ]

    assert jobs[0].resumes == "8"
    assert [job.id for job in chain_of(jobs, jobs[1])] == ["7", "8"]


def test_a_list_of_elements_ends_at_a_million() -> None:
    assert sum(1 for _ in parse_ranges("0-999999999," * 100)) == 1_000_000
