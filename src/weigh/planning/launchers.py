"""The ranks that a command line starts by srun, mpirun or mpiexec."""

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

_SRUN = "srun"
LAUNCHERS = frozenset(
    (_SRUN, "mpirun", "mpiexec", "mpiexec.hydra", "prun", "prterun", "orterun")
)
MAY_LAUNCH = re.compile("|".join(map(re.escape, sorted(LAUNCHERS))))
# options of Slurm's srun, Open MPI, MPICH's Hydra and PRRTE together: the same letters
# seldom differ in meaning; where they do, the name of the launcher decides
_TASKS = frozenset(("-n", "-np", "--np", "--ntasks", "--n"))
_PER_NODE = frozenset(("--ntasks-per-node", "-ppn", "--npernode", "-npernode", "-N"))
# without a value; the word after any other option may be its value
_FLAGS = frozenset(
    """
    -l -u -v -q -O -s -k -K -Q -E -X -Z -H --label --unbuffered
    --verbose --quiet --overcommit --exact --oversubscribe --overlap
    --exclusive --no-kill --multi-prog --kill-on-bad-exit
    --preserve-env --disable-status --contiguous --pty --spread-job
    --use-min-nodes --allow-run-as-root --report-bindings --tag-output
    --display-map --nooversubscribe --use-hwthread-cpus --noinherit
    --bynode --byslot -prepend-rank --genvall --envall --timestamp-output
    --display-allocation --oversubscribe --merge-stderr-to-stdout --nolocal
    """.split()  # noqa: SIM905 - the words can be read
)
# with two values: a name and what it is set to
_PAIRS = frozenset(("-mca", "--mca", "--prtemca", "-gmca", "--gmca", "-env", "-genv"))


class LauncherLayout(msgspec.Struct, frozen=True):
    """What a launcher starts, as far as its options state it; else None."""

    ntasks: int | None = None  # all ranks
    nodes: int | None = None
    per_node: int | None = None  # ranks on a node
    cpus: int | None = None  # of each rank


def is_launcher(program_word: str) -> bool:
    """Return whether *program_word* names a launcher, with or without its folder."""
    name = program_word.rpartition("/")[2]
    # sites install several, such as mpirun.openmpi and mpiexec.mpich
    return name in LAUNCHERS or name.partition(".")[0] in ("mpirun", "mpiexec")


def launch_of(command_words: Sequence[str]) -> LauncherLayout | None:
    """Return what the launchers in *command_words* start at most; None without one."""
    found = [
        _parsed_launch(command_words[at:])
        for at, word in enumerate(command_words)
        if is_launcher(word)
    ]
    if not found:
        return None
    # several in one line are taken to run one after another: the largest has to fit
    return max(found, key=lambda one: one.ntasks or 0)


def without_launcher(command_words: Sequence[str]) -> Sequence[str]:
    """Return the program that a launcher at the start of *command_words* starts."""
    if not command_words or not is_launcher(command_words[0]):
        return command_words
    options = list(_launcher_options(command_words[0], command_words[1:]))
    # a launcher without a program is taken as the program
    return command_words[1 + sum(len(one) for one in options) :] or command_words


def _parsed_launch(command_words: Sequence[str]) -> LauncherLayout:
    name = command_words[0].rpartition("/")[2]
    # mpirun -n 1 A : -n 3 B: how many that are is known once it was measured
    if name != _SRUN and ":" in command_words:
        return LauncherLayout()
    return _stated_launch(name, command_words[1:])


def _stated_launch(launcher_name: str, command_words: Sequence[str]) -> LauncherLayout:
    found: dict[str, int | None] = {}
    for option in _launcher_options(launcher_name, command_words):
        key, value = _key_and_value(option)
        # a variable of the shell, or srun's 2-4 nodes: not known before the job runs
        number = int(value) if value.isdecimal() and value.isascii() else None
        if key in _TASKS:
            found["ntasks"] = number
        # -N are nodes for srun, and ranks per node for Open MPI
        elif key in ("--nodes", "-N") and launcher_name == _SRUN:
            found["nodes"] = number
        elif key in _PER_NODE:
            found["per_node"] = number
        elif key in ("-c", "--cpus-per-task") and launcher_name == _SRUN:
            found["cpus"] = number
    launch = LauncherLayout(**found)
    # srun starts one rank on each node if nothing else is given
    if launch.ntasks is None and launch.nodes is not None:
        tasks = launch.nodes * (launch.per_node or 1)
        launch = replace(launch, ntasks=tasks)
    return launch


def _key_and_value(option: Sequence[str]) -> tuple[str, str]:
    word = option[0]
    if word.startswith("--") and "=" in word:
        key, _, value = word.partition("=")
        return key, value
    if len(option) == 1 and len(word) > 2 and word[1] in "nNc":  # noqa: PLR2004 - -n4
        return word[:2], word[2:]
    return word, option[1] if len(option) > 1 else ""


def _launcher_options(
    launcher_name: str, command_words: Sequence[str]
) -> Iterator[Sequence[str]]:
    """Yield each option before the program with its values."""
    at = 0
    while (
        at < len(command_words)
        and command_words[at].startswith("-")
        and command_words[at] != "--"
    ):
        # an option that is not known most often has a value; if it has none, the value
        # is taken for the program, and only the name is wrong
        word, size = command_words[at], 2
        # srun joins short options with their values: -c4, -pdebug
        is_joined = "=" in word or (
            launcher_name == _SRUN and not word.startswith("--") and len(word) > 2  # noqa: PLR2004
        )
        is_joined = is_joined or (word[1:2] in tuple("nNc") and word[2:].isdecimal())
        # Open MPI and Hydra take long options with one dash, too; what is srun's hold
        # (-H) names hosts for all others
        is_flag = word in _FLAGS or f"-{word}" in _FLAGS
        if word == "-H" and launcher_name != _SRUN:
            is_flag = False
        if is_flag or is_joined:
            size = 1
        elif word in _PAIRS:
            size = 3
        yield command_words[at : at + size]
        at += size
