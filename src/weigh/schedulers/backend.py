"""What a scheduler answers, part by part, with the answer of one that lacks a thing.

A backend is text in, text out: it returns the command line to run and reads what that
printed. It runs nothing. A new scheduler derives from these classes and writes only
what it has; what it must have is abstract.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from weigh.errors import UsageError
from weigh.model.job import (
    STUCK,
    ElementState,
    JobRequest,
    JobScript,
    OwnScript,
    RecordedRequest,
    States,
    SubmittedJob,
)
from weigh.model.record import SiteComplexes
from weigh.schedulers.protocol import (
    AccountingWords,
    Answer,
    Argv,
    ClusterAnswers,
    DescribedScript,
    EndMessages,
    JobSnapshot,
    KnownJob,
    LiveAnswers,
    SchedulerQuery,
)
from weigh.schedulers.script import ScriptText, read_script
from weigh.units import Seconds

if TYPE_CHECKING:  # a submission needs none
    from weigh.model.lint import LintFinding, ScriptFacts
    from weigh.model.report import AccountedElement, PastJob
    from weigh.schedulers.command import CommandOutput
    from weigh.schedulers.job_script import ScriptRules

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
    LOST: re.Pattern[str]  # the request may have arrived nevertheless
    # what find_argv's command says where no such job is listed, if it fails then
    NOT_LISTED: re.Pattern[str] = _NOWHERE
    SHOWS_TOKENS: bool = False  # in its queue
    OWN: Mapping[str, str]
    PLACES: tuple[tuple[str, str], ...] = ()  # its flags of fields of a request
    MESSAGES: EndMessages = EndMessages()
    RULES: "ScriptRules"

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

    @abstractmethod
    def parse_submitted(self, command_output: str) -> str | None:
        """Read the job's id; None if the output has none."""

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

    def accounting_answer(self, command_output: "CommandOutput") -> Answer:
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

    def awaited_states(
        self, job_ids: Sequence[str], replies: "Sequence[CommandOutput]"
    ) -> dict[str, str | None]:
        """Return the worst state of each job's elements; None for an unknown job.

        A job is unknown only if all answered. Without the queue nothing is known: the
        elements that accounting has may be some of an array.
        """
        listed, *accounts = replies or (None,)
        if listed is None or not (
            listed.is_answer or self.NOT_LISTED.search(listed.words)
        ):
            return {}
        states: States = {}
        is_sure = True
        for reply in accounts:
            states |= self.parse_ended(reply.out) if reply.is_answer else {}
            is_sure &= reply.is_answer or (
                reply.trouble is None and self.accounting_answer(reply) == "unknown job"
            )
        # the queue is more current than accounting
        states |= self.parse_queue(listed.out) if listed.is_answer else {}
        return {
            job: _worst_state(states[job].values()) if job in states else None
            for job in job_ids
            if job in states or is_sure
        }

    @abstractmethod
    def cancel_argv(
        self, submitted_job: SubmittedJob, elements: Sequence[int] | None
    ) -> Argv:
        """Return the command that cancels a job, or these elements of it."""

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


def _worst_state(element_states: Iterable[ElementState]) -> str:
    # what is in an error state waits until somebody clears it
    states = {"PENDING" if one.reason == STUCK else one.state for one in element_states}
    going = states & {"PENDING", "RUNNING", "UNKNOWN"}
    return min(states - going - {"COMPLETED"} or going or states)


class SchedulerLint:
    """The checks of one scheduler's scripts; without rules nothing is found.

    ``GPUS`` matches flags that request GPUs.
    """

    GPUS: re.Pattern[str] = _NOWHERE

    def lint(self, text: str, facts: "ScriptFacts") -> "tuple[LintFinding, ...]":
        """Return the problems of the script *text*."""
        return ()

    def script_as_started(self, text: str, facts: "ScriptFacts") -> ScriptText:
        """Return the script, with the interpreter that the scheduler starts it by."""
        return read_script(text)

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
        self, text: str, flags: Sequence[str], path: str, facts: "ScriptFacts"
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

    def parse_refusal(self, command_output: "CommandOutput") -> str | None:
        """Return why a change was refused; None if it was made."""
        return None if command_output.code == 0 else command_output.complaint()


