"""Laws of healing, over generated plans, programs and accidents."""

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from weigh.model.job import ElementState, HealLimits, JobRequest, TaskState
from weigh.planning.resume_policy import (
    EarlierRounds,
    LastRequest,
    ResumeChoice,
    ResumeOptions,
    TaskEvidence,
    cpu_hours,
    decide_resumption,
    enlarged_request,
    healer_stop_reason,
)
from weigh.units import GIB, HOUR, MIB, MINUTE

if TYPE_CHECKING:
    from weigh.model.record import State

HEALS = ResumeOptions(heal=True)
ENDED = TaskEvidence(ElementState(state="FAILED", started=0.0, ended=1000.0))
ACCIDENTS = ("NODE_FAIL", "PREEMPTED", "INTERRUPTED")


class Program(msgspec.Struct, frozen=True):
    """What a task needs, and what happens to its attempts, by round."""

    memory: int
    time: int
    bug: bool
    accidents: tuple[bool, ...]
    shows_peak: bool
    alone: bool


class Attempt(msgspec.Struct, frozen=True):
    """What a task had in a round, and how it ended."""

    request: JobRequest
    together: int
    task: TaskState

    @property
    def held(self) -> int:
        """Return what it could hold at most."""
        memory = self.request.memory or 0
        return memory if self.task.alone else memory // self.together


programs = st.builds(
    Program,
    memory=st.integers(1, 64 * GIB),
    time=st.integers(1, 30 * HOUR),
    bug=st.booleans(),
    accidents=st.lists(st.booleans(), max_size=6).map(tuple),
    shows_peak=st.booleans(),
    alone=st.booleans(),
)
limits = st.builds(
    HealLimits,
    max_memory=st.none() | st.integers(4 * GIB, 32 * GIB),
    max_time=st.none() | st.integers(HOUR, 24 * HOUR),
    max_rounds=st.integers(1, 6),
    max_hours=st.none() | st.floats(0.1, 500),
)
requests = st.builds(
    JobRequest,
    cpus=st.integers(1, 8),
    memory=st.integers(64 * MIB, 4 * GIB),
    time_limit=st.integers(5 * MINUTE, HOUR),
)


def run(
    number: int, program: Program, request: JobRequest, together: int, round_: int
) -> Attempt:
    """Return how an attempt of a task ends."""
    memory = request.memory or 0
    held = memory if program.alone else memory // together
    state: State = "COMPLETED"
    peak = None
    if program.accidents[round_ - 1 : round_] == (True,):
        state = ACCIDENTS[number % 3]  # type: ignore[assignment]
    elif program.bug:
        state = "FAILED"
    elif program.memory > held:
        state = "OUT_OF_MEMORY"
        peak = min(program.memory, 3 * held) if program.shows_peak else None
    elif program.time > (request.time_limit or 0):
        state = "TIMEOUT"
    task = TaskState(
        task=number,
        job=str(round_),
        element=0,
        seq=1,
        state=state,
        exit_code=1,
        peak=peak,
        alone=program.alone,
    )
    return Attempt(request, together, task)


def heal(
    chain: list[list[Attempt]], limit: HealLimits
) -> tuple[dict[int, tuple[ResumeChoice, JobRequest]], str | None]:
    """Return what each task to run gets in the next round, or why there is none."""
    last = {one.task.task: one for round_ in chain for one in round_}
    chosen: dict[int, tuple[ResumeChoice, JobRequest]] = {}
    options = replace(HEALS, limits=limit)
    for number, one in last.items():
        if one.task.state == "COMPLETED":
            continue
        failures = sum(
            a.task.state == "FAILED" for r in chain for a in r if a.task.task == number
        )
        had = LastRequest(one.request, one.together, int(one.task.job))
        evidence = replace(ENDED, failures=failures)
        choice = decide_resumption(one.task, evidence, had, options)
        chosen[number] = choice, enlarged_request(one.request, [choice], options)
    hours = [cpu_hours(request, 1) for choice, request in chosen.values() if choice.run]
    spent = [cpu_hours(a.request, 1) for round_ in chain[1:] for a in round_]
    before = EarlierRounds(
        rounds=len(chain),
        finished=sum(one.task.state == "COMPLETED" for one in chain[-1]),
        hours=sum(one or 0.0 for one in spent),
    )
    choices = [choice for choice, _ in chosen.values()]
    why = healer_stop_reason(choices, before, sum(one or 0.0 for one in hours), limit)
    return {n: one for n, one in chosen.items() if one[0].run}, why


