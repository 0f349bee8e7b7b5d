"""Requests, jobs, plans: a plain one of each to vary, and a strategy for requests."""

import msgspec
from hypothesis import strategies as st

from weigh.model.job import JobRequest, JobScript, SubmittedJob
from weigh.model.plan import BinCapacity, Plan, PlannedElement, PlanRequest
from weigh.model.record import Request
from weigh.units import MIB

SIZES = st.integers(min_value=0, max_value=1 << 50)
TIMES = st.integers(min_value=1, max_value=400 * 86400)
REQUESTS = st.builds(
    Request,
    cpus=st.integers(min_value=1, max_value=256),
    memory=st.none() | SIZES,
    virtual_memory=st.none() | SIZES,
    time_limit=st.none() | TIMES,
    headroom=st.just(0.2),
    runs=st.just(1),
    gpus=st.integers(min_value=0, max_value=16),
    gpu_type=st.none() | st.sampled_from(["v100", "a100"]),
)
PLAIN = Request(
    cpus=1,
    memory=500 * MIB,
    virtual_memory=1200 * MIB,
    time_limit=300,
    headroom=0.2,
    runs=1,
    notes=("from 1 run + 20 %; run it three times to learn how much it varies",),
)
PLAIN_JOB = SubmittedJob(
    scheduler="slurm",
    id="7",
    name="p",
    folder="/p",
    cwd="/",
    script="/p/job.sh",
    elements=1,
    tasks=1,
    submitted=0.0,
    request=JobRequest(),
)

PLAIN_PLAN = Plan(
    name="p",
    task_file="t.txt",
    tasks=1,
    headroom=0.2,
    gpu=None,
    capacity=BinCapacity(),
    request=PlanRequest(1),
    kinds=(),
    elements=(PlannedElement("tasks_0.txt", (1,), 0, 0, 1),),
)
PLAIN_SCRIPT = JobScript(
    name="p",
    folder="/p",
    cwd="/",
    store="/s",
    python="python3",
    elements=1,
    together=1,
    request=JobRequest(),
)


def a_request(**changes: object) -> Request:
    return msgspec.structs.replace(PLAIN, **changes)


def a_submitted_job(**changes: object) -> SubmittedJob:
    return msgspec.structs.replace(PLAIN_JOB, **changes)


def some_plan(**changes: object) -> Plan:
    return msgspec.structs.replace(PLAIN_PLAN, **changes)


def some_job_script(**changes: object) -> JobScript:
    return msgspec.structs.replace(PLAIN_SCRIPT, **changes)
