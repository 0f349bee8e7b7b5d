"""The parsed script that lint rules check, and functions that create findings."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from weigh.errors import close_names
from weigh.model.job import JobRequest
from weigh.model.lint import LintFinding, PathKind, ScriptFacts
from weigh.schedulers.hidden_exit import HiddenExit
from weigh.schedulers.script import ScriptLine, ScriptText
from weigh.schedulers.shell import ShellBody, ShellCommand, unquoted
from weigh.units import Bytes

_LONGEST_PATH = 4096  # PATH_MAX of Linux
_HOME = ("~", "$HOME", "${HOME}")
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset", "env"})
_TAKES_NAMES = frozenset({"export", "printenv", "unset", "declare", "read", "-v"})
_ASSIGNED = re.compile(r"\w+=")
_USER = ("$USER", "${USER}", "$LOGNAME", "${LOGNAME}")


class ScriptOption(msgspec.Struct, frozen=True):
    """One option as the scheduler reads it: its long name, its value, its line.

    ``text`` is the option as written.
    """

    name: str
    value: str
    line: int
    text: str

    @property
    def is_short(self) -> bool:
        """Return whether it is written with one dash."""
        return not self.text.startswith("--")


class ReadOptions(msgspec.Struct, frozen=True):
    """The options that the scheduler reads, and the lines that it misreads."""

    options: tuple[ScriptOption, ...]
    findings: tuple[LintFinding, ...]
    lines: tuple[ScriptLine, ...] = ()


class SchedulerWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler calls things.

    ``tool`` submits; ``array`` is its option for an array; ``element`` is the variable
    that holds the array task index, ``unset`` what it is in a plain job, ``foreign``
    those of other schedulers. ``common`` are variables with one value in all elements
    of an array. A variable that matches ``own`` is the scheduler's; ``variables`` are
    those that it sets, ``only_with`` those of them that need one of some options.
    ``meant`` are likely mistakes in their names. ``limits`` set the time and memory.
    """

    tool: str
    array: str
    element: str
    foreign: tuple[str, ...] = ()
    common: frozenset[str] = frozenset()
    unset: str = "is empty"
    own: str = ""
    variables: frozenset[str] = frozenset()
    only_with: Mapping[str, tuple[str, ...]] = {}
    meant: Mapping[str, str] = {}
    limits: tuple[str, str] = ("", "")


class ArrayElements(msgspec.Struct, frozen=True):
    """The indices of an array as ranges, and its throttle."""

    ranges: tuple[range, ...]
    throttle: int | None = None

    def __len__(self) -> int:
        """Return the number of indices; duplicates count twice."""
        return sum(map(len, self.ranges))

    def __contains__(self, index: int) -> bool:
        """Return whether *index* is in the array."""
        return any(index in one for one in self.ranges)

    @property
    def first(self) -> int:
        """Return the smallest index."""
        return min(one[0] for one in self.ranges)

    @property
    def last(self) -> int:
        """Return the largest index."""
        return max(one[-1] for one in self.ranges)


class ScriptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request in a script; ``by`` has the option that set each field, by its name.

    ``memory``, ``cpus`` and ``gpus`` are per node, None if not requested;
    ``slot_memory`` is set where a queue limits the memory of a slot; ``no_end`` is an
    unlimited time. ``most_cpus`` and ``most_gpus`` are what the job gets at most on the
    node of its script, None if not known; ``sets_cpus`` is whether an option decides.
    """

    queues: tuple[str, ...] = ()
    memory: Bytes | None = None
    slot_memory: Bytes | None = None
    cpus: int | None = None
    nodes: int | None = None
    gpus: int | None = None
    gpu_type: str = ""
    most_cpus: int | None = None
    most_gpus: int | None = None
    sets_cpus: bool = False
    elements: ArrayElements | None = None
    time: int | None = None
    no_end: bool = False
    account: str | None = None
    qos: str | None = None
    by: dict[str, ScriptOption] = {}

    def as_job_request(self, throttle: int | None) -> JobRequest:
        """Return it as the request of a job; memory is what its scheduler limits."""
        is_virtual = self.slot_memory is not None
        return JobRequest(
            cpus=self.cpus or 1,
            memory=None if is_virtual else self.memory,
            virtual_memory=self.memory if is_virtual else None,
            time_limit=self.time,
            gpus=self.gpus or 0,
            gpu_type=self.gpu_type or None,
            queue=",".join(self.queues) or None,
            account=self.account,
            qos=self.qos,
            throttle=throttle,
            nodes=self.nodes or 1,
        )


class LintCase(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed script: the options that the scheduler reads, the commands of the shell.

    ``start`` is the job's working directory, None if unknown.
    """

    words: SchedulerWords
    script: ScriptText
    options: tuple[ScriptOption, ...]
    body: ShellBody
    facts: ScriptFacts
    start: str | None = None
    requested: ScriptRequest = ScriptRequest()

    @property
    def tool(self) -> str:
        """Return the command that submits: ``sbatch`` or ``qsub``."""
        return self.words.tool

    @property
    def element(self) -> str:
        """Return the variable that holds the array task index."""
        return self.words.element

    def option(self, *names: str) -> ScriptOption | None:
        """Return the last option with one of these names: the one that counts."""
        found = [one for one in self.options if one.name in names]
        return found[-1] if found else None

    def value(self, key: str) -> str:
        """Return the value of an option; empty if it is not given."""
        option = self.option(key)
        return option.value if option is not None else ""

    def uses(self, variable: str) -> bool:
        """Return whether the script uses a variable; a bare argument is no use."""
        before = ""
        for token in self.body.tokens:
            if variable in token.text and (
                token.text != variable or before in _TAKES_NAMES
            ):
                return True
            before = token.text
        return False

    def assignments(self) -> Iterator[tuple[ShellCommand, str, str]]:
        """Yield each (command, variable, value) that the script sets."""
        for command in self.body.commands:
            declared = command.words[1:] if command.name in _DECLARES else ()
            for word in (*command.assigned, *declared):
                name, equals, value = word.partition("=")
                if equals:
                    yield command, name, unquoted(value)

    def absolute(self, path: str, base: str | None) -> str | None:
        """Return the absolute path; None if it depends on an unknown variable."""
        for home in _HOME:
            if path == home or path.startswith(home + "/"):
                if self.facts.home is None:
                    return None
                path = self.facts.home + path.removeprefix(home)
        for user in _USER:
            if user in path and self.facts.user:
                path = path.replace(user, self.facts.user)
        # only the shell in the job knows what these become
        if any(mark in path for mark in "$`*?{[~\0") or not path:
            return None
        if not path.startswith("/") and base is None:
            return None
        whole = posixpath.normpath(posixpath.join(base or "/", path))
        return whole if len(whole) <= _LONGEST_PATH else None

    def kind(self, path: str | None) -> PathKind | None:
        """Return what is at *path*; None if not known."""
        return None if path is None else self.facts.paths.get(path)

    def is_missing(self, path: str | None) -> bool:
        """Return whether *path* is known not to exist."""
        return self.kind(path) == "missing"


def starts_by_first_line(script_facts: ScriptFacts) -> bool:
    """Return whether the queue certainly starts scripts by #!, and no login shell."""
    limits = script_facts.limits
    return limits is not None and limits.start_mode == "unix_behavior"


Rule: TypeAlias = Callable[[LintCase], Iterator[LintFinding]]
# what has a line number, from 1, and the text as written
LineSpot: TypeAlias = ScriptOption | ScriptLine | ShellCommand | HiddenExit


def problem(
    line_spot: LineSpot | None,
    rule: str,
    effect: str,
    fix: str = "",
    *,
    refused: bool = False,
) -> LintFinding:
    """Report what makes the job fail, or is silently wrong.

    *rule* is a name in `rules.RULES`.
    """
    return LintFinding(
        rule=rule,
        severity="problem",
        line=None if line_spot is None else line_spot.line or None,
        text="" if line_spot is None else line_spot.text.strip(),
        effect=effect,
        cure=fix,
        accepted=not refused,  # False: the scheduler rejects the job
    )


def refused(
    line_spot: LineSpot | None, rule: str, effect: str, fix: str = ""
) -> LintFinding:
    """Report what the scheduler would reject."""
    return problem(line_spot, rule, effect, fix, refused=True)