class SchedulerAccounting(ABC):
    """One scheduler's accounting command."""

    WORDS: AccountingWords

    @abstractmethod
    def argv(self, job_id: str) -> Argv:
        """Return the command that lists a job."""

    @abstractmethod
    def elements(self, command_output: str) -> "Iterator[AccountedElement]":
        """Yield what each attempt of an element requested and used, the last last."""

    def parse(self, command_output: str) -> "tuple[AccountedElement, ...]":
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
    def read_past(self, lines: Iterable[str]) -> "Iterator[PastJob]":
        """Yield its jobs, without keeping any; what cannot be read is left out."""

    def elements(self, command_output: str) -> "Iterator[AccountedElement]":
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


class SchedulerSite(ABC):
    """What one scheduler shows of a cluster and of its limits.

    ``INSTEAD`` is the command that shows the cluster, if ``read_cluster`` does not.
    """

    INSTEAD = ""

    def read_cluster(
        self, query: SchedulerQuery, env: Mapping[str, str]
    ) -> ClusterAnswers:
        """Query nodes, queues and jobs. Raises WeighError if it does not answer."""
        raise UsageError(f"weigh cluster does not read this scheduler: {self.INSTEAD}")

    @abstractmethod
    def read_limits(
        self, awaited_ids: tuple[str, ...], query: SchedulerQuery
    ) -> LiveAnswers:
        """Query the limits that apply to a submission; never raises."""


class Scheduler(ABC):
    """One scheduler that can be reached: its commands answer its ``questions``."""

    name: str
    questions: SchedulerQuestions

    def ask(self, question: SchedulerQuestion[AnswerT]) -> AnswerT:
        """Return the answer; the output of a command that fails is empty."""
        # an optional question must not end a command: without output its answer is the
        # usual one
        return question.read([self.output_of(argv) for argv in question.argvs])

    def output_of(self, argv: Argv) -> str:
        """Return what a command prints; empty if it fails."""
        return ""

    @abstractmethod
    def render(self, job_script: JobScript) -> str:
        """Return the job script. Raises UsageError if it cannot hold a value."""

    @abstractmethod
    def log_name(self, job_id: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log in the log directory."""

    def predict_start(
        self, script: str, *, cwd: str, argv: Argv | None = None
    ) -> Seconds | None:
        """Return when the script at a path would start, None if not known.

        *argv* is the command that checks it, if not the usual one. Raises UsageError
        if it could never run.
        """
        return None

    @abstractmethod
    def submit(self, script: str, *, cwd: str, argv: Argv | None = None) -> str:
        """Submit the script at a path once; return the job's id.

        *argv* is the command, if not the usual one. Raises SchedulerError if it is
        rejected, SubmissionUnknownError if it is not known whether it was accepted.
        """

    @abstractmethod
    def find(self, token: str, *, name: str) -> str | None:
        """Return the id of the job submitted with *token*, None if none is listed.

        Raises SchedulerError if the scheduler does not answer.
        """

    def find_ended(self, submitted_job: SubmittedJob) -> str | None:
        """Return the id of a user's script that was sent as a job and has ended.

        None if accounting lists none. Raises SchedulerError if it does not answer.
        """
        return None

    def patience(self) -> Seconds:
        """Return the seconds after which a sent script can no longer become a job.

        Raises SchedulerError if the scheduler does not answer.
        """
        return self.ask(self.questions.patience())

    @abstractmethod
    def states(
        self, submitted_jobs: Sequence[SubmittedJob], *, fresh: bool = False
    ) -> JobSnapshot:
        """Return the states of several jobs, from one query.

        *fresh* forces a new query even if the last one is recent.
        """

    @abstractmethod
    def cancel(
        self, submitted_job: SubmittedJob, elements: Sequence[int] | None
    ) -> None:
        """Cancel a job, or these elements of it. Raises SchedulerError."""

    def known(self, name: str, *, is_new: bool = False) -> KnownJob | None:
        """Return the job with the id *name*; None if the scheduler does not know it.

        A job that *is_new* is in the queue: accounting is not asked. Raises
        SchedulerError if the scheduler does not answer.
        """
        return None

    @abstractmethod
    def set_awaited_jobs(
        self, submitted_job: SubmittedJob, awaited_ids: tuple[str, ...]
    ) -> None:
        """Let a waiting job hang on other jobs; SchedulerError if it is refused."""
