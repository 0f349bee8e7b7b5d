"""What weigh writes for a scheduler it reads back from a script as the same request."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from some_requests import a_request, a_submitted_job, some_job_script

from weigh.flow.follow.task_history import history_of
from weigh.model.job import JobRequest, OwnScript
from weigh.model.lint import ScriptFacts
from weigh.schedulers import KINDS
from weigh.schedulers.kind import SchedulerKind, directive_line
from weigh.units import DAY, GIB, MIB

FACTS = ScriptFacts(cwd="/w", home="/home/me", user="me")
TAKE_SCRIPTS = pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS.values() if kind.traits.takes_scripts],
    ids=lambda kind: kind.name,
)


@st.composite
def job_requests(draw: st.DrawFn) -> JobRequest:
    memory = draw(st.integers(MIB, 2048 * GIB))
    return JobRequest(
        cpus=draw(st.integers(1, 64)),
        memory=memory,
        virtual_memory=memory,  # which limits it where a scheduler has no other limit
        time_limit=draw(st.integers(60, 30 * DAY)),
        gpus=draw(st.integers(0, 8)),
        gpu_type=draw(st.none() | st.sampled_from(["v100", "a100"])),
    )


def script(kind: SchedulerKind, asked: JobRequest, elements: int = 1) -> str:
    return kind.backend.render(some_job_script(elements=elements, request=asked))


def described(kind: SchedulerKind, text: str, *flags: str) -> JobRequest:
    return kind.user_scripts.describe(text, flags, "/w/job.sh", FACTS).request


def check_alike(read: JobRequest, asked: JobRequest) -> None:
    """Check that a request is the same; memory is rounded up, to a MiB per CPU."""
    limits = [size for size in (read.memory, read.virtual_memory) if size is not None]
    assert limits
    for granted in limits:
        assert 0 <= granted - (asked.memory or 0) < asked.cpus * MIB
    assert read.time_limit == asked.time_limit
    assert (read.cpus, read.gpus) == (asked.cpus, asked.gpus)


@TAKE_SCRIPTS
@given(asked=job_requests(), elements=st.sampled_from([1, 7]))
def test_the_script_of_a_job(
    kind: SchedulerKind, asked: JobRequest, elements: int
) -> None:
    text = script(kind, asked, elements)
    check_alike(described(kind, text), asked)
    findings = kind.lint.lint(text, FACTS)
    assert [one for one in findings if not one.accepted] == []


@TAKE_SCRIPTS
@pytest.mark.parametrize("elements", [1, 2, 3])
def test_the_log_of_an_element(kind: SchedulerKind, elements: int) -> None:
    text = script(kind, JobRequest(), elements)
    found = kind.user_scripts.describe(text, (), "/w/job.sh", FACTS)
    where = some_job_script().folder
    commands: Any = kind.backend  # of the scheduler only the name of a log is asked
    own = OwnScript(output=found.output)
    job = a_submitted_job(folder=where, id="7", elements=elements, own=own)
    for number in range(elements):
        index = number + kind.traits.first_element if found.indices else None
        path = history_of(job).log(commands, number)
        assert path == kind.user_scripts.log(job, index, None)


@TAKE_SCRIPTS
@given(asked=job_requests())
def test_the_request_that_weigh_request_prints(
    kind: SchedulerKind, asked: JobRequest
) -> None:
    names = ("cpus", "memory", "virtual_memory", "time_limit", "gpus", "gpu_type")
    advised = a_request(**{name: getattr(asked, name) for name in names})
    flags = kind.text.directives(advised)
    lines = "".join(f"{directive_line(kind.text, flag)}\n" for flag in flags)
    check_alike(described(kind, f"#!/bin/bash\n{lines}true\n"), asked)


@TAKE_SCRIPTS
@given(before=job_requests(), asked=job_requests())
def test_the_flags_that_overrule_a_script(
    kind: SchedulerKind, before: JobRequest, asked: JobRequest
) -> None:
    asked = replace(asked, cpus=before.cpus, gpus=before.gpus)
    text = script(kind, before)
    flags = kind.user_scripts.raised(asked, ("memory", "time_limit"))
    check_alike(described(kind, text, *flags), asked)
    # the same as directives, behind the script's own
    check_alike(described(kind, kind.user_scripts.with_flags(text, flags)), asked)
