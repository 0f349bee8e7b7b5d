"""States and reasons that only some versions of Slurm print."""

import pytest

from weigh.schedulers.slurm import scheduler as slurm_commands


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("EXPEDITING", "PENDING"),
        ("POWER_UP_NODE", "PENDING"),
        ("LAUNCH_FAILED", "NODE_FAIL"),
        ("DEADLINE", "TIMEOUT"),
        ("REVOKED", "CANCELLED"),
    ],
)
def test_states_of_later_versions_are_known(word: str, state: str) -> None:
    assert (
        slurm_commands.COMMANDS.parse_queue(f"5|1|{word}|N/A||None\n")["5"][1].state
        == state
    )


@pytest.mark.parametrize(
    ("word", "reason", "shown"),
    [
        ("FAILED", "ReqNodeNotAvail", None),  # 26.05, of an element that had waited
        ("TIMEOUT", "Priority", None),
        ("COMPLETED", "(launch failed requeued held)", None),
        ("PENDING", "ReqNodeNotAvail", "ReqNodeNotAvail"),
        ("CANCELLED", "DependencyNeverSatisfied", "DependencyNeverSatisfied"),
        ("NODE_FAIL", "NodeDown", "NodeDown"),
        ("FAILED", "RaisedSignal:9(Killed)", "RaisedSignal:9(Killed)"),
    ],
)
def test_why_a_job_waited_is_not_why_it_ended(
    word: str, reason: str, shown: str | None
) -> None:
    element = slurm_commands.COMMANDS.parse_queue(
        f"5|1|{word}|1760000000|n1|{reason}\n"
    )["5"][1]

    assert element.reason == shown
