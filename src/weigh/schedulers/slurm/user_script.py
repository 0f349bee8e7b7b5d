"""Scripts for sbatch that users wrote, and jobs that weigh did not submit."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.model.job import JobRequest, OwnScript, SubmittedJob
from weigh.model.lint import ScriptFacts
from weigh.schedulers import slurm as slurm_text
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.kind import (
    Argv,
    DescribedScript,
    KnownJob,
    SchedulerQuestion,
    SchedulerUserScripts,
    known_answer,
    one_command,
)
from weigh.schedulers.script import read_script
from weigh.schedulers.slurm import TEXT
from weigh.schedulers.slurm.cluster import pairs_of
from weigh.schedulers.slurm.directives import (
    LOG_PATTERN,
    PREFIX,
    elements_of,
    log_path_with,
)
from weigh.schedulers.slurm.lint import LINT
from weigh.schedulers.slurm.script import job_lines, parse_scontrol_job
from weigh.schedulers.words import (
    epoch_seconds_in,
    format_ranges,
    parse_ranges,
    whole_number,
)

_NAME = re.compile(r"(\d{1,10})(?:_\[?([\d,:-]+)(?:%\d+)?\]?)?")
# the first node and task of a job write its log
_LOG_VALUES: dict[str, str | None] = {"n": "0", "t": "0", "%": "%"}
_JOB_NAME = re.compile(
    r" JobName=(.*?)(?: HetJobIdSet=\S+)? UserId=(\S+?)\(\d+\) ", re.DOTALL
)
_SACCT = ("sacct", "-n", "-P", "-X")
_FIELDS = "JobID,JobIDRaw,User,Submit,JobName,WorkDir,SubmitLine"
_MORE_FIELDS = _FIELDS.count(",")  # behind the first
_SEPARATOR = "\x1f"
# names and command lines may have line ends
_NEXT_ROW = re.compile(rf"\n(?=\d[^\n{_SEPARATOR}]*{_SEPARATOR}|$)")
_WAITING_INDEX = "4294967294"  # in the name of a log: the element has no index yet
_NO_NODE = frozenset({"", "None assigned", "(null)"})
_GONE = re.compile(r"already finished|no longer pending")
_CANNOT = {
    "wait": "sbatch would wait for its end: omit --wait (weigh status --wait)",
    "test-only": "--test-only submits nothing: weigh submit --dry-run",
    "wrap": "--wrap replaces the script: weigh submit -- COMMAND",
    "clusters": "--clusters: weigh follows the jobs of one cluster (export SLURM_CONF)",
    "help": "sbatch --help shows its options",
    "usage": "sbatch --help shows its options",
    "version": "sbatch --version shows its version",
}


def _of_controller(lines: Sequence[str]) -> KnownJob:
    rows = [pairs_of(line) for line in lines]
    row, named = rows[0], _JOB_NAME.search(lines[0])
    job, array = row.get("JobId", ""), row.get("ArrayJobId", "")
    listed = [one.get("ArrayTaskId", "").partition("%")[0] for one in rows if array]
    # one line with an id of its own: an element was named, not the array
    is_element = bool(array) and len(lines) == 1 and job != array
    command = row.get("Command", "").split(" ")
    return KnownJob(
        id=array or job,
        user=named[2] if named else "",
        name=named[1] if named else "",
        cwd=row.get("WorkDir", ""),
        # (null) for a job from a pipe, and for --wrap
        script=command[0] if command[0].startswith("/") else "",
        arguments=tuple(filter(None, command[1:])),
        indices=",".join(listed),
        part=listed[0] if is_element else "",
        submitted=epoch_seconds_in(row.get("SubmitTime")) or 0.0,
        logs=_logs_of(lines),
    )


def _of_accounting(rows: Sequence[Sequence[str]]) -> KnownJob:
    place, raw, user, submitted, name, cwd, _ = rows[0]
    job, array, index = place.partition("_")
    is_element = array and len(rows) == 1 and raw != job
    return KnownJob(
        id=job,
        user=user,
        name=name,
        cwd=cwd,
        part=index if is_element and whole_number(index) is not None else "",
        submitted=epoch_seconds_in(submitted) or 0.0,
    )


def _of_row(place: str) -> Iterator[int]:
    _, line, index = place.partition("_")
    if line:
        yield from parse_ranges(index)


def _logs_of(lines: Sequence[str]) -> dict[str, str]:
    """Return the log of each element that the controller still lists."""
    logs = {}
    for line in lines:
        row = pairs_of(line)
        path = row.get("StdOut", "")
        index = row.get("ArrayTaskId", "") if "ArrayJobId" in row else ""
        # a waiting range shares a line, and has no log yet
        if path and _WAITING_INDEX not in path and (not index or index.isdecimal()):
            logs[index] = path
    return logs


class SlurmUserScripts(SchedulerUserScripts):
    """Slurm: scripts and jobs that weigh did not write."""

    OF_WHOLE_ARRAY = re.compile(r"SLURM_ARRAY_TASK_(?:COUNT|MIN|MAX)\b")
    NOT_AGAIN = re.compile(r"--(?:parsable|wait|quiet|array=.*)|-[WQ]|-a.+")
    NOT_AGAIN_WITH_VALUE = frozenset({"--array", "-a"})
    LINT = LINT
    SUBMITS, CHECKS = ("sbatch", "--parsable"), ("sbatch", "--test-only")

    def describe(
        self, text: str, flags: Sequence[str], path: str, facts: ScriptFacts
    ) -> DescribedScript:
        """Read a script as sbatch does: its directives, then the flags."""
        case = LINT.case(self.with_flags(text, flags), facts)
        array = case.value("array")
        # what sbatch would refuse has no elements, and is reported as misread
        elements = elements_of(case.option("array")) if array else None
        indices = array.partition("%")[0] if elements else ""
        cwd = case.start or facts.cwd
        name = case.value("job-name") or posixpath.basename(path)
        default = "slurm-%A_%a.out" if indices else "slurm-%j.out"
        output = case.value("output") or default
        error = case.value("error")
        known = {"x": name, "u": facts.user}  # before the submission
        throttle = elements.throttle if elements else None
        return DescribedScript(
            name=name,
            cwd=cwd,
            indices=indices,
            throttle=throttle,
            output=posixpath.join(cwd, log_path_with(output, known)),
            error=posixpath.join(cwd, log_path_with(error, known)) if error else "",
            comment=case.value("comment"),
            request=case.requested.as_job_request(throttle),
            misread=LINT.misread(flags),
            refusals=tuple(why for key, why in _CANNOT.items() if case.option(key)),
        )

    def with_flags(self, text: str, flags: Sequence[str]) -> str:
        """Return the script with *flags* as its last directive."""
        if not flags:
            return text
        lines = text.split("\n")
        script = read_script(text)
        # behind the script's own directives: of two equal options sbatch takes the last
        place = (script.first_command or len(lines) + 1) - 1
        typed = shlex.join(flags).replace("\\", r"\\")  # sbatch takes one away
        lines.insert(place, f"{PREFIX} {typed}")
        return "\n".join(lines)

    def mark(self, token: str, comment: str) -> Argv:
        """Return the comment of a job, which holds *token*."""
        # the flag overrules a comment in the script: its text is kept in front
        return (f"--comment={f'{comment} ' if comment else ''}weigh:{token}",)

    def only(self, indices: Sequence[int], throttle: int | None) -> Iterator[Argv]:
        """Yield ``--array=3,7``: one job runs any set of indices."""
        most = f"%{throttle}" if throttle else ""
        yield (f"--array={format_ranges(indices)}{most}",)

    def raised(self, job_request: JobRequest, names: Sequence[str]) -> Argv:
        """Return the flags that overrule these fields of the request."""
        text, size, limit = TEXT, job_request.memory, job_request.time_limit
        flags = {
            "memory": size and f"--mem={text.format_memory(size)}",
            "time_limit": limit and f"--time={text.format_time(limit)}",
            "queue": job_request.queue and f"--partition={job_request.queue}",
            "exclude": f"--exclude={','.join(job_request.exclude)}"
            * bool(job_request.exclude),
        }
        return tuple(flag for name, flag in flags.items() if name in names and flag)

    def default_log(self, job_name: str, job_id: str, index: int | str | None) -> str:
        """Return the name of a log that the script does not name."""
        return f"slurm-{job_id}.out" if index is None else f"slurm-{job_id}_{index}.out"

    def log(
        self, submitted_job: SubmittedJob, index: int | None, node: str | None
    ) -> str | None:
        """Return the path of an element's log, by the pattern of its name."""
        own = submitted_job.own or OwnScript()
        named = own.logs.get("" if index is None else str(index))
        if named or not own.output:
            return named
        own_id = submitted_job.id if index is None else None
        known = _log_values(submitted_job.id, index, own_id, node or "")
        return _filled_log_name(own.output, known)

    def awaited_argv(
        self, submitted_job: SubmittedJob, awaited_ids: tuple[str, ...]
    ) -> Argv:
        """Return the scontrol command; an empty value removes the dependency."""
        needed = f"afterok:{':'.join(awaited_ids)}" if awaited_ids else ""
        job = f"JobId={submitted_job.id}"
        return "scontrol", "update", job, f"Dependency={needed}"

    def parse_refusal(self, command_output: CommandOutput) -> str | None:
        """Return why scontrol refused a change."""
        # scontrol may exit with 0 although some elements were refused
        if command_output.code == 0 and not command_output.err.strip():
            return None
        lines = [
            one.strip() for one in command_output.words.splitlines() if one.strip()
        ]
        # of an array each element has a line; "No error" is that of one that was
        # changed
        failed = [line for line in lines if not line.endswith("No error")]
        if len(failed) < len(lines) and all(map(_GONE.search, failed)):
            return None  # changed what still waits
        words = "; ".join(dict.fromkeys(failed))
        return (
            re.sub(r"\s*for job \d+|slurm_update error: ", "", words)
            or command_output.complaint()
        )

    def sent(
        self, submitted_job: SubmittedJob, user_name: str
    ) -> SchedulerQuestion[str | None]:
        """Ask by what lists how the user's jobs of the last day were sent."""
        since = ("-S", "now-1days")
        argv = (*_SACCT, "-u", user_name, *since, "-o", "JobID,SubmitLine")
        return one_command(
            argv, lambda out: self.parse_sent(out, submitted_job, user_name)
        )

    def parse_sent(
        self, command_output: str, submitted_job: SubmittedJob, user_name: str
    ) -> str | None:
        """Read the id of the job whose command line has the token, on any line."""
        found = None
        for line in command_output.splitlines():
            place, has_more, _ = line.partition("|")
            number = place.partition("_")[0]
            # a command line may have line ends: the id is that of the last line that
            # begins with one
            if has_more and whole_number(number) is not None:
                found = number
            if found is not None and submitted_job.token in line:
                return found
        return None

    def known(self, name: str) -> SchedulerQuestion[KnownJob | None]:
        """Ask by what describe a job: of the controller, of accounting."""
        if not _NAME.fullmatch(name):
            return known_answer(None)
        job = name.partition("_")[0]
        delimiter = f"--delimiter={_SEPARATOR}"
        argvs = (
            ("scontrol", "-o", "show", "job", job),
            (*_SACCT, delimiter, "-j", job, "-o", _FIELDS),
        )
        return SchedulerQuestion(lambda outs: self.parse_known(name, outs), argvs)

    def parse_known(self, name: str, command_outputs: Sequence[str]) -> KnownJob | None:
        """Read a job from scontrol's and sacct's lines; either may not know it."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        live = job_lines(command_outputs[0])
        past = [
            # the first part of a heterogeneous job runs its script
            row.replace("+0", "", 1).split(_SEPARATOR, _MORE_FIELDS)
            for row in _NEXT_ROW.split(command_outputs[1])
        ]
        past = [row for row in past if len(row) > _MORE_FIELDS and "+" not in row[0]]
        if not (live or past):
            return None
        # the controller knows more than accounting, but not the line that was typed
        known = _of_controller(live) if live else _of_accounting(past)
        indices = {index for row in past for index in _of_row(row[0])}
        indices |= set(parse_ranges(known.indices))
        return msgspec.structs.replace(
            known,
            line=tuple(past[0][-1].split()[1:]) if past else (),
            indices=format_ranges(indices),
            part=(found[2] or known.part) if indices else "",
            request=parse_scontrol_job(command_outputs[0]) if live else None,
        )

    def raw_logs(
        self, submitted_job: SubmittedJob
    ) -> SchedulerQuestion[dict[str, str]]:
        """Ask by what lists the job id of each element, if logs have it."""
        own = submitted_job.own or OwnScript()
        # each element has a job id of its own, in %j only
        needed = any(found[1] in "jJ" for found in LOG_PATTERN.findall(own.output))
        if not own.indices or not needed:
            return known_answer({})
        argv = (*_SACCT, "-j", submitted_job.id, "-o", "JobID,JobIDRaw,NodeList")
        return one_command(argv, lambda out: self.parse_raw(out, submitted_job))

    def parse_raw(
        self, command_output: str, submitted_job: SubmittedJob
    ) -> dict[str, str]:
        """Read the logs by index, from lines ``481516_3|481519|node[1-2]``."""
        own = submitted_job.own or OwnScript()
        logs = {}
        for line in command_output.splitlines():
            place, raw, nodes, *_ = (*line.split("|"), "", "")
            index = place.partition("_")[2]
            if whole_number(index) is not None and whole_number(raw) is not None:
                values = _log_values(submitted_job.id, int(index), raw, nodes)
                if (path := _filled_log_name(own.output, values)) is not None:
                    logs[index] = path
        return logs


def _log_values(
    job_id: str, index: int | None, own_id: str | None, nodes: str
) -> dict[str, str | None]:
    """Return what the letters of sbatch(1)'s filename pattern stand for, if known.

    *own_id* is the id of the element itself; the first of the *nodes* runs the script.
    """
    node = next(slurm_text.node_names(nodes), "")
    return _LOG_VALUES | {
        "A": job_id,
        "a": None if index is None else str(index),
        "b": None if index is None else str(index % 10),
        "j": own_id,
        "J": own_id,
        "N": None if node in _NO_NODE else node.partition(".")[0],
    }


def _filled_log_name(pattern: str, known: Mapping[str, str | None]) -> str | None:
    """Fill in the pattern of a log's name; None if a value is not known."""
    letters = {found[2] for found in LOG_PATTERN.finditer(pattern)}
    if any(known.get(letter) is None for letter in letters):
        return None

    def filled(one: re.Match[str]) -> str:
        value = known[one[2]] or ""
        # %4a pads with zeros, up to 10 digits
        return value.zfill(min(int(one[1] or 0), 10)) if value.isdecimal() else value

    return LOG_PATTERN.sub(filled, pattern)


USER_SCRIPTS = SlurmUserScripts()
