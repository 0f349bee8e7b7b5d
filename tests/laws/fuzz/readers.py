"""Every reader of text from outside, by name, with real samples of what it reads."""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import written
from some_requests import a_submitted_job

from weigh import config, gpu_models, joblog, request, units
from weigh.errors import FormatError
from weigh.flow.doctor import code_check_of
from weigh.flow.follow.task_history import JoblogHistory
from weigh.flow.plan.directory import read_plan
from weigh.flow.records.record_lookup import decode_without_series
from weigh.flow.submit.job_request import parse_gpus
from weigh.flow.sweep.stages import read_stages
from weigh.measure.checkpoint_signal import parse_checkpoint_signal
from weigh.measure.region.channel import read_channel
from weigh.model.cluster import ClusterLimits, ClusterNode, NodeGpus, QueueLimits
from weigh.model.job import OwnScript
from weigh.model.lint import ScriptFacts
from weigh.probe.python_environment import parse_torch
from weigh.progress.reader import RunProgressReader
from weigh.runner.events import read_past_events, read_progress
from weigh.runner.retry import parse_halt
from weigh.schedulers import KINDS, accounting, client
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.kind import SchedulerKind, SchedulerQuestion
from weigh.schedulers.slurm import accounting as slurm_accounting
from weigh.schedulers.slurm import cluster as slurm_cluster
from weigh.schedulers.words import count_elements, parse_ranges, text_pairs
from weigh.staging.script import parse_staging
from weigh.store.checkpoint import runs_in_progress
from weigh.store.find import read_file
from weigh.store.index import read_index, read_record_without_series
from weigh.store.jobs import find_jobs, read_jobs
from weigh.store.lines import decode_record
from weigh.store.past_calls import last_scan
from weigh.sweep.diverse import read_parameters
from weigh.sweep.grid import parse_condition
from weigh.sweep.table import read_table
from weigh.sweep.task_file import has_open_quote, read_task_lines
from weigh.sweep.values import parse_axis

DATA = Path(__file__).parents[2] / "support" / "data" / "outside"
CAPTURED = Path(__file__).parents[2] / "unit" / "schedulers" / "captured"
MOST = 3_000_000  # things made of one text: more is no answer but a flood
LIMITS = ClusterLimits(
    queues=(QueueLimits(name="gpu", time_limit=3600, memory=1 << 36, default=True),),
    nodes=(
        ClusterNode(
            name="cn1",
            state="IDLE",
            cpus=8,
            memory=1 << 36,
            gpus=(NodeGpus("v100", 2),),
            queues=("gpu",),
        ),
    ),
)
SCRIPT_FACTS = ScriptFacts(
    cwd="/home/me/work",
    home="/home/me",
    user="me",
    paths={"/home/me/work/logs": "missing", "/home/me/work": "directory"},
    lines={"/home/me/work/inputs.txt": 12},
    files={"/home/me/work/data_{}.csv": (1, 2, 3)},
    jobs={"41": "FAILED", "42": None},
    limits=LIMITS,
)


class Reader(NamedTuple):
    """What reads a text, and real texts for it."""

    read: Callable[[str], object]
    samples: tuple[str, ...]


