"""The protocols that every scheduler implements.

A backend is text in, text out: it returns the command line to run and reads what that
printed. It runs nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from weigh.errors import WeighError
from weigh.model.cluster import ClusterJob, Node
from weigh.model.job import (
    ElementState,
    JobRequest,
    JobScript,
    OwnScript,
    RecordedRequest,
    States,
    Submitted,
)
from weigh.model.limits import Limits, QueueLimits
from weigh.model.lint import Facts, Finding
from weigh.model.record import Complexes, State
from weigh.model.report import Accounted, PastJob
from weigh.schedulers.command import Ran, final_errors
from weigh.schedulers.dialect import Dialect, Traits, Variables
from weigh.schedulers.elements import numbers_of
from weigh.schedulers.job_script import ScriptRules
from weigh.units import Bytes, Seconds

ABSENT = ElementState(state="UNKNOWN")


class Snapshot(msgspec.Struct, frozen=True):
    """The states of jobs that a scheduler reported, and when (seconds since the epoch).

    ``trouble`` is why later queries failed; ``accounting`` is why its
    accounting does not answer.
    """

    states: States
    asked: Seconds
    trouble: str | None = None
    accounting: str | None = None

    def of(self, job: Submitted, element: int) -> ElementState:
        """Return the state of an element; UNKNOWN if the scheduler does not list it."""
        numbers = numbers_of(job)
        number = numbers[element] if element < len(numbers) else element
        return self.states.get(job.id, {}).get(number, ABSENT)


class Scheduler(Protocol):
    """One scheduler that can be queried."""

    name: str

    def render(self, script: JobScript) -> str:
        """Return the job script. Raises UsageError if it cannot hold a value."""

    def log_name(self, job: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log in the log directory."""

    def predict_start(
        self, script: str, *, cwd: str, argv: "Argv | None" = None
    ) -> Seconds | None:
        """Return when the script at a path would start, None if not known.

        *argv* is the command that checks it, if not the usual one. Raises UsageError
        if it could never run.
        """

    def submit(self, script: str, *, cwd: str, argv: "Argv | None" = None) -> str:
        """Submit the script at a path once; return the job's id.

        *argv* is the command, if not the usual one. Raises SchedulerError if it is
        rejected, SubmissionUnknownError if it is not known whether it was accepted.
        """

    def find(self, token: str, *, name: str) -> str | None:
        """Return the id of the job submitted with *token*, None if none is listed.

        Raises SchedulerError if the scheduler does not answer.
        """

    def find_ended(self, job: Submitted) -> str | None:
        """Return the id of a user's script that was sent as *job* and has ended.

        None if accounting lists none. Raises SchedulerError if it does not answer.
        """

    def patience(self) -> Seconds:
        """Return the seconds after which a sent script can no longer become a job.

        Raises SchedulerError if the scheduler does not answer.
        """

    def understood(self, job: str) -> RecordedRequest | None:
        """Return the request as the scheduler understood it; None if unknown."""

    def states(self, jobs: Sequence[Submitted], *, fresh: bool = False) -> Snapshot:
        """Return the states of several jobs, from one query.

        *fresh* forces a new query even if the last one is recent.
        """

    def gpu_types(self) -> tuple[str, ...]:
        """Return the scheduler's names for GPU types; empty if it lists none."""

    def cpu_resource(self, complexes: Complexes | None = None) -> str | None:
        """Return the resource to request CPUs by where slots would multiply the GPUs.

        *complexes* are the site's resource names. The result is empty if there is no
        such resource, and None if slots do not multiply GPUs.
        """

    def array_limit(self, elements: int) -> int | None:
        """Return the limit on array elements; None if *elements* are allowed."""

    def why_not_from_nodes(self, queue: str | None) -> str | None:
        """Return why a job in *queue* may not submit others; None if it may."""

    def why(self, job: Submitted) -> str | None:
        """Return why a job is in an error state, if the scheduler knows."""

    def cancel(self, job: Submitted, elements: Sequence[int] | None) -> None:
        """Cancel a job, or these elements of it. Raises SchedulerError."""

    def known(self, name: str, *, is_new: bool = False) -> "KnownJob | None":
        """Return the job with the id *name*; None if the scheduler does not know it.

        Raises SchedulerError if the scheduler does not answer.
        """

    def raw_logs(self, job: Submitted) -> dict[str, str]:
        """Return the logs by index whose names only accounting shows."""

    def change(self, job: Submitted, change: "RequestChange") -> "tuple[Argv, ...]":
        """Change a waiting job; return the commands that did.

        Raises SchedulerError if it is refused, UsageError if users cannot change it.
        """


