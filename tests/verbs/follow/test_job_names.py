"""The names by which a job is found."""

from collections.abc import Callable

import pytest

Weigh = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("name", ["pp", "plan/pp", "renamed", "last"])
@pytest.mark.parametrize("verb", ["status", "logs", "report", "resume", "cancel"])
def test_a_plan_submitted_under_another_name_keeps_its_own(
    weigh: Weigh, submitted: Callable[..., None], verb: str, name: str
) -> None:
    submitted("true\n", "--name", "renamed")
    code, out, err = weigh(verb, name)
    assert (code, err) == (0, "")
    assert "renamed" in out or verb in {"logs", "cancel"}