def raw(text: str) -> bytes:
    """Write *text* as bytes; halves of characters become what is no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def all_of(things: Iterator[Any]) -> list[Any]:
    """Take everything, unless that has no end."""
    taken = list(islice(things, MOST + 1))
    assert len(taken) <= MOST
    return taken


def in_file(name: str, read: Callable[[str, str], object]) -> Callable[[str], object]:
    """Give what writes a text to *name* in a folder, and reads (folder, path)."""

    def reading(text: str) -> object:
        with TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw(text))
            return read(folder, str(path))

    return reading


def _past_jobs_of_slurm(text: str) -> object:
    return [*slurm_accounting.ACCOUNTING.read_past(io.StringIO(text))]


def samples_in(folder: Path) -> Callable[..., tuple[str, ...]]:
    """Return what reads files of a folder by their names."""
    return lambda *names: tuple((folder / name).read_text() for name in names)


sample, captured = samples_in(DATA), samples_in(CAPTURED)


def of_output(read: Callable[[str], object]) -> Callable[[str], object]:
    """Give *read* for what a command printed: what is no UTF-8 is replaced."""
    return lambda text: read(raw(text).decode("utf-8", "replace"))


def _progress(text: str) -> object:
    reader = RunProgressReader()
    data = raw(text)
    for number in range(3):
        reader.feed(data[number::3] if number else data, float(number))
    return reader.forecast(3.0)


def _condition(text: str) -> object:
    condition = parse_condition(text, ("lr", "seed", "model"))
    return condition({"lr": 0.001, "seed": 3, "model": "small"})


def _variable(key: str, text: str) -> object:
    with suppress(FormatError):
        return config.load_config("/", {f"WEIGH_{key.upper()}": text}, site_file="")
    return None


def _heads(root: str, _: str) -> object:
    return [read_record_without_series(entry) for entry in read_index(root).entries]


def _jobs(root: str, _: str) -> object:
    jobs = read_jobs(root)
    return [find_jobs(jobs, name) for name in ("last", "7", "train")]


def _ends(_: str, path: str) -> object:
    return JoblogHistory(path.removesuffix(".events.jsonl")).attempts


def _slurm_limits(text: str) -> object:
    site = slurm_cluster
    argvs = (site.NODES, site.PARTITIONS, site.CONFIG)
    return site.slurm_cluster_limits(dict.fromkeys(argvs, text))


def _gridengine_limits(text: str) -> object:
    site = gridengine_cluster
    argvs = (site.HOSTS, site.QUEUES, site.COMPLEXES)
    return site.gridengine_cluster_limits(dict.fromkeys(argvs, text), {})


def _gridengine_nodes(text: str) -> object:
    hosts = gridengine_cluster.parse_hosts(text)
    totals = gridengine_cluster.parse_host_totals(text)
    return [gridengine_cluster.node_of_host(host, totals) for host in hosts]


def _environment(text: str) -> object:
    env = dict.fromkeys(_VARIABLES, text)
    return [
        read(env)
        for words in (kind.text for kind in KINDS.values())
        for read in (
            words.allocation_from_environment,
            words.job_from_environment,
            words.end_time,
            words.limit_argv,
        )
    ]


_VARIABLES = (
    *("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_CPUS_PER_TASK", "SLURM_NTASKS"),
    *("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_JOB_END_TIME", "SLURM_GPUS"),
    *("SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "JOB_ID"),
    *("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SGE_TASK_ID", "NSLOTS"),
    *("SGE_HGR_gpu", "SLURM_TIMELIMIT", "SLURM_JOB_CPUS_PER_NODE", "NHOSTS", "QUEUE"),
    *(name for kind in KINDS.values() for name in kind.variables.job),
    *(name for kind in KINDS.values() for name in kind.variables.in_job),
)
_SCHEDULER_SIZES = ("4G", "500M", "300", "4GB", "1.5g", "0")
_SIZES = ("4GiB", "1.5g", "300", "500M", "4Gn", "0")
_SCHEDULER_TIMES = ("5400", "02:00:00", "1-12:00:00", "UNLIMITED", "INFINITY")
_TIMES = ("90m", "1h30m", "1-12:00:00", "02:00:00", "5400")
_CONDITIONS = ("lr < 1e-2 or seed == 1", "seed in (1, 2) and model != 'a'", "2*seed>lr")
_AXES = ("lr=1e-2,1e-3", "seed=1..5", "x=0..1:0.1", "y=1e-5..1e-1:log5", "m=a,b")
_GPU_NAMES = ("NVIDIA A100-SXM4-40GB", "v100l", "A100-40GB:1g.5gb", "1g.5gb", "rtx3090")
_NODES = captured("slurm-22.05-node.txt", "slurm-25.05-node.txt")
_PARTITIONS = captured("slurm-22.05-partition.txt", "slurm-25.05-partition.txt")
_COMPLEXES = (
    captured("gridengine-8.1.9-complexes.txt")[0]
    + "ngpus gpu INT <= YES JOB 0 0\nncpus cpus INT <= YES YES 0 0\n"
)
_LINT = sample("sbatch.sh", "qsub.sh")


_BLOCK = f"{'=' * 30}\njobnumber 12\ntaskid 3\nqsub_time 11/23/2026 04:37:16\n"
_KNOWN = {
    "slurm": (
        *sample("scontrol-job.txt"),
        "12_3\x1f15\x1fme\x1f\x1fa\x1f/w\x1fsbatch a\n",
    ),
    "gridengine": ("job_number: 12\njob-array tasks: 2-8:3\n", _BLOCK),
}


def _known(kind: SchedulerKind) -> Callable[[str], object]:
    scripts = kind.user_scripts

    def reading(text: str) -> object:
        own = OwnScript(indices="3", output=text[:200])
        job = a_submitted_job(scheduler=kind.name, id="12", own=own)
        scripts.log(job, 3, None)
        scripts.raw_logs(job).read([text])
        scripts.sent(job, "me").read([text])
        last = scripts.known("12").read((text, ""))
        return last or scripts.known("12").read(("", text))

    return reading


def _described(kind: SchedulerKind) -> Callable[[str], object]:
    scripts = kind.user_scripts

    def reading(text: str) -> object:
        words = tuple(text.split()[-3:])
        scripts.wrapper(text, "true")
        return scripts.describe(text, words, "/w/a.sh", SCRIPT_FACTS)

    return reading


def _asked(question: SchedulerQuestion[Any]) -> Callable[[str], object]:
    return lambda text: question.read([text])


# what they print, where one was captured
_OF_SCHEDULERS = {
    "slurm.queue": sample("squeue.txt"),
    "slurm.ended": sample("sacct.txt"),
    "slurm.submitted": ("42\n", "7;c\n"),
    "slurm.doubt": ("allocation failure: too much\n",),
    "slurm.gpu_types": ("gpu:v100:4(S:0-1)\n(null)\n",),
    "slurm.array_limit": ("MaxArraySize            = 1001\n",),
    "slurm.job": sample("scontrol-job.txt"),
    "slurm.used": sample("sacct-used.txt"),
    "gridengine.queue": sample("qstat.xml"),
    "gridengine.ended": sample("qacct.txt"),
    "gridengine.submitted": ("42.1-3:1\n",),
    "gridengine.why": ("error reason    1:  11/21/2026 07:51:59 [0:1]: can't chdir\n",),
    "gridengine.slots": (_COMPLEXES,),
    "gridengine.job": sample("qstat-job.txt"),
    "gridengine.used": sample("qacct.txt"),
}


def _of_table() -> dict[str, Reader]:
    """Return the readers that each scheduler of the table has."""
    found = {}
    for name, kind in KINDS.items():
        backend = kind.backend
        outputs: dict[str, Callable[[str], object]] = {
            "queue": backend.parse_queue,
            "ended": backend.parse_ended,
            "submitted": backend.parse_submitted,
            "doubt": backend.parse_doubt,
            "job": _asked(backend.understood("12")),
            "why": _asked(backend.why("12")),
            "gpu_types": _asked(backend.gpu_types()),
            "slots": _asked(backend.cpu_resource()),
            "array_limit": _asked(backend.array_limit(1 << 20)),
            "on_host": _asked(backend.runs_on_host("12", "node7")),
            "used": kind.accounting.parse,
            "left": partial(kind.text.parse_left, elapsed=60.0),
            "reason": kind.backend.in_words,
        }
        for what, read in outputs.items():
            samples = _OF_SCHEDULERS.get(f"{name}.{what}", INVENTED)
            found[f"{name}.{what}"] = Reader(of_output(read), samples)
        found[f"{name}.size"] = Reader(kind.text.parse_memory, _SCHEDULER_SIZES)
        found[f"{name}.time"] = Reader(kind.text.parse_time, _SCHEDULER_TIMES)
        lint = partial(kind.lint.lint, facts=SCRIPT_FACTS)
        if kind.traits.takes_scripts:
            found[f"lint.{name}"] = Reader(lint, _LINT)
            found[f"{name}.known"] = Reader(of_output(_known(kind)), _KNOWN[name])
            found[f"{name}.script"] = Reader(_described(kind), _LINT)
    return found


# no real output of any scheduler
INVENTED = ("", "12\n", "01:30:00\n", "12 a b\n", "a=1 b=2\n", '{"a": 1}\n', "<a/>\n")
READERS: dict[str, Reader] = {
    **_of_table(),
    "units.size": Reader(units.parse_size, _SIZES),
    "units.time": Reader(units.parse_duration, _TIMES),
    "headroom": Reader(request.parse_headroom, ("20%", "0.2")),
    "gpus": Reader(parse_gpus, ("2", "v100", "v100:2")),
    "halt": Reader(parse_halt, ("now,fail=1", "soon,done=50%", "never")),
    "checkpoint_signal": Reader(parse_checkpoint_signal, ("USR1@10m", "10@1h")),
    "gpu_name": Reader(gpu_models.find_gpu_model, _GPU_NAMES),
    "gpu_names": Reader(gpu_models.gpu_models_called, _GPU_NAMES),
    "nvml_name": Reader(
        lambda text: gpu_models.model_of_nvml_name(text, 40 << 30), _GPU_NAMES
    ),
    "environment": Reader(_environment, ("12", "4(x2)", "gpu:v100:2", "1-3:1", "62.5")),
    "elements": Reader(count_elements, ("2-9%2", "1,4", "3-12:1", "[0-9]")),
    "index_ranges": Reader(lambda text: all_of(parse_ranges(text)), ("0-3,7,10-20:5",)),
    "slurm.nodes": Reader(of_output(slurm_cluster.parse_nodes), _NODES),
    "slurm.partitions": Reader(of_output(slurm_cluster.parse_partitions), _PARTITIONS),
    "slurm.jobs": Reader(
        of_output(slurm_cluster.parse_squeue_jobs), captured("slurm-22.05-squeue.txt")
    ),
    "slurm.config": Reader(
        of_output(lambda text: text_pairs(text, "=")),
        captured("slurm-22.05-config.txt"),
    ),
    "slurm.limits": Reader(
        of_output(_slurm_limits),
        (*_NODES, *_PARTITIONS, "lab|gpu|normal,long|100\n", "normal|100\n"),
    ),
    "slurm.past": Reader(_past_jobs_of_slurm, captured("slurm-22.05-sacct-past.txt")),
    "gridengine.hosts": Reader(
        of_output(_gridengine_nodes),
        captured("gridengine-8.1.9-qhost.txt", "gridengine-8.1.9-host.txt"),
    ),
    "gridengine.queues": Reader(
        of_output(gridengine_cluster.parse_queues),
        captured("gridengine-8.1.9-queues.txt"),
    ),
    "gridengine.jobs": Reader(
        of_output(gridengine_cluster.parse_qstat_jobs),
        captured("gridengine-8.1.9-qstat.xml"),
    ),
    "gridengine.version": Reader(
        of_output(gridengine_cluster.parse_version), ("SGE 8.1.9\nusage:",)
    ),
    "gridengine.limits": Reader(
        of_output(_gridengine_limits),
        captured("gridengine-8.1.9-qhost.txt", "gridengine-8.1.9-complexes.txt"),
    ),
    "gpu_table": Reader(of_output(accounting.read_tables), sample("gpu-table.txt")),
    "joblog.ends": Reader(
        lambda text: all_of(joblog.read_task_ends(io.BytesIO(raw(text)))),
        sample("joblog.tsv"),
    ),
    "sweep.axis": Reader(parse_axis, _AXES),
    "sweep.condition": Reader(_condition, _CONDITIONS),
    "sweep.table": Reader(
        lambda text: all_of(read_table(io.StringIO(text, newline=""))),
        sample("table.tsv"),
    ),
    "task_file": Reader(
        lambda text: all_of(read_task_lines(io.BytesIO(raw(text)), "tasks.txt")),
        sample("tasks.txt"),
    ),
    "task_file.quotes": Reader(
        lambda text: has_open_quote(raw(text)),
        ("echo 'a", "echo $'a\\'", *sample("tasks.txt", "sbatch.sh")),
    ),
    "task.parameters": Reader(
        read_parameters, ("python run.py --lr 1e-2 --seed=1 -x batch=50",)
    ),
    "stage_file": Reader(
        in_file("s.toml", lambda _, path: read_stages(path)), sample("stages.toml")
    ),
    "config": Reader(
        in_file(
            "weigh.toml", lambda root, _: config.load_config(root, {}, site_file="")
        ),
        sample("weigh.toml"),
    ),
    "config.variables": Reader(
        lambda text: [_variable(key, text) for key in config.KEYS],
        ("0.5", "20%", "true"),
    ),
    "staging": Reader(
        lambda text: parse_staging([text], text, text, cwd="/w", home="/home/me"),
        ("$TMPDIR", "data:train", "/disk/x", "~/a:b/"),
    ),
    "progress": Reader(_progress, sample("bars.txt")),
    "record": Reader(lambda text: decode_record(raw(text)), (written.RECORDS,)),
    "record.file": Reader(
        in_file("r.json", lambda _, path: read_file(path)), (written.RECORDS,)
    ),
    "record.light": Reader(
        lambda text: decode_without_series(raw(text)), (written.RECORDS,)
    ),
    "record.heads": Reader(
        in_file("records/2026-11/node07-01234567.jsonl", _heads), (written.RECORDS * 2,)
    ),
    "jobs": Reader(in_file("jobs.jsonl", _jobs), (written.JOBS,)),
    "scans": Reader(
        in_file("scans.jsonl", lambda root, _: last_scan(root)),
        (written.SCANS,),
    ),
    "checkpoint": Reader(
        in_file(
            "running/7f3a91c0d2e4.json",
            lambda root, _: runs_in_progress(root, written.HERE, 1.0),
        ),
        (written.CHECKPOINT,),
    ),
    "poll": Reader(
        in_file("queue/slurm.json", lambda root, _: client.load_poll(root, "slurm")),
        (written.POLL,),
    ),
    "channel": Reader(
        in_file("c", lambda _, path: read_channel(path, started=1.0, ended=9.0)),
        (written.CHANNEL,),
    ),
    "events": Reader(
        lambda text: read_past_events(io.BytesIO(raw(text)), lambda _: True),
        (written.EVENTS,),
    ),
    "events.shown": Reader(
        in_file("j.events.jsonl", _ends),
        (written.EVENTS.replace("COMPLETED", "FAILED"),),
    ),
    "exec.progress": Reader(
        in_file("j.progress", lambda _, path: read_progress(path[:-9])),
        (written.PROGRESS,),
    ),
    "plan": Reader(
        in_file("plan.json", lambda root, _: read_plan(root)), (written.PLAN,)
    ),
    "git": Reader(of_output(code_check_of), sample("git-status.txt")),
    "torch": Reader(
        of_output(parse_torch), ("__version__ = '2.4.0+cpu'\ncuda = None",)
    ),
}
