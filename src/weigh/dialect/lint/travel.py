"""Where in the file system each command of a script runs, as far as one can tell."""

from collections.abc import Iterator

from weigh.dialect.lint.case import Case
from weigh.dialect.shell import Command

_SUBMITTED_FROM = frozenset(
    f"{mark}{name}{end}"
    for name in ("SLURM_SUBMIT_DIR", "SGE_O_WORKDIR", "PBS_O_WORKDIR")
    for mark, end in (("$", ""), ("${", "}"))
)
_MOVES = frozenset({"cd", "pushd"})
# what brings files or programs that are not there yet
BRINGS = frozenset(
    {"source", ".", "module", "ml", "conda", "mamba", "micromamba", "spack", "eval"}
    | {"use", "setpkgs", "guix", "nix-shell", "poetry", "uv", "pixi"}
)


def journey(case: Case) -> Iterator[tuple[Command, str | None]]:
    """Yield each command with the directory it runs in, None once that is not known."""
    place = case.start
    for command in case.body.commands:
        yield command, place
        if command.name in _MOVES:
            place = destination(case, command, place)


def destination(case: Case, command: Command, place: str | None) -> str | None:
    """Tell where a ``cd`` leads."""
    targets = [word for word in command.words[1:] if word not in ("-P", "-L", "--")]
    target = targets[0] if targets else "~"
    if target in _SUBMITTED_FROM:
        return case.facts.cwd
    return case.absolute(target, place)


def is_shared(case: Case, written: str, path: str) -> bool:
    """Tell whether the nodes are sure to see *path* as this machine does.

    A path that is written from where one stands, or in the home, is; what another
    absolute path leads to may be there on the nodes alone, as their scratch is.
    """
    home = case.facts.home
    return not written.startswith("/") or bool(home and path.startswith(home + "/"))
