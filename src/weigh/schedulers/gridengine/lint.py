"""Lint for Grid Engine scripts: what qsub misreads, or accepts and never runs.

The behaviour of qsub and of jobs was observed on 8.1.9.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping

from weigh.errors import FormatError
from weigh.model.lint import Facts, Finding
from weigh.schedulers.dialect import positive_number, whole_number
from weigh.schedulers.gridengine import text as gridengine_text
from weigh.schedulers.gridengine.cluster import is_gpu_type
from weigh.schedulers.gridengine.lint_options import PREFIX, read_options
from weigh.schedulers.lint.case import (
    Case,
    Elements,
    Granted,
    MakeFinding,
    Option,
    Requested,
    Rule,
    Words,
    is_shared,
    note,
    problem,
    refused,
)
from weigh.schedulers.lint.common import ScriptLint, switched_off
from weigh.schedulers.lint.limit_rules import limit_rules
from weigh.schedulers.lint.path_rules import holds_placeholder
from weigh.schedulers.script import Line, read_script
from weigh.units import MINUTE, format_size

GPU_RESOURCES = ("ngpus", "gpu", "gpus", "num_gpus", "gpu_card", "cuda")

_TIMES = ("h_rt", "s_rt", "h_cpu", "s_cpu")
_SIZES = ("h_vmem", "s_vmem", "mem_free", "virtual_free", "h_rss", "h_data", "tmpfs")
_MEANT = re.compile(r"(?P<indent>\s*)(?P<hashes>#+)(?P<gap>\s*)\$\s*(?=-[A-Za-z])")
# 1:200 is read as 1-200
_RANGE = re.compile(r"([0-9]{1,9})(?:[-:]([0-9]{1,9})(?::([0-9]{1,9}))?)?-?")
_YES = r"y|yes|n|no"
_DATE = r"(?:\d\d){4,6}(?:\.\d\d)?"
_CHOICES = {
    **dict.fromkeys(("b", "j", "r", "R", "now", "shell", "sync"), _YES),
    "w": "e|w|n|p|v",
    "a": _DATE,
    "dl": _DATE,
    "tc": r"\d+",
}
_LOWEST, _HIGHEST = -1023, 1024
_SLURM_PATTERN = re.compile(r"%[jAaxu]")
_SAFE_TO_BEGIN = re.compile(r"\d")
_MANY_BYTES = 1 << 20
_HELD_FOR = frozenset({"PENDING", "RUNNING", "UNKNOWN", "COMPLETED"})


def _ignored(case: Case) -> Iterator[Finding]:
    submits = any("qsub" in one.text for one in case.body.tokens)
    off: list[Line] = []
    for line in case.script.lines:
        if line.text.startswith(PREFIX):
            if line.line in case.body.documents and not submits:
                effect = "in a here-document: qsub reads it for this job nevertheless"
                yield note(line, "directive-in-document", effect)
            continue
        found = _MEANT.match(line.text)
        if not found:
            continue
        if found["gap"] and len(found["hashes"]) == 1:
            effect = "a space after '#': qsub ignores this line"
            yield problem(line, "space-in-directive", effect)
        elif len(found["hashes"]) > 1:
            off.append(line)
        else:
            effect = "spaces before '#': qsub ignores this line"
            fix = "begin it in the first column"
            yield problem(line, "indented-directive", effect, fix)
    yield from switched_off(case, off, lambda text: read_options(read_script(text)))


def _slurm_lines(case: Case) -> Iterator[Finding]:
    line = next((o for o in case.script.lines if o.text.startswith("#SBATCH")), None)
    if line is not None and not any(
        o.text.startswith(PREFIX) for o in case.script.lines
    ):
        yield problem(
            line, "foreign-directive", "qsub ignores Slurm's lines", "#$ -l ..."
        )


def _times(case: Case) -> Iterator[Finding]:
    for name in _TIMES:
        option = case.option(f"l:{name}")
        if option is None:
            continue
        try:
            seconds = gridengine_text.parse_time(option.value)
        except FormatError:
            effect = f"{option.value!r} is not a Grid Engine time: refused"
            yield refused(option, "time", effect, _time_fix(option.value))
            continue
        if seconds == 0:
            yield problem(option, "time-zero", "no time: killed at once")
        elif whole_number(option.value) and seconds is not None and seconds < MINUTE:
            fix = f"{option.value} hours are {option.value}:00:00"
            effect = f"is {seconds} seconds"
            yield note(option, "time-in-seconds", effect, fix)


def _time_fix(value: str) -> str:
    if re.fullmatch(r"\d+:\d\d", value):
        return f"three fields: {value}:00"
    hours = re.fullmatch(r"(\d+)h", value)
    return f"write {hours[1]}:00:00" if hours else "write it like 01:30:00 or 5400"


def _sizes(case: Case) -> Iterator[Finding]:
    for name in _SIZES:
        option = case.option(f"l:{name}")
        if option is None or option.value == "inf":
            continue
        size = size_of(option)
        if option.value == "TRUE":
            yield problem(option, "memory", "no size: not limited", "write =4G")
        elif size is None:
            effect = f"{option.value!r} is not a Grid Engine size: refused"
            found = re.match(r"(\d+)\s*([KMGT])i?B", option.value, re.IGNORECASE)
            fix = f"write {found[1]}{found[2].upper()}" if found else ""
            yield refused(option, "memory", effect, fix or "write it like 500M or 4G")
        elif size < _MANY_BYTES:
            fix = f"{option.value.rstrip('kK')} GiB are {option.value.rstrip('kK')}G"
            yield problem(option, "memory-in-bytes", f"is {format_size(size)}", fix)
        elif option.value[-1:] in "kmgt":
            effect = f"lower case counts by 1000: {format_size(size)}"
            upper = option.value[:-1] + option.value[-1].upper()
            yield note(option, "memory-by-1000", effect, f"{upper} counts by 1024")


def _virtual(case: Case) -> Iterator[Finding]:
    option = case.option("l:h_vmem")
    size = size_of(option)
    slots = slots_of(case)
    if option is None or not size:
        return
    if slots > 1:
        effect = (
            f"applies to each of {slots} slots: {format_size(size * slots)} in total"
        )
        share = gridengine_text.format_memory(-(-size // slots))
        fix = f"h_vmem={share} if {format_size(size)} in total was meant"
        yield note(option, "memory-per-slot", effect, fix)
    if any(case.option(f"l:{name}") for name in GPU_RESOURCES):
        effect = "limits virtual memory, of which CUDA reserves tens of GiB"
        fix = "omit it if the site allows, or request much more"
        yield note(option, "virtual-with-cuda", effect, fix)


def _arrays(case: Case) -> Iterator[Finding]:
    option, throttle = case.option("t"), case.option("tc")
    if option is None:
        if throttle is not None:
            yield refused(throttle, "tc-alone", "-tc without -t: refused")
        return
    value = option.value
    found = _RANGE.fullmatch(value)
    if re.match(r"0+(?!\d)", value):
        effect = "array indices start at 1: refused"
        last, colon, step = value.partition("-")[2].partition(":")
        count = (whole_number(last) or 0) + 1
        fix = f"-t 1-{count}{colon}{step}, and subtract 1"
        yield refused(option, "array-from-zero", effect, fix)
    elif "%" in value:
        indices, _, most = value.partition("%")
        yield refused(
            option, "array", "'%' is Slurm syntax: refused", f"-t {indices} -tc {most}"
        )
    elif "," in value:
        effect = f"{value} becomes one range here, from the first to the last"
        yield problem(option, "array-list", effect, "one -t FIRST-LAST:STEP per job")
    elif not found or not int(found[3] or 1):
        yield refused(option, "array", f"{value!r} is not a range: refused", "-t 1-10")
    elif found[2] and int(found[2]) < int(found[1]):
        effect = f"is read as {found[2]}-{found[1]}"
        yield note(option, "array-backwards", effect)
    elif not found[2] and int(found[1]) > 1:
        effect = f"is the one element {value}, not {value} of them"
        yield problem(option, "array-of-one", effect, f"-t 1-{value}")


def _logs(case: Case) -> Iterator[Finding]:
    for name in ("o", "e"):
        option = case.option(name)
        if option is None or holds_placeholder(option.value):
            continue
        value = option.value.removeprefix(":")
        if _SLURM_PATTERN.search(value):
            effect = "'%' patterns are Slurm syntax: the file gets this literal name"
            yield problem(option, "log-pattern", effect, "$JOB_ID, $TASK_ID, $JOB_NAME")
        directory, slash, _ = value.rpartition("/")
        path = case.absolute(directory, case.start) if slash and directory else None
        if path is not None and case.kind(path) in ("missing", "file"):
            shared = is_shared(case, directory, path)
            make: MakeFinding = problem if shared else note
            here = "does not exist" if shared else "is not there here"
            effect = f"{directory}/ {here}: without it the job stays in Eqw"
            written = directory if case.start == case.facts.cwd else path
            yield make(option, "log-directory", effect, f"mkdir -p {written}")


def _shared_log(case: Case) -> Iterator[Finding]:
    elements, option = case.granted.elements, case.option("o")
    if elements is None or len(elements) == 1 or option is None:
        return
    value = option.value.removeprefix(":")
    if "$TASK_ID" in value or "${TASK_ID}" in value or value.startswith("/dev/"):
        return
    path = case.absolute(re.sub(r"\$(?:JOB_ID|JOB_NAME)", "x", value), case.start)
    if value.endswith("/") or case.kind(path) == "directory":
        return
    is_file = "." in value.rpartition("/")[2] or case.kind(path) == "file"
    make = problem if is_file else note
    effect, fix = "all elements write to one file, mixed", "name a directory"
    if make is note:
        effect = f"no directory {value} here: {effect}"
        fix = f"mkdir -p {value}"
    yield make(option, "log-shared", effect, f"add .$TASK_ID, or {fix}")


def _start(case: Case) -> Iterator[Finding]:
    option = case.option("wd")
    if option is None:
        if case.option("cwd") is None and case.body.commands:
            effect = (
                "no -cwd: it starts in your home directory and writes its logs there"
            )
            yield note(None, "starts-at-home", effect, "add #$ -cwd")
        return
    path = case.absolute(option.value, case.facts.cwd)
    if path is not None and case.kind(path) in ("missing", "file"):
        shared = is_shared(case, option.value, path)
        make: MakeFinding = problem if shared else note
        here = "does not exist" if shared else "is not there here"
        effect = f"{option.value} {here}: without it the job stays in Eqw"
        yield make(option, "chdir", effect, "")


def _names(case: Case) -> Iterator[Finding]:
    option = case.option("N")
    if option is None:
        return
    if _SAFE_TO_BEGIN.match(option.value):
        effect = "a name cannot begin with a digit: refused"
        yield refused(option, "job-name", effect, f"-N j{option.value}")
    elif re.search(r"[/:@\\*?\s]", option.value):
        yield refused(
            option, "job-name", "a name cannot contain / : @ \\ * ? : refused"
        )


_EXPANDS = frozenset({"o", "e", "i", "S", "wd"})  # as 8.1.9 does


def _literal(case: Case) -> Iterator[Finding]:
    for option in case.options:
        if option.line and "$" in option.value and option.name not in _EXPANDS:
            effect = "no shell reads this line: '$' is not expanded"
            yield problem(option, "literal-dollar", effect)


def _mail(case: Case) -> Iterator[Finding]:
    who, when = case.option("M"), case.option("m")
    if who is not None and when is None:
        yield note(who, "mail-without-type", "no mail is sent without -m", "add -m ea")
    if when is not None and not re.fullmatch(r"[beasn]+", when.value):
        effect = f"{when.value!r} is not an event: refused"
        yield refused(when, "mail-type", effect, "-m bea: begin, end, abort")


def _choices(case: Case) -> Iterator[Finding]:
    """Find words that are none of those that an option knows."""
    for name, pattern in _CHOICES.items():
        option = case.option(name)
        if option and option.line and not re.fullmatch(pattern, option.value):
            effect = f"{option.value!r} is no value of -{name}: refused"
            fix = "y or n" if pattern == _YES else ""
            yield refused(option, "choice", effect, fix)
    priority, parallel = case.option("p"), case.option("pe")
    value = re.fullmatch(r"[-+]?\d{1,6}", priority.value) if priority else None
    if priority and not (value and _LOWEST <= int(value[0]) <= _HIGHEST):
        effect = f"{priority.value!r} is no priority: refused"
        yield refused(priority, "choice", effect, "users may lower it: -p -100")
    slots = parallel.value.split()[1] if parallel else "1"
    if not re.fullmatch(r"[\d,-]*[1-9][\d,-]*", slots):
        yield refused(parallel, "pe-slots", f"{slots!r} slots: refused", "-pe smp 4")


def _shell(case: Case) -> Iterator[Finding]:
    option = case.option("S")
    limits = case.facts.limits
    if limits is not None and limits.start_mode == "unix_behavior":
        return  # '#!' counts, and -S has no effect
    if option is None:
        if case.script.interpreter and case.script.is_shell:
            effect = "no -S: at some sites the queue's shell runs it, not '#!'"
            yield note(
                None, "no-shell", effect, f"add #$ -S {case.script.interpreter[0]}"
            )
    elif option.line and not option.value.startswith("/"):
        effect = f"{option.value} is not an absolute path: the job may not start"
        yield note(option, "interpreter", effect, "-S /bin/bash")
    elif case.is_missing(case.absolute(option.value.partition(" ")[0], None)):
        yield problem(option, "interpreter", f"{option.value} does not exist")


_IS_WORD = re.compile(r"(?!true|false|yes|no\b)[A-Za-z]", re.IGNORECASE)


def _resources(case: Case) -> Iterator[Finding]:
    named = [case.option(f"l:{name}") for name in GPU_RESOURCES]
    is_counted = any(one is not None and one.value != "TRUE" for one in named)
    known = case.facts.limits.resources if case.facts.limits else None
    for name, option in zip(GPU_RESOURCES, named, strict=True):
        is_here = known is None or name in known  # else it may be a word of the site
        if option and _IS_WORD.match(option.value):
            kind = f"-l gpu_type={option.value} -l {name}=1"
            effect = f"{option.value!r} is not a number of GPUs"
            yield problem(option, "resource-value", effect, kind)
        if option and option.value == "TRUE" and is_here and not is_counted:
            effect = f"{name} without a number: no GPU is reserved for you"
            yield note(option, "resource-value", effect, f"-l {name}=1")
        if option is not None:
            yield from _for_each_slot(case, option, name)
    soft = [o for o in case.options if o.name == "soft"]
    for option in case.options:
        if soft and option.line >= soft[0].line and option.name == "l:h_vmem":
            yield refused(option, "soft-consumable", "-soft h_vmem: refused", "-hard")


def _for_each_slot(case: Case, option: Option, name: str) -> Iterator[Finding]:
    slots, limits = slots_of(case), case.facts.limits
    count = positive_number(option.value)
    if limits is None or name not in limits.per_slot or slots == 1 or not count:
        return
    effect = (
        f"{name} applies to each of {slots} slots here: {count * slots} GPUs in total"
    )
    fix = "one slot; ask your site how it counts the CPUs of a GPU job"
    yield problem(option, "gpus-per-slot", effect, fix)


def _holds(case: Case) -> Iterator[Finding]:
    option = case.option("hold_jid", "hold_jid_ad")
    for job in option.value.split(",") if option else ():
        state = case.facts.jobs.get(job, "")
        if state is None:
            effect = f"job {job} is not known: the hold is dropped, it runs at once"
            yield problem(option, "unknown-job", effect)
        elif state and state not in _HELD_FOR:
            effect = f"job {job} ended {state}: the hold is dropped, it runs at once"
            yield problem(option, "failed-job", effect, f"run {job} again first")


def size_of(option: Option | None) -> int | None:
    """Read a size in bytes; None if there is none or qsub would reject it."""
    try:
        return None if option is None else gridengine_text.parse_memory(option.value)
    except FormatError:
        return None


def slots_of(case: Case) -> int:
    """Return the minimum number of slots that ``-pe`` requests, one without it."""
    option = case.option("pe")
    least = option.value.split()[1].partition("-")[0] if option else ""
    return positive_number(least) or 1


RULES: tuple[Rule, ...] = (
    _ignored,
    _slurm_lines,
    _times,
    _sizes,
    _virtual,
    _arrays,
    _logs,
    _shared_log,
    _start,
    _names,
    _literal,
    _mail,
    _choices,
    _shell,
    _resources,
    _holds,
)


def awaited(text: str) -> tuple[str, ...]:
    """Return the ids of the jobs that the script depends on."""
    options = _LINT.options(text).options
    values = [one.value for one in options if one.name in {"hold_jid", "hold_jid_ad"}]
    jobs = (job for value in values for job in value.split(","))
    return tuple(dict.fromkeys(job for job in jobs if whole_number(job) is not None))


def _start_folder(case: Case) -> str | None:
    chosen = case.option("wd", "cwd")
    if chosen is None:
        return case.facts.home
    if chosen.name == "cwd":
        return case.facts.cwd
    return case.absolute(chosen.value, case.facts.cwd)


def _limits(case: Case) -> Iterator[Finding]:
    yield from limit_rules(case, requested_by(case))
    if case.facts.limits is None and case.options:
        if case.option("l:h_rt") is None:
            effect = "no h_rt: the queue's own limit applies"
            yield note(None, "default-time", effect)
        if case.option("l:h_vmem", "l:mem_free") is None:
            yield note(None, "default-memory", "no h_vmem: the site's default applies")


def _elements(case: Case, option: Option | None) -> Elements | None:
    found = _RANGE.fullmatch(option.value) if option else None
    if not found:
        return None
    first, last = sorted((int(found[1]), int(found[2] or found[1])))
    throttle = case.option("tc")
    most = throttle.value if throttle is not None else ""
    return Elements(
        (range(first, last + 1, int(found[3] or 1) or 1),),
        positive_number(most),
    )


def requested_by(case: Case) -> Requested:
    """Add up what the directives request."""
    queue, parallel = case.option("q"), case.option("pe")
    size, elements = case.option("l:h_vmem"), _elements(case, case.option("t"))
    gpus = case.option(*(f"l:{name}" for name in GPU_RESOURCES))
    project = case.option("P")
    kind = next((o for o in case.options if is_gpu_type(o.name[2:])), None)
    resources = {o.name[2:]: o for o in case.options if o.name.startswith("l:")}
    by = {
        **resources,
        "queues": queue,
        "memory": size,
        "cpus": parallel,
        "parallel": parallel,
        "gpus": gpus,
        "project": project,
        "time": case.option("l:h_rt"),
        "elements": case.option("t"),
    }
    slots = slots_of(case)
    memory = size_of(size)
    is_on_one_node = parallel is None or _is_on_one_node(parallel)
    return Requested(
        queues=tuple(q.partition("@")[0] for q in queue.value.split(","))
        if queue
        else (),
        memory=memory * slots if memory is not None and is_on_one_node else None,
        slot_memory=memory,
        cpus=slots if parallel and is_on_one_node else None,
        gpus=_gpus(case, gpus, slots),
        gpu_type=kind.value if kind is not None and gpus is not None else "",
        time=_seconds(by["time"]),
        resources=tuple(resources),
        parallel=parallel.value.split()[0] if parallel else None,
        project=project.value if project else None,
        elements=len(elements) if elements else None,
        last_index=elements.last if elements else None,
        by={name: option for name, option in by.items() if option is not None},
    )


_ON_ONE_NODE = re.compile(
    r"(?:open)?o?mp|smp\w*|sm|shm\w*|share\w*|thread\w*|multi_?thread\w*|single\w*"
    r"|(?:one|single)_?(?:node|host)|local\w*|serial|node",
    re.IGNORECASE,
)


def _is_on_one_node(parallel: Option) -> bool:
    """Return whether the name of a parallel environment says one node."""
    return bool(_ON_ONE_NODE.fullmatch(parallel.value.split()[0]))


def _gpus(case: Case, option: Option | None, slots: int) -> int | None:
    """Count a job's GPUs: on many clusters they are counted per slot."""
    if option is None:
        return None
    count = whole_number(option.value)
    limits = case.facts.limits
    name = option.name.removeprefix("l:")
    if count is None or limits is None or name not in limits.per_slot:
        return count
    return count * slots


