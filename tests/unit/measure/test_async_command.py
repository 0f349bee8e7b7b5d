"""Asking a command while a run goes on."""

import os

import pytest
from processes import is_running, until

from weigh.measure.async_command import AsyncCommand
from weigh.schedulers.slurm import KIND as SLURM

ENV = dict(os.environ)


def ask(script: str, patience: float = 30.0, **more: str) -> AsyncCommand:
    unset = SLURM.variables.unset
    argv = ("sh", "-c", script)
    return AsyncCommand(argv, ENV | more, patience=patience, unset=unset)


def answered(question: AsyncCommand) -> str:
    answers: list[str] = []

    def is_there() -> bool:
        answers.extend(text for text in [question.answer()] if text is not None)
        return bool(answers)

    until(is_there, "the answer")
    return answers[0]


def test_the_answer_is_what_it_printed_whatever_a_users_defaults() -> None:
    question = ask("echo ${SQUEUE_FORMAT-0:45}; echo grumble >&2", SQUEUE_FORMAT="%i")
    assert answered(question) == "0:45\n"


def test_nobody_waits_for_the_answer() -> None:
    question = ask("sleep 60")
    assert question.answer() is None
    question.end()
    assert not is_running(question.pid)


def test_a_command_that_takes_too_long_is_terminated() -> None:
    question = ask("echo 1; sleep 60", patience=0.2)
    assert answered(question) == ""
    assert not is_running(question.pid)


def test_who_reaps_all_children_may_reap_it_first() -> None:
    question = ask("echo 1")
    until(lambda: os.waitpid(question.pid, os.WNOHANG)[0], "its end")
    assert answered(question) == "1\n"


def test_no_descriptor_is_left_even_of_a_command_that_is_not_there() -> None:
    before = os.listdir("/proc/self/fd")
    answered(ask("echo 1"))
    ask("sleep 60").end()
    with pytest.raises(FileNotFoundError):
        AsyncCommand(("no-such-command",), ENV, patience=1.0, unset=())
    assert len(os.listdir("/proc/self/fd")) == len(before)
