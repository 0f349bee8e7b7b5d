"""Lint for Grid Engine scripts: what qsub refuses, misreads, or accepts and never runs.

The options are those of qsub(1) of Grid Engine 8.1.9 and later. The behaviour of qsub
and of jobs was observed on 8.1.9.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping

import msgspec

from weigh.model.lint import LintFinding, ScriptFacts
from weigh.schedulers.gridengine import TEXT
from weigh.schedulers.gridengine.cluster import is_gpu_type
from weigh.schedulers.lint.case import (
    ArrayElements,
    LintCase,
    ReadOptions,
    SchedulerWords,
    ScriptOption,
    ScriptRequest,
    most_similar_word,
    note,
    problem,
    refused,
    starts_by_first_line,
)
from weigh.schedulers.lint.common import ScriptLint
from weigh.schedulers.lint.path_rules import holds_placeholder
from weigh.schedulers.lint.values import (
    OptionValues,
    ignored,
    last,
    misread,
    missing_folder,
    on_jobs,
    parsed,
    read_directive_lines,
    read_word_lists,
    split_words,
    stray,
    unexpanded,
)
from weigh.schedulers.script import ScriptLine, ScriptText
from weigh.schedulers.words import positive_number, whole_number
from weigh.units import MINUTE, format_size

PREFIX = "#$"

# ---- how qsub reads directives: all of them, anywhere in the script
_LISTS = read_word_lists("weigh.schedulers.gridengine")
_WITH_VALUE, _FLAGS = _LISTS["options with a value"], _LISTS["options"]
_PE = "pe"


def qsub_directive_lines(script: ScriptText) -> tuple[ScriptLine, ...]:
    """Return the directive lines that qsub reads."""
    return tuple(one for one in script.lines if one.text.startswith(PREFIX))


def read_qsub_options(
    script: ScriptText, facts: ScriptFacts | None = None
) -> ReadOptions:
    """Read the directives of *script*; ``-l`` yields one option per resource.

    A resource's option is named ``l:`` and its name; ``pe`` has both words as value.
    The options of ``sge_request`` files come first, without a line number; ``-clear``
    discards what was read before it.
    """
    read = read_directive_lines(qsub_directive_lines(script), _qsub_options_of_line)
    of_files = [
        msgspec.structs.replace(one, text=f"{one.text} ({name})")
        for name, text in (facts.defaults if facts is not None else ())
        for row in text.splitlines()
        if not row.lstrip().startswith("#")
        for one in _qsub_options_of_line(ScriptLine(0, row))
        if isinstance(one, ScriptOption)
    ]
    options: list[ScriptOption] = []
    for option in (*of_files, *read.options):
        # sge_request files come first, so that -clear in a script discards them
        options = [] if option.name == "clear" else [*options, option]
    return msgspec.structs.replace(read, options=tuple(options))


def _qsub_options_of_line(
    script_line: ScriptLine,
) -> Iterator[ScriptOption | LintFinding]:
    words, _ = split_words(script_line.text.removeprefix(PREFIX))
    begun = False
    while words:
        word = words.pop(0)
        name = word[1:]
        if not word.startswith("-") or not name:
            yield stray(script_line, PREFIX, word, begun=begun)
            return
        begun = True
        if name in _FLAGS:
            yield ScriptOption(name, "", script_line.line, word)
        elif name == _PE:
            yield _parallel(script_line, words[:2])
            words = words[2:]
        elif name not in _WITH_VALUE:
            yield _unknown_qsub_option(script_line, word)
            return
        elif not words:
            yield refused(
                script_line, "option-value", f"{word} without a value: refused"
            )
        elif name == "l":
            # one -l has several resources; a boolean one is named without a value
            for part in filter(None, words.pop(0).split(",")):
                key, equals, amount = part.partition("=")
                value = amount if equals else "TRUE"
                yield ScriptOption(f"l:{key}", value, script_line.line, f"-l {part}")
        else:
            value = words.pop(0)
            yield ScriptOption(name, value, script_line.line, f"{word} {value}")


def _parallel(script_line: ScriptLine, words: list[str]) -> ScriptOption | LintFinding:
    # -pe smp -l ...: the next option was taken for the slots
    if len(words) < len(("name", "slots")) or words[1][:2] == "-l" or not all(words):
        name = (words or ["smp"])[0].partition("=")[0]
        effect, fix = "-pe without a number of slots: refused", f"-pe {name} 4"
        return refused(script_line, "option-value", effect, fix)
    return ScriptOption(
        _PE, " ".join(words), script_line.line, f"-pe {' '.join(words)}"
    )


def _unknown_qsub_option(script_line: ScriptLine, word: str) -> LintFinding:
    begun = word.partition("=")[0]
    near = most_similar_word(
        begun.lstrip("-"), [one for one in (*_WITH_VALUE, *_FLAGS) if len(one) > 1]
    )
    fix = f"did you mean -{near}?" if near else ""
    if word.startswith("--") and not near:
        fix = "qsub's options have one dash"
    return refused(
        script_line, "unknown-option", f"qsub has no option {word}: refused", fix
    )


# ---- lines that look like directives, and are not read
_MEANT = re.compile(r"(?P<indent>\s*)#(?P<gap>\s*)\$\s*(?=-[A-Za-z])")


def _gridengine_ignored_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    for line in lint_case.script.lines:
        is_read = line.text.startswith(PREFIX)
        found = None if is_read else _MEANT.match(line.text)
        if found:
            yield ignored(line, "qsub", PREFIX, gap=found["gap"])
    slurm = next(
        (o for o in lint_case.script.lines if o.text.startswith("#SBATCH")), None
    )
    if slurm is not None and not qsub_directive_lines(lint_case.script):
        effect = "qsub ignores Slurm's lines"
        yield problem(slurm, "ignored-directive", effect, "#$ -l ...")


# ---- values that qsub refuses
# 1:200 is read as 1-200
_RANGE = re.compile(r"([0-9]{1,9})(?:[-:]([0-9]{1,9})(?::([0-9]{1,9}))?)?-?")
_TIMES = "l:h_rt l:s_rt l:h_cpu l:s_cpu"
_SIZES = "l:h_vmem l:s_vmem l:mem_free l:virtual_free l:h_rss l:h_data l:tmpfs"


_NO_DIGIT_FIRST, _NO_MARKS = r"[^\d].*", r"[^/:@\\*?\s]*"


def is_job_name(name: str) -> bool:
    """Return whether qsub takes *name*: that of a script without -N, too."""
    return all(re.fullmatch(one, name) for one in (_NO_DIGIT_FIRST, _NO_MARKS))


def _is_size(value: str) -> bool:
    return value in ("inf", "TRUE") or TEXT.parse_memory(value) >= 0


def _is_range(value: str) -> bool:
    found = _RANGE.fullmatch(value)
    # lists have a finding of their own, see _arrays
    return "," in value or bool(found and int(found[1]) and int(found[3] or 1))


# rule, options, what they take, what another value is not, what to write
VALUES = tuple(
    OptionValues(*row)
    for row in (
        (
            *("time", _TIMES, TEXT.parse_time, "not a Grid Engine time"),
            "write it like 01:30:00 or 5400",
        ),
        (
            *("memory", _SIZES, _is_size, "not a Grid Engine size"),
            "write it like 500M or 4G",
        ),
        ("array", "t", _is_range, "not a range from 1 on", "-t 1-10 -tc 3"),
        ("option-value", "N", _NO_DIGIT_FIRST, "begins with a digit"),
        ("option-value", "N", _NO_MARKS, "a name with one of / : @ \\ * ?"),
        (
            *("option-value", _PE, r"\S+ [\d,-]*[1-9][\d,-]*"),
            *("not a number of slots", "-pe smp 4"),
        ),
    )
)


def _qsub_refused_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    yield from misread(lint_case, VALUES)
    # as 8.1.9 does; another rule checks these paths
    yield from unexpanded(lint_case, ("o", "e", "i", "S", "wd"))


# ---- values that are read otherwise than they were meant
_MANY_BYTES = 1 << 20
GPU_RESOURCES = ("ngpus", "gpu", "gpus", "num_gpus", "gpu_card", "cuda")


def _times_and_sizes(lint_case: LintCase) -> Iterator[LintFinding]:
    for option in last(lint_case, _TIMES):
        seconds = parsed(option, TEXT.parse_time)
        if seconds == 0:
            yield problem(option, "time-in-seconds", "no time: killed at once")
        # h_rt=24: a bare number is seconds
        elif whole_number(option.value) and seconds is not None and seconds < MINUTE:
            fix = f"{option.value} hours are {option.value}:00:00"
            yield note(option, "time-in-seconds", f"is {seconds} seconds", fix)
    for option in last(lint_case, _SIZES):
        value, size = option.value, parsed(option, TEXT.parse_memory)
        # -l h_vmem without a value
        if value == "TRUE":
            yield problem(option, "memory", "no size: not limited", "write =4G")
        elif size is not None and size < _MANY_BYTES:
            fix = f"{value.rstrip('kK')} GiB are {value.rstrip('kK')}G"
            yield problem(option, "memory-in-bytes", f"is {format_size(size)}", fix)


def _virtual_memory_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    option, slots = lint_case.option("l:h_vmem"), minimum_slots_of_case(lint_case)
    size = parsed(option, TEXT.parse_memory)
    if option is None or not size:
        return
    if slots > 1:
        total = f"{format_size(size * slots)} in total"
        effect = f"applies to each of {slots} slots: {total}"
        share = TEXT.format_memory(-(-size // slots))
        fix = f"h_vmem={share} if {format_size(size)} in total was meant"
        yield note(option, "memory-per-slot", effect, fix)
    if lint_case.option(*(f"l:{name}" for name in GPU_RESOURCES)):
        effect = "limits virtual memory, of which CUDA reserves tens of GiB"
        fix = "omit it if the site allows, or request much more"
        yield note(option, "virtual-with-cuda", effect, fix)


def _arrays(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("t")
    if option is None:
        return
    value = option.value
    found = _RANGE.fullmatch(value)
    is_chosen = sum(one.name == "t" for one in lint_case.options) > 1
    if "," in value:
        effect = f"{value} becomes one range here, from the first to the last"
        yield problem(option, "array", effect, "one -t FIRST-LAST:STEP per job")
    elif found and found[2] and int(found[2]) < int(found[1]):
        yield note(option, "array", f"is read as {found[2]}-{found[1]}")
    # one that overrules another was chosen: -t 3 typed runs one element again
    elif found and not found[2] and int(found[1]) > 1 and not is_chosen:
        effect = f"is the one element {value}, not {value} of them"
        yield problem(option, "array", effect, f"-t 1-{value}")


_IS_WORD = re.compile(r"(?!true|false|yes|no\b)[A-Za-z]", re.IGNORECASE)


def _gpu_resources(lint_case: LintCase) -> Iterator[LintFinding]:
    limits, slots = lint_case.facts.limits, minimum_slots_of_case(lint_case)
    known = limits.resources if limits else None
    named = [lint_case.option(f"l:{name}") for name in GPU_RESOURCES]
    # a site may want both: a boolean that selects nodes, and a number
    is_counted = any(one is not None and one.value != "TRUE" for one in named)
    for option in filter(None, named):
        name, count = option.name.removeprefix("l:"), positive_number(option.value)
        is_here = known is None or name in known  # else it may be a word of the site
        if _IS_WORD.match(option.value):
            kind = f"-l gpu_type={option.value} -l {name}=1"
            effect = f"{option.value!r} is not a number of GPUs"
            yield problem(option, "gpus", effect, kind)
        if option.value == "TRUE" and is_here and not is_counted:
            effect = f"{name} without a number: no GPU is reserved for you"
            yield note(option, "gpus", effect, f"-l {name}=1")
        if limits is not None and name in limits.per_slot and slots > 1 and count:
            total = f"{count * slots} GPUs in total"
            effect = f"{name} applies to each of {slots} slots here: {total}"
            fix = "one slot; ask your site how it counts the CPUs of a GPU job"
            yield problem(option, "gpus-per-slot", effect, fix)


def _hold_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("hold_jid", "hold_jid_ad")
    if option is not None:
        then = "the hold is dropped, it runs at once"
        jobs = option.value.split(",")
        yield from on_jobs(lint_case, option, jobs, unknown=then, never=then)


# ---- logs, folders and the shell
_EQW = "the job stays in Eqw"


def _gridengine_start_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("wd")
    if option is not None:
        yield from missing_folder(
            lint_case, option, option.value, rule="chdir", then=_EQW
        )
    elif lint_case.option("cwd") is None and lint_case.body.commands:
        effect = "no -cwd: it starts in your home directory and writes its logs there"
        yield note(None, "starts-at-home", effect, "add #$ -cwd")


def _gridengine_log_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    for option in last(lint_case, "o e"):
        value = option.value.removeprefix(":")
        folder, slash, _ = value.rpartition("/")
        if holds_placeholder(option.value):
            continue
        if re.search(r"%[jAaxu]", value):
            effect = "'%' patterns are Slurm syntax: the file gets this literal name"
            yield problem(option, "log-pattern", effect, "$JOB_ID, $TASK_ID, $JOB_NAME")
        if slash and folder:
            yield from missing_folder(
                lint_case, option, folder, rule="log-directory", then=_EQW
            )


def _shared_log(lint_case: LintCase) -> Iterator[LintFinding]:
    elements, option = lint_case.requested.elements, lint_case.option("o")
    value = option.value.removeprefix(":") if option else ""
    if elements is None or len(elements) == 1 or option is None:
        return
    path = lint_case.absolute(
        re.sub(r"\$(?:JOB_ID|JOB_NAME)", "x", value), lint_case.start
    )
    if (
        # a directory gets a file for each element, with its default name
        re.search(r"\$\{?TASK_ID|^/dev/|/$", value)
        or lint_case.kind(path) == "directory"
    ):
        return
    if "." in value.rpartition("/")[2] or lint_case.kind(path) == "file":
        effect, fix = "all elements write to one file, mixed", "name a directory"
        yield problem(option, "log-shared", effect, f"add .$TASK_ID, or {fix}")
    else:
        effect = f"no directory {value} here: all elements write to one file, mixed"
        fix = f"add .$TASK_ID, or mkdir -p {value}"
        yield note(option, "log-shared", effect, fix)


def _shell(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("S")
    if starts_by_first_line(lint_case.facts):
        return  # '#!' counts, and -S has no effect
    if option is None:
        if lint_case.script.interpreter and lint_case.script.is_shell:
            effect = "no -S: at some sites the queue's shell runs it, not '#!'"
            fix = f"add #$ -S {lint_case.script.interpreter[0]}"
            yield note(None, "no-shell", effect, fix)
    elif option.line and not option.value.startswith("/"):
        effect = f"{option.value} is not an absolute path: the job may not start"
        yield note(option, "interpreter", effect, "-S /bin/bash")
    elif lint_case.is_missing(lint_case.absolute(option.value.partition(" ")[0], None)):
        yield problem(option, "interpreter", f"{option.value} does not exist")


# ---- what the directives request, and what the job gets on its node
_ON_ONE_NODE = re.compile(
    r"(?:open)?o?mp|smp\w*|sm|shm\w*|share\w*|thread\w*|multi_?thread\w*|single\w*"
    r"|(?:one|single)_?(?:node|host)|local\w*|serial|node",
    re.IGNORECASE,
)
_OF_CPUS = re.compile(r"l:(?:n|num)?_?(?:cpus?|procs?|cores?)|l:excl\w*")


def minimum_slots_of_case(lint_case: LintCase) -> int:
    """Return the minimum number of slots that ``-pe`` requests, one without it."""
    return positive_number(_slots_variable(lint_case).partition("-")[0]) or 1


def _slots_variable(lint_case: LintCase) -> str:
    return lint_case.value(_PE).partition(" ")[2] or "1"


def _gridengine_elements(lint_case: LintCase) -> ArrayElements | None:
    found = _RANGE.fullmatch(lint_case.value("t"))
    if not found:
        return None
    first, last_ = sorted((int(found[1]), int(found[2] or found[1])))
    span = range(first, last_ + 1, int(found[3] or 1) or 1)
    return ArrayElements((span,), positive_number(lint_case.value("tc")))


# the options of each field
_REQUESTING = {
    "array": ("t",),
    "queues": ("q",),
    "memory": ("l:h_vmem",),
    "cpus": (_PE,),
    "gpus": tuple(f"l:{name}" for name in GPU_RESOURCES),
    "account": ("P",),
    "time": ("l:h_rt",),
}


def requested_by_qsub_script(lint_case: LintCase) -> ScriptRequest:
    """Add up what the directives request, and what the job gets at most."""
    by = {field: lint_case.option(*names) for field, names in _REQUESTING.items()}
    slots, gpus = minimum_slots_of_case(lint_case), by["gpus"]
    memory, parallel = parsed(by["memory"], TEXT.parse_memory), lint_case.value(_PE)
    count = _count_of_requested_gpus(lint_case, gpus, slots)
    kind = next((o for o in lint_case.options if is_gpu_type(o.name[2:])), None)
    # the name of a parallel environment says whether it is on one node
    is_here = not parallel or bool(_ON_ONE_NODE.fullmatch(parallel.partition(" ")[0]))
    queues = filter(None, lint_case.value("q").split(","))
    return ScriptRequest(
        queues=tuple(queue.partition("@")[0] for queue in queues),
        memory=memory * slots if memory is not None and is_here else None,
        slot_memory=memory,
        cpus=slots if parallel and is_here else None,
        gpus=count,
        gpu_type=kind.value if kind is not None and gpus is not None else "",
        time=parsed(by["time"], TEXT.parse_time),
        account=lint_case.value("P") or None,
        by={name: option for name, option in by.items() if option is not None},
        most_cpus=_most_slots(lint_case),
        most_gpus=count if _may_bring_gpus(lint_case) else 0,
        sets_cpus=bool(parallel),
        elements=_gridengine_elements(lint_case),
    )


def _most_slots(lint_case: LintCase) -> int | None:
    """Return the maximum of a range of slots, as the job may get that many."""
    if any(_OF_CPUS.fullmatch(one.name) for one in lint_case.options):
        return None
    return positive_number(_slots_variable(lint_case).rpartition("-")[2])


def _may_bring_gpus(lint_case: LintCase) -> bool:
    """Return whether a queue or project for GPUs may bring one without a resource."""
    places = [one.name for one in lint_case.options]
    places += [lint_case.value(name) for name in ("q", "jc", "P", _PE)]
    is_named = re.search("gpu|cuda", " ".join(places).lower()) is not None
    return is_named or not lint_case.options


def _count_of_requested_gpus(
    lint_case: LintCase, option: ScriptOption | None, slots: int
) -> int | None:
    """Count a job's GPUs: on many clusters they are counted per slot."""
    count, limits = (
        whole_number(option.value) if option else None,
        lint_case.facts.limits,
    )
    if count is None or option is None or limits is None:
        return count
    return count * (slots if option.name.removeprefix("l:") in limits.per_slot else 1)


