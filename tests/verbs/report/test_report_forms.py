"""The list of my jobs."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_jobs import Say, SomeJob, Task, write_job
from transcript import check_transcript, with_compact_documents
from written_programs import write_program

from weigh.model.job import JobRequest
from weigh.review.runs import covered_time
from weigh.units import GIB, HOUR


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=8))
def test_time_that_spans_cover_is_what_counting_seconds_gives(
    pairs: list[tuple[int, int]],
) -> None:
    spans = [(start, start + wall) for start, wall in pairs]
    seconds = {second for start, end in spans for second in range(start, end)}
    assert covered_time(spans) == len(seconds)


@pytest.fixture
def month(root: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Leave jobs 11 to 13: wasteful, well requested, always failing."""
    here = f"{Path(root).parent}/plan"
    ten = JobRequest(cpus=4, memory=8 * GIB, time_limit=3 * HOUR)
    tight = JobRequest(cpus=1, memory=2 * GIB + GIB // 2, time_limit=2 * HOUR)
    some = Task(wall_time=1.0 * HOUR, memory=2 * GIB, cpus=1.0)
    bad = Task(wall_time=0.5 * HOUR, memory=GIB, cpus=1.0, state="FAILED")
    for number, (name, wanted, task) in enumerate(
        (("wasteful", ten, some), ("tight", tight, some), ("broken", tight, bad))
    ):
        made = SomeJob(tasks=(task,) * 5, name=name, id=f"{11 + number}", wanted=wanted)
        write_job(root, f"{here}/{name}", made)
    monkeypatch.setattr(time, "time", lambda: 1_795_300_000.0)
    return root


SACCT = """\
JobID|JobName|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|MaxRSS|TotalCPU
9|align|COMPLETED|1800|60|4G|2||00:45:00
9.batch|batch|COMPLETED|1800|||2|3G|00:45:00
10_1|array|COMPLETED|600|20|1G|1||00:01:00
10_1.batch|batch|COMPLETED|600|||1|100M|00:01:00
10_2|array|OUT_OF_MEMORY|60|20|1G|1||00:01:00
10_2.batch|batch|OUT_OF_MEMORY|60|||1|1G|00:01:00
11_0|wasteful|COMPLETED|3600|180|8G|4||01:00:00
14|later|PENDING|0|60|4G|2||00:00:00
"""


def test_my_jobs_are_a_line_each_from_accounting_and_records(
    month: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2 of 8 GiB, 1 of 3 h and 1 of 4 CPUs were used of job 11, 45 of 60 CPU minutes
    # of job 9
    del month
    for name, text in (("sacct", SACCT), ("sbatch", ""), ("squeue", "")):
        write_program(tmp_path / "bin" / name, f"/bin/cat <<'.'\n{text}.")

    def given(situation: str) -> None:
        path = str(tmp_path / "bin") if situation == "accounting" else "/nowhere"
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("FORCE_COLOR", "1" if situation == "a terminal" else "")

    path = Path(__file__).with_name("job_list.transcript")
    masks = {"\x1b": "ESC", r'(?<=since: )"[-\d]+"': "DAY"}  # in each zone
    check_transcript(path, with_compact_documents(say), masks, given)