def _seconds(option: Option | None) -> int | None:
    try:
        return None if option is None else gridengine_text.parse_time(option.value)
    except FormatError:
        return None


_OF_CPUS = re.compile(r"l:(?:n|num)?_?(?:cpus?|procs?|cores?)|l:excl\w*")


def _granted(case: Case) -> Granted:
    """Add up what the job gets at most on the node that runs its script."""
    parallel, requested = case.option("pe"), requested_by(case)
    most = parallel.value.split()[1].rpartition("-")[2] if parallel else "1"
    slots = positive_number(most)
    is_unclear = any(_OF_CPUS.fullmatch(one.name) for one in case.options)
    return Granted(
        cpus=None if is_unclear else slots,
        cpus_asked=parallel is not None,
        tasks=slots,
        nodes=1,
        gpus=0 if _has_no_gpu(case) else requested.gpus,
        memory=requested.memory or None,
        is_virtual=True,
        array=case.option("t"),
        elements=_elements(case, case.option("t")),
    )


def _has_no_gpu(case: Case) -> bool:
    queue = case.option("q", "jc", "P", "pe")
    names = [one.name for one in case.options] + ([queue.value] if queue else [])
    return bool(case.options) and not any(
        word in name.lower() for name in names for word in ("gpu", "cuda", "card")
    )


