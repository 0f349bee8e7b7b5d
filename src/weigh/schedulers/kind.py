"""What a scheduler is: a new one derives from the classes here and writes what it has.

`SchedulerKind` is one scheduler in the table: its names, its traits, and its parts.
`SchedulerText` is all of it that a run in a job needs; the other parts are imported
when they are used. A part is text in, text out: it returns the command line to run and
reads what that printed, and runs nothing. What a scheduler must have is abstract; all
other questions have the answer of one that lacks the thing.
"""

# no annotation is evaluated: weigh run in a job loads this file, and no more for it
from __future__ import annotations

import re
from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec

from weigh.errors import UsageError
from weigh.lazy_modules import lazy_module
from weigh.schedulers import SUBMITS
from weigh.schedulers.words import binary_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weigh.model.cluster import (
        ClusterJob,
        ClusterLimits,
        ClusterNode,
        QueueLimits,
    )
    from weigh.model.job import (
        JobRequest,
        JobScript,
        OwnScript,
        RecordedRequest,
        States,
        SubmittedJob,
    )
    from weigh.model.lint import LintFinding, ScriptFacts
    from weigh.model.record import (
        Allocation,
        RecordedJob,
        Request,
        SiteComplexes,
        State,
    )
    from weigh.model.report import AccountedElement, PastJob
    from weigh.schedulers import script
    from weigh.schedulers.command import CommandOutput
    from weigh.schedulers.job_script import ScriptRules
    from weigh.units import Bytes, Seconds
else:  # imported when it is first used
    script = lazy_module("weigh.schedulers.script")

Argv = tuple[str, ...]
# accounting is switched off or unreadable; does not have the job; should be retried
Answer = Literal["off", "unknown job", "failing"]


# ---- what travels between a scheduler and those who ask
class SchedulerQuery(Protocol):
    """A function that runs several of a scheduler's commands in parallel."""

    def __call__(self, commands: Sequence[Argv]) -> list[CommandOutput]:
        """Return the replies in the order of *commands*; never raises."""


class ClusterAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed answers of a scheduler, before anything is counted."""

    name: str | None
    version: str | None
    nodes: tuple[ClusterNode, ...]
    queues: tuple[QueueLimits, ...]
    jobs: tuple[ClusterJob, ...]
    notes: tuple[str, ...]


class LiveAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of the scheduler; ``jobs`` are the states of the given jobs by id.

    ``trouble`` is why the scheduler does not answer; ``limits`` is None where no
    limit is known.
    """

    limits: ClusterLimits | None = None
    jobs: dict[str, str | None] = {}
    trouble: str | None = None


class DescribedScript(msgspec.Struct, frozen=True, kw_only=True):
    """A user's script as its scheduler reads it, with the flags typed with it.

    ``output`` and ``error`` are absolute patterns, ``error`` empty if both are one
    file. ``comment`` is its own free text. ``interpreter`` runs the script in place of
    the one that its first line names. ``misread`` is a flag that the scheduler would
    refuse, ``refusals`` are why weigh cannot submit the script.
    """

    name: str
    cwd: str
    indices: str = ""
    throttle: int | None = None  # most elements at once
    output: str = ""
    error: str = ""
    comment: str = ""
    interpreter: tuple[str, ...] = ()
    request: JobRequest
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
    submitted: Seconds = 0.0  # since the epoch; 0: not known
    output: str = ""
    logs: dict[str, str] = {}
    request: RecordedRequest | None = None


class AccountingWords(msgspec.Struct, frozen=True, kw_only=True):
    """The names of accounting's figures, and which to trust if they differ from ours.

    Words on memory that it reports: ``unmeasured`` by us, ``below`` our figure,
    ``above`` it; each ``_killed`` for a task that was killed for memory, where another
    word holds then. ``zero`` is for memory that it leaves empty though the job ran:
    empty, if it never does.
    ``virtual`` is address space, ``sampled`` how GPU memory is read. ``{often}`` in
    words stands for the interval of the site's samples; if that is unknown, ``unsure``
    is said of a figure below ours.
    """

    memory: str
    unmeasured: str
    below: str
    above: str
    below_killed: str = ""
    above_killed: str = ""
    zero: str = ""
    virtual: str = ""
    virtual_word: str = ""
    cpu_time: str
    wall_time: str
    gpu_memory: str = "GPU memory"
    gpu_utilization: str = "GPU utilization"
    sampled: str = "sampled"
    unsure: str = ""


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


