"""Grid Engine's commands: ``qsub``, ``qstat -xml``, ``qacct``, ``qdel``.

Grid Engine numbers elements from 1; weigh numbers them from 0 everywhere.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from weigh.errors import SIGNAL_BASE, FormatError, UsageError
from weigh.model.element_time import GRACE
from weigh.model.job import (
    ON_HOLD,
    STUCK,
    ElementState,
    JobRequest,
    JobScript,
    RecordedRequest,
    States,
)
from weigh.model.record import SiteComplexes, State
from weigh.schedulers import gridengine as gridengine_text
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.gridengine import TEXT
from weigh.schedulers.gridengine import cluster as gridengine_cluster
from weigh.schedulers.gridengine.cluster import is_gpu, is_gpu_type
from weigh.schedulers.job_script import (
    AGAIN,
    ScriptRules,
    render_job_script,
    request_of,
    warning,
)
from weigh.schedulers.kind import (
    Answer,
    Argv,
    SchedulerCommands,
    SchedulerQuestion,
    known_answer,
    one_command,
)
from weigh.schedulers.words import (
    comma_pairs,
    count_elements,
    format_ranges,
    parse_ranges,
    parsed_or_none,
    text_pairs,
    whole_number,
)
from weigh.units import Seconds

_NAME = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+=%"
)
# in a path, $ begins a variable, a colon ends the host, a comma ends the path
_NOT_IN_PATHS = frozenset("\"'\\$:,")
_LONGEST_NAME = 60  # characters; qstat -r and logs show it whole
_WARNING = 2 * GRACE  # from s_rt, which warns, to h_rt, which kills
# weigh exec knows the limit, and stops its tasks itself GRACE before it: a warning
# before that would take time from them that was granted
_LATE_WARNING = GRACE // 2
_LOG = '"$JOB_ID.$SGE_TASK_ID.out"'
_PLAIN_LOG = '"$JOB_ID.out"'


def can_hold_path(text: str) -> bool:
    """Return whether ``-o`` can hold the path *text*, in double quotes if necessary."""
    return text.isprintable() and not _NOT_IN_PATHS & set(text)


def _gridengine_element_expression(job_script: JobScript) -> str:
    if not job_script.is_array:
        return str(job_script.first)
    beyond = job_script.first - 1  # Grid Engine counts from 1
    return f'"$((SGE_TASK_ID {"+" if beyond > 0 else "-"} {abs(beyond)}))"'


def _gridengine_flags(job_script: JobScript) -> Iterator[str]:
    wanted = job_script.request
    yield "-S /bin/bash"
    yield "-cwd"
    yield f"-N {job_name(job_script.name)}"
    if job_script.token and not any(flag in {"ac", "sc"} for flag, _ in wanted.extra):
        yield f"-ac weigh={job_script.token}"
    yield "-j y"
    if can_hold_path(job_script.log):
        name = "$JOB_ID.$TASK_ID.out" if job_script.is_array else "$JOB_ID.out"
        yield f"-o {_gridengine_quoted(f'{job_script.log}/{name}')}"
    else:
        yield "-o /dev/null"
    if job_script.is_array:
        yield f"-t 1-{job_script.elements}"
        if wanted.throttle:
            yield f"-tc {wanted.throttle}"
    yield from TEXT.directives(request_of(wanted), wanted.complexes)
    if wanted.gpu_type:
        words = wanted.complexes or SiteComplexes()
        yield f"-l {words.gpu_type}={_gridengine_quoted(wanted.gpu_type)}"
    yield from _warnings(job_script)
    if wanted.exclude:
        yield f"-l h={_gridengine_quoted('!(' + '|'.join(wanted.exclude) + ')')}"
    for flag, value in (
        ("q", wanted.queue),
        ("P", wanted.account),
        # it waits for the end only: that the jobs of after succeeded, the script checks
        ("hold_jid", ",".join((*wanted.after, *wanted.after_end)) or None),
        ("M", wanted.mail),
        ("m", "ea" if wanted.mail else None),
        *wanted.extra,
    ):
        if value is not None:
            yield f"-{flag} {_gridengine_quoted(value)}" if value else f"-{flag}"


def _warnings(job_script: JobScript) -> Iterator[str]:
    """Yield the flags for signals: USR1 before the limit, USR2 before qdel kills."""
    warn_time, limit = warning(job_script), job_script.request.time_limit
    if warn_time is not None or job_script.request.notify is not None:
        yield "-notify"
    if job_script.requeue:
        yield "-r y"
    late = _WARNING if job_script.command else _LATE_WARNING
    if limit is not None and limit > 2 * _WARNING:
        yield f"-l s_rt={TEXT.format_time(limit - (warn_time or late))}"


def job_name(name: str) -> str:
    """Return a name that qsub accepts: no slash, at sign or space, no digit first."""
    kept = "".join(c if c in _NAME else "_" for c in name)[:_LONGEST_NAME]
    return kept if kept[:1].isalpha() else f"j{kept}"


def _gridengine_quoted(text: str) -> str:
    if not text.isprintable() or set("\"'\\") & set(text):
        raise UsageError(f"a directive for qsub cannot hold {text!r}")
    return f'"{text}"' if " " in text else text


def parse_qstat_job(text: str) -> RecordedRequest | None:
    """Read the job in *text*; None if there is none.

    Each site names its GPU resource itself: if no name is recognized, the number of
    requested GPUs is not known.
    """
    rows = text_pairs(text, ":")
    if "job_number" not in rows:
        return None
    asked = comma_pairs(rows.get("hard resource_list", ""))
    slots = _minimum_slots(rows.get("parallel environment", ""))
    tasks = rows.get("job-array tasks")
    each = gridengine_text.memory_or_none(asked.get("h_vmem"))
    # memory stays None: h_vmem limits address space, per slot
    return RecordedRequest(
        virtual_memory=None if each is None else each * slots,
        cpus=slots,
        gpus=next((whole_number(asked[name]) for name in asked if is_gpu(name)), None),
        gpu_types=tuple(asked[name] for name in asked if is_gpu_type(name)),
        time_limit=parsed_or_none(gridengine_text.TEXT.parse_time, asked.get("h_rt")),
        queue=rows.get("hard_queue_list"),
        account=rows.get("project"),
        elements=count_elements(tasks) if tasks else None,
        throttle=whole_number(rows.get("maximum concurrency")),
    )


def _minimum_slots(text: str) -> int:
    """Read ``smp range: 2``: the minimum of a range."""
    return whole_number(text.rpartition(":")[2].strip().partition("-")[0]) or 1


_DATES = ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S.%f")
# few sites have a lower limit than that
_SHORT_ARRAY = 1000
# error reason    1:          11/21/2026 02:23:49 [0:1]: can't open output file
_ERROR_REASON = re.compile(
    r"^error reason[^:\n]*:(?:\s*\S+ \S+ \[\S+\]:)?(.*)$", re.MULTILINE
)
_NO_QUEUE = "no suitable queues"
_OTHER_QUEUE = "not contained in its hard queue list"
_CANNOT = re.compile(r"^(Unable to run job: )?(Job \S+ )?")
_MOST_REASONS = 3  # of queues that do not fit: more is no reason to read on
_NO_SUCH_JOB = re.compile(r"job (?:id|name) \S+ not found")
_NO_FILE = "No such file or directory"
_UNREADABLE = "unable to open"
_KILL = 9  # no module of the machine's is imported here
_BLOCK = "=" * 20  # begins each job in qacct's output
# lines of qstat -j in which a token may be
_MARKED = frozenset({"context", "script_file"})

# accounting(5): the values of `failed`
_RESCHEDULED = 25
_OVER_A_LIMIT = 37
_SIGNALLED = 100


def _state_of_qstat_letters(letters: str) -> State:
    """Map qstat's letters: q, h, w wait; r, t run; d is being deleted; E is stuck."""
    if "E" in letters:
        return "FAILED"
    # E first: Eqw waits as well, but will not start by itself
    if "w" in letters or letters in {"q", "hq", "Rq"}:
        return "PENDING"
    if set(letters) & set("rtsST"):
        return "RUNNING"
    return "UNKNOWN"