Argv = tuple[str, ...]
# accounting is switched off or unreadable; does not have the job; should be retried
Answer = Literal["off", "unknown job", "failing"]


class Backend(Protocol):
    """One scheduler's commands. A job that an answer does not list is absent.

    ``OWN`` are the flags that the job script sets itself, each with what to do instead.
    """

    NAME: str
    LOGIN_HINT: str
    NO_CLUSTER: re.Pattern[str]  # its command is here, and no cluster
    SHOWS_TOKENS: bool  # in its queue
    OWN: Mapping[str, str]

    def render(self, script: JobScript) -> str:
        """Write the job script.

        Raises:
            UsageError: a job script cannot hold a value.
        """

    def log_name(self, job: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log in the log directory."""

    def submit_argv(self, script: str) -> Argv:
        """Return the command that submits the script at this path."""

    def verify_argv(self, script: str) -> Argv:
        """Return the command that checks whether a job could ever run."""

    def parse_doubt(self, out: str) -> str | None:
        """Return why the job would be rejected or never run, as a sentence; else None.

        Nodes that are unavailable now are no such reason: they come back.
        """

    def parse_start(self, out: str) -> Seconds | None:
        """Read the predicted start from the same output, if there is one."""

    def understood_argv(self, job: str) -> Argv:
        """Return the command that shows the request of a job."""

    def parse_understood(self, out: str) -> RecordedRequest | None:
        """Read that request; None if the output shows no job."""

    def parse_submitted(self, out: str) -> str | None:
        """Read the job's id; None if the output has none."""

    def is_unanswered(self, words: str) -> bool:
        """Return whether a failed submission may have reached the scheduler.

        A rejection names what is wrong with the job; a lost connection does not.
        """

    def find_argv(self, user: str, name: str) -> Argv:
        """Return the command that lists the jobs of *user* with their tokens.

        *name* is the job name that weigh chose.
        """

    def parse_found(self, ran: Ran, token: str) -> str | None:
        """Return the id of the job with this *token*, None if it is not listed.

        Raises:
            FormatError: the output is not a complete answer.
        """

    def patience_argv(self) -> Argv | None:
        """Return the command that reports how long a request stays valid, if any."""

    def parse_patience(self, out: str) -> Seconds:
        """Return the seconds after which a request can no longer arrive."""

    def queue_argv(self, user: str) -> Argv:
        """Return the command that lists all jobs of *user*."""

    def parse_queue(self, out: str) -> States:
        """Read the jobs in the queue and their states.

        Raises:
            FormatError: the output is truncated or has an unknown format.
        """

    def with_other_token(self, out: str, tokens: Mapping[str, str]) -> frozenset[str]:
        """Return the listed jobs that are not the ones submitted with *tokens*.

        *tokens* are by id. An id is given out again where a scheduler lost its state.
        """

    def ended_argvs(self, jobs: Sequence[str]) -> tuple[Argv, ...]:
        """Return the accounting commands that show how these jobs ended."""

    def accounting_answer(self, out: str, err: str) -> "Answer":
        """Classify the failure of a command of ``ended_argvs``."""

    def parse_ended(self, out: str) -> States:
        """Read how jobs ended; lines that do not parse are skipped."""

    def why_argv(self, job: str) -> Argv | None:
        """Return the command that shows why an element is in an error state, if any."""

    def parse_why(self, out: str) -> str | None:
        """Read why an element is in an error state."""

    def gpu_types_argv(self) -> Argv | None:
        """Return the command that lists the site's names for GPU types, if any."""

    def parse_gpu_types(self, out: str) -> tuple[str, ...]:
        """Read the names for GPU types."""

    def slots_argv(self) -> Argv | None:
        """Return the command that shows which resources slots multiply, if any."""

    def parse_slots(self, out: str, complexes: Complexes | None = None) -> str | None:
        """Read the resource to request CPUs by; see Scheduler.cpu_resource."""

    def array_limit_argv(self, elements: int) -> Argv | None:
        """Return the command that shows the array limit, if it matters."""

    def parse_array_limit(self, out: str) -> int | None:
        """Read how many elements an array may have."""

    def from_nodes_argvs(self, queue: str | None) -> tuple[Argv, ...]:
        """Return the commands that show whether jobs in *queue* may submit others."""

    def parse_from_nodes(self, outs: Sequence[str]) -> str | None:
        """Read why they may not; None if they may, or that is not known."""

    def cancel_argv(self, job: Submitted, elements: Sequence[int] | None) -> Argv:
        """Return the command that cancels a job, or these elements of it."""

    def on_host_argv(self, job: str, host: str) -> Argv:
        """Return the command that shows whether a job runs on a host."""

    def parse_on_host(self, out: str, job: str) -> bool:
        """Return whether the job is listed there."""

    def session_flags(self, request: JobRequest) -> list[Argv]:
        """Return the options of a shell on a node, each as its words."""

    def session_argv(self, words: Argv, command: Argv) -> Argv:
        """Return the command that runs *command*, or else a shell, on a node."""


class Reply(msgspec.Struct, frozen=True):
    """The output of a command. ``code`` is None if it did not exit by itself.

    ``trouble`` is why there is no answer: command not found, or too slow.
    """

    code: int | None = None
    stdout: str = ""
    stderr: str = ""
    trouble: str | None = None

    @property
    def is_answer(self) -> bool:
        """Return whether the command succeeded."""
        return self.code == 0

    @property
    def text(self) -> str | None:
        """Return the output; None if the command failed."""
        return self.stdout if self.is_answer else None

    def require(self, name: str) -> None:
        """Raise an error if the scheduler *name* did not answer.

        Raises:
            WeighError: the command is missing, too slow or failed.
        """
        if self.is_answer:
            return
        if self.code is None:
            raise WeighError(
                f"{name}: {self.complaint()} (weigh top shows this machine)"
            )
        raise WeighError(f"{name} does not answer: {self.complaint()}")

    def complaint(self) -> str:
        """Return why the command failed, on one line, in its own words if possible."""
        printed = next(iter(final_errors(self.stderr or self.stdout)), None)
        return self.trouble or printed or f"exit code {self.code}"


def unanswered(replies: Mapping[str, Reply]) -> tuple[str, ...]:
    """Return a note for each command, by name, that did not answer."""
    return tuple(
        f"{name} does not answer: {reply.complaint()}"
        for name, reply in replies.items()
        if not reply.is_answer
    )


class Query(Protocol):
    """A function that runs several of a scheduler's commands in parallel."""

    def __call__(self, commands: Sequence[Argv]) -> list[Reply]:
        """Return the replies in the order of *commands*; never raises."""


class ClusterAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed answers of a scheduler, before anything is counted."""

    name: str | None
    version: str | None
    nodes: tuple[Node, ...]
    queues: tuple[QueueLimits, ...]
    jobs: tuple[ClusterJob, ...]
    notes: tuple[str, ...]


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of the scheduler; ``jobs`` are the states of the given jobs by id.

    ``trouble`` is why the scheduler does not answer; ``limits`` is None if none are
    knows any.
    """

    limits: Limits | None = None
    nodes: tuple[Node, ...] = ()
    jobs: dict[str, str | None] = {}
    trouble: str | None = None


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """The user who submits, the account and QOS, and the jobs to wait for."""

    user: str
    account: str | None = None
    qos: str | None = None
    after: tuple[str, ...] = ()


class Lint(Protocol):
    """The checks of one scheduler's scripts."""

    def lint(self, text: str, facts: Facts) -> tuple[Finding, ...]:
        """Return the problems of the script *text*."""

    def directives(self, text: str) -> int:
        """Return the number of directive lines that the scheduler reads."""

    def default_files(
        self, cwd: str, env: Mapping[str, str]
    ) -> tuple[tuple[str, str], ...]:
        """Return (name, path) of the files of options read before a script."""

    def awaited(self, text: str) -> tuple[str, ...]:
        """Return the ids of the jobs that the script depends on."""

    def requests_gpus(self, flags: str, env: Mapping[str, str]) -> bool:
        """Return whether directives, or defaults in variables, request GPUs."""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A user's script as its scheduler reads it, with the flags typed with it.

    ``output`` and ``error`` are absolute patterns, ``error`` empty if both are one
    file. ``comment`` is its own free text. ``interpreter`` runs the script in place of
    the one that its first line names. ``misread`` is a flag that the scheduler would
    refuse, ``refusals`` are why weigh cannot submit the script.
    """

    name: str
    cwd: str
    indices: str = ""
    throttle: int | None = None
    output: str = ""
    error: str = ""
    comment: str = ""
    interpreter: tuple[str, ...] = ()
    request: JobRequest = JobRequest()
    misread: str = ""
    refusals: tuple[str, ...] = ()


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that weigh did not submit, as its scheduler describes it.

    ``part`` are the indices that were named, if not all of the array; ``logs``
    are the log files that are known, by index, empty for a plain job. ``line`` are
    the words of its submission, if the script among them is not known.
    """

    id: str
    user: str
    name: str
    cwd: str = ""
    script: str = ""
    arguments: tuple[str, ...] = ()
    line: tuple[str, ...] = ()
    indices: str = ""
    part: str = ""
    submitted: Seconds = 0.0
    output: str = ""
    logs: dict[str, str] = {}
    request: RecordedRequest | None = None


class RequestChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of a waiting job; None: nothing. Bytes and seconds.

    ``after`` are the jobs that it hangs on, empty for none.
    """

    time: int | None = None
    memory: Bytes | None = None
    throttle: int | None = None
    after: tuple[str, ...] | None = None


class UserScripts(Protocol):
    """How one scheduler takes the scripts that users write, and jobs of theirs.

    ``OF_WHOLE_ARRAY`` matches variables that differ if only a part of an array runs.
    """

    OF_WHOLE_ARRAY: re.Pattern[str]

    def describe(
        self, text: str, flags: Sequence[str], path: str, facts: Facts
    ) -> Described:
        """Read the script *text* at *path* with the *flags* typed with it."""

    def with_flags(self, text: str, flags: Sequence[str]) -> str:
        """Return the script with *flags* as directives that overrule its own."""

    def submit_script_argv(
        self,
        script: str,
        own: OwnScript,
        *,
        token: str,
        comment: str = "",
    ) -> Argv:
        """Return the command that submits the script, marked by *token*."""

    def check_script_argv(self, script: str, own: OwnScript) -> Argv:
        """Return the command that checks whether it would be accepted."""

    def only(self, indices: Sequence[int], throttle: int | None) -> Iterator[Argv]:
        """Yield the flags of each job that is needed to run only these *indices*."""

    def raised(self, request: JobRequest, names: Sequence[str]) -> Argv:
        """Return the flags that overrule these fields of the request."""

    def wrapper(self, text: str, body: str) -> str:
        """Return a script with the directives of *text* that runs *body*, for sh."""

    def wrapper_flags(self) -> Argv:
        """Return the flags by which sh runs the wrapper."""

    def default_log(self, job: Submitted, index: int | None) -> str:
        """Return the name of an element's log that the script does not name."""

    def log(self, job: Submitted, index: int | None, node: str | None) -> str | None:
        """Return the path of an element's log; None if it is not known."""

    def raw_argv(self, job: Submitted) -> Argv | None:
        """Return the command that lists the ids which names of logs contain, if any."""

    def parse_raw(self, out: str, job: Submitted) -> dict[str, str]:
        """Read the logs by index from its output."""

    def known_argvs(self, name: str) -> tuple[Argv, ...]:
        """Return the commands that describe the job *name*; empty if it is no id."""

    def parse_known(self, name: str, outs: Sequence[str]) -> KnownJob | None:
        """Read their outputs; None if the scheduler does not know the job."""

    def sent_argv(self, job: Submitted, user: str) -> Argv | None:
        """Return the command that lists ended jobs like *job*, which has no id."""

    def parse_sent(self, out: str, job: Submitted, user: str) -> str | None:
        """Read the id of *job* in its output, by the token or by what is known."""

    def change_argvs(
        self, job: Submitted, change: RequestChange, known: str
    ) -> tuple[Argv, ...]:
        """Return the commands for *change*; *known* is the first answer on the job.

        Raises:
            UsageError: the scheduler cannot change that.
        """

    def parse_refusal(self, ran: Ran) -> str | None:
        """Return why a change was refused; None if it was made."""


class AccountingWords(msgspec.Struct, frozen=True, kw_only=True):
    """The names of accounting's figures, and which to trust if they differ from ours.

    Words on memory that it reports: ``unmeasured`` by us, ``below`` our figure,
    ``above`` it; each ``_killed`` for a task that was killed for memory. ``zero`` is
    for memory that it leaves empty though the job ran: empty, if it never does.
    ``virtual`` is address space, ``sampled`` how GPU memory is read. ``{often}`` in
    words stands for the interval of the site's samples; if that is unknown, ``unsure``
    is said of a figure below ours.
    """

    memory: str
    unmeasured: str
    below: str
    above: str
    below_killed: str
    above_killed: str
    zero: str = ""
    virtual: str = ""
    virtual_word: str = ""
    cpu_time: str
    wall_time: str
    gpu_memory: str = "GPU memory"
    gpu_utilization: str = "GPU utilization"
    sampled: str = "sampled"
    unsure: str = ""


class Accounting(Protocol):
    """One scheduler's accounting command."""

    WORDS: AccountingWords

    def argv(self, job: str) -> Argv:
        """Return the command that lists a job."""

    def parse(self, out: str) -> tuple[Accounted, ...]:
        """Read what the job requested and used."""


@runtime_checkable
class PastAccounting(Protocol):
    """An accounting that also lists all jobs of a time, which not each one needs to.

    ``SAMPLED_EVERY`` is how often the scheduler looks at memory, if a site sets nothing
    else.
    """

    SAMPLED_EVERY: Seconds

    def past_argv(self, user: str, span: Seconds) -> Argv:
        """Return the command that lists a user's jobs of the last *span* seconds."""

    def is_past(self, head: str) -> bool:
        """Return whether a text that begins with *head* is such a list."""

    def read_past(self, lines: Iterable[str]) -> Iterator[PastJob | None]:
        """Yield its jobs, without keeping any; None for what cannot be read."""


class Steps(Protocol):
    """How a scheduler starts processes on all nodes of a job that runs.

    ``NODE`` is the variable with a node's name. ``SAME`` are variables that are equal
    for all processes of a job on a node; ``GROUP`` begins the name of the job's
    control group.
    """

    NODE: str
    SAME: tuple[str, ...]
    GROUP: str

    def step_of(self, env: Mapping[str, str]) -> tuple[str | None, ...]:
        """Return what all tasks of one start have in common, and no other's."""

    def node_of(self, env: Mapping[str, str], host: str) -> str | None:
        """Return the name of this node, the machine *host*; None outside a job."""

    def nodes_of(self, env: Mapping[str, str]) -> int | None:
        """Return the number of the job's nodes; None outside a job."""

    def watch_argv(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        job: str | None = None,
        nodes: int | None = None,
    ) -> Argv:
        """Return the command that runs *command* on each node, in a step of its own."""

    def watch_environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for it."""

    def job_query(self) -> Argv:
        """Return the command that lists the user's jobs and their sessions."""

    def parse_job(self, out: str, session: int) -> tuple[str, int] | None:
        """Read the job of a session, and the number of its nodes; None if unclear."""


class EndMessages(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler prints into a job's log when it ends the job.

    ``over_memory`` matches the end of a job for memory, ``step_over_memory`` that of a
    step in the output of its task. ``ended`` matches any other end; its group is the
    reason, whose state is in ``states``, else CANCELLED.
    """

    over_memory: re.Pattern[str] | None = None
    step_over_memory: re.Pattern[str] | None = None
    ended: re.Pattern[str] | None = None
    states: dict[str, State] = {}


class Reasons(Protocol):
    """The words of one scheduler on why a job waits or ended."""

    MESSAGES: EndMessages

    def in_words(self, reason: str, throttle: int | None = None) -> str:
        """Return a reason to wait in plain English; an unknown one unchanged.

        *throttle* is how many elements of the array may run at once, if known.
        """

    def is_hopeless(self, reason: str) -> bool:
        """Return whether a job that waits for this reason can never start."""

    def freed_by(self, reason: str | None) -> str | None:
        """Return the command that lets an element go on which is held for *reason*.

        ``{}`` in it stands for the element. None if it waits for something else.
        """


class Kind(Protocol):
    """One scheduler in the table: names, and its parts, imported when they are used.

    ``title`` is its name in a sentence. ``submits``, ``lists`` and ``accounts`` are the
    commands that show whether the scheduler is installed, ``commands`` are all that
    weigh and its users need, ``starts`` runs a program on a node. ``probe`` is a cheap
    question that shows whether it answers, ``nodes_argv`` lists the names of the
    compute nodes. ``suffixes`` of files mean its job scripts. ``directive`` matches a
    line that looks like a directive, even misspelled. ``job_variable`` is set in its
    jobs.
    """

    name: str
    title: str
    submits: str
    lists: str
    accounts: str
    commands: tuple[str, ...]
    starts: str
    probe: Argv
    nodes_argv: Argv
    suffixes: tuple[str, ...]
    job_variable: str
    directive: re.Pattern[str]
    variables: Variables
    traits: Traits
    text: Dialect

    @property
    def backend(self) -> Backend:
        """Return its commands."""

    @property
    def lint(self) -> Lint:
        """Return the checks of its scripts."""

    @property
    def accounting(self) -> Accounting:
        """Return its accounting."""

    @property
    def reasons(self) -> Reasons:
        """Return its words on why jobs wait and end."""

    @property
    def user_scripts(self) -> UserScripts:
        """Return how it takes scripts and jobs that weigh did not write."""

    @property
    def script_rules(self) -> ScriptRules:
        """Return what the body of its job scripts contains."""

    @property
    def steps(self) -> Steps | None:
        """Return how its jobs start processes on their nodes; None if unknown."""

    def read_cluster(self, query: Query, env: Mapping[str, str]) -> ClusterAnswers:
        """Query nodes, queues and jobs. Raises WeighError if it does not answer."""

    def read_limits(self, who: Who, query: Query) -> Live:
        """Query the limits that apply to a submission; never raises."""

    def resource_names(self, query: Query) -> dict[str, str]:
        """Query the site's own names of resources, where sites choose them."""