# ---- its text
class DialectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a scheduler spells what advice names; ``{}`` is the value.

    ``one_cpu`` is written for one CPU, if not ``cpus``. ``memory`` is per slot where
    the scheduler limits address space; ``memory_per_cpu`` is the other form of it.
    ``resource`` is a flag of a job as (name, value): request an amount of a resource
    that the site has named.
    """

    memory: str
    memory_per_cpu: str | None = None  # None: there is no such flag
    time: str
    cpus: str
    gpus: str
    no_gpus: str
    one_cpu: str | None = None  # None: as for several
    resource: tuple[str, str] | None = None


class DialectVariables(msgspec.Struct, frozen=True, kw_only=True):
    """Environment variables of a scheduler: of its jobs, and of its commands.

    ``job`` and ``element`` hold the id and the array task index in a job, the first
    that is set counts; ``scratch`` directories of the job, ``gpus`` lists of its GPUs,
    ``nodes`` the number of nodes, ``cluster`` the cluster's name.

    Commands run without variables that begin with ``unset`` and with ``fixed``, so that
    we can read their output. Questions on the cluster also run without ``defaults``,
    the user's defaults of options. Commands that submit from inside a job, where one of
    ``in_job`` is set, run without those that begin with ``of_job``, except ``kept``.
    """

    job: tuple[str, ...] = ()
    element: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    nodes: str | None = None
    cluster: str | None = None
    unset: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()
    defaults: tuple[str, ...] = ()
    in_job: tuple[str, ...] = ()
    of_job: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()


class DialectTraits(msgspec.Struct, frozen=True, kw_only=True):
    """In what a scheduler differs from others.

    ``several_nodes``: it starts a task on several nodes. ``fits_nodes``: a job's CPUs
    and memory must fit on a node (else its queues decide). ``address_space`` is the
    resource by which it limits address space instead of memory, per slot.
    ``first_element`` is its first array task index and
    ``element_name`` how it writes (job, index). ``names_resources``: each site chooses
    the names of resources.
    ``waits``: a job can wait for another one. ``queues``: a job can choose a queue, and
    a QOS. ``takes_scripts``: one file is the job and its directives, so that weigh
    checks a user's own and submits it as it is. ``constraint`` is how a job chooses
    nodes by their features: by a word, an expression, or not at all.
    ``exclusive``: a job can have whole nodes (by a name that the site chose, if it
    names resources). ``container_steps``: its steps may run in containers (Pyxis).
    """

    several_nodes: bool = False
    fits_nodes: bool = False
    address_space: str | None = None  # None: it limits memory
    first_element: int = 0
    element_name: str = "{}_{}"
    names_resources: bool = False
    waits: bool = True
    queues: bool = True
    takes_scripts: bool = True
    constraint: Literal["", "word", "expression"] = ""
    exclusive: bool = False
    container_steps: bool = False


class SchedulerText(ABC):
    """One scheduler's text formats: sizes, times, flags, environment of its jobs.

    Formatted values are rounded up: a scheduler kills a job that exceeds its limit
    by one byte or one second.
    """

    NAME: str
    PREFIX: str
    OPTIONS: DialectOptions

    def format_memory(self, size: Bytes) -> str:
        """Write *size* as ``500M`` or ``4G``, rounded up to a MiB."""
        return binary_size(size)

    @abstractmethod
    def parse_memory(self, text: str) -> Bytes:
        """Read a size as the scheduler would.

        Raises:
            FormatError: the scheduler would reject it.
        """

    @abstractmethod
    def format_time(self, seconds: Seconds) -> str:
        """Write a time limit, rounded up to whole seconds."""

    @abstractmethod
    def parse_time(self, text: str) -> int | None:
        """Read a time limit in seconds; None is no limit.

        Raises:
            FormatError: the scheduler would reject it.
        """

    @abstractmethod
    def directives(self, request: Request) -> tuple[str, ...]:
        """Return *request* as flags; unknown values are left out."""

    def any_layout(self, request: Request) -> tuple[str, ...]:
        """Return *request* as flags for any placement of its tasks; empty if none."""
        return ()

    @abstractmethod
    def allocation_from_environment(self, env: Mapping[str, str]) -> Allocation | None:
        """Read this node's allocation; None outside a job."""

    @abstractmethod
    def job_from_environment(self, env: Mapping[str, str]) -> RecordedJob | None:
        """Read the id of this job; None outside a job."""

    def end_time(self, env: Mapping[str, str]) -> Seconds | None:
        """Read when this job's time limit ends, in seconds since the epoch, if set."""
        return None

    def limit_argv(self, env: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the command that shows this job's limit; None if none is needed."""
        return None

    def start_file(self, env: Mapping[str, str]) -> str | None:
        """Return a file that was written at this job's start, if one is needed."""
        return None

    def parse_left(self, command_output: str, elapsed: Seconds) -> Seconds | None:
        """Read the time left from the output of ``limit_argv``; None without a limit.

        *elapsed* is the age of the job's ``start_file``, 0 if there is none.

        Raises:
            FormatError: the output is not understood.
        """
        return None


def directive_line(dialect: SchedulerText, *flags: str) -> str:
    """Return *flags* as one line of a job script."""
    return " ".join((dialect.PREFIX, *flags)) if dialect.PREFIX else " ".join(flags)


# ---- its commands
AnswerT = TypeVar("AnswerT")
# a request is read as soon as the daemon runs, unless its credential may wait
_USUAL_PATIENCE: Seconds = 10.0
_NOWHERE = re.compile(r"(?!)")  # what a scheduler does not have: no None to ask for
_NO_SCRIPTS = "weigh cannot submit a script of your own here"


class SchedulerQuestion(msgspec.Struct, Generic[AnswerT], frozen=True):
    """Commands, and how to read the answer from what each of them printed.

    A question without commands is answered without them: ``read`` gets no output.
    """

    read: Callable[[Sequence[str]], AnswerT]  # the outputs, in the order of argvs
    argvs: tuple[Argv, ...] = ()  # empty: answered without a command


def known_answer(answer: AnswerT) -> SchedulerQuestion[AnswerT]:
    """Return a question that needs no command, as a scheduler has only one answer."""
    return SchedulerQuestion(lambda _: answer)


def one_command(
    argv: Argv, read: Callable[[str], AnswerT]
) -> SchedulerQuestion[AnswerT]:
    """Return a question that one command answers: *read* gets what it printed."""
    return SchedulerQuestion(lambda outputs: read(outputs[0]), (argv,))


class SchedulerQuestions:
    """The questions that a scheduler may leave open, with the usual answers."""

    def patience(self) -> SchedulerQuestion[Seconds]:
        """Ask after how many seconds a request can no longer arrive."""
        return known_answer(_USUAL_PATIENCE)

    def understood(self, job_id: str) -> SchedulerQuestion[RecordedRequest | None]:
        """Ask for the request of a job as the scheduler understood it."""
        return known_answer(None)

    def why(self, job_id: str) -> SchedulerQuestion[str | None]:
        """Ask why an element is in an error state, if the queue does not show it."""
        return known_answer(None)

    def gpu_types(self) -> SchedulerQuestion[tuple[str, ...]]:
        """Ask for the site's names of GPU types."""
        return known_answer(())

    def cpu_resource(
        self, complexes: SiteComplexes | None = None
    ) -> SchedulerQuestion[str | None]:
        """Ask by which resource CPUs are requested where slots would multiply the GPUs.

        *complexes* are the site's resource names. The answer is empty if there is no
        such resource, and None if slots do not multiply GPUs.
        """
        return known_answer(None)

    def array_limit(self, elements: int) -> SchedulerQuestion[int | None]:
        """Ask how many elements an array may have; None if *elements* are allowed."""
        return known_answer(None)

    def why_not_from_nodes(self, queue: str | None) -> SchedulerQuestion[str | None]:
        """Ask why a job in *queue* may not submit others; None if it may."""
        return known_answer(None)


class SchedulerCommands(SchedulerQuestions, ABC):
    """One scheduler's commands, which answer for a job that they do not list nothing.

    ``OWN`` are the flags that the job script sets itself, each with what to do instead.
    ``MESSAGES`` are what it prints into the log of a job that it ends, ``RULES`` what
    the body of its job scripts has.
    """

    LOGIN_HINT: str  # what to do where the command is missing
    NO_CLUSTER: re.Pattern[str]  # its command is here, and no cluster
    SUBMITTED: re.Pattern[str]  # a line with the id of a job that was accepted
    LOST: re.Pattern[str]  # the request may have arrived nevertheless
    # what find_argv's command says where no such job is listed, if it fails then
    NOT_LISTED: re.Pattern[str] = _NOWHERE
    SHOWS_TOKENS: bool = False  # in its queue
    OWN: Mapping[str, str]
    PLACES: tuple[tuple[str, str], ...] = ()  # its flags of fields of a request
    MESSAGES: EndMessages = EndMessages()
    RULES: ScriptRules

    @abstractmethod
    def render(self, job_script: JobScript) -> str:
        """Write the job script.

        Raises:
            UsageError: a job script cannot hold a value.
        """

    def log_name(self, job_id: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log in the log directory."""
        return f"{job_id}_{element}.out" if is_array else f"{job_id}.out"

    @abstractmethod
    def submit_argv(self, script: str) -> Argv:
        """Return the command that submits the script at this path."""

    def verify_argv(self, script: str) -> Argv:
        """Return the command that checks a script; empty if the scheduler has none."""
        return ()

    def parse_doubt(self, command_output: str) -> str | None:
        """Return why the job would be rejected or never run, as a sentence; else None.

        Nodes that are unavailable now are no such reason: they come back.
        """
        return None

    def parse_start(self, command_output: str) -> Seconds | None:
        """Read the predicted start from the same output, if there is one."""
        return None

    def parse_submitted(self, command_output: str) -> str | None:
        """Read the job's id; None if the output has none."""
        # the id is last: a site's wrapper prints its greeting before it
        rows = (line.strip() for line in reversed(command_output.splitlines()))
        found = next(filter(None, map(self.SUBMITTED.fullmatch, rows)), None)
        return found[1] if found else None

    def is_unanswered(self, words: str) -> bool:
        """Return whether a failed submission may have reached the scheduler.

        A rejection names what is wrong with the job; a lost connection does not.
        """
        # without a word: killed while it waited for the answer
        return not words.strip() or self.LOST.search(words) is not None

    def find_argv(self, user_name: str, name: str) -> Argv:
        """Return the command that lists the jobs of *user_name* with their tokens.

        *name* is the job name that weigh chose.
        """
        return self.queue_argv(user_name)

    @abstractmethod
    def parse_found(self, command_output: str, token: str) -> str | None:
        """Return the id of the job with this *token*, None if it is not listed.

        Raises:
            FormatError: the output is not a complete answer.
        """

    @abstractmethod
    def queue_argv(self, user_name: str) -> Argv:
        """Return the command that lists all jobs of *user_name*."""

    @abstractmethod
    def parse_queue(self, command_output: str) -> States:
        """Read the jobs in the queue and their states.

        Raises:
            FormatError: the output is truncated or has an unknown format.
        """

    def with_other_token(
        self, command_output: str, tokens: Mapping[str, str]
    ) -> frozenset[str]:
        """Return the listed jobs that are not the ones submitted with *tokens*.

        *tokens* are by id. An id is given out again where a scheduler lost its state.
        """
        return frozenset()

    @abstractmethod
    def ended_argvs(self, job_ids: Sequence[str]) -> tuple[Argv, ...]:
        """Return the accounting commands that show how these jobs ended."""

    def accounting_answer(self, command_output: CommandOutput) -> Answer:
        """Classify the failure of a command of ``ended_argvs``."""
        return "failing"

    @abstractmethod
    def parse_ended(self, command_output: str) -> States:
        """Read how jobs ended; lines that do not parse are skipped."""

    def listed_argv(self, job_ids: Sequence[str]) -> Argv:
        """Return the command that lists these jobs, whoever's, if they are queued."""
        return self.queue_argv("*")

    def awaited_argvs(self, job_ids: Sequence[str]) -> tuple[Argv, ...]:
        """Return the commands that show the states of jobs that others wait for."""
        if not job_ids:
            return ()
        return (self.listed_argv(job_ids), *self.ended_argvs(job_ids))

    @abstractmethod
    def cancel_argv(self, job_id: str, elements: Sequence[int] | None) -> Argv:
        """Return the command that cancels a job, or these elements of an array."""

    @abstractmethod
    def runs_on_host(self, job_id: str, host_name: str) -> SchedulerQuestion[bool]:
        """Ask whether a job runs on a host."""

    @abstractmethod
    def session_flags(self, job_request: JobRequest) -> list[Argv]:
        """Return the options of a shell on a node, each as its words."""

    def places(self, job_request: JobRequest) -> list[tuple[str, str]]:
        """Return (flag, value) of where a job runs, and of flags that are passed on."""
        chosen = ((flag, getattr(job_request, field)) for flag, field in self.PLACES)
        pairs = (*chosen, *job_request.extra)
        return [(flag, value) for flag, value in pairs if value is not None]

    def session_argv(self, words: Argv, command: Argv) -> Argv:
        """Return the command that runs *command*, or else a shell, on a node."""
        return (*words, *command)

    def in_words(self, reason: str, throttle: int | None = None) -> str:
        """Return a reason to wait in plain English; an unknown one unchanged.

        *throttle* is how many elements of the array may run at once, if known.
        """
        return reason

    def is_hopeless(self, reason: str) -> bool:
        """Return whether a job that waits for this reason can never start."""
        return False


# ---- scripts, accounting, steps and the cluster
class SchedulerLint:
    """The checks of one scheduler's scripts; without rules nothing is found.

    ``GPUS`` matches flags that request GPUs.
    """

    GPUS: re.Pattern[str] = _NOWHERE

    def lint(self, text: str, facts: ScriptFacts) -> tuple[LintFinding, ...]:
        """Return the problems of the script *text*."""
        return ()

    def script_as_started(self, text: str, facts: ScriptFacts) -> script.ScriptText:
        """Return the script, with the interpreter that the scheduler starts it by."""
        return script.read_script(text)

    def directives(self, text: str) -> tuple[str, ...]:
        """Return the directive lines that the scheduler reads."""
        return ()

    def read_flags(self, job_request: JobRequest) -> JobRequest:
        """Return the request with what its passed-on flags ask for.

        Flags that weigh writes itself are no longer passed on as well.
        """
        return job_request

    def misread(self, flags: Sequence[str]) -> str:
        """Return why the scheduler would refuse one of *flags*, in one line."""
        return _NO_SCRIPTS

    def default_files(
        self, cwd: str, env: Mapping[str, str]
    ) -> tuple[tuple[str, str], ...]:
        """Return (name, path) of the files of options read before a script."""
        return ()

    def awaited(self, text: str) -> tuple[str, ...]:
        """Return the ids of the jobs that the script depends on."""
        return ()

    def replacing(self, text: str) -> frozenset[str]:
        """Return the variables that would replace what a script of weigh's sets."""
        return frozenset()

    def requests_gpus(self, flags: str, env: Mapping[str, str]) -> bool:
        """Return whether directives, or defaults in variables, request GPUs."""
        return self.GPUS.search(flags) is not None


def _script_word(path: str) -> str:
    """Return the path of a script that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


class SchedulerUserScripts:
    """How one scheduler takes the scripts that users write, and jobs of theirs.

    ``OF_WHOLE_ARRAY`` matches variables that differ if only a part of an array runs.
    The answers here are of a scheduler whose trait ``takes_scripts`` is False.
    """

    OF_WHOLE_ARRAY: re.Pattern[str] = _NOWHERE
    # flags that only say what the command prints, or which elements run; and those of
    # them whose value is the next word
    NOT_AGAIN: re.Pattern[str] = _NOWHERE
    NOT_AGAIN_WITH_VALUE: frozenset[str] = frozenset()
    LINT: SchedulerLint = SchedulerLint()
    # the command that submits a script, and the one that only checks it
    SUBMITS: Argv = ()
    CHECKS: Argv = ()

    def is_misread(self, flags: Sequence[str]) -> bool:
        """Return whether these are not whole flags of the submitting command."""
        return bool(self.LINT.misread(flags))

    def flags_to_repeat(self, flags: Sequence[str]) -> Argv:
        """Return the typed *flags* that another submission needs too."""
        repeated: list[str] = []
        before = ""
        for flag in flags:
            # the flag itself, and in the next turn its value
            dropped = {flag, before} & self.NOT_AGAIN_WITH_VALUE
            if not dropped and not self.NOT_AGAIN.fullmatch(flag):
                repeated.append(flag)
            before = flag
        return tuple(repeated)

    def describe(
        self, text: str, flags: Sequence[str], path: str, facts: ScriptFacts
    ) -> DescribedScript:
        """Read the script *text* at *path* with the *flags* typed with it.

        Raises:
            UsageError: weigh submits no script of a user to this scheduler.
        """
        raise UsageError(_NO_SCRIPTS)

    def with_flags(self, text: str, flags: Sequence[str]) -> str:
        """Return the script with *flags* as directives that overrule its own."""
        return text

    def mark(self, token: str, comment: str) -> Argv:
        """Return the flags that mark a job by *token*; *comment* is the script's own.

        Raises:
            UsageError: weigh submits no script of a user to this scheduler.
        """
        raise UsageError(_NO_SCRIPTS)

    def submit_script_argv(
        self, script: str, own_script: OwnScript, *, token: str, comment: str = ""
    ) -> Argv:
        """Return the command that submits the script, marked by *token*."""
        mark = self.mark(token, comment)
        words = (*own_script.flags, *mark, _script_word(script))
        return (*self.SUBMITS, *words, *own_script.arguments)

    def check_script_argv(self, script: str, own_script: OwnScript) -> Argv:
        """Return the command that checks whether it would be accepted."""
        words = (*own_script.flags, _script_word(script), *own_script.arguments)
        return (*self.CHECKS, *words)

    def only(self, indices: Sequence[int], throttle: int | None) -> Iterator[Argv]:
        """Yield the flags of each job that is needed to run only these *indices*."""
        yield from ()

    def raised(self, job_request: JobRequest, names: Sequence[str]) -> Argv:
        """Return the flags that overrule these fields of the request."""
        return ()

    def wrapper(self, text: str, body: str) -> str:
        """Return a script with the directives of *text*, as written, and *body*."""
        return "\n".join(("#!/bin/bash", *self.LINT.directives(text), body, ""))

    def wrapper_flags(self) -> Argv:
        """Return the flags by which sh runs the wrapper."""
        return ()

    def default_log(self, job_name: str, job_id: str, index: int | str | None) -> str:
        """Return the name of an element's log that the script does not name."""
        return f"{job_id}.{index or 0}.out"

    def log(
        self, submitted_job: SubmittedJob, index: int | None, node: str | None
    ) -> str | None:
        """Return the path of an element's log; None if it is not known."""
        return None

    def raw_logs(
        self, submitted_job: SubmittedJob
    ) -> SchedulerQuestion[dict[str, str]]:
        """Ask for the logs by index whose names hold ids that only accounting shows."""
        return known_answer({})

    def known(self, name: str) -> SchedulerQuestion[KnownJob | None]:
        """Ask for the job *name*; without commands if it is no id of this scheduler.

        The first command asks the queue, and answers for a job that is new.
        """
        return known_answer(None)

    def sent(
        self, submitted_job: SubmittedJob, user_name: str
    ) -> SchedulerQuestion[str | None]:
        """Ask for the id of a job that has ended, by token or what is known."""
        return known_answer(None)

    def awaited_argv(
        self, submitted_job: SubmittedJob, awaited_ids: tuple[str, ...]
    ) -> Argv:
        """Return the command that lets a waiting job hang on others, or on none."""
        return ()

    def parse_refusal(self, command_output: CommandOutput) -> str | None:
        """Return why a change was refused; None if it was made."""
        return None if command_output.code == 0 else command_output.complaint()


class SchedulerAccounting(ABC):
    """One scheduler's accounting command."""

    WORDS: AccountingWords

    @abstractmethod
    def argv(self, job_id: str) -> Argv:
        """Return the command that lists a job."""

    @abstractmethod
    def elements(self, command_output: str) -> Iterator[AccountedElement]:
        """Yield what each attempt of an element requested and used, the last last."""

    def parse(self, command_output: str) -> tuple[AccountedElement, ...]:
        """Read what the elements of a job requested and used in their last attempts."""
        found = {one.element: one for one in self.elements(command_output)}
        return tuple(one for _, one in sorted(found.items()))


class PastAccounting(SchedulerAccounting):
    """An accounting that also lists all jobs of a time, which not each one needs to.

    ``SAMPLED_EVERY`` is how often the scheduler looks at memory, if a site sets nothing
    else.
    """

    SAMPLED_EVERY: Seconds

    @abstractmethod
    def past_argv(self, user_name: str, span: Seconds) -> Argv:
        """Return the command that lists a user's jobs of the last *span* seconds."""

    @abstractmethod
    def read_past(self, lines: Iterable[str]) -> Iterator[PastJob]:
        """Yield its jobs, without keeping any; what cannot be read is left out."""

    def elements(self, command_output: str) -> Iterator[AccountedElement]:
        """Yield the elements of a job, which are listed as past jobs are."""
        return (job.accounted for job in self.read_past(command_output.splitlines()))


class StepStarter(Protocol):
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

    def node_of(self, env: Mapping[str, str], host_name: str) -> str | None:
        """Return the name of this node, the machine *host_name*; None outside a job."""

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

    def parse_job(self, command_output: str, session: int) -> tuple[str, int] | None:
        """Read the job of a session, and the number of its nodes; None if unclear."""


class SchedulerSite:
    """What one scheduler shows of a cluster and of its limits.

    ``INSTEAD`` is the command that shows the cluster, if ``read_cluster`` does not.
    ``LIMITS`` are the commands that print the limits of a submission; True marks one
    without which nothing is known.
    """

    INSTEAD = ""
    LIMITS: Mapping[Argv, bool] = {}

    def read_cluster(
        self, query: SchedulerQuery, env: Mapping[str, str]
    ) -> ClusterAnswers:
        """Query nodes, queues and jobs. Raises WeighError if it does not answer."""
        instead = self.INSTEAD or "its own commands show it"
        raise UsageError(f"weigh cluster does not read this scheduler: {instead}")

    def limits_of(
        self, texts: Mapping[Argv, str], query: SchedulerQuery
    ) -> ClusterLimits | None:
        """Return the limits, from what the commands of ``LIMITS`` printed.

        Raises:
            FormatError: an output is cut off.
        """
        return None


# ---- its line in the table
class LatePart:
    """A part of a scheduler, called *name* in *module*, imported when it is used."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, scheduler_kind: object, owner: object) -> object:
        return getattr(import_module(self._module), self._name)


# what is declared as the part that it stands for is used as that part
def late_part(module: str, name: str) -> Any:  # noqa: ANN401
    """Return what stands for a part: weigh run in a job would load all for nothing."""
    return LatePart(module, name)


class SchedulerKind:
    """One scheduler in the table, whose name is that of its file or folder.

    ``title`` is its name in a sentence. ``lists`` and ``accounts`` are the commands
    that show, with that to submit, whether the scheduler is installed, ``commands`` are
    all that weigh and its users need, ``starts`` runs a program on a node. ``probe`` is
    a cheap question that shows whether it answers, ``nodes_argv`` lists the names of
    the compute nodes. ``directive`` matches a line that looks like a directive, even
    misspelled. The parts follow; those that have a value are of a scheduler without.
    """

    title: str
    lists: str
    accounts: str
    commands: tuple[str, ...]
    starts: str
    probe: Argv
    nodes_argv: Argv
    directive: re.Pattern[str]
    variables: DialectVariables
    traits: DialectTraits
    text: SchedulerText
    backend: SchedulerCommands
    accounting: SchedulerAccounting
    site: SchedulerSite = SchedulerSite()
    lint: SchedulerLint = SchedulerLint()
    user_scripts: SchedulerUserScripts = SchedulerUserScripts()
    steps: StepStarter | None = None  # None: how processes start on nodes is unknown

    @property
    def name(self) -> str:
        """Return its name in the table."""
        return self.text.NAME

    @property
    def submits(self) -> str:
        """Return the command that submits a job."""
        return SUBMITS[self.name]