def _gridengine_wait_reason(letters: str) -> str | None:
    if "E" in letters:
        return STUCK
    if "d" in letters:
        return "being deleted"
    if "h" in letters:
        return ON_HOLD
    if set(letters) & set("sST"):
        return "suspended"
    return (
        None
        if _state_of_qstat_letters(letters) != "UNKNOWN"
        else f"Grid Engine calls it {letters!r}"
    )


def qacct_blocks(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the fields that qacct prints for each element, by name."""
    block: dict[str, str] = {}
    for line in lines:
        if line.startswith(_BLOCK):
            if block:
                yield block
            block = {}
        else:
            key, _, value = line.partition(" ")
            block[key] = value.strip()
    if block:
        yield block


def _ended_state_of_block(block: dict[str, str]) -> ElementState | None:
    """Return the state in a block; None for an attempt that was requeued."""
    _, _, words = block.get("failed", "").partition(":")
    ended = read_end(block.get("failed", ""), block.get("exit_status", ""))
    if ended is None:
        return None
    return ElementState(
        state=ended.state,
        reason=ended.reason or words.strip() or None,
        exit_code=ended.exit_code,
        signal=ended.signal,
        started=epoch_time(block.get("start_time", "")),
        ended=epoch_time(block.get("end_time", "")),
        node=block.get("hostname"),
    )


def read_end(failed: str, status: str) -> ElementState | None:
    """Read the fields failed and exit_status; None for an attempt that was requeued."""
    number = whole_number(failed.partition(":")[0].strip())
    code = whole_number(status.partition(" ")[0])
    # a requeued attempt is not the end of its job
    if number is None or number == _RESCHEDULED:
        return None
    signal = code - SIGNAL_BASE if code and code > SIGNAL_BASE else None
    state, reason = _judge(number, code, signal)
    return ElementState(state=state, reason=reason, exit_code=code, signal=signal)


def _judge(
    failed: int, status: int | None, signal: int | None
) -> tuple[State, str | None]:
    # which limit it was, only the figures show: see the accounting
    if failed == _OVER_A_LIMIT:
        return "TIMEOUT", "over a limit of time or CPU time"
    # no field separates qdel from a kill at a limit
    if failed == _SIGNALLED and signal == _KILL:
        return "CANCELLED", "killed: by qdel, or over a limit"
    if failed == 0 and status == 0:
        return "COMPLETED", None
    return "FAILED", None if failed else ""


def epoch_time(text: str) -> Seconds | None:
    """Read a time in any form that Grid Engine prints, in seconds since the epoch."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass
    for form in _DATES:
        try:
            return datetime.strptime(text, form).timestamp()  # noqa: DTZ007 - local
        except ValueError:
            continue
    return None


class GridEngineCommands(SchedulerCommands):
    """Grid Engine: how jobs are submitted, listed and cancelled."""

    OWN: Mapping[str, str] = {
        **dict.fromkeys(("t", "tc"), "weigh plan makes the elements, --jobs"),
        **dict.fromkeys(("o", "e", "j"), "weigh logs shows the output"),
        **dict.fromkeys(("wd", "cwd"), "the job runs where it was submitted"),
        **dict.fromkeys(("S", "b", "terse", "sync"), "the script is weigh's own"),
    }
    PLACES = (("q", "queue"), ("P", "account"))
    LOGIN_HINT = "submit from a login node of the cluster, or with --on local here"
    NO_CLUSTER = re.compile(
        r"Please set the environment variable SGE_ROOT|cell directory .* doesn.t exist|"
        r"unable to read qmaster name"  # Debian's package before a cell is set up
    )
    LOST = re.compile(
        r"send error|receive error|got read error|commlib|can't unpack|"
        r"connect to service|timeout|timed out|"
        r"unable to (?:contact|send message to) qmaster",
        re.IGNORECASE,
    )
    SUBMITTED = re.compile(r"(\d{1,12})(?:\.\d+-\d+:\d+)?")  # 42 or 42.1-3:1
    NOT_LISTED = re.compile("do not exist")  # no job has that name
    RULES = ScriptRules(
        job_id="$JOB_ID",
        requeue=f"code={AGAIN}",
        forget='$([ "${RESTARTED:-0}" = 0 ] || echo --forget-survivors)',
        takes_gpus=True,
        checks_needs=True,
    )

    def render(self, job_script: JobScript) -> str:
        """Return the script of a job.

        Raises:
            UsageError: a directive cannot hold a value.
        """
        own = _LOG if job_script.is_array else _PLAIN_LOG
        return render_job_script(
            (f"{TEXT.PREFIX} {flag}" for flag in _gridengine_flags(job_script)),
            job_script,
            element=_gridengine_element_expression(job_script),
            log=None if can_hold_path(job_script.log) else own,
            rules=self.RULES,
        )

    def log_name(self, job_id: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log; Grid Engine numbers from 1."""
        return f"{job_id}.{element + 1}.out" if is_array else f"{job_id}.out"

    def submit_argv(self, script: str) -> Argv:
        """Submit a script."""
        return ("qsub", "-terse", script)

    def verify_argv(self, script: str) -> Argv:
        """Return the command that checks whether it fits an empty cluster."""
        return ("qsub", "-w", "v", script)

    def parse_doubt(self, command_output: str) -> str | None:
        """Read why no queue is suitable, from the most specific lines."""
        if _NO_QUEUE not in command_output:
            return None
        # one line per queue instance with the reason why it does not fit
        lines = [
            line.strip() for line in command_output.splitlines() if "cannot run" in line
        ]
        # skip queues that were not requested
        specific = [line for line in lines if _OTHER_QUEUE not in line] or lines
        specific.sort(key=lambda line: "because it" not in line)  # reasons first
        found = dict.fromkeys(_CANNOT.sub("", line) for line in specific)
        reasons = "; ".join(list(found)[:_MOST_REASONS]) or "no suitable queue"
        return f"the job would never start: {reasons}"

    def find_argv(self, user_name: str, name: str) -> Argv:  # users choose job names
        """Return the command that shows all jobs of that name with their context."""
        return ("qstat", "-j", job_name(name))

    def parse_found(self, command_output: str, token: str) -> str | None:
        """Read the id of the job whose context or script path holds the token."""
        job = None
        for line in command_output.splitlines():
            key, _, value = line.partition(":")
            # each job begins with this line
            if key == "job_number":
                job = value.strip()
            elif (
                key in _MARKED
                and token in value
                and whole_number(job or "") is not None
            ):
                return job
        return None

    def queue_argv(self, user_name: str) -> Argv:
        """Return the command that lists the waiting and running jobs."""
        return ("qstat", "-u", user_name, "-xml")

    def parse_queue(self, command_output: str) -> States:
        """Read qstat's XML.

        Raises:
            FormatError: the output is not XML, or truncated.
        """
        states: States = {}
        for entry in gridengine_cluster.qstat_entries(command_output):
            job = entry.findtext("JB_job_number", "")
            if whole_number(job) is None:
                raise FormatError("qstat lists a job without a number")
            letters = entry.findtext("state", "")
            element = ElementState(
                state=_state_of_qstat_letters(letters),
                reason=_gridengine_wait_reason(letters),
                started=epoch_time(entry.findtext("JAT_start_time", "")),
                node=entry.findtext("queue_name", "").partition("@")[2] or None,
            )
            # waiting elements share an entry; a plain job has none: element 1
            for number in list(parse_ranges(entry.findtext("tasks", ""))) or [1]:
                states.setdefault(job, {})[number - 1] = element
        return states

    def ended_argvs(self, job_ids: Sequence[str]) -> tuple[Argv, ...]:
        """Return one accounting command per job: qacct accepts only one."""
        return tuple(("qacct", "-j", job) for job in job_ids)

    def accounting_answer(self, command_output: CommandOutput) -> Answer:
        """Classify a failure of qacct, which also fails for jobs not recorded yet.

        With accounting on, the file is created with the first job, and again when it is
        rotated; a file that this user may not read stays unreadable.
        """
        output = command_output.words
        # not off: the record is written some seconds after the end
        if _NO_SUCH_JOB.search(output) or _NO_FILE in output:
            return "unknown job"
        return "off" if _UNREADABLE in output else "failing"

    def parse_ended(self, command_output: str) -> States:
        """Read qacct's blocks; the last attempt of a job counts."""
        states: States = {}
        for block in qacct_blocks(command_output.splitlines()):
            job = block.get("jobnumber", "")
            if whole_number(job) is None:
                continue
            # blocks are in the order of their ends, so that the last attempt stays
            element = _ended_state_of_block(block)
            number = whole_number(block.get("taskid", "")) or 1
            if element is not None:
                states.setdefault(job, {})[number - 1] = element
        return states

    def cancel_argv(self, job_id: str, elements: Sequence[int] | None) -> Argv:
        """Return the command that cancels a job or some of its elements."""
        if elements is None:
            return ("qdel", job_id)
        spans = format_ranges(number + 1 for number in elements).split(",")
        return ("qdel", *(f"{job_id}.{span}" for span in spans))

    def session_flags(self, job_request: JobRequest) -> list[Argv]:
        """Return the options of a shell on a node."""
        words = job_request.complexes or SiteComplexes()
        flags = [*TEXT.directives(request_of(job_request), words)]
        if job_request.gpu_type:
            flags.append(f"-l {words.gpu_type}={job_request.gpu_type}")
        places = self.places(job_request)
        others = ((f"-{n}", value) if value else (f"-{n}",) for n, value in places)
        return [*(tuple(flag.split()) for flag in flags), *others]

    def session_argv(self, words: Argv, command: Argv) -> Argv:
        """Return the command that runs *command*, or else a shell, on a node."""
        if command:
            # a shell reads the words there, joined by spaces
            quoted = map(shlex.quote, command)
            # -now no: wait in the queue like any job
            return ("qrsh", "-pty", "yes", "-now", "no", *words, *quoted)
        return ("qlogin", "-now", "no", *words)

    def understood(self, job_id: str) -> SchedulerQuestion[RecordedRequest | None]:
        """Ask by what shows all details of a job."""
        return one_command(("qstat", "-j", job_id), parse_qstat_job)

    def why(self, job_id: str) -> SchedulerQuestion[str | None]:
        """Ask by what shows all details of a job."""
        return one_command(("qstat", "-j", job_id), self.parse_why)

    def parse_why(self, command_output: str) -> str | None:
        """Read why a job is in an error state."""
        found = _ERROR_REASON.search(command_output)
        why = "" if found is None else " ".join(found[1].split())
        # the command begins anew what is in an error state
        return f"{why} (qmod -cj JOB)" if why else None

    def cpu_resource(
        self, complexes: SiteComplexes | None = None
    ) -> SchedulerQuestion[str | None]:
        """Ask by what lists the resources: most are counted per slot."""
        return one_command(
            ("qconf", "-sc"), lambda out: self.parse_slots(out, complexes)
        )

    def parse_slots(
        self, command_output: str, complexes: SiteComplexes | None = None
    ) -> str | None:
        """Read whether slots multiply GPUs, and which other resource counts CPUs."""
        words = complexes or SiteComplexes()
        if words.gpus not in gridengine_cluster.per_slot(command_output):
            return None
        return (
            words.cpus
            if words.cpus in (gridengine_cluster.requestable(command_output) or ())
            else ""
        )

    def array_limit(self, elements: int) -> SchedulerQuestion[int | None]:
        """Ask by what shows the limit, if the usual default may be too low."""
        if elements <= _SHORT_ARRAY:
            return known_answer(None)
        return one_command(("qconf", "-sconf"), gridengine_cluster.most_elements_of)

    def why_not_from_nodes(self, queue: str | None) -> SchedulerQuestion[str | None]:
        """Ask by what list the submit hosts and the execution hosts."""
        return SchedulerQuestion(
            self.parse_from_nodes, (("qconf", "-ss"), ("qconf", "-sel"))
        )

    def parse_from_nodes(self, command_outputs: Sequence[str]) -> str | None:
        """Read which execution hosts are submit hosts: with none no job may submit."""
        submit, execute = ({*out.split()} for out in command_outputs)
        # without lists nothing is known against it
        if not submit or not execute or submit & execute:
            return None
        return f"no execution host is a submit host ({', '.join(sorted(submit))})"

    def runs_on_host(self, job_id: str, host_name: str) -> SchedulerQuestion[bool]:
        """Ask by what lists the jobs on a host."""
        argv = ("qstat", "-u", "*", "-s", "rs", "-q", f"*@{host_name}")
        return one_command(
            argv,
            lambda out: [job_id] in [line.split()[:1] for line in out.splitlines()],
        )

    def in_words(self, reason: str, throttle: int | None = None) -> str:
        """Return a reason in plain English; an unknown one unchanged."""
        words = {
            "error": "in error: qstat -j JOB shows why",
            STUCK: "in error state (qmod -cj JOB)",
            ON_HOLD: "held (qrls JOB)",
        }
        return words.get(reason, reason)


COMMANDS = GridEngineCommands()