def rounds_of(
    tasks: list[Program], first: JobRequest, together: int, limit: HealLimits
) -> tuple[list[list[Attempt]], str]:
    """Return the attempts of each round, and why there is no further one."""
    chain = [[run(n, one, first, together, 1) for n, one in enumerate(tasks)]]
    while (found := heal(chain, limit))[1] is None:
        attempts = []
        for number, (choice, request) in found[0].items():
            before = [a for r in chain for a in r if a.task.task == number]
            count = choice.at_once(before[-1].request.memory)
            one = run(number, tasks[number], request, count, len(chain) + 1)
            attempts.append(replace(one, together=count))
            never_known_to_be_too_small(before, attempts[-1])
        chain.append(attempts)
    return chain, found[1]


@settings(max_examples=settings().max_examples // 2)  # each is many rounds
@given(st.lists(programs, min_size=1, max_size=8), requests, st.integers(1, 6), limits)
def test_a_chain_ends_within_its_limits_and_learns_from_each_round(
    tasks: list[Program], first: JobRequest, together: int, limit: HealLimits
) -> None:
    chain, _ = rounds_of(tasks, first, together, limit)

    within(chain, limit)
    progress(chain)
    for number, program in enumerate(tasks):
        ends = [a.task.state for r in chain for a in r if a.task.task == number]
        assert "COMPLETED" not in ends[:-1]  # what is done does not run again
        assert ends.count("FAILED") <= 2 + (not program.bug)


def never_known_to_be_too_small(before: list[Attempt], new: Attempt) -> None:
    memory, limit = new.request.memory or 0, new.request.time_limit or 0
    for old in before:
        assert memory >= (old.request.memory or 0)
        assert limit >= (old.request.time_limit or 0)
        if old.task.state == "OUT_OF_MEMORY":
            assert memory // new.together > max(old.held, old.task.peak or 0)
        if old.task.state == "TIMEOUT":
            assert limit > (old.request.time_limit or 0)


def within(chain: list[list[Attempt]], limit: HealLimits) -> None:
    assert len(chain) <= limit.max_rounds
    later = [one.request for round_ in chain[1:] for one in round_]
    if limit.max_memory is not None:
        assert all((one.memory or 0) <= limit.max_memory for one in later)
    if limit.max_time is not None:
        assert all((one.time_limit or 0) <= limit.max_time for one in later)
    if limit.max_hours is not None:
        assert sum(cpu_hours(one, 1) or 0.0 for one in later) <= limit.max_hours


def progress(chain: list[list[Attempt]]) -> None:
    """After the first, no round follows one that finished nothing and repeats it."""
    for old, new in pairwise(chain[1:]):
        before = {one.task.task: (one.request, one.together) for one in old}
        finished = any(one.task.state == "COMPLETED" for one in old)
        more = any(
            before.get(one.task.task) != (one.request, one.together) for one in new
        )
        assert finished or more


@given(
    st.lists(st.tuples(st.floats(0.1, 32.0), st.floats(0.1, 30.0)), min_size=1),
    st.integers(1, 6),
)
def test_four_rounds_leave_only_bugs_up_to_32_times_the_first_request(
    needs: list[tuple[float, float]], together: int
) -> None:
    first = JobRequest(cpus=together, memory=600 * MIB, time_limit=HOUR)
    tasks = [  # together they lack one of memory and time, not first one, then both
        Program(int(memory * 600 * MIB / together), 1, False, (), False, False)
        if number % 2
        else Program(1, int(time * HOUR), False, (), False, False)
        for number, (memory, time) in enumerate(needs)
    ]

    assert rounds_of(tasks, first, together, HealLimits())[1] == "all tasks are done"
