"""Slurm's commands: ``sbatch``, ``squeue``, ``sacct``, ``scancel``.

Text in a format that we choose is the only output that all versions share. The client
sets SLURM_TIME_FORMAT so that times are seconds since the epoch.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import msgspec

from weigh.errors import FormatError
from weigh.model.job import (
    REST,
    STEP_OUT_OF_MEMORY,
    WHOLE,
    Elements,
    ElementState,
    JobRequest,
    JobScript,
    RecordedRequest,
    States,
)
from weigh.model.record import State
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.job_script import ScriptRules
from weigh.schedulers.kind import (
    Answer,
    Argv,
    EndMessages,
    SchedulerCommands,
    SchedulerQuestion,
    known_answer,
    one_command,
)
from weigh.schedulers.slurm.cluster import pairs_of, rows_of
from weigh.schedulers.slurm.script import (
    GRES,
    job_lines,
    parse_scontrol_job,
    requested_flags,
    slurm_flag,
    slurm_script,
)
from weigh.schedulers.words import (
    epoch_seconds_in,
    format_ranges,
    parse_ranges,
    read_sections,
    text_pairs,
    whole_number,
)
from weigh.units import Seconds

# slurmstepd's messages, with control groups or by polling
_OVER_MEMORY = (
    r"slurmstepd(?:-\S+)?: error: .*"
    r"(?:exceeded memory limit|Exceeded job memory limit|oom.kill)"
)
_THROTTLE = "JobArrayTaskLimit"
_OWN_ELEMENT = "${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"
_JOB_ID = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"

_LISTS_OF_WORDS = read_sections("weigh.schedulers.slurm", "words.txt")
_REASONS = dict(row.split(": ", 1) for row in _LISTS_OF_WORDS["reasons to wait"])
# some codes have blanks or underscores: (launch failed requeued held)
_BY_LETTERS = {name.lower(): words for name, words in _REASONS.items()}


def is_of_waiting(reason: str) -> bool:
    """Return whether this is a known reason why a job waits."""
    return _letters(_plain_slurm_reason(reason)) in _BY_LETTERS


def _plain_slurm_reason(reason: str) -> str:
    return reason.strip("()").partition(",")[0]


def _letters(plain: str) -> str:
    return plain.replace(" ", "").replace("_", "").lower()


# the path of a script and a comment may contain anything, line ends too: they are last,
# and a mark follows them
_END = "|."
_QUEUE_FORMAT = f"%F|%K|%T|%S|%N|%r|%o|%k{_END}"
_LISTS = ("squeue", "-h", "-r", "-t", "all")
_QUEUE_FIELDS = 6  # in front of script and comment
_OUR_MARK = re.compile(r"\bweigh:\w")
_NO_COMMENT = frozenset({"", "(null)"})
_ENDED_FIELDS = "JobID,State,ExitCode,DerivedExitCode,Start,End,NodeList,Reason"
_MORE_FIELDS = _ENDED_FIELDS.count(",")  # behind the first
_GPU_TYPE = re.compile(r"\bgpu:([^:,()\s]+):\d")
_SHORT_ARRAY = 100  # few sites have a lower limit
_OOM_EXIT = "0:125"
_SHORT = "OUT_OF_ME"  # a narrow column truncates the word
# states of a job that do not show that one of its steps ran out of memory
_MAY_HIDE_A_STEP = frozenset({"COMPLETED", "FAILED", "TIMEOUT"})
_NO_ACCOUNTING = "accounting storage is disabled"
_FAILURE = re.compile(r"^allocation failure: (.+)$", re.MULTILINE)
# the controller was not reached: the message is not about the job
_NOBODY = re.compile(
    r"No error|contact|connect|timed out|transmi|communicat|control", re.IGNORECASE
)
# --test-only prints this also if all suitable nodes are drained, down or reserved:
# sbatch accepts such a job, and it waits (ReqNodeNotAvail)
_NOT_NOW = re.compile(
    r"Requested node configuration is not available|Required node not available|"
    r"nodes are busy",
    re.IGNORECASE,
)
_ERROR = re.compile(r"^sbatch: error: ")
_TTL = re.compile(r"^AuthInfo\s*=.*\bttl=(\d{1,6})", re.MULTILINE)
# seconds for which a credential is valid: a request with an older one is rejected
_DEFAULT_TTL: Seconds = 300.0  # munge(7)
_AFTER_TTL: Seconds = 10.0  # clocks differ, as for the usual patience
_START = re.compile(r"to start at (\S+)")

# squeue(1) and sacct(1), JOB STATE CODES; any other is UNKNOWN
STATES: dict[str, State] = {
    word: state
    for state in get_args(State)
    for row in _LISTS_OF_WORDS["states"]
    if row.startswith(f"{state}: ")
    for word in row.removeprefix(f"{state}: ").split()
}
_NO_NODE = frozenset({"", "(null)", "n/a"})
_PLAIN = frozenset({"", "N/A"})
_STARTED = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"})
_NO_REASON = frozenset({"", "None", "none", "(null)", "NonZeroExitCode"})


def _squeue_rows(command_output: str) -> list[str]:
    """Split what squeue printed into one text per job.

    Raises:
        FormatError: the last one is cut off.
    """
    end = f"{_END}\n" if f"{_END}\n" in command_output else "\n"
    # jobs that were cut off would seem to have left the queue
    if command_output and not command_output.endswith(end):
        raise FormatError("squeue's answer is cut off")
    return command_output.split(end)[:-1]


def _put(elements: Elements, index: str, element_state: ElementState) -> None:
    """Store *element_state* under each element that *index* lists.

    A plain job is its own element 0. An array that was cancelled before it started may
    be listed without an index: it applies to all elements without a line of their
    own. So does a range, in which sacct includes elements that have started meanwhile.
    """
    # a line of its own overrules what a range or the whole array has
    number = whole_number(index)
    if number is not None:
        elements[number] = element_state
    elif index not in _PLAIN:
        for member in parse_ranges(index):
            elements.setdefault(member, element_state)
    elif element_state.state == "CANCELLED" and element_state.node is None:
        elements[REST] = element_state
    else:
        elements[0] = element_state


def _mark_short_elements(states: States, short: Iterable[str]) -> None:
    """Let the elements called *short* have ended for the memory of a step."""
    for place in short:
        job, _, index = place.partition("_")
        elements = states.get(job, {})
        for number in (whole_number(index),) if index else (0, WHOLE):
            if number in elements and elements[number].state in _MAY_HIDE_A_STEP:
                elements[number] = msgspec.structs.replace(
                    elements[number],
                    state="OUT_OF_MEMORY",
                    reason=STEP_OUT_OF_MEMORY,
                )


def _ended_slurm_element(fields: Sequence[str]) -> ElementState:
    """Return the state of an element by its row of accounting."""
    word = fields[1].split(" ")[0].rstrip("+")
    state = STATES.get(word, "UNKNOWN")
    code, _, signal = fields[2].partition(":")
    node = None if fields[6] == "None assigned" else fields[6] or None
    # a job without a node never started: 20.11 prints when it was cancelled
    started = None if node is None else epoch_seconds_in(fields[4])
    return ElementState(
        state=state,
        reason=_slurm_wait_reason(fields[7], word, state),
        exit_code=whole_number(code),
        signal=whole_number(signal) or None,
        started=started,
        ended=epoch_seconds_in(fields[5]),
        node=node,
    )


def _slurm_wait_reason(text: str, word: str, state: State) -> str | None:
    if state == "UNKNOWN":
        return f"Slurm calls it {word}"
    # SUSPENDED, COMPLETING and the like are RUNNING here: the word is the reason
    if state == "RUNNING" and word != "RUNNING":
        return word.lower()
    if state in _STARTED and is_of_waiting(text):
        return None  # why it waited: 26.05 still lists that after the end
    # squeue's word also for a script that started and was killed (22.05)
    if text == "JobLaunchFailure":
        return "its script was ended by a signal, or could not start"
    return None if text in _NO_REASON else text


class SlurmCommands(SchedulerCommands):
    """Slurm: how jobs are submitted, listed and cancelled."""

    OWN: Mapping[str, str] = {
        **dict.fromkeys(("array", "a"), "weigh plan makes the elements, --jobs"),
        **dict.fromkeys(("output", "o", "error", "e"), "weigh logs shows the output"),
        **dict.fromkeys(("chdir", "D"), "the job runs where it was submitted"),
        "wrap": "a command: weigh submit -- COMMAND",
        "open-mode": "each element has a log of its own",
    }
    PLACES = (("partition", "queue"), ("account", "account"), ("qos", "qos"))
    LOGIN_HINT = "submit from a login node of the cluster, or with --on local here"
    NO_CLUSTER = re.compile(r"Could not establish a configuration source")
    LOST = re.compile(
        r"timed out|send/recv|Unable to contact|Zero Bytes|connect failure|"
        r"Connection (?:reset|refused|timed)|Transport endpoint|communication|"
        r"Unexpected message received|Resource temporarily unavailable|Broken pipe",
        re.IGNORECASE,
    )
    SUBMITTED = re.compile(r"(\d{1,18})(?:;.*)?", re.ASCII)  # 481516;cluster
    SHOWS_TOKENS = True
    NOT_LISTED = re.compile("Invalid job id")  # of jobs by their ids
    RULES = ScriptRules(
        job_id=_JOB_ID,
        # the job id of an array's last element is that of the whole array
        requeue=f'scontrol requeue "{_JOB_ID}{_OWN_ELEMENT}"',
        forget="${SLURM_RESTART_COUNT:+--forget-survivors}",
    )
    MESSAGES = EndMessages(
        over_memory=re.compile(_OVER_MEMORY),
        # in the output of the task that started the step, srun's messages, too
        step_over_memory=re.compile(
            rf"{_OVER_MEMORY}|srun: error: .*Out Of Memory", re.IGNORECASE
        ),
        ended=re.compile(
            r"slurmstepd(?:-\S+)?: error: \*\*\* JOB \d+ ON \S+ CANCELLED AT \S+"
            r"(?: DUE TO ([A-Z ]+)[^*]*)? \*\*\*"
        ),
        states={
            "TIME LIMIT": "TIMEOUT",
            "NODE FAILURE": "NODE_FAIL",
            "PREEMPTION": "PREEMPTED",
        },
    )

    def render(self, job_script: JobScript) -> str:
        """Return the script of a job.

        Raises:
            UsageError: a directive cannot hold a value.
        """
        return slurm_script(job_script, self.RULES)

    def submit_argv(self, script: str) -> Argv:
        """Return the command that submits a script."""
        return ("sbatch", "--parsable", script)

    def verify_argv(self, script: str) -> Argv:
        """Return the command that checks a script; it uses up a job id, runs no job."""
        return ("sbatch", "--test-only", script)

    def parse_doubt(self, command_output: str) -> str | None:
        """Read why sbatch would reject it; None if it accepts it, or if unknown."""
        failure = _FAILURE.search(command_output)
        if failure is None or _NOBODY.search(failure[1]):
            return None
        # the errors in front of the failure name the option that is wrong
        before = [
            _ERROR.sub("", line)
            for line in command_output.splitlines()
            if _ERROR.match(line)
        ]
        if not before and _NOT_NOW.search(failure[1]):
            return None
        reasons = "; ".join(dict.fromkeys((*before, failure[1].strip())))
        return f"sbatch would reject the job: {reasons}"

    def parse_start(self, command_output: str) -> Seconds | None:
        """Read the start time in ``Job 69 to start at 1795254181 using ...``."""
        found = _START.search(command_output)
        return None if found is None else epoch_seconds_in(found[1])

    def parse_found(self, command_output: str, token: str) -> str | None:
        """Read the id of the job whose script path or comment holds the token.

        Raises:
            FormatError: the output is cut off.
        """
        for line in _squeue_rows(command_output):
            job, _, marks = line.partition("|")
            # marks: the script's path or the comment, either holds the token
            if token in marks and whole_number(job) is not None:
                return job
        return None

    def queue_argv(self, user_name: str) -> Argv:
        """Return the command that lists each element, also those that just ended."""
        return (*_LISTS, "-u", user_name, "-o", _QUEUE_FORMAT)

    def listed_argv(self, job_ids: Sequence[str]) -> Argv:
        """Return the command that lists each element of these jobs."""
        return (*_LISTS, "-j", ",".join(job_ids), "-o", _QUEUE_FORMAT)

    def parse_queue(self, command_output: str) -> States:
        """Read squeue's lines, one per element.

        Raises:
            FormatError: the last line is cut off, or a line has an unknown format.
        """
        states: States = {}
        for line in _squeue_rows(command_output):
            fields = line.split("|", _QUEUE_FIELDS)
            if len(fields) < _QUEUE_FIELDS or whole_number(fields[0]) is None:
                raise FormatError(f"squeue answered {line[:60]!r}")
            job, index, word, start, node, reason = fields[:_QUEUE_FIELDS]
            state = STATES.get(word, "UNKNOWN")
            element = ElementState(
                state=state,
                reason=_slurm_wait_reason(reason, word, state),
                # of a job that never started: its begin time or cancellation time
                started=None
                if state == "PENDING" or node in _NO_NODE
                else epoch_seconds_in(start),
                node=None if node in _NO_NODE else node,
                expected=epoch_seconds_in(start) if state == "PENDING" else None,
            )
            _put(states.setdefault(job, {}), index, element)
        return states

    def with_other_token(
        self, command_output: str, tokens: Mapping[str, str]
    ) -> frozenset[str]:
        """Return the listed jobs with the mark of another submission, or with no mark.

        A controller that lost its state gives ids out again. A comment of the user's
        own proves nothing: it may have taken the place of the mark.

        Raises:
            FormatError: the last line is cut off.
        """
        found: set[str] = set()
        for line in _squeue_rows(command_output):
            job, _, rest = line.partition("|")
            token = tokens.get(job)
            marks = rest.split("|", _QUEUE_FIELDS - 1)[-1]
            # without the bar the path is cut off, and may have held the token
            if not token or token in marks or "|" not in marks:
                continue
            comment = marks.partition("|")[2].strip()
            if comment in _NO_COMMENT or _OUR_MARK.search(comment):
                found.add(job)
        return frozenset(found)

    def ended_argvs(self, job_ids: Sequence[str]) -> tuple[Argv, ...]:
        """Return one accounting command for all jobs and their steps."""
        if not job_ids:
            return ()
        return (("sacct", "-n", "-P", "-j", ",".join(job_ids), "-o", _ENDED_FIELDS),)

    def accounting_answer(self, command_output: CommandOutput) -> Answer:
        """Classify a failure of sacct: it reports when a site has no accounting."""
        return (
            "off"
            if _NO_ACCOUNTING in command_output.out + command_output.err
            else "failing"
        )

    def parse_ended(self, command_output: str) -> States:
        """Read sacct's lines. Its exit codes above 128 have lost the 128.

        If a step ran out of memory, its element ended for that reason, even if the
        script continued and exited with 0.
        """
        states: States = {}
        short: set[str] = set()
        for line in command_output.splitlines():
            fields = line.split("|", _MORE_FIELDS)
            if len(fields) <= _MORE_FIELDS:
                continue
            # 123 and 123_4 are jobs, 123_4.batch and 123.0 are steps; of a
            # heterogeneous job only the first part is read, which runs its script
            place, _, step = fields[0].replace("+0", "").partition(".")
            job, _, index = place.partition("_")
            if whole_number(job) is None:
                continue
            if step:
                # of numbered steps only: batch and extern end as the job does
                if whole_number(step) is not None and fields[1].startswith(_SHORT):
                    short.add(place)
                continue
            # DerivedExitCode is the highest of all steps
            if fields[3] == _OOM_EXIT:
                short.add(place)
            element = _ended_slurm_element(fields)
            _put(states.setdefault(job, {}), index, element)
            if not index:
                states[job][WHOLE] = element
        _mark_short_elements(states, short)
        return states

    def cancel_argv(self, job_id: str, elements: Sequence[int] | None) -> Argv:
        """Return the command that cancels a job or some of its elements."""
        if elements is None:
            return ("scancel", job_id)
        return ("scancel", f"{job_id}_[{format_ranges(elements)}]")

    def session_flags(self, job_request: JobRequest) -> list[Argv]:
        """Return the options of a shell on a node."""
        flags: list[Argv] = [(one,) for one in requested_flags(job_request)]
        for name, value in self.places(job_request):
            if name != GRES or not job_request.gpus:
                flags.append(slurm_flag(name, value))
        return flags

    def session_argv(self, words: Argv, command: Argv) -> Argv:
        """Return the command that runs *command*, or else a shell, on a node."""
        return ("srun", "--pty", *words, *(command or ("bash", "-l")))

    def understood(self, job_id: str) -> SchedulerQuestion[RecordedRequest | None]:
        """Ask by what shows all details of a job."""
        argv = ("scontrol", "-o", "show", "job", job_id)
        return one_command(argv, self.parse_understood)

    def parse_understood(self, command_output: str) -> RecordedRequest | None:
        """Read the request as Slurm understood it.

        Of a job with whole nodes that has started, Slurm shows what these nodes have.
        """
        found = parse_scontrol_job(command_output)
        rows = map(pairs_of, job_lines(command_output))
        has_nodes = any(
            row.get("OverSubscribe") == "NO" and row.get("JobState") != "PENDING"
            for row in rows
        )
        if found is None or not has_nodes:
            return found
        return msgspec.structs.replace(found, memory=None, cpus=None, gpus=None)

    def gpu_types(self) -> SchedulerQuestion[tuple[str, ...]]:
        """Ask by what lists the generic resources of all nodes."""
        return one_command(("sinfo", "-h", "-o", "%G"), self.parse_gpu_types)

    def parse_gpu_types(self, command_output: str) -> tuple[str, ...]:
        """Read ``gpu:v100:4(S:0-1)``; GPUs without a type have no name."""
        return tuple(sorted(set(_GPU_TYPE.findall(command_output))))

    def array_limit(self, elements: int) -> SchedulerQuestion[int | None]:
        """Ask by what shows the limit, if the usual default may be too low."""
        # short arrays are allowed nearly everywhere: no query
        if elements <= _SHORT_ARRAY:
            return known_answer(None)
        return one_command(("scontrol", "show", "config"), self.parse_array_limit)

    def parse_array_limit(self, command_output: str) -> int | None:
        """Read MaxArraySize, which is one more than the highest index."""
        return whole_number(text_pairs(command_output, "=").get("MaxArraySize"))

    def why_not_from_nodes(self, queue: str | None) -> SchedulerQuestion[str | None]:
        """Ask by what show each partition of *queue*; without one, all of them."""
        show = ("scontrol", "-o", "show", "partition")
        return SchedulerQuestion(
            self.parse_from_nodes,
            tuple((*show, name) for name in queue.split(",")) if queue else (show,),
        )

    def parse_from_nodes(self, command_outputs: Sequence[str]) -> str | None:
        """Read AllocNodes: the nodes from which jobs may be submitted to the partition.

        Of several partitions that a job names, one that takes its jobs is enough.
        """
        lines = [*rows_of("".join(command_outputs))]
        # no partition was named: the default one takes the job
        if len(command_outputs) == 1 and len(lines) > 1:
            lines = [one for one in lines if one.get("Default") == "YES"]
        why = None
        for one in lines:
            allowed, nodes = one.get("AllocNodes", "ALL"), one.get("Nodes")
            if allowed in {"ALL", "(null)"} or (nodes and nodes in allowed):
                return None
            name = one.get("PartitionName", "?")
            why = f"partition {name} takes jobs from {allowed} only (AllocNodes)"
        return why

    def runs_on_host(self, job_id: str, host_name: str) -> SchedulerQuestion[bool]:
        """Ask by what shows whether a job runs on a host."""
        which = ("-t", "RUNNING,SUSPENDED,COMPLETING", "-j", job_id, "-w", host_name)
        argv = ("squeue", "--noheader", *which, "-o", "%A")
        return one_command(argv, lambda out: bool(out.split()))

    def patience(self) -> SchedulerQuestion[Seconds]:
        """Ask by what shows the configuration with the credential lifetime."""
        return one_command(("scontrol", "show", "config"), self.parse_patience)

    def parse_patience(self, command_output: str) -> Seconds:
        """Read ``ttl=`` of AuthInfo: Slurm rejects older requests as expired."""
        found = _TTL.search(command_output)
        return (float(found[1]) if found else _DEFAULT_TTL) + _AFTER_TTL

    def in_words(self, reason: str, throttle: int | None = None) -> str:
        """Return a reason in plain English; an unknown one unchanged.

        *throttle* is how many elements of the array may run at once, if that is known.
        """
        if reason == _THROTTLE and throttle:
            return f"{_REASONS[_THROTTLE]} of {throttle} at once"
        plain = _plain_slurm_reason(reason)
        if is_of_waiting(reason):
            return _BY_LETTERS[_letters(plain)]
        for prefix, whose in (("QOS", "the QOS's"), ("Assoc", "your account's")):
            if plain.startswith(prefix):
                return f"{whose} limit: {plain}"
        return plain

    def is_hopeless(self, reason: str) -> bool:
        """Return whether a job that waits for this reason can never start."""
        return self.in_words(reason).startswith("never")


COMMANDS = SlurmCommands()