def note(
    line_spot: LineSpot | None, rule: str, effect: str, fix: str = ""
) -> LintFinding:
    """Report a default, an assumption, or what may be meant otherwise."""
    return msgspec.structs.replace(
        problem(line_spot, rule, effect, fix), severity="note"
    )


def most_similar_word(
    word: str, known: tuple[str, ...] | list[str], *, alike: float = 0.6
) -> str:
    """Return the known word that is most similar to *word*; empty if none is."""
    by_case = {one.lower(): one for one in known}
    near = close_names(word.lower(), by_case, n=1, cutoff=alike)
    return by_case[near[0]] if near else ""


def did_you_mean(word: str, known: tuple[str, ...] | list[str]) -> str:
    """Suggest the word that was probably meant, or list the known ones."""
    near = most_similar_word(word, known)
    if near:
        return f"did you mean {near}?"
    return f"known: {', '.join(known[:6])}" if known else ""


_SUBMITTED_FROM = frozenset(
    f"{mark}{name}{end}"
    for name in ("SLURM_SUBMIT_DIR", "SGE_O_WORKDIR", "PBS_O_WORKDIR")
    for mark, end in (("$", ""), ("${", "}"))
)
_MOVES = frozenset({"cd", "pushd"})
# commands that provide files or programs which do not exist yet
BRINGS = frozenset(
    {"source", ".", "module", "ml", "conda", "mamba", "micromamba", "spack", "eval"}
    | {"use", "setpkgs", "guix", "nix-shell", "poetry", "uv", "pixi"}
)


def commands_with_directories(
    lint_case: LintCase,
) -> Iterator[tuple[ShellCommand, str | None]]:
    """Yield each command with its working directory, None once it is not known.

    A ``cd`` in a subshell ends with it; behind one in a branch, a loop or a function
    nobody knows where the script is.
    """
    place = lint_case.start
    entered: list[tuple[int, str | None]] = []
    for command in lint_case.body.commands:
        while entered and entered[-1][0] not in command.blocks:
            block, before = entered.pop()
            # a negative number is a subshell, whose cd ends with it
            place = before if block < 0 or place == before else None
        entered += [(block, place) for block in command.blocks[len(entered) :]]
        yield command, place
        if command.name in _MOVES:
            place = destination(lint_case, command, place)


def destination(
    lint_case: LintCase, command: ShellCommand, place: str | None
) -> str | None:
    """Return the directory that a ``cd`` leads to."""
    targets = [word for word in command.words[1:] if word not in ("-P", "-L", "--")]
    target = targets[0] if targets else "~"
    if target in _SUBMITTED_FROM:
        return lint_case.facts.cwd
    return lint_case.absolute(target, place)


# what may stand before a program, with options of its own
_STARTERS = frozenset(
    {"srun", "mpirun", "mpiexec", "exec", "time", "nohup", "env", "command", "nice"}
    | {"stdbuf", "numactl", "taskset", "timeout"}
)
_WITHOUT_VALUE = frozenset(
    {"--exclusive", "--exact", "--overlap", "--pty", "--label", "-l", "--unbuffered"}
    | {"-u", "-O", "-v", "-Q", "-p", "--oversubscribe", "--bind-to-core"}
)


def program_place(words: Sequence[str]) -> int | None:
    """Return the place of the program that a command runs; None if it runs none."""
    is_value = False
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        if word[:1] == "-":
            is_value = "=" not in word and word not in _WITHOUT_VALUE
        elif name in _STARTERS:
            is_value = name == "timeout"
        # an option that is not known here may have had no value
        elif (is_value and word[:2] != "./") or _ASSIGNED.match(word):
            is_value = False
        else:
            return place
    return None


def is_shared(lint_case: LintCase, written: str, path: str) -> bool:
    """Return whether *path* is certainly the same on the nodes as on this machine.

    A relative path and one in the home directory are; another absolute path may exist
    on the nodes only, such as their scratch.
    """
    home = lint_case.facts.home
    return not written.startswith("/") or bool(home and path.startswith(home + "/"))
