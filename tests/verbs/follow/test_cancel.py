"""``weigh cancel`` of some elements of a job on this machine."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until

Weigh = Callable[..., tuple[int, str, str]]
Submit = Callable[..., None]


@pytest.fixture
def running(weigh: Weigh, submitted: Submit) -> Weigh:
    """Leave a job of three elements with a task each: one runs, two wait for it."""
    wait = "touch begun_{n}; until [ -e go ]; do sleep .05; done; touch ended_{n}"
    lines = "".join(f"{wait.format(n=n)}\n" for n in (1, 2, 3))
    one_each = ("--node", "1", "--hours", "0")
    submitted(lines, "--jobs", "1", plan=one_each, wait=False)
    until(Path("begun_1").exists)
    return weigh


def states(weigh: Weigh) -> dict[str, int]:
    found: dict[str, int] = json.loads(weigh("status", "last", "--json")[1])["jobs"][0][
        "tasks"
    ]
    return found


def test_waiting_elements_are_cancelled_and_the_running_one_ends(
    running: Weigh,
) -> None:
    assert "2 of 3 elements" in running("cancel", "last", "--state", "pending")[1]
    Path("go").touch()
    assert running("status", "last", "--wait")[0] == 1
    assert states(running) == {"CANCELLED": 2, "COMPLETED": 1}
    assert not Path("begun_2").exists()


def test_what_was_cancelled_alone_can_be_resumed(running: Weigh) -> None:
    running("cancel", "last", "--state", "pending")
    Path("go").touch()
    running("status", "last", "--wait")
    assert running("resume", "last")[0] == 0
    assert running("status", "pp", "--wait")[0] == 0
    assert states(running) == {"COMPLETED": 3}
