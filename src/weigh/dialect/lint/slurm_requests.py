"""What ``#SBATCH`` lines ask for: arrays, dependencies, the sum for one node."""

import re
from collections.abc import Iterator

from weigh.dialect import slurm
from weigh.dialect.lint.asked import Asked
from weigh.dialect.lint.case import Case, Option, error, note, refused, warning
from weigh.dialect.lint.element_rules import Elements
from weigh.dialect.lint.slurm_values import gpus_of, memory_of
from weigh.dialect.numerals import positive_number, whole_number
from weigh.errors import FormatError
from weigh.model.lint import Finding

_ELEMENT = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_FEATURE = re.compile(r"[A-Za-z0-9_.+-]+")
_KINDS = "after|afterany|afterok|afternotok|aftercorr|afterburstbuffer"
_DEPENDENCY = re.compile(
    rf"(?:(?:{_KINDS}):\d+(?:_\d+|_\*)?(?:\+\d+)?(?::\d+(?:_\d+|_\*)?(?:\+\d+)?)*"
    rf"|singleton|\d+)",
    re.IGNORECASE,
)
_NEVER = {"afterok": ("COMPLETED",), "aftercorr": ("COMPLETED",)}
_GOING = frozenset({"PENDING", "RUNNING", "UNKNOWN"})
_GPU_WORDS = re.compile(
    r"nvidia-smi|torchrun|--device[= ]cuda|\bcuda[:/]|CUDA_VISIBLE_DEVICES"
    r"|module (?:load|add)\b.*\bcuda|--gpus?[= ]\d|apptainer .*--nv|singularity .*--nv"
)


def elements_of(option: Option | None) -> Elements | None:
    """Read ``0-9,20-30:2%5``; None where sbatch would refuse it, or it is no array."""
    if option is None or not option.value:
        return None
    indices, _, throttle = option.value.partition("%")
    ranges = []
    for part in indices.split(","):
        found = _ELEMENT.fullmatch(part)
        if not found:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        step = int(found[3] or 1)
        if last < first or not step:
            return None
        ranges.append(range(first, last + 1, step))
    if throttle and whole_number(throttle) is None:
        return None
    return Elements(tuple(ranges), positive_number(throttle))


def array_findings(case: Case) -> Iterator[Finding]:
    """Find arrays that are none, and throttles that do not hold."""
    option = case.option("array")
    if option is None:
        return
    if not option.value:
        yield error(option, "empty-array", "no index: one plain job, and no array")
    elif elements_of(option) is None:
        effect = f"{option.value!r} is no array: refused"
        cure = option.value.replace("..", "-") if ".." in option.value else "0-9%3"
        yield refused(option, "array", effect, f"write it like {cure}")
    elif "%" in option.value and elements_of(option) is not None:
        throttle = option.value.partition("%")[2]
        if not throttle.strip("0"):
            effect = f"%{throttle} does not hold anything back"
            yield warning(option, "no-throttle", effect, "%10: ten at a time")


def dependency_findings(case: Case) -> Iterator[Finding]:
    """Find dependencies on jobs that are not there or can no longer do."""
    option = case.option("dependency")
    if option is None:
        return
    for part in re.split(r"[,?]", option.value):
        if not _DEPENDENCY.fullmatch(part):
            effect = f"{part!r} is no dependency: refused"
            yield refused(option, "dependency", effect, "write it like afterok:4711")
            continue
        kind, _, ids = part.partition(":")
        if kind.isdecimal():
            kind, ids = "afterany", kind
        for job in filter(None, re.split(r"[:]", ids)):
            yield from _on_job(case, option, kind, job.partition("+")[0])


def _on_job(case: Case, option: Option, kind: str, job: str) -> Iterator[Finding]:
    state = case.facts.jobs.get(job, case.facts.jobs.get(job.partition("_")[0], ""))
    if state is None:
        effect = f"job {job} is not known: the job would run at once, or be refused"
        yield error(option, "unknown-job", effect)
    elif kind in _NEVER and state and state not in (*_GOING, *_NEVER[kind]):
        effect = f"job {job} ended {state}: this one would wait for ever"
        yield error(option, "failed-job", effect, f"afterany:{job}, or run {job} again")
    elif kind == "afternotok" and state == "COMPLETED":
        effect = f"job {job} has completed: this one would wait for ever"
        yield error(option, "failed-job", effect)


