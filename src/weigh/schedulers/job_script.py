"""The body of a job script, the same under every scheduler: plain bash.

Every name from outside stands in quotes, so that bash takes it for that name whatever
is in it. The tasks run in the background and the shell waits for them: bash runs a trap
at once while it waits, and only after a command in the foreground has ended.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from shlex import quote as quoted

from weigh.model.job import JobRequest, JobScript, Setup
from weigh.model.record import Request
from weigh.model.staging import Staging

SHEBANG = "#!/bin/bash"
ENDED = "weigh: exit code"  # the log's last line begins so
ANNOUNCED = "id"  # a link that names the job, made by its first element
JOB_IDS = {
    "slurm": "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}",
    "gridengine": "$JOB_ID",
}
HOME = ".home"  # the joblog as it was when the results of its tasks had come home
GRACE = 20  # seconds; Slurm and Grid Engine kill 30 or 60 after they have told
NEAR = "the time limit is near"  # weigh exec and the scripts report it in these words
# once: a second TERM has weigh exec kill them, and Slurm is known to send two
TOLD = (
    "told() {",
    f'  [[ $1 != USR1 && $1 != XCPU ]] || echo "weigh: {NEAR}" >&2',
    "  by=${by:-$1}",
    '  [ -n "$tasks" ] || exit 143',
    '  [ -n "$ending" ] || kill -TERM "$tasks" 2>/dev/null',
    "  ending=1 again=1",
    "}",
    "tasks= ending= again=1 by=",
    *(f"trap 'told {name}' {name}" for name in ("TERM", "INT", "USR1", "USR2", "XCPU")),
)
# a trap ends `wait`: bash still knows the exit code when it is asked again
WAIT = 'until [ -z "$again" ]; do again=; wait "$tasks"; code=$?; done'
_JOBLOG = 'joblog="$plan/log/tasks_$element.joblog"'
# put back after its node was lost: what ran there runs no more
_FORGET = "${SLURM_RESTART_COUNT:+--forget-survivors}"
_FORGET_RESTARTED = '$([ "${RESTARTED:-0}" = 0 ] || echo --forget-survivors)'
# it does not say which GPUs are the job's: weigh exec takes idle ones, unless the site
# has named some; without a driver there is nothing to choose from
_TAKE_GPUS = "$([ ! -e /dev/nvidiactl ] || echo --gpus {})"


def render(
    directives: Iterable[str],
    script: JobScript,
    *,
    element: str,
    log: str | None,
    scheduler: str,
) -> str:
    """Write a whole script: *directives*, then what one element does.

    *element* is bash for the number of the element, from 0; *log* is bash for the name
    of its log, where no directive can name it.
    """
    lines = [SHEBANG, *directives, *heading(script), ""]
    if log is not None:
        lines.append(f"exec >{quoted(script.log)}/{log} 2>&1")
    return "\n".join((*lines, *_body(script, element, scheduler)))


def request_of(wanted: JobRequest) -> Request:
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


def _body(script: JobScript, element: str, scheduler: str) -> Iterator[str]:
    """Write what one element does; the last line ends in a newline."""
    how = HOW[scheduler] if script.requeue else None
    yield f"trap 'echo \"{ENDED} $?\"' EXIT"
    yield f"export WEIGH_DIR={quoted(script.store)}"
    yield f"cd {quoted(script.cwd)} || exit"
    yield f"plan={quoted(script.folder)}"
    yield from announce(script, JOB_IDS[scheduler])
    yield f"element={element}"
    yield from _needed(script)
    yield from setup_lines(script)
    yield ""
    if script.staging is not None:
        yield script.staged
        return
    yield "# the tasks: a signal that ends this job is passed on to them at once"
    yield from TOLD
    yield f"{tasks_command(script, scheduler)} &"
    yield "tasks=$!"
    yield WAIT
    yield from requeue_lines(how) if how else ()
    if script.gate:
        yield script.gate
    yield 'exit "$code"\n'


def announce(script: JobScript, job_id: str) -> Iterator[str]:
    """Write the line by which a job leaves its id in the folder of its submission.

    Whoever got no answer from the scheduler finds it there, even after its end.
    """
    if script.sent:
        yield f'ln -s -- "{job_id}" {quoted(script.sent)}/{ANNOUNCED} 2>/dev/null'


def _needed(script: JobScript) -> Iterator[str]:
    """Write what ends a job whose scheduler began it after a failure."""
    for log in script.needs:
        yield f"grep -qx '{ENDED} 0' {quoted(log)} ||"
        yield (
            '  { echo "weigh: the job before it failed:" '
            f"{quoted(log)} >&2; exit 1; }}"
        )


def heading(script: JobScript) -> Iterator[str]:
    """Say in comments what the script is."""
    alone = script.together == 1
    tasks = "1 task" if alone else f"up to {script.together} tasks side by side"
    elements = f"{script.elements} elements of " if script.is_array else ""
    yield ""
    yield f"# {elements}{tasks}; written by weigh {script.version}."
    yield "# It is yours to edit: nothing reads it but the scheduler."


def tasks_command(script: JobScript, scheduler: str) -> str:
    """Write the line that runs the tasks of ``$element`` of ``$plan``."""
    log, tasks = '"$plan/log/tasks_$element.joblog"', '"$plan/tasks_$element.txt"'
    if script.tasks:
        tasks = f'{quoted(script.tasks)}/"tasks_$element.txt"'
    grace = GRACE if script.staging is None else script.staging.grace
    if script.runner == "parallel":
        ends = f"--termseq TERM,{grace * 1000},KILL,25"
        return (
            f"parallel --jobs {script.together} --resume {ends} \\\n"
            f"  --joblog {log} <{tasks}"
        )
    limit = script.request.time_limit
    until = "" if limit is None else f' --time-limit "$(({limit} - SECONDS))s"'
    if limit is not None and warning(script) is not None:
        until = f' --time-limit "$(({limit - _reserve(script)} - SECONDS))s"'
    own = " ".join(_own_flags(script, scheduler))
    return (
        f"{quoted(script.python)} -m weigh exec --jobs {script.together} "
        f"--grace {grace}{until} \\\n  {own} \\\n  --joblog {log} {tasks}"
    )


def _own_flags(script: JobScript, scheduler: str) -> Iterator[str]:
    """Write what weigh exec has to be told under one scheduler only."""
    if scheduler != "gridengine":
        yield _FORGET
        return
    yield _FORGET_RESTARTED
    if script.request.gpus:
        yield _TAKE_GPUS.format(script.request.gpus)


def staged_lines(script: JobScript, scheduler: str = "slurm") -> str:
    """Write the lines that run the tasks of an element whose results are staged out."""
    lines = (
        *bind_lines(script.setup),
        *program_checks(filter(is_relative, script.programs), script.setup),
        "# of what an earlier attempt did only what came home counts",
        _JOBLOG,
        '[ ! -e "$joblog" ] || mv -f -- "$joblog" "$joblog.before"',
        f'[ ! -e "$joblog{HOME}" ] || cp -- "$joblog{HOME}" "$joblog"',
        tasks_command(script, scheduler),
    )
    return "\n".join(lines)


def when_home() -> str:
    """Write the lines that keep which tasks are done, once their results are home."""
    lines = (
        _JOBLOG,
        '[ -e "$joblog" ] || return 0',
        f'cp -- "$joblog" "$joblog.new" && mv -f -- "$joblog.new" "$joblog{HOME}"',
    )
    return "\n".join(lines)


def warning(script: JobScript) -> int | None:
    """Give how many seconds before the limit the scheduler is to warn, if it is.

    weigh exec ends the tasks itself before a limit that is known; the warning is for
    those that do not end.
    """
    if script.staging is None and not script.requeue:
        return None
    if script.request.time_limit is None or script.runner == "parallel":
        return _reserve(script)
    return max(1, _reserve(script) // 2)


def _reserve(script: JobScript) -> int:
    """Give the seconds before the limit that are for what comes after the tasks."""
    staging = Staging() if script.staging is None else script.staging
    limit = script.request.time_limit
    most = staging.warn_time
    return most if limit is None else min(most, limit // 4)


_UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h
_NOT_FOUND = 127
_PYTHON = re.compile(r"python[0-9.]*")
_TORCH = (
    'import sys, importlib.util as u; t = u.find_spec("torch") and '
    '__import__("torch"); sys.exit(bool(t) and not t.cuda.is_available())'
)
_IMPORTS = """\
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        sys.exit(f"weigh: {sys.executable} cannot import {name}: {error}")"""
WITHIN = '"$container"'
_FOLDER = '"$plan/log/container.$HOSTNAME"'


def setup_lines(script: JobScript) -> Iterator[str]:
    """Write what makes the environment of the tasks, and sees that it is there."""
    made = (*_environment(script.setup), *_container(script))
    checks = tuple(_checks(script)) if script.setup.checks else ()
    if made:
        yield ""
        yield "# the environment of the tasks"
        yield from made
    if checks:
        yield ""
        yield "# what is missing is said before anything runs"
        yield from checks


def is_relative(name: str) -> bool:
    """Say whether a program is looked for in the folder that its task runs in."""
    return "/" in name and not name.startswith("/")


def bind_lines(setup: Setup) -> Iterator[str]:
    """Write what lets the container see inputs that were staged in for all tasks."""
    if setup.container is not None:
        yield 'export APPTAINER_BIND="${APPTAINER_BIND:+$APPTAINER_BIND,}$shared"'
        yield 'export SINGULARITY_BIND="${SINGULARITY_BIND:+$SINGULARITY_BIND,}$shared"'


def program_checks(names: Iterable[str], setup: Setup) -> Iterator[str]:
    """Write what ends the job where one of these programs is not there."""
    for name in names:
        word = quoted(name)
        if setup.container is None:
            yield f"command -v {word} >/dev/null ||"
        else:
            yield f"{WITHIN} -c 'command -v \"$1\"' - {word} >/dev/null ||"
        where = "on $(hostname)" if setup.container is None else "in the container"
        yield f'  {{ echo "weigh: not found {where}:" {word} >&2; exit {_NOT_FOUND}; }}'


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


def _container(script: JobScript) -> Iterator[str]:
    """Write a bash that runs inside the container: each task is started by it.

    BASH_ENV has weigh exec start every task by a bash, GNU parallel knows
    PARALLEL_SHELL; the folder that tasks run in is there inside as well.
    """
    image = script.setup.container
    if image is None:
        return
    gpu = " --nv" if script.request.gpus else ""
    yield "runs=$(command -v apptainer || command -v singularity) || {"
    yield '  echo "weigh: neither apptainer nor singularity on $(hostname)" >&2'
    yield f"  exit {_NOT_FOUND}"
    yield "}"
    if not image.partition("://")[1]:
        yield f"[ -e {quoted(image)} ] || {{"
        yield f'  echo "weigh: no container on $(hostname):" {quoted(image)} >&2'
        yield f"  exit {_UNAVAILABLE}"
        yield "}"
    yield f"mkdir -p {_FOLDER} || exit"
    yield f"container={_FOLDER}/bash"
    yield (
        f'printf \'#!/bin/bash\\nexec %q exec{gpu} --bind "$PWD" %q /bin/bash '
        f'"$@"\\n\' "$runs" \\'
    )
    yield f'  {quoted(image)} >"$container.$$" && chmod 755 "$container.$$" &&'
    yield '  mv -f -- "$container.$$" "$container" || exit'
    yield f'export PATH={_FOLDER}:"$PATH" PARALLEL_SHELL="$container" BASH_ENV='


def _checks(script: JobScript) -> Iterator[str]:
    setup = script.setup
    staged = script.staging is not None
    here = [name for name in script.programs if not (staged and is_relative(name))]
    yield from program_checks(here, setup)
    python = _python(script)
    if setup.imports:
        yield f"{_run(python or 'python', _IMPORTS, setup)} \\"
        yield f"  {' '.join(map(quoted, setup.imports))} || exit {_UNAVAILABLE}"
    if script.request.gpus and python is not None:
        yield f"{_run(python, _TORCH, setup)} ||"
        yield (
            '  { echo "weigh: torch sees no GPU on $(hostname)" >&2; '
            f"exit {_UNAVAILABLE}; }}"
        )


def _run(python: str, program: str, setup: Setup) -> str:
    if setup.container is None:
        return f"{quoted(python)} -c {quoted(program)}"
    return f'{WITHIN} -c \'"$0" -c "$@"\' {quoted(python)} {quoted(program)}'


def _python(script: JobScript) -> str | None:
    """Give the Python that tasks begin with, or the one of their environment."""
    setup = script.setup
    for name in script.programs:
        if _PYTHON.fullmatch(posixpath.basename(name)):
            staged_in = script.staging is not None and is_relative(name)
            return None if staged_in else name
    return "python" if setup.conda or setup.venv else None


AGAIN = 99  # Grid Engine puts back what ends so; here no task of weigh exec ends so
MOST_RUNS = 100  # in a row, without the end of a task
# weigh exec was sent TERM, or itself got the scheduler's USR1 or XCPU
_TOLD_TO_END = "143|138|152"
_TIMES = r"s/[0-9]+(:[0-9]+)+(\.[0-9]+)?//g; s/[0-9]+-[0-9]+-[0-9]+//g"
_REAL_NUMBERS = r"s/[0-9]*\.[0-9]+(e[-+]?[0-9]+)?//g"
_OWN_ELEMENT = "${SLURM_ARRAY_JOB_ID:+_$SLURM_ARRAY_TASK_ID}"
# of an array the last element's own id is the whole array's
_REQUEUE = f'scontrol requeue "${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}{_OWN_ELEMENT}"'
HOW = {"slurm": _REQUEUE, "gridengine": f"code={AGAIN}"}


def requeue_lines(how: str) -> Iterator[str]:
    """Write what comes after the tasks, which ended with ``$code``.

    ``$by`` is the signal that ended them, nothing where weigh exec saw to it before the
    time limit; *how* is the bash that puts the job back.
    """
    yield "# out of time: once more, as long as it gets on"
    yield "gets_on() {"
    yield '  local joblog="$plan/log/tasks_$element.joblog" ended=0 lines runs=0'
    yield "  local ended_before=-1 lines_before=-1"
    yield '  [ ! -e "$joblog" ] || ended=$(wc -l <"$joblog")'
    yield '  lines=$(cat "${joblog%.joblog}.out"/*.out 2>/dev/null | tr "\\r" "\\n" |'
    yield f"    sed -E -e '{_TIMES}' \\"
    yield f"      -e '{_REAL_NUMBERS}' |"
    yield "    LC_ALL=C sort -u | wc -l)"
    yield '  [ ! -e "$joblog.runs" ] ||'
    yield '    read -r ended_before lines_before runs <"$joblog.runs"'
    yield '  [ "$ended" -gt "$ended_before" ] && runs=0'
    yield '  echo "$ended $lines $((runs + 1))" >"$joblog.runs" || return'
    yield f'  [ "$runs" -lt {MOST_RUNS} ] || return'
    yield '  [ "$ended" -gt "$ended_before" ] || [ "$lines" -gt "$lines_before" ]'
    yield "}"
    yield f"if [[ $code =~ ^({_TOLD_TO_END})$ && $by =~ ^(USR1|XCPU|)$ ]]; then"
    yield "  if gets_on; then"
    yield '    echo "weigh: out of time: back into the queue, to go on from here" >&2'
    yield f"    {how}"
    yield "  else"
    yield '    echo "weigh: out of time, and no further than the run before:" \\'
    yield '      "not put back into the queue (weigh resume runs what is left)" >&2'
    yield "  fi"
    yield "fi"
