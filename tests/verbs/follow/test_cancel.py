"""``weigh cancel`` of some elements of a job on this machine."""

import json
from collections.abc import Callable
from pathlib import Path

from processes import until

Weigh = Callable[..., tuple[int, str, str]]
Submit = Callable[..., None]


def states(weigh: Weigh) -> dict[str, int]:
    found: dict[str, int] = json.loads(weigh("status", "last", "--json")[1])["jobs"][0][
        "tasks"
    ]
    return found


def test_waiting_elements_are_cancelled_while_one_runs_and_can_be_resumed(
    weigh: Weigh, submitted: Submit
) -> None:
    wait = "touch begun_{n}; until [ -e go ]; do sleep 0.1; done; touch ended_{n}"
    lines = "".join(f"{wait.format(n=n)}\n" for n in (1, 2, 3))
    one_each = ("--node", "1", "--hours", "0")
    submitted(lines, "--jobs", "1", plan=one_each, wait=False)
    until(Path("begun_1").exists)

    assert "2 of 3 elements" in weigh("cancel", "last", "--state", "pending")[1]
    Path("go").touch()
    assert weigh("status", "last", "--wait")[0] == 1
    assert states(weigh) == {"CANCELLED": 2, "COMPLETED": 1}
    assert not Path("begun_2").exists()

    assert weigh("resume", "last")[0] == 0
    assert weigh("status", "pp", "--wait")[0] == 0
    assert states(weigh) == {"COMPLETED": 3}
