"""Scripts for qsub that users wrote, and jobs that weigh did not submit."""

import itertools
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.job import JobRequest, OwnScript, SubmittedJob
from weigh.model.lint import ScriptFacts
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine import TEXT
from weigh.schedulers.gridengine.lint import (
    LINT,
    PREFIX,
    is_job_name,
)
from weigh.schedulers.gridengine.scheduler import (
    epoch_time,
    job_name,
    parse_qstat_job,
    qacct_blocks,
)
from weigh.schedulers.kind import (
    Argv,
    DescribedScript,
    KnownJob,
    SchedulerQuestion,
    SchedulerUserScripts,
    known_answer,
    one_command,
)
from weigh.schedulers.lint.case import LintCase
from weigh.schedulers.words import (
    format_ranges,
    positive_number,
    text_pairs,
    whole_number,
)

_NAME = re.compile(r"(\d{1,10})(?:\.([\d:-]+))?")
_VARIABLE = re.compile(r"\$\{?(HOME|USER|JOB_ID|JOB_NAME|HOSTNAME|TASK_ID)\}?")
_TAG = "WEIGH"
_CANNOT = {
    "sync": "qsub would wait for its end: omit -sync (weigh status --wait)",
    "now": "qsub would wait until it starts: omit -now",
    "b": "-b: weigh submit -- COMMAND runs a command",
    "verify": "-verify submits nothing: weigh submit --dry-run",
    "help": "qsub -help shows its options",
}
_CLOCKS, _LONGEST_SEND = 2.0, 60.0  # seconds
_YES = frozenset({"y", "yes"})


def _refusals(lint_case: LintCase, name: str) -> Iterator[str]:
    """Yield why weigh cannot submit the script as it is; *name* is the job's."""
    for key, why in _CANNOT.items():
        option = lint_case.option(key)
        if option is not None and option.value not in {"n", "no"}:
            yield why
    if lint_case.option("N") is None and not is_job_name(name):
        yield f"qsub takes no job of this name: add -N {job_name(name)}"


def _gridengine_log_pattern(
    typed: str, letter: str, where: str, indices: str, facts: ScriptFacts
) -> str:
    """Return the pattern of a log: by default in the working directory.

    ``host:path`` is for one host only; a directory gets the default name.
    """
    default = f"$JOB_NAME.{letter}$JOB_ID" + (".$TASK_ID" if indices else "")
    path = typed.partition(":")[2] if ":" in typed else typed
    known = {"HOME": facts.home, "USER": facts.user}
    path = _VARIABLE.sub(lambda one: known.get(one[1]) or one[0], path)
    whole = posixpath.join(where, path) if path else where
    is_folder = facts.paths.get(posixpath.normpath(whole)) == "directory"
    if not path or path.endswith("/") or is_folder:
        return posixpath.join(whole, default)
    return whole


