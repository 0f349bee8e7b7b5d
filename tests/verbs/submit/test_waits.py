"""Why a job waits: since when, when it is expected to start, how long others waited."""

import json
import time
from pathlib import Path

import msgspec
import pytest

from weigh.flow.follow.waits import with_waits
from weigh.model.job import JobRequest, Submitted
from weigh.render.status_lines import (
    Failure,
    Standing,
    Waiting,
    Waits,
    detail_lines,
)
from weigh.schedulers.slurm import commands as slurm_commands

NOW = 1795000000.0
HEADER = "JobID|State|User|Partition|Submit|Eligible|Start|End|ElapsedRaw|JobName"


def standing(
    *, minutes: float, queue: str | None = "gpu", now: float = NOW
) -> Standing:
    job = Submitted(
        scheduler="slurm",
        id="7",
        name="p",
        folder="/p",
        cwd="/",
        script="/p/job.sh",
        elements=1,
        tasks=1,
        submitted=now - 60 * minutes,
        request=JobRequest(queue=queue),
    )
    waiting = Waiting(
        1, "next in line", since=job.submitted, expected=now + 3 * 24 * 3600
    )
    return Standing(
        job=job,
        jobs=("7",),
        tasks={"PENDING": 1},
        elements={"PENDING": 1},
        total=1,
        waiting=(waiting,),
    )


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A sacct that counts its calls."""
    rows = [HEADER]
    for number, waited in enumerate((60, 120, 180, 6000)):
        times = f"{NOW - 9000:.0f}|{NOW - 8000:.0f}|{NOW - 8000 + waited:.0f}"
        rows.append(f"{number}|COMPLETED|me|gpu|{times}|{NOW:.0f}|60|x")
    rows.append(f"9|PENDING|me|gpu|{NOW:.0f}|{NOW:.0f}|Unknown|Unknown|0|x")
    (tmp_path / "rows").write_text("\n".join((*rows, "")))
    sacct = tmp_path / "sacct"
    sacct.write_text(f"#!/bin/sh\necho $* >>{tmp_path}/asked\ncat {tmp_path}/rows\n")
    sacct.chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin"}


def test_squeue_s_expected_start_is_kept_of_what_waits() -> None:
    states = slurm_commands.parse_queue(
        "7|N/A|PENDING|1795000500||Resources\n8|N/A|RUNNING|1795000100|cn1|None\n"
    )

    assert states["7"][0].expected == 1795000500
    assert states["7"][0].started is None
    assert states["8"][0].expected is None


def test_the_screen_has_reason_since_when_and_when() -> None:
    one = standing(minutes=130)
    waits = Waits(queue="gpu", jobs=40, median=1860, most=7200)

    shown = list(detail_lines(one, NOW))
    with_others = "\n".join(
        detail_lines(
            Standing(
                **{name: getattr(one, name) for name in one.__struct_fields__}
                | {"waits": waits}
            ),
            NOW,
        )
    )

    text = " ".join(" ".join(shown).split())
    assert "next in line (for 2 h 10 m, expected to start about 20" in text
    assert max(map(len, shown)) <= 80
    assert "40 jobs in gpu waited 31 m 00 s" in " ".join(with_others.split())


def test_waits_of_recent_jobs_are_asked_once(
    env: dict[str, str], tmp_path: Path
) -> None:
    one = standing(minutes=10, now=time.time())

    found = [with_waits(one, root=str(tmp_path), env=env) for _ in range(5)]

    assert found[4].waits == Waits(queue="gpu", jobs=4, median=150.0, most=6000.0)
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert json.loads((tmp_path / "queue/slurm.waits.json").read_text())["waits"]


@pytest.mark.parametrize(("minutes", "queue"), [(1, "gpu"), (10, "other")])
def test_a_new_job_and_an_unknown_queue_have_none(
    env: dict[str, str], tmp_path: Path, minutes: float, queue: str
) -> None:
    one = standing(minutes=minutes, queue=queue, now=time.time())

    assert with_waits(one, root=str(tmp_path), env=env) == one


def test_accounting_that_fails_changes_nothing(tmp_path: Path) -> None:
    one = standing(minutes=10, now=time.time())

    assert with_waits(one, root=str(tmp_path), env={"PATH": "/nowhere"}) == one


def test_tasks_that_failed_alike_are_one_line_with_the_first_output() -> None:
    same = [
        Failure(task=n, state="FAILED", words="bad seed", output=f"out/{n}")
        for n in (1, 2, 3, 7)
    ]
    other = Failure(task=5, state="TIMEOUT", output="out/5")
    found = msgspec.structs.replace(standing(minutes=1), failures=(*same, other))

    lines = [line.strip() for line in detail_lines(found, NOW)]

    assert "failed   tasks 1-3,7  failed: bad seed" in lines
    assert "failed   task 5  timeout" in lines
    assert [line for line in lines if line.startswith("out/")] == ["out/1", "out/5"]
