"""Lint for Slurm scripts: paths, arrays, dependencies, and the request per node."""

import re
from collections.abc import Iterator, Mapping

import msgspec

from weigh.errors import FormatError
from weigh.model.lint import Facts, Finding
from weigh.schedulers.dialect import positive_number, whole_number
from weigh.schedulers.lint import environment_rules, path_rules, signal_rules
from weigh.schedulers.lint.case import (
    Case,
    MakeFinding,
    Option,
    Requested,
    Rule,
    error,
    is_shared,
    note,
    open_case,
    refused,
    warning,
)
from weigh.schedulers.lint.element_rules import Elements, element_rules
from weigh.schedulers.lint.limit_rules import limit_rules
from weigh.schedulers.lint.path_rules import holds_placeholder
from weigh.schedulers.script import read_script
from weigh.schedulers.slurm import lint_options as slurm_lint_options
from weigh.schedulers.slurm import text as slurm_text
from weigh.schedulers.slurm.lint_options import Read, gpus_of, memory_of, read_options

_PATTERN = re.compile(r"%(\d*)([A-Za-z%])")
_KNOWN = frozenset("%AaJjNnstuxbw")
_PER_ELEMENT = frozenset("aj")
_PER_JOB = frozenset("AaJjNnst")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_INSTEAD = {
    "USER": "%u",
    "SLURM_JOB_ID": "%j",
    "SLURM_JOBID": "%j",
    "SLURM_ARRAY_JOB_ID": "%A",
    "SLURM_ARRAY_TASK_ID": "%a",
    "SLURM_JOB_NAME": "%x",
}


def start(case_options: tuple[Option, ...], cwd: str) -> str:
    """Return the job's working directory as the script sets it."""
    chosen = [one.value for one in case_options if one.name == "chdir"]
    return chosen[-1] if chosen else cwd


def _logs(case: Case) -> Iterator[Finding]:
    reported: set[str] = set()
    for name in ("output", "error", "input"):
        option = case.option(name)
        if option is None or holds_placeholder(option.value):
            continue
        directory = option.value.rpartition("/")[0]
        if _is_literal(option.value):
            yield _unread(option)
        elif name != "input":
            if directory not in reported:
                yield from _directory(case, option)
            reported.add(directory)
            yield from _patterns(case, option)
            yield from _shared_by_elements(case, option)


def _is_literal(value: str) -> bool:
    return value.startswith("~") or "$" in value or "`" in value


def _unread(option: Option) -> Finding:
    found = _VARIABLE.search(option.value)
    mark = found[0] if found else option.value[0]
    effect = f"{mark} is not expanded: no such directory, the job fails without a log"
    instead = _INSTEAD.get(found[1]) if found else None
    fix = f"write {instead}" if instead else "write the full path; %u is the user"
    if option.name == "input":
        effect = f"{mark} is not expanded: the job fails without a log"
    return error(option, "literal-path", effect, fix)


def _directory(case: Case, option: Option) -> Iterator[Finding]:
    directory, slash, leaf = option.value.rpartition("/")
    if not slash:
        return
    if slash and not leaf:
        yield error(option, "log-directory", "names a directory: no log is written")
    filled = _filled(case, directory)
    if filled is None:
        effect = "Slurm does not create the log's directory: the job fails without it"
        yield error(option, "log-directory", effect, "% only in the file's name")
        return
    path = case.absolute(filled, case.start)
    if path is not None and case.kind(path) in ("missing", "file"):
        where = "here" if not is_shared(case, filled, path) else "exist"
        effect = f"{directory}/ does not {where}: the job would fail without a log"
        make: MakeFinding = error
        if where == "here":
            effect = f"{directory}/ does not exist here: without it the job fails"
            make = warning
        yield make(option, "log-directory", effect, f"mkdir -p {filled}")


def _filled(case: Case, directory: str) -> str | None:
    """Fill in the patterns known before submission; None if one needs the job id."""
    job_name = case.option("job-name")
    known = {"u": case.facts.user, "x": job_name.value if job_name else None}
    for _, letter in _PATTERN.findall(directory):
        if letter in _PER_JOB:
            return None
        value = known.get(letter)
        if value is not None:
            directory = directory.replace(f"%{letter}", value)
    return directory


def _patterns(case: Case, option: Option) -> Iterator[Finding]:
    for _, letter in _PATTERN.findall(option.value):
        if letter not in _KNOWN:
            yield warning(option, "log-pattern", f"%{letter} is not a Slurm pattern")
        elif letter == "a" and not _is_array(case):
            effect = "%a is 4294967294 in a job that is not an array"
            yield warning(option, "log-pattern", effect, "%j is the job id")


def _is_array(case: Case) -> bool:
    """Return whether it is an array, or likely to be submitted with ``--array``."""
    named = any(case.element in token.text for token in case.body.tokens)
    return named or case.option("array") is not None


def _shared_by_elements(case: Case, option: Option) -> Iterator[Finding]:
    letters = {letter for _, letter in _PATTERN.findall(option.value)}
    if case.option("array") is None or option.value.startswith("/dev/"):
        return
    if not letters & _PER_ELEMENT:
        effect = "all elements write to one file, over each other"
        yield error(option, "log-shared", effect, "add %A_%a")


def _start(case: Case) -> Iterator[Finding]:
    option = case.option("chdir")
    if option is None:
        return
    if _is_literal(option.value):
        effect = "'$' and '~' are not expanded: the job runs in /tmp"
        yield error(option, "literal-path", effect, "write the full path")
        return
    path = case.absolute(option.value, case.facts.cwd)
    if path is not None and case.kind(path) in ("missing", "file"):
        shared = is_shared(case, option.value, path)
        effect = f"{option.value} does not exist: the job would run in /tmp"
        if not shared:
            effect = (
                f"{option.value} does not exist here: without it the job runs in /tmp"
            )
        make: MakeFinding = error if shared else warning
        yield make(option, "chdir", effect, "")


