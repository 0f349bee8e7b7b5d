"""A job at a scheduler: its request, what was submitted, the states of its elements.

Bytes and seconds; ``None`` means not requested, or not known. Elements count from 0.
"""

from typing import get_args

import msgspec

from weigh.model.record import SiteComplexes, SiteFlags, State
from weigh.model.staging import StagingPlan
from weigh.units import Bytes, Seconds

SCHEMA = "weigh.job/1"

AGAIN = "again_"  # prefix of the directories in a plan's for each --again
RESUME = "resume_"  # and for each job that runs its unfinished tasks
REST = -1  # in an answer: all elements that are not listed
WHOLE = -2  # in accounting's answer: the row without an index
ANY_QUEUE = "auto"  # as --queue: all that take the request
ON_HOLD = "held"  # Grid Engine's word, also for a job that waits for others
STUCK = "in error state"  # Grid Engine keeps the element until it is deleted
CANCELLING = "being cancelled"  # a signal was sent, but the element has not ended
OUTCOME_UNKNOWN = "its outcome is not known"
# begins the last line of a job script that waited for a job that failed
NOT_STARTED = "did not start: "
STEP_OUT_OF_MEMORY = "a step ran out of memory"  # the script may still exit with 0
ACTIVE: frozenset[State] = frozenset({"PENDING", "RUNNING"})
# of a task that ended by what it did itself, or by a limit
FAILED_STATES: frozenset[State] = frozenset(
    {"FAILED", "OUT_OF_MEMORY", "TIMEOUT", "STUCK", "DIVERGED"}
)
FINAL: frozenset[State] = frozenset(get_args(State)) - ACTIVE - {"UNKNOWN"}


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a job requests of the scheduler, per element.

    ``virtual_memory`` is what Grid Engine's h_vmem limits, for the whole element.
    ``notify`` is a command or URL to notify when the job ends. ``throttle`` is the
    most elements at once; ``after`` are jobs that must succeed first, ``after_end``
    jobs that must end, however they do; ``extra`` are the scheduler's own flags, as
    (name, value). With several ``nodes`` CPUs, memory and GPUs are per node; ``ntasks``
    is the number of all ranks, 0 where tasks start none. ``complexes`` are the site's
    names of resources, if they are not the usual ones; of ``site`` account and QOS are
    not used. ``is_any_queue``: ``queue`` are those that took it, chosen again for a
    request that grew.
    """

    cpus: int = 1
    memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    time_limit: int | None = None  # seconds
    gpus: int = 0
    gpu_type: str | None = None  # as the site names it
    queue: str | None = None
    is_any_queue: bool = False
    account: str | None = None
    qos: str | None = None
    mail: str | None = None  # address that the scheduler writes to
    notify: str | None = None
    throttle: int | None = None
    after: tuple[str, ...] = ()
    after_end: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # names of nodes
    extra: tuple[tuple[str, str], ...] = ()
    nodes: int = 1
    ntasks: int = 0
    complexes: SiteComplexes | None = None
    site: SiteFlags = SiteFlags()


class HealLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits within which unfinished tasks are sent again without a person.

    ``max_memory`` and ``max_time`` are per element. ``max_rounds`` counts the first
    submission. ``max_hours`` limits the CPU hours that all later rounds request.
    """

    max_memory: Bytes | None = None
    max_time: int | None = None  # seconds
    max_rounds: int = 4
    max_hours: float | None = None  # None: no limit


class JobSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of the tasks, set up in this order; ``lines`` are bash.

    ``container`` is the image that tasks run in, ``is_pyxis``: as steps of Pyxis.
    """

    modules: tuple[str, ...] = ()
    conda: str | None = None  # name or path of the environment
    venv: str | None = None  # its directory
    lines: tuple[str, ...] = ()
    container: str | None = None
    is_pyxis: bool = False
    checks: bool = True


class JobScript(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a job script contains; paths are absolute.

    ``together`` tasks run at once in an element; ``elements`` is how many there are,
    the first of which is number ``first`` of the plan; the script looks for
    ``programs`` before the first task, and ends where torch sees no GPU if a task
    ``imports_torch``; ``needs`` are jobs that must have succeeded, by
    token, or by id if weigh does not know them. ``staged`` are lines of bash for
    ``staging``, around the tasks. ``token`` marks this submission, ``sent`` is the
    directory of what was sent. ``tasks`` is the directory of the task files, if not
    ``folder``. ``queue`` is the directory in ``folder`` of the queue that all elements
    pull from, if they do. ``command`` is a line of bash to run instead of tasks.
    """

    name: str
    folder: str
    cwd: str
    store: str  # directory of the records
    python: str  # that runs weigh in the job
    elements: int
    together: int
    request: JobRequest
    first: int = 0
    setup: JobSetup = JobSetup()
    programs: tuple[str, ...] = ()
    imports_torch: bool = False
    needs: tuple[str, ...] = ()
    staging: StagingPlan | None = None
    staged: str = ""
    requeue: bool = False  # the scheduler may start an element again
    version: str = ""  # of the weigh that wrote it
    token: str = ""
    sent: str = ""
    tasks: str = ""
    queue: str = ""
    command: str = ""

    @property
    def log(self) -> str:
        """Return the directory of the logs."""
        return f"{self.folder}/log"

    @property
    def is_array(self) -> bool:
        """Return whether the job has more than one element."""
        return self.elements > 1


