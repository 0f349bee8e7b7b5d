"""The runner's pure decisions: what is left, when to stop, what a line needs."""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from sessions import check_session
from transcript import check_answers

from weigh.errors import UsageError
from weigh.joblog import HEADER, JoblogEntry, format_entry, parse_line, read_task_ends
from weigh.model.mask import MASK
from weigh.model.record import (
    MeasuringCost,
    RunMeasurement,
    SampleSeries,
    State,
    Usage,
)
from weigh.runner import journal, task_source
from weigh.runner.attempt import TaskAttempt
from weigh.runner.events import (
    AttemptEnded,
    AttemptStarted,
    RunClosed,
    RunOpened,
    read_past_events,
)
from weigh.runner.journal import DONE, settle_by
from weigh.runner.retry import (
    AttemptEnding,
    RetryPolicy,
    judge_attempt_end,
    parse_halt,
)
from weigh.runner.shell import plain_words
from weigh.runner.slots import RunSlot, gpus_named, lay_out
from weigh.runner.spawn import free_port, meeting_place, port_names
from weigh.runner.task_source import TaskSource
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.sweep.task_file import has_open_quote, is_script, read_task_lines

MACHINE = MachineIdentity("here", "m", "b", "p")


# what is left to run


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from([b"", b"# ", b"run ", b"run --TOKEN=1 ", b"\n\n x://y "]),
            st.integers(0, 40),
        ),
        min_size=1,
    ),
    block=st.integers(20, 60),
)
def test_signs_of_secrets_are_found_wherever_blocks_begin(
    lines: list[tuple[bytes, int]], block: int
) -> None:
    text = b"true\n" + b"".join(begin + b"a" * more + b"\n" for begin, more in lines)
    tasks = [task.text for task in read_task_lines(text.splitlines(True), "t")]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = f"{folder}/t"
        Path(path).write_bytes(text)
        patch.setattr(task_source, "_LONGEST", block)
        source = TaskSource(path)
        for seq, task in enumerate(tasks, start=1):
            if b"token" in task.lower() or b"://" in task:
                assert seq in source.suspects
        assert len(source.suspects) == len(set(source.suspects)) <= len(tasks)
        joblog = f"{path}.joblog"
        log = [_entry(seq, task.decode()) for seq, task in enumerate(tasks, start=1)]
        Path(joblog).write_bytes(f"{HEADER}\n".encode() + b"".join(log))
        patch.setattr(journal, "_BLOCK", block)
        assert set(settle_by(joblog, source).states) == {DONE}
        source.close()


ENTRY = JoblogEntry(
    seq=7,
    host=":",
    started=1763700000.123,
    wall_time=1.25,
    sent=0,
    received=12,
    exit_code=0,
    signal=9,
    command="a\tb\nc \udcff",
)


def _entry(seq: int, command: str) -> bytes:
    return format_entry(replace(ENTRY, seq=seq, signal=0, command=MASK.line(command)))


def test_a_line_is_written_as_gnu_parallel_does_and_read_back() -> None:
    line = b"7\t:\t1763700000.123\t     1.250\t0\t12\t0\t9\ta\tb\0c \xff\n"
    assert format_entry(ENTRY) == line
    read = parse_line(line.decode("utf-8", "surrogateescape").removesuffix("\n"))
    assert read == ENTRY


def test_the_quick_reader_steps_over_what_it_cannot_read() -> None:
    good = b"2\t:\t1.0\t1.0\t0\t0\t0\t0\techo\tb\n"
    lines = [b"335...\n", good, b"x\t" * 9 + b"\n", good.removesuffix(b"\n")]
    assert list(read_task_ends(lines)) == [(2, True, b"echo\tb")]


# the task file


def test_tasks_are_numbered_without_blank_lines_and_comments() -> None:
    lines = [b"\xef\xbb\xbfa\r\n", b"\n", b"  # c\n", b"\t\n", b"b # d"]
    read = list(read_task_lines(lines, "t"))
    assert [(task.seq, task.line, task.text) for task in read] == [
        (1, 1, b"a"),
        (2, 5, b"b # d"),
    ]
    whole = b"".join(lines)
    assert whole[read[1].offset :] == b"b # d"
    assert is_script([b"\xef\xbb\xbf#! python\n", b"print()\n"])


def is_script_with(line: str) -> bool:
    """Return whether a task file with this line is a script: then it is not read."""
    lines = [b"echo a\n", line.encode().replace(b"TAB", b"\t") + b"\r\n"]
    if is_script(lines):
        with pytest.raises(UsageError, match="2"):
            list(read_task_lines(lines, "t"))
        return True
    return not list(read_task_lines(lines, "t"))


def environment(words: str) -> dict[str, str]:
    return dict(word.split("=") for word in filter(None, words.split(";")))


def gpus_of_slots(words: str) -> list[str | None]:
    count, _, names = words.partition(" ")
    layout = lay_out(int(count), cpu_count=4, gpu_names=names.split())
    return [slot.gpu for slot in layout.slots]


def ending_text(words: str) -> str:
    """Return how an attempt ended, of its exit code or minus its signal, and output."""
    code, _, tail = words.partition(" ")
    exit_code, number = (int(code), None) if int(code) >= 0 else (None, -int(code))
    nothing = (Usage(wall_time=1.0), SampleSeries(), MeasuringCost())
    measured = RunMeasurement(0.0, 1.0, exit_code, number, *nothing)
    end = judge_attempt_end(measured, None, tail.encode())
    with_more = "may go on with more memory" if end.is_oom else "is settled"
    return f"{end.state}, {with_more}{' of a GPU' if end.on_gpu else ''}"


