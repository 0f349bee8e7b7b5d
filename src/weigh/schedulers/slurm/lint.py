"""Lint for Slurm scripts: paths, arrays, dependencies, and the request per node."""

import re
from collections.abc import Iterator, Mapping

from weigh.errors import FormatError
from weigh.model.lint import Facts, Finding
from weigh.schedulers.dialect import positive_number, whole_number
from weigh.schedulers.lint.case import (
    Case,
    Elements,
    Granted,
    MakeFinding,
    Option,
    Read,
    Requested,
    Words,
    did_you_mean,
    is_shared,
    note,
    problem,
    refused,
)
from weigh.schedulers.lint.common import ScriptLint
from weigh.schedulers.lint.limit_rules import limit_rules
from weigh.schedulers.lint.path_rules import holds_placeholder
from weigh.schedulers.script import Script
from weigh.schedulers.slurm import lint_options as slurm_lint_options
from weigh.schedulers.slurm import text as slurm_text
from weigh.schedulers.slurm.lint_options import gpus_of, memory_of, read_options

_PATTERN = re.compile(r"%(\d*)([A-Za-z%])")
_KNOWN = frozenset("%AaJjNnstuxbw")
_PER_ELEMENT = frozenset("ajJ")
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


def _start_folder(case: Case) -> str | None:
    """Return the job's working directory as the script sets it."""
    chosen = case.option("chdir")
    cwd = case.facts.cwd
    return case.absolute(chosen.value if chosen else cwd, cwd)


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
    return problem(option, "literal-path", effect, fix)


def _directory(case: Case, option: Option) -> Iterator[Finding]:
    directory, slash, leaf = option.value.rpartition("/")
    if not slash:
        return
    if slash and not leaf:
        yield problem(option, "log-directory", "names a directory: no log is written")
    filled = _filled(case, directory)
    if filled is None:
        effect = "Slurm does not create the log's directory: the job fails without it"
        yield problem(option, "log-directory", effect, "% only in the file's name")
        return
    path = case.absolute(filled, case.start)
    if path is not None and case.kind(path) in ("missing", "file"):
        where = "here" if not is_shared(case, filled, path) else "exist"
        effect = f"{directory}/ does not {where}: the job would fail without a log"
        make: MakeFinding = problem
        if where == "here":
            effect = f"{directory}/ does not exist here: without it the job fails"
            make = note
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
            yield note(option, "log-pattern", f"%{letter} is not a Slurm pattern")
        elif letter == "a" and not _is_array(case):
            effect = "%a is 4294967294 in a job that is not an array"
            yield note(option, "log-pattern", effect, "%j is the job id")


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
        yield problem(option, "log-shared", effect, "add %A_%a")


def _start(case: Case) -> Iterator[Finding]:
    option = case.option("chdir")
    if option is None:
        return
    if _is_literal(option.value):
        effect = "'$' and '~' are not expanded: the job runs in /tmp"
        yield problem(option, "literal-path", effect, "write the full path")
        return
    path = case.absolute(option.value, case.facts.cwd)
    if path is not None and case.kind(path) in ("missing", "file"):
        shared = is_shared(case, option.value, path)
        effect = f"{option.value} does not exist: the job would run in /tmp"
        if not shared:
            effect = (
                f"{option.value} does not exist here: without it the job runs in /tmp"
            )
        make: MakeFinding = problem if shared else note
        yield make(option, "chdir", effect, "")


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


def elements_of(option: Option | None) -> Elements | None:
    """Read ``0-9,20-30:2%5``; None if sbatch would reject it or it is not an array."""
    if option is None or not option.value:
        return None
    indices, _, throttle = option.value.partition("%")
    if indices.startswith("[") and indices.endswith("]"):
        indices = indices[1:-1]  # read as without them
    ranges = []
    for part in indices.removesuffix(",").split(","):
        found = _ELEMENT.fullmatch(part)
        if not found:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        step = int(found[3] or 1)
        if last < first or not step:
            return None
        ranges.append(range(first, last + 1, step))
    return Elements(tuple(ranges), positive_number(throttle))


def array_findings(case: Case) -> Iterator[Finding]:
    """Find invalid arrays, and throttles without effect."""
    option = case.option("array")
    if option is None:
        return
    if not option.value:
        yield problem(option, "empty-array", "no index: a plain job, not an array")
    elif elements_of(option) is None:
        effect = f"{option.value!r} is not an array: refused"
        fix = option.value.replace("..", "-") if ".." in option.value else "0-9%3"
        yield refused(option, "array", effect, f"write it like {fix}")
    elif "%" in option.value and elements_of(option) is not None:
        throttle = option.value.partition("%")[2]
        if not positive_number(throttle):
            effect = f"%{throttle} has no effect"
            yield note(option, "no-throttle", effect, "%10 runs ten at a time")


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
        yield problem(option, "unknown-job", effect)
    elif kind in _NEVER and state and state not in (*_GOING, *_NEVER[kind]):
        effect = f"job {job} ended {state}: this one would never start"
        yield problem(
            option, "failed-job", effect, f"afterany:{job}, or run {job} again"
        )
    elif kind == "afternotok" and state == "COMPLETED":
        effect = f"job {job} has completed: this one would never start"
        yield problem(option, "failed-job", effect)


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
    if option is None:
        return ()
    return tuple(slurm_text.node_names(option.value))


