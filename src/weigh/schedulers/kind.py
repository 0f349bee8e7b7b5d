"""One scheduler in the table: its names, traits and text, and its parts.

A job needs only its text, which is data or pure text: the parts are imported when they
are used.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, cast

import msgspec

from weigh.model.record import Allocation, RecordedJob, Request
from weigh.schedulers import JOB_VARIABLES, SUBMITS
from weigh.schedulers.words import binary_size
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:  # weigh run needs only the text of a scheduler
    from weigh.schedulers.backend import (
        SchedulerAccounting,
        SchedulerCommands,
        SchedulerLint,
        SchedulerSite,
        SchedulerUserScripts,
        StepStarter,
    )
    from weigh.schedulers.protocol import Argv


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


PartT = TypeVar("PartT")


class LatePart(Generic[PartT]):
    """A part of a scheduler, which is imported when it is used.

    Not before: weigh run in a job would load all parts for nothing. It is called
    *name* in the file *module* of the scheduler's folder, or in its one file.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, kind: "SchedulerKind", owner: object) -> PartT:
        file = kind.name if kind.in_one_file else f"{kind.name}.{self._module}"
        module = import_module(f"weigh.schedulers.{file}")
        return cast("PartT", getattr(module, self._name))


class SchedulerKind:
    """One scheduler in the table; ``schedulers/NAME`` holds its parts.

    ``title`` is its name in a sentence. ``lists`` and ``accounts`` are the commands
    that show, with that to submit, whether the scheduler is installed, ``commands`` are
    all that weigh and its users need, ``starts`` runs a program on a node. ``probe`` is
    a cheap question that shows whether it answers, ``nodes_argv`` lists the names of
    the compute nodes. ``directive`` matches a line that looks like a directive, even
    misspelled. ``in_one_file``: all its parts are in ``schedulers/NAME.py``.
    """

    title: str
    lists: str
    accounts: str
    commands: tuple[str, ...]
    starts: str
    probe: "Argv"
    nodes_argv: "Argv"
    directive: re.Pattern[str]
    variables: DialectVariables
    traits: DialectTraits
    text: SchedulerText
    in_one_file: bool = False
    backend: "LatePart[SchedulerCommands]" = LatePart("scheduler", "COMMANDS")
    lint: "LatePart[SchedulerLint]" = LatePart("lint", "LINT")
    accounting: "LatePart[SchedulerAccounting]" = LatePart("accounting", "ACCOUNTING")
    user_scripts: "LatePart[SchedulerUserScripts]" = LatePart(
        "user_script", "USER_SCRIPTS"
    )
    site: "LatePart[SchedulerSite]" = LatePart("cluster", "SITE")

    @property
    def name(self) -> str:
        """Return its name in the table."""
        return self.text.NAME

    @property
    def submits(self) -> str:
        """Return the command that submits a job."""
        return SUBMITS[self.name]

    @property
    def job_variable(self) -> str:
        """Return the variable that is set in its jobs."""
        return JOB_VARIABLES[self.name]

    @property
    def steps(self) -> "StepStarter | None":
        """Return how its jobs start processes on their nodes; None if unknown."""
        return None
