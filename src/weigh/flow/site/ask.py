"""Run other programs with a time limit, one or several in parallel."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from weigh.errors import SchedulerError
from weigh.lazy_modules import lazy_module
from weigh.schedulers.command import CommandOutput, run_as_is, run_scheduler_command
from weigh.schedulers.kind import SchedulerQuery
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh import answers_in_time
else:  # imported when it is first used: a dry run asks nobody
    answers_in_time = lazy_module("weigh.answers_in_time")

PATIENCE = 10.0  # seconds
_AFTER_THE_KILL = 2.0  # how long to wait for a killed process
_AT_ONCE = 8  # commands in parallel


class CommandRunner(Protocol):
    """A function that runs a command; tests pass their own."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        patience: Seconds = PATIENCE,
    ) -> CommandOutput:
        """Run *argv* and return its output; never raises."""


def run_query_command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    patience: Seconds = PATIENCE,
) -> CommandOutput:
    """Run *argv* with no input for at most *patience* seconds; never raises."""
    return _reply(lambda: run_as_is(argv, cwd, env, timeout=patience))


def ask_scheduler(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    patience: Seconds = PATIENCE,
) -> CommandOutput:
    """Run a scheduler's command as its client does; never raises."""
    return _reply(
        lambda: run_scheduler_command(tuple(argv), env, cwd=cwd, timeout=patience)
    )


def _reply(asking: Callable[[], CommandOutput]) -> CommandOutput:
    try:
        return asking()
    except SchedulerError as error:
        return CommandOutput(trouble=str(error))


def ask_all(
    commands: Sequence[Sequence[str]],
    *,
    env: Mapping[str, str],
    run_command: CommandRunner,
    patience: Seconds = PATIENCE,
) -> list[CommandOutput]:
    """Run several commands in parallel; the replies are in the same order."""

    def asking(argv: Sequence[str]) -> Callable[[], CommandOutput]:
        return lambda: run_command(argv, env=env, patience=patience)

    replies: list[CommandOutput] = []
    for begin in range(0, len(commands), _AT_ONCE):
        together = [asking(argv) for argv in commands[begin : begin + _AT_ONCE]]
        # the command's own time limit comes first
        done = answers_in_time.in_time(together, patience=patience + _AFTER_THE_KILL)
        replies += [reply or CommandOutput(trouble="no answer") for reply in done]
    return replies


def query(
    env: Mapping[str, str], run_command: CommandRunner, patience: Seconds = PATIENCE
) -> SchedulerQuery:
    """Return a function that runs commands in parallel in the environment *env*."""

    def run_all(commands: Sequence[Sequence[str]]) -> list[CommandOutput]:
        return ask_all(commands, env=env, run_command=run_command, patience=patience)

    return run_all
