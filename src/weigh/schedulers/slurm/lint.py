"""Lint for Slurm scripts: what sbatch refuses, misreads, or accepts and never runs.

The behaviour of sbatch was observed on 22.05.8.
"""

import re
import shlex
from collections.abc import Iterator, Mapping

from weigh.model.lint import LintFinding, ScriptFacts
from weigh.schedulers.lint.case import (
    LintCase,
    ReadOptions,
    SchedulerWords,
    ScriptOption,
    most_similar_word,
    note,
    problem,
    refused,
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
    unexpanded,
)
from weigh.schedulers.script import ScriptLine, ScriptText
from weigh.schedulers.slurm import TEXT
from weigh.schedulers.slurm.directives import (
    LISTS,
    LOG_PATTERN,
    MEMORY_OPTIONS,
    PREFIX,
    TYPED_COUNT,
    array_elements,
    log_path_with,
    read_options,
    requested_by,
    variables_replacing,
)
from weigh.schedulers.words import whole_number
from weigh.units import MIB, count_with_noun, format_size

# ---- lines that look like directives, and are not read
_MEANT = re.compile(r"\s*(?:(?P<hashes>#+)(?P<gap>\s*))?(?P<word>\w+)\s*(?=-)")
_WORD = "SBATCH"
_ALIKE = 0.75  # SBTACH and SBATC are meant


def _slurm_ignored_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    lines = lint_case.script.lines
    first = lint_case.script.first_command or len(lines) + 1
    for line in lines:
        found = _MEANT.match(line.text)
        if line.line in lint_case.body.documents:
            continue  # the script writes another script
        if line.text.startswith(PREFIX):
            yield from _misplaced(line, first)
        elif found and _is_meant(found, line.text[found.end() :]):
            yield ignored(line, "sbatch", PREFIX, gap=found["gap"])


def _misplaced(script_line: ScriptLine, first: int) -> Iterator[LintFinding]:
    if script_line.line > first and script_line.text.removeprefix(PREFIX)[:1] in " \t-":
        effect = f"after the first command (line {first}): ignored"
        fix = "move it above all commands"
        yield problem(script_line, "directive-after-command", effect, fix)
    if script_line.text.rstrip().endswith("\\"):
        effect = "a directive cannot continue on the next line: that is a command"
        yield problem(
            script_line, "ignored-directive", effect, "write #SBATCH on each line"
        )


def _is_off(match: re.Match[str]) -> bool:
    """Return whether a directive is switched off: ``##SBATCH``, ``#xSBATCH``."""
    word, hashes = match["word"], match["hashes"] or ""
    is_other = word.endswith(_WORD) and word not in (_WORD, f"S{_WORD}")
    return bool(hashes) and (is_other or (word == _WORD and len(hashes) > 1))


def _is_meant(match: re.Match[str], rest: str) -> bool:
    word = match["word"]
    if _is_off(match):
        return False
    # without a hash only the exact word: SBATCH as a command of its own
    if word == _WORD or not match["hashes"]:
        return word == _WORD
    # a directive has nothing but options behind it
    if not word.isupper() and not all(one.startswith("-") for one in rest.split()):
        return False  # `# sbatch --array=1-9 job.sh` is a usage comment
    if word.upper() == _WORD or (match["gap"] and not word.isupper()):
        return word.upper() == _WORD
    return bool(most_similar_word(word, [_WORD], alike=_ALIKE))


# ---- values that sbatch refuses
_NODES = re.compile(r"\+?(\d[\d,:]*[kKmM]?)(?:-(\d[\d,:]*[kKmM]?))?")
_JOBS = r":\d+(?:_\d+|_\*)?(?:\+\d+)?(?::\d+(?:_\d+|_\*)?(?:\+\d+)?)*"
_DEPENDENCY = rf"(?:after(?:any|ok|notok|corr|burstbuffer)?{_JOBS}|singleton|\d+)"
_SIGNALS = "HUP|INT|QUIT|KILL|USR1|USR2|PIPE|ALRM|TERM|CHLD|CONT|STOP|TSTP|TTIN|TTOU"
_COUNTS = "cpus-per-task ntasks ntasks-per-node cpus-per-gpu mincpus"