def asked_of(case: Case) -> Asked:
    """Add up what the directives ask for."""
    by = {
        "queues": case.option("partition"),
        "memory": case.option("mem", "mem-per-cpu", "mem-per-gpu"),
        "cpus": case.option("cpus-per-task") or case.option("ntasks-per-node"),
        "gpus": _gpu_option(case),
        "time": case.option("time"),
        "account": case.option("account"),
        "qos": case.option("qos"),
        "features": case.option("constraint"),
        "nodes": case.option("nodes"),
        "node_names": case.option("nodelist"),
        "elements": case.option("array"),
        "gres": case.option("gres"),
    }
    cpus = _cpus(case)
    gpus = gpus_of(by["gpus"])
    elements = elements_of(by["elements"])
    constraint = by["features"].value if by["features"] else ""
    return Asked(
        queues=tuple(by["queues"].value.split(",")) if by["queues"] else (),
        memory=_memory(by["memory"], cpus or 1, gpus.count if gpus else 0),
        cpus=cpus,
        nodes=_number(by["nodes"]),
        gpus=_gpus_on_node(case, gpus.count) if gpus else None,
        gpu_type=gpus.type if gpus else "",
        time=_seconds(by["time"]),
        no_end=_has_no_end(by["time"]),
        node_names=_node_names(by["node_names"]),
        account=by["account"].value if by["account"] else None,
        qos=by["qos"].value if by["qos"] else None,
        features=_features(constraint),
        resources=_resources(by["gres"]),
        elements=len(elements) if elements else None,
        last_index=elements.last if elements else None,
        by={name: option for name, option in by.items() if option is not None},
    )


def _resources(option: Option | None) -> tuple[str, ...]:
    """Name the generic resources asked for: ``gpu`` of ``gres/gpu:v100:2``."""
    words = option.value.split(",") if option else ()
    names = (re.split("[:=]", word.removeprefix("gres/"))[0] for word in words)
    return tuple(dict.fromkeys(name for name in names if name not in {"", "none"}))


def absent_findings(case: Case, asked: Asked) -> Iterator[Finding]:
    """Say what is left to the queue's defaults, where nobody knows them here."""
    if case.facts.limits is None and case.options:
        if "time" not in asked.by:
            effect = "no --time: the queue's default, often short, or its longest"
            yield note(None, "default-time", effect)
        if "memory" not in asked.by:
            effect = "no --mem: the queue's default, often little, or a whole node"
            yield note(None, "default-memory", effect)
    if not asked.gpus:
        for command in case.body.commands:
            if _GPU_WORDS.search(command.text):
                effect = "no GPU was asked for: this finds none"
                yield warning(command, "no-gpu", effect, "add #SBATCH --gres=gpu:1")
                return


def _features(constraint: str) -> tuple[str, ...]:
    # counts and brackets join features: [rack1*2&rack2*4]
    return tuple(
        word
        for word in _FEATURE.findall(re.sub(r"\*\d+", "", constraint))
        if not word.isdecimal()
    )


def _gpu_option(case: Case) -> Option | None:
    gres = case.option("gres")
    if gres is not None and gpus_of(gres) is not None:
        return gres
    return case.option("gpus-per-node", "gpus-per-task", "gpus-per-socket", "gpus")


def _gpus_on_node(case: Case, count: int) -> int:
    option = _gpu_option(case)
    nodes = _number(case.option("nodes")) or 1
    tasks = _number(case.option("ntasks")) or 1
    if option is not None and option.name == "gpus":
        return -(-count // nodes)
    if option is not None and option.name == "gpus-per-task":
        return -(-count * tasks // nodes)
    return count


def _cpus(case: Case) -> int | None:
    each = _number(case.option("cpus-per-task"))
    on_node = _number(case.option("ntasks-per-node"))
    if on_node is None:
        tasks = _number(case.option("ntasks"))
        nodes = _number(case.option("nodes"))
        on_node = tasks if tasks is not None and nodes in (None, 1) else None
        on_node = None if nodes is None else on_node  # Slurm may spread the tasks
    if each is None and on_node is None:
        return None
    return (each or 1) * (on_node or 1)


def _memory(option: Option | None, cpus: int, gpus: int) -> int | None:
    size = memory_of(option)
    if option is None or size is None:
        return None
    return size * {"mem-per-cpu": cpus, "mem-per-gpu": gpus or 1}.get(option.name, 1)


def _number(option: Option | None) -> int | None:
    return whole_number(option.value.partition("-")[0]) if option else None


def _seconds(option: Option | None) -> int | None:
    try:
        return None if option is None else slurm.parse_time(option.value)
    except FormatError:
        return None


def _has_no_end(option: Option | None) -> bool:
    try:
        return option is not None and slurm.parse_time(option.value) is None
    except FormatError:
        return False


def _node_names(option: Option | None) -> tuple[str, ...]:
    # node[1-3] stands for several: left to Slurm
    if option is None or "[" in option.value:
        return ()
    return tuple(option.value.split(","))