# ---- what qsub calls things
WORDS = SchedulerWords(
    tool="qsub",
    array="-t",
    limits=("h_rt", "h_vmem"),
    element="SGE_TASK_ID",
    unset="is 'undefined'",
    foreign=("SLURM_ARRAY_TASK_ID", "PBS_ARRAYID", "PBS_ARRAY_INDEX", "LSB_JOBINDEX"),
    common=frozenset({"JOB_ID", "JOB_NAME", "SGE_O_WORKDIR", "QUEUE", "SGE_TASK_LAST"}),
    own=r"(?:SGE_|JOB_ID|NSLOTS|NHOSTS)\w*",
    variables=frozenset(_LISTS["variables"]),
    meant={"TASK_ID": "SGE_TASK_ID"},  # -o and -e alone know TASK_ID
)


class GridEngineLint(ScriptLint):
    """Grid Engine: the rules for its job scripts."""

    words, prefix = WORDS, PREFIX
    requested = staticmethod(requested_by_qsub_script)
    # a site names its GPUs and parallel environments itself: those are passed on
    fields: Mapping[str, tuple[str, ...]] = {
        "l:h_vmem": ("virtual_memory",),
        "l:h_rt": ("time_limit",),
        "q": ("queue",),
        "P": ("account",),
    }
    GPUS = re.compile(r"\bn?gpus?=[1-9]")
    rules = (
        _gridengine_ignored_findings,
        _qsub_refused_findings,
        _times_and_sizes,
        _virtual_memory_findings,
        _arrays,
        _gpu_resources,
        _hold_findings,
        _gridengine_start_findings,
        _gridengine_log_findings,
        _shared_log,
        _shell,
    )

    def read(self, script: ScriptText, facts: ScriptFacts) -> ReadOptions:
        """Read the directives."""
        return read_qsub_options(script, facts)

    def start(self, lint_case: LintCase) -> str | None:
        """Find the job's working directory."""
        chosen = lint_case.option("wd", "cwd")
        # without -cwd and -wd a job starts in the home directory
        if chosen is None:
            return lint_case.facts.home
        return lint_case.absolute(
            chosen.value or lint_case.facts.cwd, lint_case.facts.cwd
        )

    def typed(self, flag: str, value: str) -> str:
        """Return a flag as a directive has it."""
        return f"-{flag} {value}"

    def flag_of(self, option: ScriptOption) -> tuple[str, str]:
        """Return (flag, value) of an option; a resource is a value of -l."""
        flag, _, resource = option.name.partition(":")
        return flag, f"{resource}={option.value}" if resource else option.value

    def lint(self, text: str, facts: ScriptFacts) -> tuple[LintFinding, ...]:
        """Return the findings of a script by line; missing *facts* skip checks."""
        found, case = super().lint(text, facts), self.case(text, facts)
        written = case.body.documents
        lines = qsub_directive_lines(case.script)
        if not lines or not written.issuperset(one.line for one in lines):
            return found
        # a script that writes job scripts: their directives are not its own
        return tuple(one for one in found if one.line and one.line not in written)

    def awaited(self, text: str) -> tuple[str, ...]:
        """Return the ids of the jobs that the script depends on."""
        options = self.options(text).options
        values = [
            one.value for one in options if one.name in {"hold_jid", "hold_jid_ad"}
        ]
        jobs = (job for value in values for job in value.split(","))
        return tuple(
            dict.fromkeys(job for job in jobs if whole_number(job) is not None)
        )

    def default_files(
        self, cwd: str, env: Mapping[str, str]
    ) -> tuple[tuple[str, str], ...]:
        """Return (name, path) of the files of options that qsub reads first."""
        root, cell, home = env.get("SGE_ROOT"), env.get("SGE_CELL"), env.get("HOME")
        folders = {
            "sge_request": root and posixpath.join(root, cell or "default", "common"),
            "~/.sge_request": home,
            ".sge_request": cwd if cwd != home else None,
        }
        return tuple(
            (name, posixpath.join(folder, posixpath.basename(name)))
            for name, folder in folders.items()
            if folder
        )


LINT = GridEngineLint()