def _progressions(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Cut ascending numbers into runs with one step each, as long as possible."""
    run: list[int] = []
    for number in numbers:
        # two numbers make a step, a third has to keep it
        if len(run) > 1 and number - run[-1] != run[1] - run[0]:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _of_queue(text: str) -> KnownJob | None:
    rows = text_pairs(text, ":")
    job = rows.get("job_number")
    if job is None:
        return None
    cwd = rows.get("cwd") or rows.get("sge_o_home", "")
    indices = rows.get("job-array tasks", "")
    typed = rows.get("stdout_path_list", "").rpartition(":")[2]
    script = rows.get("script_file", "")
    facts = ScriptFacts(home=rows.get("sge_o_home"), user=rows.get("owner"))
    return KnownJob(
        id=job,
        user=rows.get("owner", ""),
        name=rows.get("job_name", ""),
        cwd=cwd,
        script=posixpath.join(rows.get("sge_o_workdir", ""), script) if script else "",
        arguments=tuple(filter(None, rows.get("job_args", "").split(","))),
        indices=indices,
        submitted=epoch_time(rows.get("submission_time", "")) or 0.0,
        line=tuple(rows.get("submit_cmd", "").split()[1:]),  # not all versions
        output=_gridengine_log_pattern(typed, "o", cwd, indices, facts),
        request=parse_qstat_job(text),
    )


def _known_job_of_accounting(blocks: Sequence[dict[str, str]]) -> KnownJob:
    first = blocks[0]
    numbers = [whole_number(block.get("taskid", "")) for block in blocks]
    indices = format_ranges(number for number in numbers if number is not None)
    return KnownJob(
        id=first["jobnumber"],
        user=first.get("owner", ""),
        name=first.get("jobname", ""),
        indices=indices,
        submitted=_submission_seconds(first),
    )


def _submission_seconds(block: dict[str, str]) -> float:
    return epoch_time(block.get("qsub_time", "")) or 0.0


class GridEngineUserScripts(SchedulerUserScripts):
    """Grid Engine: scripts and jobs that weigh did not write."""

    OF_WHOLE_ARRAY = re.compile(r"SGE_TASK_(?:FIRST|LAST|STEPSIZE)\b")
    NOT_AGAIN = re.compile("-terse")
    NOT_AGAIN_WITH_VALUE = frozenset({"-t", "-sync"})
    LINT = LINT
    SUBMITS, CHECKS = ("qsub", "-terse"), ("qsub", "-w", "v")

    def describe(
        self, text: str, flags: Sequence[str], path: str, facts: ScriptFacts
    ) -> DescribedScript:
        """Read a script as qsub does: its directives, then the flags."""
        case = LINT.case(self.with_flags(text, flags), facts)
        found = case.option("t")
        indices = found.value if found is not None and case.requested.elements else ""
        throttle = positive_number(case.value("tc"))
        name = case.value("N") or posixpath.basename(path)
        shell = case.value("S").rpartition(":")[2]
        merged = case.value("j") in _YES
        where = case.start or facts.cwd
        return DescribedScript(
            name=name,
            cwd=where,
            indices=indices,
            throttle=throttle,
            output=_gridengine_log_pattern(case.value("o"), "o", where, indices, facts),
            error=""
            if merged
            else _gridengine_log_pattern(case.value("e"), "e", where, indices, facts),
            interpreter=tuple(shell.split()),
            request=case.requested.as_job_request(throttle),
            misread=LINT.misread(flags),
            refusals=tuple(_refusals(case, name)),
        )

    def with_flags(self, text: str, flags: Sequence[str]) -> str:
        """Return the script with *flags* as its last directive."""
        if not flags:
            return text
        # qsub reads directives in all lines, so the last line is the last directive
        end = "" if text.endswith("\n") else "\n"
        return f"{text}{end}{PREFIX} {shlex.join(flags)}\n"

    def mark(self, token: str, comment: str) -> Argv:
        """Return the context of a job, which holds *token*; a comment stays."""
        return ("-ac", f"{_TAG}={token}")

    def only(self, indices: Sequence[int], throttle: int | None) -> Iterator[Argv]:
        """Yield ``-t 3-7:2`` for each job: an array has one range with one step."""
        most = ("-tc", str(throttle)) if throttle else ()
        for run in _progressions(sorted(set(indices))):
            first, last = run[0], run[-1]
            step = f":{run[1] - first}" if len(run) > 1 and run[1] - first > 1 else ""
            yield ("-t", f"{first}-{last}{step}", *(most if len(run) > 1 else ()))

    def raised(self, job_request: JobRequest, names: Sequence[str]) -> Argv:
        """Return the flags that overrule these fields of the request."""
        size, limit = job_request.virtual_memory, job_request.time_limit
        each = None if size is None else -(-size // max(1, job_request.cpus))
        flags = {
            "memory": each and ("-l", f"h_vmem={TEXT.format_memory(each)}"),
            "time_limit": limit and ("-l", f"h_rt={TEXT.format_time(limit)}"),
            "queue": job_request.queue and ("-q", job_request.queue),
            "exclude": job_request.exclude
            and ("-l", f"h=!({'|'.join(job_request.exclude)})"),
        }
        chosen = (flag for name, flag in flags.items() if name in names and flag)
        return tuple(itertools.chain.from_iterable(chosen))

    def wrapper_flags(self) -> Argv:
        """Return the flag that names the shell, which may be the queue's otherwise."""
        return ("-S", "/bin/bash")

    def default_log(self, job_name: str, job_id: str, index: int | str | None) -> str:
        """Return the name of a log that the script does not name."""
        name = f"{job_name}.o{job_id}"
        return name if index is None else f"{name}.{index}"

    def log(
        self, submitted_job: SubmittedJob, index: int | None, node: str | None
    ) -> str | None:
        """Return the path of an element's log, by the pattern of its name."""
        own = submitted_job.own or OwnScript()
        named = own.logs.get("" if index is None else str(index))
        if named or not own.output:
            return named
        known = {
            "JOB_ID": submitted_job.id,
            "JOB_NAME": submitted_job.name,
            # as Grid Engine names it outside of an array
            "TASK_ID": "undefined" if index is None else str(index),
            "HOSTNAME": node,
        }
        return _VARIABLE.sub(lambda one: known.get(one[1]) or one[0], own.output)

    def awaited_argv(
        self, submitted_job: SubmittedJob, awaited_ids: tuple[str, ...]
    ) -> Argv:
        """Return the qalter command; it needs a value, and no job has the number 0."""
        return "qalter", "-hold_jid", ",".join(awaited_ids) or "0", submitted_job.id

    def parse_refusal(self, command_output: CommandOutput) -> str | None:
        """Return why qalter refused a change."""
        if command_output.code == 0:
            return None
        return command_output.complaint().removeprefix("denied: ")

    def sent(
        self, submitted_job: SubmittedJob, user_name: str
    ) -> SchedulerQuestion[str | None]:
        """Ask by what lists ended jobs of the same name."""
        argv = ("qacct", "-j", submitted_job.name)
        return one_command(
            argv, lambda out: self.parse_sent(out, submitted_job, user_name)
        )

    def parse_sent(
        self, command_output: str, submitted_job: SubmittedJob, user_name: str
    ) -> str | None:
        """Read the id of a job of this name and user, submitted at the same time.

        Accounting keeps no token; another job of this name that the user submits by
        hand in the same seconds would be taken for it, which sends nothing twice.
        """
        ids = {
            block.get("jobnumber", "")
            for block in qacct_blocks(command_output.splitlines())
            if block.get("owner") == user_name
            and -_CLOCKS
            <= _submission_seconds(block) - submitted_job.submitted
            <= _LONGEST_SEND
        }
        return ids.pop() if len(ids) == 1 else None

    def known(self, name: str) -> SchedulerQuestion[KnownJob | None]:
        """Ask by what describe a job: of the queue, of accounting."""
        found = _NAME.fullmatch(name)
        if not found:
            return known_answer(None)
        argvs = (("qstat", "-j", found[1]), ("qacct", "-j", found[1]))
        return SchedulerQuestion(lambda outs: self.parse_known(name, outs), argvs)

    def parse_known(self, name: str, command_outputs: Sequence[str]) -> KnownJob | None:
        """Read a job from qstat's and qacct's answers; either may not know it."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        blocks = [
            block
            for block in qacct_blocks(command_outputs[1].splitlines())
            if block.get("jobnumber") == found[1]
        ]
        if blocks:  # a newly installed scheduler counts from 1 again
            latest = max(_submission_seconds(block) for block in blocks)
            blocks = [block for block in blocks if _submission_seconds(block) == latest]
        known = _of_queue(command_outputs[0]) or (
            _known_job_of_accounting(blocks) if blocks else None
        )
        if known is None:
            return None
        part = found[2] or ""
        if part and not known.indices:
            return None
        return msgspec.structs.replace(known, part=part)


USER_SCRIPTS = GridEngineUserScripts()