def _are_nodes(value: str) -> bool:
    found = _NODES.fullmatch(value)
    least, most = (whole_number(one) for one in (found.groups() if found else ("", "")))
    return found is not None and not (least and most is not None and most < least)


def _is_array(value: str) -> bool:
    return not value or array_elements(value) is not None


_COUNTED_GPUS = "gpus gpus-per-node gpus-per-task gpus-per-socket"
_SIGNAL = rf"(?:[BR]{{1,2}}:)?(?:\d+|(?:SIG)?(?:{_SIGNALS}|URG|XCPU|XFSZ))(?:@\d+)?"
# rule, options, what they take, what another value is not, what to write
VALUES = tuple(
    OptionValues(*row)
    for row in (
        (
            *("time", "time time-min", TEXT.parse_time),
            *("not a Slurm time", "write 01:30:00 or 1-12:00:00"),
        ),
        (
            *("memory", f"{MEMORY_OPTIONS} tmp", TEXT.parse_memory),
            *("not a Slurm size", "whole numbers: 500M or 4G"),
        ),
        (
            *("gpus", _COUNTED_GPUS, TYPED_COUNT.pattern),
            *("not a number of GPUs", "write it like 2 or v100:2"),
        ),
        (
            *("option-value", _COUNTS, r"\+?0*[1-9]\d{0,17}"),
            "not a whole number",
        ),
        ("option-value", "nodes", _are_nodes, "not a number of nodes"),
        (
            *("option-value", "signal", _SIGNAL),
            *("not a signal", "write it like B:USR1@120"),
        ),
        ("array", "array", _is_array, "not an array", "write it like 0-9%3"),
        (
            *("dependency", "dependency", rf"{_DEPENDENCY}(?:[,?]{_DEPENDENCY})*"),
            *("not a dependency", "write it like afterok:4711"),
        ),
    )
)


def _sbatch_refused_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    yield from misread(lint_case, VALUES)
    for option in lint_case.options:
        if option.value[:1] == "=" and option.is_short:
            # numbers do not parse with an equals sign; a name does, and is a wrong one
            value, never = option.value, option.name in ("time", "gpus")
            fix = f"{option.text[:2]} {value[1:]} or --{option.name}{value}"
            effect = f"{value!r} is read including its '='"
            make = refused if never or option.name in _COUNTS.split() else problem
            yield make(option, "short-equals", effect, fix)


# ---- values that are read otherwise than they were meant
_FEW_FIELDS = re.compile(r"([0-9]{1,9})(?::([0-9]{2}))?")  # MM and MM:SS
_TOO_LITTLE = 16 * MIB  # no program worth a job runs in it
_LIKELY_GIB = 256  # a bare --mem up to this was probably meant in GiB
_LIKELY_HOURS = frozenset({1, 2, 3, 4, 5, 6, 8, 12, 24, 36, 48, 72, 96, 168})


def _slurm_time_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    for option in last(lint_case, "time time-min"):
        found = _FEW_FIELDS.fullmatch(option.value)
        count, rest = (int(found[1]), found[2]) if found else (0, "")
        if found is None or (rest is None and count not in _LIKELY_HOURS):
            continue
        effect = f"is {count_with_noun(count, 'minute')}"
        effect += f" {int(rest)} s" if rest and int(rest) else ""
        fix = f"hours are written {count:02d}:{rest or '00'}:00"
        # nobody wants 24 minutes
        is_days = rest == "00" and count > 0 and count % 24 == 0
        make = problem if is_days else note
        yield make(option, "time-in-minutes", effect, fix)


def _slurm_size_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    for option in last(lint_case, f"{MEMORY_OPTIONS} tmp"):
        size = parsed(option, TEXT.parse_memory)
        if size and 0 < (whole_number(option.value) or 0) <= _LIKELY_GIB:
            # 200 may be meant in MiB, 4 is not
            make = problem if size <= _TOO_LITTLE else note
            fix = f"{option.value} GiB are {option.value}G"
            yield make(option, "memory-in-mib", f"is {format_size(size)}", fix)