RULES: tuple[Rule, ...] = (_logs, _start)


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
    """Read ``0-9,20-30:2%5``; None if sbatch would reject it or it is not an array."""
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
    """Find invalid arrays, and throttles without effect."""
    option = case.option("array")
    if option is None:
        return
    if not option.value:
        yield error(option, "empty-array", "no index: a plain job, not an array")
    elif elements_of(option) is None:
        effect = f"{option.value!r} is not an array: refused"
        fix = option.value.replace("..", "-") if ".." in option.value else "0-9%3"
        yield refused(option, "array", effect, f"write it like {fix}")
    elif "%" in option.value and elements_of(option) is not None:
        throttle = option.value.partition("%")[2]
        if not throttle.strip("0"):
            effect = f"%{throttle} has no effect"
            yield warning(option, "no-throttle", effect, "%10 runs ten at a time")


def dependency_findings(case: Case) -> Iterator[Finding]:
    """Find dependencies on unknown jobs, and those that can never be satisfied."""
    option = case.option("dependency")
    if option is None:
        return
    for part in re.split(r"[,?]", option.value):
        if not _DEPENDENCY.fullmatch(part):
            effect = f"{part!r} is not a dependency: refused"
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
        effect = f"job {job} ended {state}: this one would never start"
        yield error(option, "failed-job", effect, f"afterany:{job}, or run {job} again")
    elif kind == "afternotok" and state == "COMPLETED":
        effect = f"job {job} has completed: this one would never start"
        yield error(option, "failed-job", effect)


def requested_by(case: Case) -> Requested:
    """Add up what the directives request."""
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
    return Requested(
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
    """Return the names of the requested resources: ``gpu`` of ``gres/gpu:v100:2``."""
    words = option.value.split(",") if option else ()
    names = (re.split("[:=]", word.removeprefix("gres/"))[0] for word in words)
    return tuple(dict.fromkeys(name for name in names if name not in {"", "none"}))


def absent_findings(case: Case, requested: Requested) -> Iterator[Finding]:
    """Note the values left to the queue's defaults, which are not known here."""
    if case.facts.limits is None and case.options:
        if "time" not in requested.by:
            effect = "no --time: the queue's default applies, often short"
            yield note(None, "default-time", effect)
        if "memory" not in requested.by:
            effect = "no --mem: the queue's default applies, often little"
            yield note(None, "default-memory", effect)
    if not requested.gpus:
        for command in case.body.commands:
            if _GPU_WORDS.search(command.text):
                effect = "no GPU was requested: this finds none"
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
        on_node = (
            None if nodes is None else on_node
        )  # Slurm may spread the tasks over nodes
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
        return None if option is None else slurm_text.parse_time(option.value)
    except FormatError:
        return None


def _has_no_end(option: Option | None) -> bool:
    try:
        return option is not None and slurm_text.parse_time(option.value) is None
    except FormatError:
        return False


def _node_names(option: Option | None) -> tuple[str, ...]:
    # node[1-3] means several nodes: Slurm checks it
    if option is None or "[" in option.value:
        return ()
    return tuple(option.value.split(","))


_RULES = (
    *path_rules.RULES,
    *slurm_lint_options.RULES,
    *slurm_lint_options.SLURM_VALUES,
    *RULES,
    *path_rules.PLACEHOLDER_RULES,
    *environment_rules.PLAIN_SH_RULES,
    *environment_rules.RULES,
    *path_rules.PATH_RULES,
    *signal_rules.RULES,
)

_JOB = re.compile(r":([0-9]{1,12})(?=[:,?+_]|$)", re.ASCII)


def lint(text: str, facts: Facts) -> tuple[Finding, ...]:
    """Return the problems of the script *text* by line; missing *facts* skip checks."""
    case, read = _case(text, facts)
    found = [*read.findings, *_found(case)]
    return tuple(sorted(found, key=lambda one: one.line or len(text)))


def directives(text: str) -> int:
    """Return the number of directive lines that sbatch reads."""
    return len(read_options(read_script(text)).lines)


def awaited(text: str) -> tuple[str, ...]:
    """Return the ids of the jobs that the script depends on."""
    options = read_options(read_script(text)).options
    values = (one.value for one in options if one.name == "dependency")
    return tuple(dict.fromkeys(job for one in values for job in _JOB.findall(one)))


def _case(text: str, facts: Facts) -> tuple[Case, Read]:
    script = read_script(text)
    read = read_options(script)
    case = open_case(
        script, read.options, facts, tool="sbatch", element="SLURM_ARRAY_TASK_ID"
    )
    folder = case.absolute(start(read.options, facts.cwd), facts.cwd)
    return msgspec.structs.replace(case, start=folder), read


def _found(case: Case) -> Iterator[Finding]:
    for rule in _RULES:
        yield from rule(case)
    array = case.option("array")
    yield from array_findings(case)
    yield from element_rules(case, array, elements_of(array))
    yield from dependency_findings(case)
    requested = requested_by(case)
    yield from limit_rules(case, requested)
    yield from absent_findings(case, requested)


_GPUS = re.compile(r"--gres[= ]\S*gpu|--gpus|(?:^|\s)-G\b")


def requests_gpus(flags: str, env: Mapping[str, str]) -> bool:
    """Return whether *flags*, or the user's defaults, request GPUs."""
    return bool(_GPUS.search(flags)) or "gpu" in env.get("SBATCH_GRES", "")
