"""Runs that only asked others to do the work, and those that did it themselves."""

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from transcript import named_texts

from weigh.model.gpu import GpuUsage
from weigh.model.record import ProgramSign, Record, Usage
from weigh.units import MIB
from weigh.work_done_elsewhere import outside_work, outside_work_of

ROWS = named_texts(Path(__file__).with_name("work_done_elsewhere.texts"))
ELSEWHERE, HERE = (
    [tuple(shlex.split(row)) for row in ROWS[name].splitlines()]
    for name in ("elsewhere", "here")
)


@pytest.mark.parametrize("command", ELSEWHERE, ids=" ".join)
def test_a_client_that_used_next_to_nothing_did_not_do_the_work(
    command: tuple[str, ...],
) -> None:
    who = outside_work_of(command, 60.0, 0.3, 30 * MIB)
    assert who is not None
    assert "not measured" in who
    # where processes of the run did the work it counts
    assert outside_work_of(command, 60.0, 50.0, 30 * MIB) is None
    assert outside_work_of(command, 60.0, 0.3, 900 * MIB) is None


@pytest.mark.parametrize("command", HERE, ids=" ".join)
def test_other_commands_do_their_work_themselves(command: tuple[str, ...]) -> None:
    assert outside_work_of(command, 60.0, 0.3, 30 * MIB) is None


def test_a_client_in_a_script_counts_where_it_was_seen() -> None:
    script = ("bash", "run.sh")
    assert outside_work_of(script, 60.0, 0.3, 30 * MIB) is None
    who = outside_work_of(script, 60.0, 0.3, 30 * MIB, known="docker")
    assert who is not None
    assert who.startswith("docker handed the work to a daemon")
    assert outside_work_of(script, 60.0, 0.3, 30 * MIB, known="gmx") is None


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