_JOB = re.compile(r":([0-9]{1,12})(?=[:,?+_]|$)", re.ASCII)
_UNCLEAR_CPUS = (
    *("exclusive", "mincpus", "cpus-per-gpu", "ntasks-per-gpu", "ntasks-per-core"),
    *("ntasks-per-socket", "sockets-per-node", "cores-per-socket", "extra-node-info"),
    *("threads-per-core", "hint", "overcommit", "oversubscribe"),
)


def _granted(case: Case) -> Granted:
    """Add up what the job gets at most on the node that runs its script."""
    requested = requested_by(case)
    each = case.option("cpus-per-task")
    ntasks, on_node = case.option("ntasks"), case.option("ntasks-per-node")
    nodes = case.option("nodes")
    count = _number(nodes) if nodes else (1 if not ntasks or on_node else None)
    if nodes and "-" in nodes.value:
        count = None
    tasks = _number(ntasks) if ntasks else None
    if tasks is None and count is not None:
        tasks = count * (_number(on_node) or 1 if on_node else 1)
    if ntasks and not nodes and tasks == 1:
        count = 1
    here = _number(on_node) if on_node else tasks
    cpus = (_number(each) or 1 if each else 1) * (here or 1)
    is_unclear = any(case.option(name) for name in _UNCLEAR_CPUS)
    gives_cpus = requested.gpus and each is None  # sites set CPUs for each GPU
    return Granted(
        cpus=None if is_unclear or gives_cpus or tasks is None else cpus,
        cpus_asked=bool(each or ntasks or on_node),
        cpus_per_task=_number(each) if each else None,
        tasks=tasks,
        nodes=count,
        gpus=_gpus(case, requested),
        memory=requested.memory or None,
        array=case.option("array"),
        elements=elements_of(case.option("array")),
    )


def _gpus(case: Case, requested: Requested) -> int | None:
    """Return the GPUs of the job; None if something else may bring them."""
    if requested.gpus is not None:
        is_known = case.option("ntasks") or not case.option("gpus-per-task")
        return requested.gpus if is_known else None
    queue = case.option("partition")
    asks = case.option("gres", "tres-per-task", "exclusive", "constraint", "qos")
    in_queue = queue is not None and re.search(
        r"gpu|cuda|[avh]\d+", queue.value.lower()
    )
    return None if asks or in_queue or not case.options else 0


def _excluded(case: Case) -> Iterator[Finding]:
    option, limits = case.option("exclude"), case.facts.limits
    known = None if limits is None else limits.node_names
    for name in _node_names(option) if known is not None else ():
        if known is not None and name not in known:
            effect = f"node {name} does not exist: refused"
            yield refused(option, "unknown-node", effect, did_you_mean(name, known))
            return


def _fewer_nodes(case: Case) -> Iterator[Finding]:
    """Note more nodes than tasks: sbatch lowers the number of nodes."""
    option, tasks = case.option("nodes"), _number(case.option("ntasks"))
    nodes = whole_number(option.value) if option else None
    if nodes and tasks and nodes > tasks:
        count = "1 task fits" if tasks == 1 else f"{tasks} tasks fit"
        nodes_text = "1 node" if tasks == 1 else f"{tasks} nodes"
        effect = f"{count} on {nodes_text}: the job gets no more"
        yield note(option, "nodes-beyond-tasks", effect, f"--ntasks={nodes}")


def _limits(case: Case) -> Iterator[Finding]:
    requested = requested_by(case)
    yield from limit_rules(case, requested)
    yield from absent_findings(case, requested)


