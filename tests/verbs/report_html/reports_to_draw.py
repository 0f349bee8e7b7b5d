"""Reports to draw: one run on a GPU, an array of many tasks, and a hostile one."""

import math
import random
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from some_runs import a_peak

from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.model.record import (
    BatchTimes,
    ProgramEvent,
    ProgramPhase,
    Record,
    RecordedHost,
    Request,
    SampleSeries,
    State,
    Usage,
)
from weigh.model.report import (
    JobReport,
    OtherFigure,
    ReportMeasure,
    ReportNote,
    ReportRow,
)
from weigh.units import GIB, MIB

POINTS = 500
SECONDS = 742.6
HOSTILE = "</script><img src=x onerror=alert(1)>{{7*7}}\u202egnp.exe\x1b[31m&quot;"


@cache
def trained(points: int = POINTS) -> Record:
    """Give a run that loads a model, trains three epochs and evaluates."""
    noise = random.Random(7)
    times = tuple(SECONDS * i / (points - 1) for i in range(points))
    memory, cpu, gpu = [], [], []
    for t in times:
        loading = min(1.0, t / 60)
        wave = 0.5 + 0.5 * math.sin(t / 14)
        held = 0.4 + 3.1 * loading + (0.9 * wave if 70 < t < 640 else 0)
        memory.append(round(held * GIB / 4096) * 4096 + noise.randrange(40) * 4096)
        busy = 1.0 if t < 60 else 3.4 + noise.random() * 0.5 if t < 640 else 1.9
        cpu.append(None if t == 0 else busy)
        card = 0.0 if t < 48 else 2.4 if t < 70 else 8.9 if t < 640 else 5.2
        gpu.append(round(card * GIB) + (noise.randrange(120) * MIB if card > 8 else 0))
    peak, card_peak = max(memory), max(gpu)
    return Record(
        id="7f3a91c2d4e5",
        label="train",
        command=("python", "train.py", "--lr", "0.001", "--epochs", "3"),
        parameters={"lr": 0.001, "seed": 3},
        host=RecordedHost(name="node07", system="Linux", cpus=32, memory=256 * GIB),
        started="2026-11-21T10:00:00.000",  # in each zone
        ended="2026-11-21T10:12:22.600",
        state="COMPLETED",
        exit_code=0,
        usage=Usage(
            wall_time=SECONDS,
            cpu_time=2210.4,
            cpus_used=2.98,
            peak_memory=a_peak(
                peak,
                high=peak + 12 * MIB,
                source="smaps of every process",
                time=times[memory.index(peak)],
            ),
            read_bytes=3 * GIB,
            write_bytes=412 * MIB,
            gpus=(
                GpuUsage(
                    uuid="GPU-1",
                    name="Tesla V100-SXM2-32GB",
                    memory_total=32768 * MIB,
                    peak_memory=card_peak,
                    utilization_mean=71.0,
                    power_mean=212.0,
                    source="NVML, this job's processes",
                ),
            ),
        ),
        phases=_phases(card_peak),
        batches=BatchTimes(
            size=32,
            count=3210,
            samples=102_720,
            time_min=0.151,
            time_mean=0.178,
            time_median=0.172,
            time_max=1.94,
            time_per_sample=0.00556,
            peak_memory=peak,
            gpus=(GpuMemory(uuid="GPU-1", peak=card_peak),),
            total=3210,
        ),
        events=tuple(ProgramEvent("epoch", 70 + 190 * i, i + 1) for i in range(3)),
        series=SampleSeries(
            t=times, memory=tuple(memory), cpu=tuple(cpu), gpu_memory=(tuple(gpu),)
        ),
        requested=Request(
            cpus=4,
            memory=8 * GIB,
            virtual_memory=None,
            time_limit=3600,
            headroom=0.2,
            runs=1,
        ),
    )


def _phases(card: int) -> tuple[ProgramPhase, ...]:
    def phase(
        name: str, depth: int, start: float, end: float, calls: int = 1
    ) -> ProgramPhase:
        return ProgramPhase(
            name=name,
            depth=depth,
            calls=calls,
            start=start,
            end=end,
            wall_time=end - start,
            cpu_time=(end - start) * 2.9,
            memory_before=2 * GIB,
            memory_after=3 * GIB,
            peak_memory=4 * GIB,
            gpus=(GpuMemory(uuid="GPU-1", before=0, peak=card),),
        )

    return (
        phase("load model", 0, 2.0, 69.0),
        phase("train", 0, 70.0, 640.0),
        phase("epoch", 1, 70.0, 638.0, calls=3),
        phase("evaluate", 0, 641.0, SECONDS - 1),
    )


@cache
def one_run() -> JobReport:
    """Give the report of a single run."""
    record = trained()
    usage = record.usage
    assert usage is not None
    peak = usage.peak_memory
    assert peak is not None
    used = peak.value
    words = "sampled every 30 s, so it missed the peak: believe ours"
    sacct = OtherFigure(source="sacct", value=3.1 * GIB, word=words)
    return JobReport(
        title="train 7f3a91c2d4e5",
        started=1795255200.0,
        ended=1795255200.0 + SECONDS,
        states={"COMPLETED": 1},
        measures=(
            _measure("memory", used, 8 * GIB, source=peak.source, others=(sacct,)),
            _measure("cpus", 2.98, 4),
            _measure("time", SECONDS, 3600),
            _measure("gpu_utilization", 0.71),
        ),
        rows=(ReportRow(record=record.id, state="COMPLETED", wall_time=SECONDS),),
        notes=(
            ReportNote(
                about="time",
                words="20 % of the request was used: request less, start sooner",
                flag="--time=00:20:00",
                weight=2.0,
                is_finding=True,
            ),
            ReportNote(about="memory", words="fine", weight=0.1),
        ),
        records=(record,),
        gpu_hours=0.21,
        cpu_hours=0.83,
    )


