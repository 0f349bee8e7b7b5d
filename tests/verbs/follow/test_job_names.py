"""The names by which a job is found."""

from collections.abc import Callable
from itertools import product

Weigh = Callable[..., tuple[int, str, str]]


VERBS = ("status", "logs", "report", "resume", "cancel")


def test_a_plan_submitted_under_another_name_keeps_its_own(
    weigh: Weigh, submitted: Callable[..., None]
) -> None:
    submitted("true\n", "--name", "renamed")
    for verb, name in product(VERBS, ("pp", "plan/pp", "renamed", "last")):
        code, out, err = weigh(verb, name)
        assert (code, err) == (0, ""), (verb, name)
        assert "renamed" in out or verb in {"logs", "cancel"}, (verb, name)
