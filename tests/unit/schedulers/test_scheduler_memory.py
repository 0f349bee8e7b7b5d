"""What is kept of a scheduler's answers, and for how long."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from some_requests import a_submitted_job

from weigh.errors import SchedulerError, SubmissionUnknownError
from weigh.model.job import ElementState, OwnScript, SubmittedJob
from weigh.schedulers import KINDS
from weigh.schedulers.client import (
    SchedulerClient,
    SchedulerPoll,
    SchedulerReach,
    load_poll,
    save_poll,
)
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.words import parse_ranges
from weigh.units import DAY

NOW = 100.0 * DAY
RUNS = ElementState(state="RUNNING")


def client(root: Path, answer: Callable[..., CommandOutput]) -> SchedulerClient:
    reach = SchedulerReach(
        run=answer, env={}, root=str(root), user="me", clock=lambda: NOW
    )
    return SchedulerClient(KINDS["slurm"], reach)


def running(argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
    return CommandOutput(
        0, "7|N/A|RUNNING|1|n|None\n" if argv[0] == "squeue" else "", ""
    )


def silent(*_: object, **__: object) -> CommandOutput:
    return CommandOutput(0, "", "")


def never(argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
    raise AssertionError(argv)


@pytest.mark.parametrize(
    ("code", "err", "error"),
    [
        (255, "sbatch: error: Invalid directive found in batch script: b", "refused"),
        (255, "Connection closed by remote host", "Connection closed"),  # ssh's
        (137, "sbatch: Pending job allocation 7", "Pending job"),  # killed meanwhile
    ],
)
def test_only_what_the_command_itself_refused_is_known_not_to_run(
    tmp_path: Path, code: int, err: str, error: str
) -> None:
    there = client(tmp_path, lambda *_, **__: CommandOutput(code, "", err))

    with pytest.raises(SchedulerError, match=error) as caught:
        there.submit("job.sh", cwd=str(tmp_path))

    is_open = isinstance(caught.value, SubmissionUnknownError)
    assert is_open == (error != "refused")


@pytest.mark.parametrize("torn", [b'{"asked": 1', b'{"trouble": "\xff"}', b"\xff"])
def test_a_torn_answer_is_as_good_as_none(tmp_path: Path, torn: bytes) -> None:
    save_poll(str(tmp_path), "slurm", SchedulerPoll(asked=1.0))
    (tmp_path / "queue/slurm.json").write_bytes(torn)

    assert load_poll(str(tmp_path), "slurm") == SchedulerPoll()


@pytest.mark.parametrize(
    ("known", "age", "is_queried"),
    [
        # a job that still ran is queried however old it is
        (SchedulerPoll(asked=1.0, states={"7": {0: RUNS}}), 60 * DAY, True),
        # an old one of which nothing is known is not
        (SchedulerPoll(), 60 * DAY, False),
        # one that the last query did not know is queried at once
        (SchedulerPoll(asked=NOW - 1, tried=NOW - 1, states={"6": {}}), 60, True),
        # a scheduler that fails is not asked again for each job
        (SchedulerPoll(asked=1.0, tried=NOW - 1, failures=1), 60, False),
    ],
)
def test_a_job_is_queried_once_where_an_answer_is_to_be_had(
    tmp_path: Path, known: SchedulerPoll, age: float, *, is_queried: bool
) -> None:
    save_poll(str(tmp_path), "slurm", known)
    job = a_submitted_job(submitted=NOW - age)
    state = "RUNNING" if is_queried else "UNKNOWN"

    for answer in (running if is_queried else never, never):
        assert client(tmp_path, answer).states([job]).of(job, 0).state == state


@pytest.mark.parametrize("missing", [FileNotFoundError, PermissionError])
def test_accounting_that_this_user_does_not_have_is_no_trouble(
    tmp_path: Path, missing: type[OSError]
) -> None:
    def answer(argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
        if argv[0] == "sacct":
            raise SchedulerError("cannot run sacct") from missing()
        return CommandOutput(0, "", "")

    one = a_submitted_job(submitted=NOW - 9000)
    snapshot = client(tmp_path, answer).states([one])

    assert (snapshot.accounting, snapshot.of(one, 0).reason) == (None, None)


def test_a_job_cancelled_while_another_process_asks_stays_a_cancelled_one(
    tmp_path: Path,
) -> None:
    """It left no trace in queue or accounting, so only weigh knows."""
    one = a_submitted_job(submitted=NOW - 10)

    def cancelled_meanwhile(
        argv: tuple[str, ...], *_: object, **options: object
    ) -> CommandOutput:
        if argv[0] == "squeue":
            client(tmp_path, running).cancel(one, None)
        return running(argv, **options)

    client(tmp_path, cancelled_meanwhile).states([one], fresh=True)

    snapshot = client(tmp_path, silent).states([one], fresh=True)

    assert snapshot.of(one, 0).state == "CANCELLED"


def test_a_job_with_the_id_of_a_cancelled_one_is_not_cancelled(tmp_path: Path) -> None:
    client(tmp_path, running).cancel(a_submitted_job(submitted=NOW - 10), None)
    later = a_submitted_job(submitted=NOW + 10)

    snapshot = client(tmp_path, silent).states([later], fresh=True)

    assert snapshot.of(later, 0).state == "UNKNOWN"


def of_an_array(indices: str, *, part: bool = False) -> SubmittedJob:
    own = OwnScript(indices=indices, foreign=True, part=part)
    number = len(list(parse_ranges(indices)))
    return replace(
        a_submitted_job(submitted=NOW - 60), own=own, elements=number, tasks=number
    )


def three_ended(argv: tuple[str, ...], *_: object, **__: object) -> CommandOutput:
    row = "7_{}|COMPLETED|0:0|0:0|1|2|n|None\n"
    return CommandOutput(
        0, "" if argv[0] == "squeue" else "".join(map(row.format, "012")), ""
    )


@pytest.mark.parametrize(
    "named", [["1"], ["1", "2"], ["1", "0-1"]], ids=["one", "two", "overlapping"]
)
def test_after_an_answer_on_some_elements_the_array_is_asked_about(
    tmp_path: Path, named: list[str]
) -> None:
    for part in named:
        one = of_an_array(part, part=True)
        answered = client(tmp_path, three_ended).states([one])
        assert answered.of(one, 0).state == "COMPLETED"
    whole = of_an_array("0-2")

    snapshot = client(tmp_path, three_ended).states([whole])

    assert [snapshot.of(whole, n).state for n in range(3)] == ["COMPLETED"] * 3
    assert client(tmp_path, never).states([whole]) == snapshot


def test_two_elements_named_at_once_are_both_kept(tmp_path: Path) -> None:
    both = [of_an_array("1", part=True), of_an_array("2", part=True)]

    snapshot = client(tmp_path, three_ended).states(both)

    assert [snapshot.of(one, 0).state for one in both] == ["COMPLETED"] * 2


def test_an_element_named_alone_does_not_forget_how_the_others_ended(
    tmp_path: Path,
) -> None:
    whole, part = of_an_array("0-2"), of_an_array("1", part=True)
    client(tmp_path, three_ended).states([whole])
    client(tmp_path, silent).states([part], fresh=True)  # too old for the scheduler

    snapshot = client(tmp_path, silent).states([whole], fresh=True)

    assert [snapshot.of(whole, n).state for n in range(3)] == ["COMPLETED"] * 3


def test_a_scheduler_that_was_silent_for_weeks_is_asked_again() -> None:
    poll = SchedulerPoll(tried=0.0, failures=5_000)

    assert not poll.is_due(30.0, 10.0)
    assert poll.is_due(10_000_000.0, 10.0)
