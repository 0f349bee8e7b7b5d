"""``weigh status`` and ``weigh report`` of a job that is running."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until

Weigh = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("plan", [("--node", "2"), ("--node", "1", "--hours", "0")])
def test_status_and_report_count_the_same_states(
    weigh: Weigh, submitted: Callable[..., None], plan: tuple[str, ...]
) -> None:
    wait = "until [ -e go ]; do sleep .05; done"
    submitted("true\n" * 8 + f"touch begun; {wait}\n" * 4, plan=plan, wait=False)
    until(Path("begun").exists)
    shown = []
    for verb in ("status", "report", "status"):
        document = json.loads(weigh(verb, "last", "--json")[1])
        states = (
            document["jobs"][0]["tasks"] if verb == "status" else document["states"]
        )
        shown.append({state: number for state, number in states.items() if number})
    Path("go").touch()
    assert weigh("status", "last", "--wait")[0] == 0
    if shown[0] == shown[2]:  # else a task began in between
        assert shown[1] == shown[0]
