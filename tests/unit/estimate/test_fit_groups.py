"""Which numbers of a command are its size, and which only look like it."""

import msgspec
import pytest

from weigh.estimate.readings import groups_of
from weigh.model.record import Record


def ran(n: int, *command: str) -> Record:
    return Record(
        id=f"{n:012x}",
        command=command,
        parameters={"n": n},
        started="2026-11-21T10:00:00Z",
        state="COMPLETED",
    )


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 3), (2, 4)])
def test_numbers_that_are_sizes_by_chance_split_no_command(
    sizes: tuple[int, ...],
) -> None:
    # the folder ends in 2, the script says 1: neither is the size
    records = [ran(n, "/opt/py2/python", "-c", "f(argv[1])", str(n)) for n in sizes]

    found = groups_of(records)

    assert len(set(found)) == 1
    assert found[0].command == ("/opt/py2/python", "-c", "f(argv[1])", "{n}")


def test_another_number_is_another_command() -> None:
    records = [ran(5, "train", "--layers", k, "5") for k in ("3", "4")]

    assert len(set(groups_of(records))) == 2


def test_parameters_that_changed_their_places_make_another_group() -> None:
    sizes = ((50, 10, "50", "10"), (60, 10, "60", "10"), (20, 10, "10", "20"))
    records = [
        msgspec.structs.replace(
            ran(0, "tag", *words), parameters={"batch": batch, "length": length}
        )
        for batch, length, *words in sizes
    ]
    groups = groups_of(records)
    assert groups[0] == groups[1]
    assert groups[0].command == ("tag", "{batch}", "{length}")
    assert groups[2] != groups[0]