def verdicts(words: str) -> str:
    """Return what follows each end of a task's attempts, with so many retries.

    An end is done, failed, oom or why weigh stopped it; ``!`` ran alone.
    """
    retries, *ends = words.split()
    policy = RetryPolicy(int(retries), is_trial=False)
    found: list[str] = []
    for end in ends:
        word = end.rstrip("!")
        attempt = TaskAttempt(1, 1, b"", RunSlot(1), alone=end.endswith("!"))
        if word not in {"done", "failed", "oom"}:
            attempt.state.stop = word  # type: ignore[assignment]
        state: State = "COMPLETED" if word == "done" else "FAILED"
        ending = AttemptEnding(state, 1, None, is_oom=word == "oom")
        found.append(policy.next(attempt, ending))
    return ", ".join(found)


def test_words_are_read_as_they_were_reviewed() -> None:
    path = Path(__file__).with_name("runner_words.texts")
    check_answers(
        path,
        {
            "is a quote open": lambda line: has_open_quote(line.encode()),
            "makes a script of a task file": is_script_with,
            "runs without a shell": lambda line: plain_words(line.encode()),
            "stops by the rule": parse_halt,
            "GPUs of the environment": lambda words: gpus_named(environment(words)),
            "GPUs of so many slots": gpus_of_slots,
            "where ranks meet": lambda words: meeting_place(environment(words)),
            "names of ports": lambda words: port_names(environment(words)),
            "how an attempt ended": ending_text,
            "what follows each end": verdicts,
        },
        {os.uname().nodename: "THIS-NODE"},
    )


SHELLISH = st.text(alphabet="ab '\"\\$#", max_size=12)


@given(line=SHELLISH)
@example(line="\\ #'")  # behind an escaped blank it is no comment
def test_a_line_that_bash_cannot_read_is_never_thought_whole(line: str) -> None:
    if not has_open_quote(line.encode()):
        read = ["bash", "-n", "-c", line]
        assert subprocess.run(read, capture_output=True, check=False).returncode == 0


@given(line=st.text(alphabet="abc =-./'\"$\\*;é", min_size=1, max_size=12))
def test_words_taken_without_a_shell_are_those_of_bash(line: str) -> None:
    words = plain_words(line.encode())
    if words is not None:
        show = f"printf '%s\\0' {line}"
        said = subprocess.run(["bash", "-c", show], capture_output=True, check=True)
        assert said.stdout.split(b"\0")[:-1] == words


# slots


@given(jobs=st.integers(1, 40), cores=st.integers(1, 64))
def test_slots_never_share_a_core(jobs: int, cores: int) -> None:
    layout = lay_out(jobs, cpu_count=cores, cores=range(cores))
    dealt = [core for slot in layout.slots for core in slot.cores]
    assert len(dealt) == len(set(dealt))
    assert len({len(slot.cores) for slot in layout.slots}) == 1


@given(jobs=st.integers(1, 12), gpus=st.integers(1, 12))
def test_no_gpu_is_in_two_slots_if_there_are_enough(jobs: int, gpus: int) -> None:
    layout = lay_out(jobs, cpu_count=1, gpu_names=[str(gpu) for gpu in range(gpus)])
    dealt = [gpu for slot in layout.slots for gpu in (slot.gpu or "").split(",")]
    if jobs <= gpus:
        assert len(dealt) == len(set(dealt))
    assert set(layout.gpus) == set(dealt)


def test_a_port_that_another_has_is_not_given_again() -> None:
    """What nobody listens on yet the kernel gives again, once in a while."""
    taken = frozenset(range(0, 65536, 3))
    found = [free_port(taken) for _ in range(20)]
    assert taken.isdisjoint(port for port in found if port is not None)


def test_worked_examples_of_slots_and_turns() -> None:
    check_session(Path(__file__).with_name("slots.session"), {})


# events


def _events() -> list[bytes]:
    def started(seq: int) -> AttemptStarted:
        return AttemptStarted(
            seq, 1, "r1", 1.0, slot=1, pid=10 + seq, start_time=5, task="x"
        )

    ended = AttemptEnded(1, 1, 2.0, "COMPLETED", 0, None, record="ab")
    opened = RunOpened("r1", 1.0, MACHINE, ProcessIdentity(1, 2), "t", 2, "0")
    events = [opened, started(1), started(2), ended]
    return [msgspec.json.encode(event) + b"\n" for event in events]


def test_starts_without_an_end_are_in_flight_and_a_run_that_closed_is_not_open() -> (
    None
):
    past = read_past_events(_events(), lambda _: True)
    assert [start.pid for start in past.in_flight.values()] == [12]
    assert past.open_runs.keys() == {"r1"}
    assert past.attempts == {1: 1, 2: 1}
    closed = msgspec.json.encode(RunClosed("r1", 3.0, "done")) + b"\n"
    assert read_past_events([*_events(), closed], lambda _: True).open_runs == {}


@given(cut=st.integers(0, 2000))
def test_a_torn_events_file_can_be_read(cut: int) -> None:
    text = b"".join(_events())[:cut]
    read_past_events(text.splitlines(keepends=True), lambda _: True)
