"""Why a job waits, in one table for every page that says it."""

import pytest

from weigh.schedulers.slurm.scheduler import COMMANDS


@pytest.mark.parametrize(
    "written",
    [
        "LaunchFailedRequeuedHeld",
        "(launch failed requeued held)",
        "launch_failed_requeued_held",
    ],
)
def test_a_reason_is_known_however_slurm_writes_it(written: str) -> None:
    assert "failed to start" in COMMANDS.in_words(written)


def test_a_reason_that_nobody_knows_is_shown_as_it_is() -> None:
    assert COMMANDS.in_words("PhaseOfTheMoon") == "PhaseOfTheMoon"


def test_nodes_that_are_not_there_are_not_listed_one_by_one() -> None:
    assert COMMANDS.in_words(
        "ReqNodeNotAvail, UnavailableNodes:cn[1-9]"
    ) == COMMANDS.in_words("ReqNodeNotAvail")


@pytest.mark.parametrize(
    ("reason", "hopeless"),
    [
        ("PartitionTimeLimit", True),
        ("DependencyNeverSatisfied", True),
        ("AccountNotAllowed", True),
        ("Resources", False),
        ("QOSMaxJobsPerUserLimit", False),
    ],
)
def test_what_never_starts_is_distinguished_from_what_waits(
    reason: str, *, hopeless: bool
) -> None:
    assert COMMANDS.is_hopeless(reason) is hopeless
