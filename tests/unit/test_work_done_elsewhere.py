"""Runs that only asked others to do the work, and those that did it themselves."""

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transcript import check_answers

from weigh.model.gpu import GpuUsage
from weigh.model.record import ProgramSign, Record, Usage
from weigh.units import MIB
from weigh.work_done_elsewhere import outside_work, outside_work_of


def worker_of(command: str, known: str | None = None) -> str | None:
    """Return who did the work of a run of a minute that used next to nothing."""
    words = tuple(shlex.split(command))
    # where processes of the run did the work it counts
    for cpu_time, memory in ((50.0, 30), (0.3, 900)):
        assert outside_work_of(words, 60.0, cpu_time, memory * MIB) is None
    return outside_work_of(words, 60.0, 0.3, 30 * MIB, known=known)


def test_who_did_the_work_is_as_it_was_reviewed() -> None:
    check_answers(
        Path(__file__).with_name("work_done_elsewhere.texts"),
        {
            "a command that used next to nothing": worker_of,
            "what was seen in a script": lambda seen: worker_of("bash run.sh", seen),
        },
    )


def a_record(command: str, **usage: Any) -> Record:
    used = Usage(wall_time=60.0, **usage)
    return Record(id="a", command=tuple(command.split()), started="", usage=used)


def test_the_largest_process_is_a_client_by_its_sign() -> None:
    for is_client in (True, False):
        sign = ProgramSign("docker", "", is_client=is_client)
        found = outside_work(a_record("bash run.sh", cpu_time=0.3, sign=sign)) or ""
        assert found.startswith("docker handed the work to a daemon") is is_client


@pytest.mark.parametrize(
    ("own", "others", "is_outside"),
    [(0, 8 << 30, True), (0, 0, False), (1 << 30, 1, False)],
)
def test_a_gpu_that_a_service_of_the_user_kept_busy_did_the_work(
    own: int, others: int, *, is_outside: bool
) -> None:
    gpu = GpuUsage(
        "GPU-1", "V100", utilization_mean=60.0, peak_memory=own, other_memory=others
    )
    record = a_record("python ask.py", cpu_time=0.4, gpus=(gpu,))
    found = outside_work(msgspec.structs.replace(record, state="COMPLETED")) or ""
    assert found.startswith("the run asked a service for the work") is is_outside