@cache
def array(tasks: int, elements: int = 25) -> JobReport:
    """Give the report of an array job with figures as real runs have them."""
    chance = random.Random(11)
    rows = tuple(_task(number, elements, chance) for number in range(1, tasks + 1))
    memory = tuple(float(round(chance.gauss(5.1, 0.35) * GIB)) for _ in range(elements))
    times = tuple(chance.gauss(12_660, 900) for _ in range(elements))
    states: dict[str, int] = {}
    for row in rows:
        states[row.state] = states.get(row.state, 0) + 1
    return JobReport(
        title="ppo-sweep",
        scheduler="slurm",
        job="481516",
        elements=elements,
        started=1795255200.0,
        ended=1795299990.0,
        states=states,
        measures=(
            _measure("memory", memory, 8.0 * GIB, source="weigh", values=memory),
            _measure("gpu_memory", (9.4 * GIB, 9.9 * GIB), 12 * GIB),
            _measure("cpus", (3.8, 3.9), 4),
            _measure("time", times, 23_400.0, source="sacct", values=times),
        ),
        rows=rows,
        notes=(
            ReportNote(
                about="time",
                words="starts sooner with less; 24 % above the slowest of 25",
                flag="--time=05:00:00",
                weight=3,
                is_finding=True,
            ),
            ReportNote(about="node07", words="its 8 tasks took 1.4x as long", weight=1),
        ),
        gpu_hours=88.0,
        cpu_hours=352.0,
    )


UNITS = {"cpus": "cpus", "time": "seconds", "gpu_utilization": "share"}


def _measure(
    name: str,
    used: float | tuple[float, ...],
    requested: float | None = None,
    **more: Any,
) -> ReportMeasure:
    """Return a measure of a run, or of elements that used these figures."""
    figures = sorted(used) if isinstance(used, tuple) else [used]
    is_mean = name == "gpu_utilization"  # of which there is no peak
    return ReportMeasure(
        name=name,  # type: ignore[arg-type]
        unit=UNITS.get(name, "bytes"),  # type: ignore[arg-type]
        requested=requested,
        median=figures[(len(figures) - 1) // 2],
        most=None if is_mean else figures[-1],
        efficiency=None if requested is None else figures[-1] / requested,
        **more,
    )


def _task(number: int, elements: int, chance: random.Random) -> ReportRow:
    states: tuple[State, ...] = ("COMPLETED",) * 97 + ("FAILED", "OUT_OF_MEMORY")
    state = chance.choice(states)
    is_done = state == "COMPLETED"
    lr = chance.choice((0.01, 0.003, 0.001))
    return ReportRow(
        task=number,
        element=(number - 1) * elements // max(number, 10_000) + 1,
        attempt=1,
        record=f"{chance.randrange(1 << 48):012x}",
        label="ppo-sweep",
        command=f"python run.py --lr {lr} --seed {number} --out runs/{lr}/{number}",
        parameters={"lr": lr, "seed": number},
        state=state,
        exit_code=0 if is_done else 1,
        reason=None if is_done else "ValueError: probabilities contain NaN",
        node=f"node{chance.randrange(1, 25):02d}",
        started=1795255200.0 + number * 4.37,
        wall_time=chance.uniform(3000, 15000),
        cpu_time=chance.uniform(9000, 50000),
        cpus=chance.uniform(2.5, 3.9),
        memory=chance.randrange(300_000, 1_500_000) * 4096,
        gpu_memory=chance.randrange(1000, 2400) * MIB,
        gpu_utilization=chance.random(),
        output=f"plan/ppo-sweep/log/{number}.out",
    )


# what the page itself looks up, and a state of rows
KNOWN = {"UNKNOWN", "memory", "bytes", *UNITS, *UNITS.values()}


def with_hostile_texts(part: Any) -> Any:
    """Return a part of a report, with a hostile text in place of each other one."""
    if isinstance(part, str):
        return part if part in KNOWN else f"{HOSTILE}\udcff"
    if isinstance(part, tuple):
        return tuple(map(with_hostile_texts, part))
    if isinstance(part, dict):
        pairs = part.items()
        return {with_hostile_texts(key): with_hostile_texts(it) for key, it in pairs}
    if isinstance(part, Struct):
        names = part.__struct_fields__
        changed = {name: with_hostile_texts(getattr(part, name)) for name in names}
        return replace(part, **changed)
    return part


@cache
def hostile() -> JobReport:
    """Give a report whose every text tries to be more than text."""
    row = ReportRow(label="", node="", reason="", output="", parameters={"": ""})
    rows = tuple(replace(row, task=number) for number in (1, 2))
    plain = replace(one_run(), scheduler="", job="", rows=rows, records=(trained(40),))
    report: JobReport = with_hostile_texts(plain)
    return replace(report, title=HOSTILE)
