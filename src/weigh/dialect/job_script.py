"""The body of a job script, the same under every scheduler: plain bash.

Every name from outside stands in quotes, so that bash takes it for that name whatever
is in it. The tasks run in the background and the shell waits for them: bash runs a trap
at once while it waits, and only after a command in the foreground has ended.
"""

import shlex
from collections.abc import Iterable, Iterator

from weigh.model.job import JobScript, Setup, Wanted
from weigh.model.record import Request

SHEBANG = "#!/bin/bash"
ENDED = "weigh: exit code"  # the log's last line begins so
GRACE = 20  # seconds; Slurm and Grid Engine kill 30 or 60 after they have told
TOLD = (
    "told() {",
    '  [ -n "$tasks" ] || exit 143',
    '  kill -TERM "$tasks" 2>/dev/null',
    "  again=1",
    "}",
    "tasks= again=1",
    "trap told TERM INT USR1 USR2 XCPU",
)
# a trap ends `wait`: bash still knows the exit code when it is asked again
WAIT = 'until [ -z "$again" ]; do again=; wait "$tasks"; code=$?; done'
_NO_GPU = 69  # EX_UNAVAILABLE of sysexits.h
_NOT_FOUND = 127
_TORCH = (
    'import sys, importlib.util as u; t = u.find_spec("torch") and '
    '__import__("torch"); sys.exit(bool(t) and not t.cuda.is_available())'
)


def render(
    directives: Iterable[str], script: JobScript, *, element: str, log: str | None
) -> str:
    """Write a whole script: *directives*, then what one element does.

    *element* is bash for the number of the element, from 0; *log* is bash for the name
    of its log, where no directive can name it.
    """
    lines = [SHEBANG, *directives, *heading(script), ""]
    if log is not None:
        lines.append(f"exec >{quoted(script.log)}/{log} 2>&1")
    return "\n".join((*lines, *_body(script, element)))


def request_of(wanted: Wanted) -> Request:
    """Give the part of *wanted* that the dialects have flags for."""
    return Request(
        cpus=wanted.cpus,
        memory=wanted.memory,
        virtual_memory=wanted.virtual_memory,
        time_limit=wanted.time_limit,
        headroom=0.0,
        runs=0,
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
    )


def _body(script: JobScript, element: str) -> Iterator[str]:
    """Write what one element does; the last line ends in a newline."""
    yield f"trap 'echo \"{ENDED} $?\"' EXIT"
    yield f"export WEIGH_DIR={quoted(script.store)}"
    yield f"cd {quoted(script.cwd)} || exit"
    yield f"plan={quoted(script.folder)}"
    yield f"element={element}"
    yield from setup_lines(script)
    yield ""
    yield "# the tasks: what ends this job is told to them at once"
    yield from TOLD
    yield f"{tasks_command(script)} &"
    yield "tasks=$!"
    yield WAIT
    yield 'exit "$code"\n'


def setup_lines(script: JobScript) -> Iterator[str]:
    """Write what makes the environment of the tasks, and sees that it is there."""
    made = tuple(_environment(script.setup))
    checks = tuple(_checks(script)) if script.setup.checks else ()
    if made:
        yield ""
        yield "# the environment of the tasks"
        yield from made
    if checks:
        yield ""
        yield "# what is missing is said before anything runs"
        yield from checks


def quoted(text: str) -> str:
    """Quote *text* for bash; as it is where it needs no quotes."""
    return shlex.quote(text)


def one_line(text: str) -> str:
    """Write *text* fit for a comment: on one line, without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def heading(script: JobScript) -> Iterator[str]:
    """Say in comments what the script is."""
    alone = script.together == 1
    tasks = "1 task" if alone else f"up to {script.together} tasks side by side"
    elements = f"{script.elements} elements of " if script.is_array else ""
    yield ""
    yield f"# {elements}{tasks}; written by weigh {script.version}."
    yield "# It is yours to edit: nothing reads it but the scheduler."


def _environment(setup: Setup) -> Iterator[str]:
    if setup.modules:
        yield "source /etc/profile"
        yield from (f"module load {quoted(name)} || exit" for name in setup.modules)
    if setup.conda is not None:
        yield 'eval "$(conda shell.bash hook)" || exit'
        yield f"conda activate {quoted(setup.conda)} || exit"
    if setup.venv is not None:
        yield f"source {quoted(setup.venv + '/bin/activate')} || exit"
    yield from setup.lines


def _checks(script: JobScript) -> Iterator[str]:
    for name in script.programs:
        word = quoted(name)
        yield f"command -v {word} >/dev/null ||"
        yield (
            f'  {{ echo "weigh: not found on $(hostname):" {word} >&2; '
            f"exit {_NOT_FOUND}; }}"
        )
    setup = script.setup
    if script.wanted.gpus and (setup.conda or setup.venv):
        yield f"python -c {quoted(_TORCH)} ||"
        yield (
            '  { echo "weigh: torch sees no GPU on $(hostname)" >&2; '
            f"exit {_NO_GPU}; }}"
        )


def tasks_command(script: JobScript) -> str:
    """Write the line that runs the tasks of ``$element`` of ``$plan``."""
    log, tasks = '"$plan/log/tasks_$element.joblog"', '"$plan/tasks_$element.txt"'
    if script.runner == "parallel":
        return f"parallel --jobs {script.together} --resume --joblog {log} <{tasks}"
    limit = script.wanted.time_limit
    until = "" if limit is None else f' --time-limit "$(({limit} - SECONDS))"'
    return (
        f"{quoted(script.python)} -m weigh exec --jobs {script.together} "
        f"--grace {GRACE}{until} --joblog {log} {tasks}"
    )