_SET_BY_GRID_ENGINE = """
    JOB_ID JOB_NAME JOB_SCRIPT SGE_TASK_ID SGE_TASK_FIRST SGE_TASK_LAST
    SGE_TASK_STEPSIZE NSLOTS NHOSTS NQUEUES QUEUE PE PE_HOSTFILE REQUEST REQNAME
    RESTARTED SGE_ROOT SGE_CELL SGE_CLUSTER_NAME SGE_JOB_SPOOL_DIR SGE_STDIN_PATH
    SGE_STDOUT_PATH SGE_STDERR_PATH SGE_BINARY_PATH SGE_ARCH SGE_ACCOUNT SGE_BINDING
    SGE_CWD_PATH SGE_HGR_gpu SGE_RSH_COMMAND SGE_CKPT_DIR SGE_CKPT_ENV SGE_O_HOME
    SGE_O_HOST SGE_O_LOGNAME SGE_O_MAIL SGE_O_PATH SGE_O_SHELL SGE_O_TZ SGE_O_WORKDIR
    SGE_EXECD_PORT SGE_QMASTER_PORT SGE_EXECD_PIDFILE SGE_LONG_JOB_NAMES
"""
WORDS = Words(
    tool="qsub",
    array="-t",
    element="SGE_TASK_ID",
    unset="is 'undefined'",
    foreign=("SLURM_ARRAY_TASK_ID", "PBS_ARRAYID", "PBS_ARRAY_INDEX", "LSB_JOBINDEX"),
    common=frozenset({"JOB_ID", "JOB_NAME", "SGE_O_WORKDIR", "QUEUE", "SGE_TASK_LAST"}),
    own=r"(?:SGE_|JOB_ID|NSLOTS|NHOSTS)\w*",
    variables=frozenset(_SET_BY_GRID_ENGINE.split()),
    meant={"TASK_ID": "SGE_TASK_ID"},  # -o and -e alone know TASK_ID
    counts_once=frozenset({"N", "pe", "t", "P", "S", "wd", "o", "e"}),
)
_LINT = ScriptLint(
    words=WORDS,
    read=read_options,
    start=_start_folder,
    granted=_granted,
    rules=(*RULES, _limits),
)