def _literal(lint_case: LintCase) -> Iterator[LintFinding]:
    # other rules check paths; what goes on to bash keeps its $
    but = ("comment", "wrap", "export", "output", "error", "input", "chdir")
    yield from unexpanded(lint_case, but)


# ---- logs and folders
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def _slurm_log_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    reported: set[str] = set()
    for option in last(lint_case, "output error input"):
        folder, slash, leaf = option.value.rpartition("/")
        # another rule names the placeholder
        if holds_placeholder(option.value):
            continue
        if _is_literal(option.value):
            yield _unread(option)
        elif option.name != "input":
            if slash and not leaf:
                effect = "names a directory: no log is written"
                yield problem(option, "log-directory", effect)
            if slash and folder not in reported:
                yield from _log_folder(lint_case, option, folder)
            reported.add(folder)
            yield from _log_pattern_findings(lint_case, option)


def _is_literal(value: str) -> bool:
    return value.startswith("~") or "$" in value or "`" in value


def _unread(option: ScriptOption) -> LintFinding:
    found = _VARIABLE.search(option.value)
    why = "" if option.name == "input" else "no such directory, "
    effect = f"{found[0] if found else option.value[0]} is not expanded: {why}the job "
    fix = "write the full path; %u is the user, %j the job, %a the index, %x the name"
    return problem(option, "literal-dollar", f"{effect}fails without a log", fix)


def _log_folder(
    lint_case: LintCase, option: ScriptOption, folder: str
) -> Iterator[LintFinding]:
    known = {"u": lint_case.facts.user, "x": lint_case.value("job-name")}
    letters = [letter for _, letter in LOG_PATTERN.findall(folder)]
    # each job would need a directory of its own, which nobody has created
    if {*letters} & {*"AaJjNnst"}:
        effect = "Slurm does not create the log's directory: the job fails without it"
        yield problem(option, "log-directory", effect, "% only in the file's name")
        return
    filled = log_path_with(folder, known)
    then = "the job fails without a log"
    yield from missing_folder(
        lint_case, option, filled, rule="log-directory", then=then
    )


def _log_pattern_findings(
    lint_case: LintCase, option: ScriptOption
) -> Iterator[LintFinding]:
    letters = [letter for _, letter in LOG_PATTERN.findall(option.value)]
    is_array = lint_case.option("array") is not None
    for letter in letters:
        if letter not in "%AaJjNnstuxbw":
            yield note(option, "log-pattern", f"%{letter} is not a Slurm pattern")
        # --array may be typed with the script
        elif letter == "a" and not is_array and not _names_element(lint_case):
            effect = "%a is 4294967294 in a job that is not an array"
            yield note(option, "log-pattern", effect, "%j is the job id")
    # %j differs between elements, since each has a job id of its own
    if is_array and not {*letters} & {*"ajJ"} and not option.value.startswith("/dev/"):
        effect = "all elements write to one file, over each other"
        yield problem(option, "log-shared", effect, "add %A_%a")


def _names_element(lint_case: LintCase) -> bool:
    """Return whether it is likely to be submitted with ``--array``."""
    return any(lint_case.element in token.text for token in lint_case.body.tokens)


def _slurm_start_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("chdir")
    if option is not None and _is_literal(option.value):
        effect = "'$' and '~' are not expanded: the job runs in /tmp"
        yield problem(option, "literal-dollar", effect, "write the full path")
    elif option is not None:
        then = "the job runs in /tmp"
        yield from missing_folder(
            lint_case, option, option.value, rule="chdir", then=then
        )


# ---- arrays, dependencies and nodes
def _slurm_array_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("array")
    if option is not None and not option.value:
        yield problem(option, "array", "no index: a plain job, not an array")


