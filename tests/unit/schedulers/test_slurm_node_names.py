"""The names in Slurm's lists of nodes."""

import pytest

from weigh.schedulers.client import SchedulerPoll
from weigh.schedulers.slurm import node_names


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("login,node[1-3,7]", ["login", "node1", "node2", "node3", "node7"]),
        (
            "rack[1-2]n[01-02]",
            ["rack1n01", "rack1n02", "rack2n01", "rack2n02"],
        ),
        ("n[1-2]-ib,m", ["n1-ib", "n2-ib", "m"]),
        ("a[1-9999]b[1-9999]", []),
        ("n[x-2]", []),
    ],
)
def test_each_bracket_of_a_list_of_nodes_is_expanded(
    listed: str, names: list[str]
) -> None:
    assert list(node_names(listed)) == names


def test_a_scheduler_that_was_silent_for_weeks_is_asked_again() -> None:
    poll = SchedulerPoll(tried=0.0, failures=5_000)

    assert not poll.is_due(30.0, 10.0)
    assert poll.is_due(10_000_000.0, 10.0)
