"""A port for each task, and the gpus of a slot that has several."""

import pytest
from batches import Batch
from hypothesis import given
from hypothesis import strategies as st

from weigh.runner.slots import lay_out
from weigh.runner.spawn import free_port


def test_tasks_side_by_side_meet_at_ports_of_their_own(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    line = 'echo "$MASTER_ADDR $MASTER_PORT $WEIGH_PORT $PET_MASTER_PORT"; sleep 0.2'
    batch.write(line, line, line)
    done = batch.run("-u", "--jobs", "3")
    said = [line.split() for line in done.stdout.splitlines()]
    assert {address for address, *_ in said} == {"127.0.0.1"}
    assert all(len(set(ports)) == 1 for _, *ports in said)
    assert len({port for _, port, *_ in said}) == 3


def test_a_port_that_another_has_is_not_given_again() -> None:
    """What nobody listens on yet the kernel gives again, once in a while."""
    taken = frozenset(range(0, 65536, 3))
    found = [free_port(taken) for _ in range(20)]
    assert taken.isdisjoint(port for port in found if port is not None)


@given(jobs=st.integers(1, 12), gpus=st.integers(1, 12))
def test_no_gpu_is_in_two_slots_if_there_are_enough(jobs: int, gpus: int) -> None:
    layout = lay_out(jobs, cpu_count=1, gpu_names=[str(gpu) for gpu in range(gpus)])
    dealt = [gpu for slot in layout.slots for gpu in (slot.gpu or "").split(",")]
    if jobs <= gpus:
        assert len(dealt) == len(set(dealt))
    assert set(layout.gpus) == set(dealt)