def _dependencies(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("dependency")
    for part in re.split(r"[,?]", option.value) if option is not None else ():
        if option is None or not re.fullmatch(_DEPENDENCY, part, re.IGNORECASE):
            continue
        kind, _, ids = part.partition(":")
        # a bare number is read as afterany
        kind, ids = ("afterany", kind) if kind.isdecimal() else (kind, ids)
        jobs = [job.partition("+")[0] for job in ids.split(":") if job]
        # waits for a failure, so that a success is what never satisfies it
        if kind == "afternotok":
            for job in jobs:
                if lint_case.facts.jobs.get(job) == "COMPLETED":
                    effect = f"job {job} has completed: this one would never start"
                    yield problem(option, "dependency", effect)
        never = "this one would never start" if kind in ("afterok", "aftercorr") else ""
        unknown = "the job would run at once, or be refused"
        yield from on_jobs(lint_case, option, jobs, unknown=unknown, never=never)


# ---- what sbatch calls things
_SETS_TASKS = (
    *("ntasks", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-socket"),
    "ntasks-per-core",
)
WORDS = SchedulerWords(
    tool="sbatch",
    array="--array",
    limits=("--time", "--mem"),
    element="SLURM_ARRAY_TASK_ID",
    foreign=("SGE_TASK_ID", "PBS_ARRAYID", "PBS_ARRAY_INDEX", "LSB_JOBINDEX"),
    common=frozenset(LISTS["variables that are alike in all elements"]),
    own=r"SLURM_\w+",
    variables=frozenset(LISTS["variables"]),
    only_with={  # as seen in jobs of 22.05
        "SLURM_CPUS_PER_TASK": ("cpus-per-task", "cpus-per-gpu"),
        "SLURM_NTASKS": _SETS_TASKS,
        "SLURM_NPROCS": _SETS_TASKS,
        "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
        "SLURM_GPUS": ("gpus", "gpus-per-task", "ntasks-per-gpu"),
        "SLURM_MEM_PER_NODE": ("mem",),
    },
)
_JOB = re.compile(r":([0-9]{1,12})(?=[:,?+_]|$)", re.ASCII)


class SlurmLint(ScriptLint):
    """Slurm: the rules for its job scripts."""

    words, prefix = WORDS, PREFIX
    requested = staticmethod(requested_by)
    fields: Mapping[str, tuple[str, ...]] = {
        "mem": ("memory",),
        "time": ("time_limit",),
        "cpus-per-task": ("cpus",),
        "gres": ("gpus", "gpu_type"),
        "gpus-per-node": ("gpus", "gpu_type"),
        "partition": ("queue",),
        "account": ("account",),
        "qos": ("qos",),
    }
    GPUS = re.compile(r"--gres[= ]\S*gpu|--gpus|(?:^|\s)-G\b")
    rules = (
        _slurm_ignored_findings,
        _sbatch_refused_findings,
        _slurm_time_findings,
        _slurm_size_findings,
        _literal,
        _slurm_log_findings,
        _slurm_start_findings,
        _slurm_array_findings,
        _dependencies,
    )

    def read(self, script: ScriptText, facts: ScriptFacts) -> ReadOptions:
        """Read the directives."""
        return read_options(script, facts.variables)

    def start(self, lint_case: LintCase) -> str | None:
        """Find the job's working directory."""
        return lint_case.absolute(
            lint_case.value("chdir") or lint_case.facts.cwd, lint_case.facts.cwd
        )

    def typed(self, flag: str, value: str) -> str:
        """Return a flag as a directive has it."""
        dashes, before = ("-", " ") if len(flag) == 1 else ("--", "=")
        return f"{dashes}{flag}{before}{shlex.quote(value)}" if value else dashes + flag

    def awaited(self, text: str) -> tuple[str, ...]:
        """Return the ids of the jobs that the script depends on."""
        options = self.options(text).options
        values = (one.value for one in options if one.name == "dependency")
        return tuple(dict.fromkeys(job for one in values for job in _JOB.findall(one)))

    def replacing(self, text: str) -> frozenset[str]:
        """Return the variables that sbatch would prefer to what weigh wrote.

        A script without an array is of one job, and one without a log of errors writes
        them to its only log; nobody waits for its end.
        """
        meant = {"SBATCH_ARRAY_INX", "SBATCH_ERROR", "SBATCH_WAIT"}
        return variables_replacing(self.options(text).options) | meant

    def requests_gpus(self, flags: str, env: Mapping[str, str]) -> bool:
        """Return whether *flags*, or the user's defaults, request GPUs."""
        return super().requests_gpus(flags, env) or "gpu" in env.get("SBATCH_GRES", "")


LINT = SlurmLint()