_SET_BY_SLURM = """
    SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MAX
    SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP SLURM_CLUSTER_NAME SLURM_CONF
    SLURM_CONTAINER SLURM_CPUS_ON_NODE SLURM_CPUS_PER_GPU SLURM_CPUS_PER_TASK
    SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_VERBOSE
    SLURM_CPU_FREQ_REQ SLURM_DISTRIBUTION SLURM_EXPORT_ENV SLURM_GPUS
    SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK
    SLURM_GPU_BIND SLURM_GPU_FREQ SLURM_GTIDS SLURM_HET_SIZE SLURM_HINT SLURM_JOBID
    SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_DEPENDENCY SLURM_JOB_END_TIME
    SLURM_JOB_GID SLURM_JOB_GPUS SLURM_JOB_GROUP SLURM_JOB_ID SLURM_JOB_LICENSES
    SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION
    SLURM_JOB_QOS SLURM_JOB_RESERVATION SLURM_JOB_START_TIME SLURM_JOB_UID
    SLURM_JOB_USER SLURM_LAUNCH_NODE_IPADDR SLURM_LOCALID SLURM_MEM_BIND
    SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_MPI_TYPE SLURM_NNODES
    SLURM_NODEID SLURM_NODELIST SLURM_NODENAME SLURM_NODE_ALIASES SLURM_NPROCS
    SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE
    SLURM_NTASKS_PER_SOCKET SLURM_OVERCOMMIT SLURM_PRIO_PROCESS SLURM_PROCID
    SLURM_PROFILE SLURM_QOS SLURM_RESTART_COUNT SLURM_SHARDS_ON_NODE
    SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_STEPID SLURM_STEP_GPUS SLURM_STEP_ID
    SLURM_STEP_LAUNCHER_PORT SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES
    SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST
    SLURM_TASKS_PER_NODE SLURM_TASK_PID SLURM_THREADS_PER_CORE SLURM_TMPDIR
    SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_TRES_PER_TASK SLURM_UMASK
    SLURM_VERSION SLURM_WORKING_CLUSTER SLURMD_NODENAME
"""
_SETS_TASKS = (
    *("ntasks", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket"),
    "ntasks-per-core",
)
_SAME_IN_ALL_ELEMENTS = """
    SLURM_ARRAY_JOB_ID SLURM_JOB_NAME SLURM_SUBMIT_DIR SLURM_JOB_USER
    SLURM_JOB_PARTITION SLURM_JOB_ACCOUNT SLURM_CLUSTER_NAME SLURM_ARRAY_TASK_COUNT
    SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN
"""
WORDS = Words(
    tool="sbatch",
    array="--array",
    element="SLURM_ARRAY_TASK_ID",
    foreign=("SGE_TASK_ID", "PBS_ARRAYID", "PBS_ARRAY_INDEX", "LSB_JOBINDEX"),
    common=frozenset(_SAME_IN_ALL_ELEMENTS.split()),
    own=r"SLURM_\w+",
    variables=frozenset(_SET_BY_SLURM.split()),
    only_with={  # as seen in jobs of 22.05
        "SLURM_CPUS_PER_TASK": ("cpus-per-task", "cpus-per-gpu"),
        "SLURM_NTASKS": _SETS_TASKS,
        "SLURM_NPROCS": _SETS_TASKS,
        "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
        "SLURM_GPUS": ("gpus", "gpus-per-task", "ntasks-per-gpu"),
        "SLURM_MEM_PER_NODE": ("mem",),
    },
    counts_once=frozenset(
        {"array", "cpus-per-task", "ntasks", "ntasks-per-node", "nodes", "mem", "time"}
        | {"mem-per-cpu", "partition", "account", "qos", "gres", "gpus", "job-name"}
        | {"output", "error", "chdir", "mail-user", "constraint"}
        | {"dependency", "signal", "gpus-per-node", "gpus-per-task", "mem-per-gpu"}
    ),
)


def _read(script: Script, _: Facts) -> Read:
    return read_options(script)


_LINT = ScriptLint(
    words=WORDS,
    read=_read,
    start=_start_folder,
    granted=_granted,
    rules=(
        *slurm_lint_options.RULES,
        _logs,
        _start,
        array_findings,
        dependency_findings,
        _excluded,
        _fewer_nodes,
        _limits,
    ),
)
lint = _LINT.lint
case_of = _LINT.case
directives = _LINT.directives


def default_files(
    cwd: str,  # noqa: ARG001 - of the protocol
    env: Mapping[str, str],  # noqa: ARG001
) -> tuple[tuple[str, str], ...]:
    """Return no file: sbatch reads none."""
    return ()


def awaited(text: str) -> tuple[str, ...]:
    """Return the ids of the jobs that the script depends on."""
    options = _LINT.options(text).options
    values = (one.value for one in options if one.name == "dependency")
    return tuple(dict.fromkeys(job for one in values for job in _JOB.findall(one)))


_GPUS = re.compile(r"--gres[= ]\S*gpu|--gpus|(?:^|\s)-G\b")


def requests_gpus(flags: str, env: Mapping[str, str]) -> bool:
    """Return whether *flags*, or the user's defaults, request GPUs."""
    return bool(_GPUS.search(flags)) or "gpu" in env.get("SBATCH_GRES", "")