class OwnScript(msgspec.Struct, frozen=True, kw_only=True):
    """A job script that its user wrote: it is submitted as it is.

    ``flags`` are the scheduler's own, typed with the script, and ``arguments`` are
    the script's. ``indices`` are those of its array, as ranges; empty for a plain job.
    ``output`` and ``error`` are the patterns of its log files, absolute; ``logs`` are
    log files by index that the scheduler named; ``digest`` is that of the script's
    text. ``measured``: weigh measures it in the job. ``foreign``: weigh did not submit
    it, and it is ``user``'s, if not one's own. ``part``: these indices are only a part
    of the array. ``is_line_known``: the flags are those of the line that was typed.
    """

    flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    indices: str = ""
    output: str = ""
    error: str = ""
    logs: dict[str, str] = {}
    digest: str = ""
    measured: bool = False
    foreign: bool = False
    part: bool = False
    user: str = ""
    is_line_known: bool = True


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a scheduler accepted. ``submitted`` is in seconds since the epoch.

    ``resumes`` is the job that this one continues, if any, and ``reason`` is why: tasks
    did not finish there, or the array was too long for one job. Element 0 is number
    ``first`` of the plan. ``expected`` is the start time that the scheduler predicted.
    ``token`` marks the submission; ``plan`` is the directory of the plan as it was
    submitted, if not ``folder``. ``own`` describes a script of the user's: such a job
    has no plan, and each element is one task. ``round`` counts the submissions of the
    plan's unfinished tasks, from 1. With ``heal`` a healer follows, which sends the
    next round. ``needs`` are the jobs that must have succeeded before it starts, by
    token or id; ``after`` of its request are the ids that it hangs on now.
    ``is_healer``: the job is one, which runs no tasks.
    """

    schema: str = SCHEMA
    scheduler: str
    id: str
    name: str
    folder: str
    cwd: str
    script: str  # path of what was submitted
    elements: int
    tasks: int  # in all its elements
    submitted: Seconds
    request: JobRequest = msgspec.field(name="wanted")
    first: int = 0
    setup: JobSetup = JobSetup()
    staging: StagingPlan | None = None
    requeue: bool = False
    resumes: str | None = None
    reason: str | None = None
    expected: Seconds | None = None
    token: str = ""
    plan: str = ""
    own: OwnScript | None = None
    round: int = 1
    heal: HealLimits | None = None
    needs: tuple[str, ...] = ()
    is_healer: bool = False

    @property
    def unit(self) -> str:
        """Return what messages count: the tasks of a plan, or a script's elements."""
        return "task" if self.own is None else "element"

    @property
    def is_script(self) -> bool:
        """Return whether the job runs a script of the user's own, and no plan."""
        return self.own is not None

    @property
    def is_foreign(self) -> bool:
        """Return whether weigh did not submit the job."""
        return self.own is not None and self.own.foreign

    @property
    def is_part(self) -> bool:
        """Return whether only some elements of an array were named."""
        return self.own is not None and self.own.part

    @property
    def plan_folder(self) -> str:
        """Return the directory of the plan and the task files of this job."""
        return self.plan or self.folder

    def is_of(self, folder: str) -> bool:
        """Return whether the job ran the plan, or the script, at this path."""
        if self.own is not None:
            return folder in {self.folder, self.script}
        return folder in {self.folder, self._plan_path}

    @property
    def _plan_path(self) -> str:
        """Return the directory that the user planned in, also of a plan sent again."""
        # sent again, a plan has its own directory below that of the user's
        above, _, name = self.folder.rpartition("/")
        return above if name.startswith(AGAIN) else self.folder

    def is_called(self, job_name: str) -> bool:
        """Return whether *job_name* is the job's name, or that of its plan's directory.

        They differ after ``weigh submit --name``.
        """
        plan = "" if self.own is not None else self._plan_path.rpartition("/")[2]
        return job_name in {self.name, plan}


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request as the scheduler recorded it, per element; None: not shown.

    ``cpus`` may be more than requested, as schedulers round up. ``gpu_types`` are the
    requested types, ``reason`` is the scheduler's reason why the job waits.
    """

    memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    cpus: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] = ()
    time_limit: int | None = None  # seconds
    queue: str | None = None  # Slurm: the partition
    account: str | None = None
    elements: int | None = None
    throttle: int | None = None
    reason: str | None = None


class ElementState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one element, in weigh's terms; ``reason`` is the scheduler's.

    Times are in seconds since the epoch; ``node`` is where the element runs or ran,
    ``expected`` when the scheduler expects a waiting one to start.
    """

    state: State
    reason: str | None = None
    exit_code: int | None = None  # None: it runs, or a signal ended it
    signal: int | None = None
    started: Seconds | None = None
    ended: Seconds | None = None
    node: str | None = None
    expected: Seconds | None = None

    @property
    def is_final(self) -> bool:
        """Return whether the state will not change any more."""
        return self.state in FINAL


class TaskState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task: ``task`` is its number in the plan, ``seq`` in the element.

    ``output`` is the file with its output, ``job`` is its job. ``claims`` is how often
    it was claimed, in a shared queue. Of a failed task ``peak`` is the peak memory that
    was measured, ``reserved`` the memory that was reserved for it, if any was;
    ``alone``: no other task ran in its element. ``short``: an attempt ran out of memory
    before its element ended for another reason; the figures are those of that attempt.
    ``needs`` is how long a task that was stopped would have taken, by its progress.
    """

    task: int
    job: str
    element: int
    seq: int
    state: State
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    output: str | None = None
    attempt: int | None = None  # number of its last one, from 1; None: not started
    claims: int = 0
    peak: Bytes | None = None
    reserved: Bytes | None = None
    alone: bool = False
    short: bool = False
    needs: Seconds | None = None


Elements = dict[int, ElementState]
States = dict[str, Elements]
