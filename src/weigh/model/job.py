"""A job at a scheduler: what is asked for, what was submitted, how its elements stand.

Bytes and seconds; ``None`` is not asked for, or not known. Elements count from 0.
"""

from typing import Literal, get_args

import msgspec

from weigh.model.complexes import Complexes
from weigh.model.record import State
from weigh.model.staging import Staging
from weigh.units import Bytes, Seconds

SCHEMA = "weigh.job/1"

AGAIN = "again_"  # folders in a plan's, for each time that all of it runs once more
Runner = Literal["weigh", "parallel"]
REST = -1  # in an answer: all elements without a state of their own
STUCK = "in error state"  # Grid Engine keeps it until it is deleted
CANCELLING = "being cancelled"  # a signal was sent, and it has not ended yet
STEP_OUT_OF_MEMORY = "a step ran out of memory"  # whatever the script made of it
FINAL: frozenset[State] = frozenset(get_args(State)) - {"PENDING", "RUNNING", "UNKNOWN"}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What each element is to get, and how the job is to be treated.

    ``virtual_memory`` is what Grid Engine's h_vmem counts, for the whole element.
    ``throttle`` is the most elements at a time; ``after`` are jobs that have to succeed
    first; ``extra`` are flags of the scheduler's own, as (name, value). With several
    ``nodes`` CPUs, memory and GPUs are for each of them. ``complexes`` are the site's
    words where it is not the usual ones'.
    """

    cpus: int = 1
    memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    time_limit: int | None = None
    gpus: int = 0
    gpu_type: str | None = None
    queue: str | None = None
    account: str | None = None
    qos: str | None = None
    mail: str | None = None
    throttle: int | None = None
    after: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    nodes: int = 1
    complexes: Complexes | None = None


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What makes the environment of the tasks, in this order; ``lines`` are bash.

    ``container`` is an image that tasks run in; ``imports`` are Python's names of
    modules that have to be there.
    """

    modules: tuple[str, ...] = ()
    conda: str | None = None
    venv: str | None = None
    lines: tuple[str, ...] = ()
    container: str | None = None
    imports: tuple[str, ...] = ()
    checks: bool = True


class JobScript(msgspec.Struct, frozen=True, kw_only=True):
    """All that a job script is written from; folders and files are absolute.

    ``together`` tasks run side by side in an element; ``elements`` is how many there
    are, the first of which is number ``first`` of the plan; ``programs`` are looked
    for before the first task; ``needs`` are logs of jobs that have to have succeeded.
    ``staged`` are the lines of bash that do what ``staging``
    asks for, around the tasks; ``gate`` are lines that an element ends with, which may
    make it fail. ``token`` marks this one submission, ``sent`` is what is kept of it.
    ``tasks`` is the folder of the task files where that is not ``folder``.
    """

    name: str
    folder: str
    cwd: str
    store: str
    python: str
    elements: int
    together: int
    wanted: Wanted
    first: int = 0
    setup: Setup = Setup()
    runner: Runner = "weigh"
    programs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    staging: Staging | None = None
    staged: str = ""
    gate: str = ""
    requeue: bool = False
    version: str = ""
    token: str = ""
    sent: str = ""
    tasks: str = ""

    @property
    def log(self) -> str:
        """Return the folder of the logs."""
        return f"{self.folder}/log"

    @property
    def is_array(self) -> bool:
        """Return whether the scheduler is to hold more than one element."""
        return self.elements > 1


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a scheduler took. ``submitted`` is seconds since the epoch.

    ``resumes`` is the job that this one goes on from, if any, and ``reason`` why: its
    tasks did not finish there, or the array was too long for one. Element 0 of it is
    number ``first`` of the plan. ``expected`` is when the scheduler thought that it
    would start. ``token`` marks its submission; ``plan`` is the folder of the plan as
    it was then, where that is not ``folder``.
    """

    schema: str = SCHEMA
    scheduler: str
    id: str
    name: str
    folder: str
    cwd: str
    script: str
    elements: int
    tasks: int
    submitted: Seconds
    wanted: Wanted
    first: int = 0
    setup: Setup = Setup()
    runner: Runner = "weigh"
    staging: Staging | None = None
    requeue: bool = False
    resumes: str | None = None
    reason: str | None = None
    expected: Seconds | None = None
    token: str = ""
    plan: str = ""

    @property
    def plan_folder(self) -> str:
        """Return the folder with the plan and the task files that this job uses."""
        return self.plan or self.folder

    def is_of(self, folder: str) -> bool:
        """Return whether the job ran the plan in *folder*, the first time or again."""
        above, _, name = self.folder.rpartition("/")
        return self.folder == folder or (above == folder and name.startswith(AGAIN))


class Understood(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler took a job to ask for; None where it does not say.

    All are an element's; ``cpus`` may be more than asked for, as a scheduler rounds.
    ``gpu_types`` are the types asked for, ``reason`` why it waits, in its words.
    """

    memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    cpus: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] = ()
    time_limit: int | None = None
    queue: str | None = None
    account: str | None = None
    elements: int | None = None
    throttle: int | None = None
    reason: str | None = None


class ElementState(msgspec.Struct, frozen=True, kw_only=True):
    """How one element stands, in our words; ``reason`` is the scheduler's.

    Times are seconds since the epoch, ``node`` where it runs or ran.
    """

    state: State
    reason: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    started: Seconds | None = None
    ended: Seconds | None = None
    node: str | None = None

    @property
    def is_final(self) -> bool:
        """Return whether nothing will change any more."""
        return self.state in FINAL


class TaskState(msgspec.Struct, frozen=True, kw_only=True):
    """How one task stands: ``task`` counts over the plan, ``seq`` in its element.

    ``output`` is the file with what it printed; ``job`` the job that it is in.
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
    attempt: int | None = None


Elements = dict[int, ElementState]
States = dict[str, Elements]
