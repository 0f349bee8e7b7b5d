"""Files as weigh itself writes them, for what reads them back."""

import msgspec
from msgspec.structs import replace
from some_jobs import Task, record_of
from some_requests import PLAIN_PLAN, a_submitted_job

from weigh.measure.region.channel import RegionLine
from weigh.model.gpu import GpuUsage
from weigh.model.job import ElementState
from weigh.model.record import BatchTimes, ProgramEvent, ProgramPhase, RecordedRank
from weigh.runner.events import AttemptEnded, AttemptStarted, RunningProgress, RunOpened
from weigh.schedulers.client import SchedulerPoll
from weigh.store.checkpoint import RunCheckpoint
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.store.past_calls import StoredScan

HERE = MachineIdentity(host="node07", machine_id="0123456789abcdef", boot_id="boot-1")
_THIS = ProcessIdentity(pid=12, start_time=34)
_PHASE = ProgramPhase("load", 0, 1, 1.0, 2.0, 1.0, peak_memory=1 << 20)
_RECORD = replace(
    record_of(Task(parameters={"batch": 50, "model": "b"}), points=2), phases=(_PHASE,)
)


def _lines(*values: msgspec.Struct) -> str:
    return "".join(msgspec.json.encode(value).decode() + "\n" for value in values)


RECORDS = _lines(_RECORD)
CHECKPOINT = _lines(RunCheckpoint(machine=HERE, weigh=_THIS, record=_RECORD))
SCANS = _lines(StoredScan(label="a", command=("python", "{n}"), cwd="/home/me"))
_JOB = a_submitted_job(name="train", elements=2, tasks=8)
JOBS = _lines(_JOB, replace(_JOB, id="8", resumes="7"))
POLL = _lines(
    SchedulerPoll(asked=1.0, states={"7": {0: ElementState(state="RUNNING")}})
)
PROGRESS = _lines(RunningProgress(run="r1", time=1.0, slots=2))
CHANNEL = _lines(
    RegionLine(
        "1:0",
        RecordedRank(0, "cn1", 1),
        1 << 21,
        (GpuUsage(uuid="GPU-1", name="V100"),),
        ((("load",), _PHASE),),
        {"a": BatchTimes(50, 3, 150, 0.1, 0.2, 0.2, 0.3, 0.004)},
        (ProgramEvent("epoch", 1.5, 2),),
    ),
)
EVENTS = _lines(
    RunOpened("r1", 1.0, HERE, _THIS, "tasks.txt", 2, "1.0"),
    AttemptStarted(1, 1, "r1", 1.0, 1, 12, 34, "abc"),
    AttemptEnded(1, 1, 2.0, "COMPLETED", 0, None, "7f3a91c0d2e4"),
    AttemptStarted(2, 1, "r1", 1.0, 1, 12, 34, "abc"),
)
PLAN = _lines(PLAIN_PLAN)