def lint(text: str, facts: Facts) -> tuple[Finding, ...]:
    """Return the findings of a script by line; missing *facts* skip checks."""
    found, case = _LINT.lint(text, facts), _LINT.case(text, facts)
    written = case.body.documents
    lines = [one for one in case.script.lines if one.text.startswith(PREFIX)]
    if not lines or not written.issuperset(one.line for one in lines):
        return found
    # a script that writes job scripts: their directives are not its own
    effect = "all directives are in text that the script writes: no job script itself"
    own = tuple(one for one in found if one.line and one.line not in written)
    if any("qsub" in one.text for one in case.body.tokens):
        return own
    return (note(lines[0], "directive-in-document", effect), *own)


case_of = _LINT.case
directives = _LINT.directives


def default_files(cwd: str, env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return (name, path) of the files of options that qsub reads before the script."""
    found = []
    if env.get("SGE_ROOT"):
        cell = env.get("SGE_CELL") or "default"
        path = posixpath.join(env["SGE_ROOT"], cell, "common", "sge_request")
        found.append(("sge_request", path))
    home = env.get("HOME")
    if home:
        found.append(("~/.sge_request", posixpath.join(home, ".sge_request")))
    if cwd != home:
        found.append((".sge_request", posixpath.join(cwd, ".sge_request")))
    return tuple(found)


_GPUS = re.compile(r"\bn?gpus?=[1-9]")


def requests_gpus(flags: str, env: Mapping[str, str]) -> bool:  # noqa: ARG001
    """Return whether *flags* request GPUs."""
    return bool(_GPUS.search(flags))
