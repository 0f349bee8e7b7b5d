"""The body of a job script, in plain bash, shared by all schedulers.

Every name that comes from outside is quoted, so that bash never interprets it. The
tasks run in the background and the shell waits for them: bash runs a trap at once
while it waits, but only after a command in the foreground has ended.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from shlex import quote as quoted

import msgspec

from weigh.errors import NOT_EXECUTABLE, NOT_FOUND
from weigh.model.element_time import GRACE, reserved_of, reserved_time
from weigh.model.job import JobRequest, JobScript, JobSetup
from weigh.model.record import Request

SHEBANG = "#!/bin/bash"
# others read these again, also in jobs that an older weigh wrote
ENDED = "weigh: exit code"  # prefix of a log's last line
ANNOUNCED = "id"  # a link to the job's id, made by its first element
HOME = ".home"  # the joblog as of the last time that results were copied back
NEAR = "the time limit is near"  # printed by weigh exec and by the scripts
# pass TERM on once: after a second one weigh exec kills its tasks, and Slurm sends two
ON_SIGNAL = (
    "on_signal() {",
    f'  [[ $1 != USR1 && $1 != XCPU ]] || echo "weigh: {NEAR}" >&2',
    "  by=${by:-$1}",
    # the signal may come between the start of the tasks and the line that notes them
    '  [ -n "$tasks" ] || [ "$!" = "$before" ] || tasks=$!',
    '  [ -n "$tasks" ] || exit 143',
    '  [ -n "$ending" ] || kill -TERM "$tasks" 2>/dev/null',
    "  ending=1 again=1",
    "}",
    "tasks= ending= again=1 by= before=$!",
    'for name in TERM INT USR1 USR2 XCPU; do trap "on_signal $name" "$name"; done',
)
# a trap interrupts `wait`; a second `wait` still returns the exit code
# "again" is set before the first round, and by the trap
# bash loses the exit code of what ends just as a trapped signal arrives, and says -1
KNOWN_CODE = '[ "$code" != -1 ] || code=143'
WAIT = f'until [ -z "$again" ]; do again=; wait "$tasks"; code=$?; done; {KNOWN_CODE}'
_JOBLOG = 'joblog="$plan/log/tasks_$element.joblog"'
# without a driver there are no GPUs to choose from
_TAKE_GPUS = "$([ ! -e /dev/nvidiactl ] || echo --gpus {})"
# where it is not installed the tasks take turns on the GPU, as without it


class ScriptRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the body of a job script contains under one scheduler only.

    ``job_id`` is bash for the id of the job, ``requeue`` bash that requeues it, and
    ``forget`` is the option of weigh exec for a job that was requeued after its node
    was lost: the tasks of that attempt are gone. ``takes_gpus``: the scheduler does not
    report a job's GPUs, so weigh exec takes idle ones. ``checks_needs``: it also starts
    a job after one that failed, so that the script checks whether it may start.
    """

    job_id: str
    requeue: str
    forget: str
    takes_gpus: bool = False
    checks_needs: bool = False


def render_job_script(
    directives: Iterable[str],
    job_script: JobScript,
    *,
    element: str,
    log: str | None,
    rules: ScriptRules,
) -> str:
    """Write a whole script: the *directives*, then the body that each element runs.

    *element* is a bash expression for the element's index, from 0; *log* is one for the
    name of its log, for a name that no directive can hold.
    """
    lines = [SHEBANG, *directives, *heading(job_script), ""]
    if log is not None:
        # from here on all output of the element is in its log
        lines.append(f"exec >{quoted(job_script.log)}/{log} 2>&1")
    return "\n".join((*lines, *_element_body_lines(job_script, element, rules)))


def request_of(wanted: JobRequest) -> Request:
    """Return the part of *wanted* that every scheduler has flags for."""
    # a job's CPUs are those of a node, a request's those of a rank
    per_node = -(-wanted.ntasks // wanted.nodes)
    return Request(
        cpus=-(-wanted.cpus // max(1, per_node)),
        memory=wanted.memory,
        virtual_memory=wanted.virtual_memory,
        time_limit=wanted.time_limit,
        headroom=0.0,  # it is in the figures already
        runs=0,
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
        site=wanted.site,
        nodes=wanted.nodes if wanted.ntasks else None,
        ntasks=wanted.ntasks or None,
        ntasks_per_node=per_node or None,
    )


def _element_body_lines(
    job_script: JobScript, element: str, rules: ScriptRules
) -> Iterator[str]:
    """Yield the lines that one element runs; the last one ends in a newline."""
    # first, so that each way out of the script below writes the log's last line
    yield from at_exit(job_script, rules.job_id)
    yield f"export WEIGH_DIR={quoted(job_script.store)}"
    # schedulers start a job where it was submitted, or in the user's home
    yield f"cd {quoted(job_script.cwd)} || exit"
    yield f"plan={quoted(job_script.folder)}"
    yield from announce(job_script, rules.job_id)
    yield f"element={element}"
    yield from check_needs(job_script, rules)
    yield from setup_lines(job_script)
    yield ""
    if job_script.staging is not None:
        yield job_script.staged
        return
    yield "# the tasks: a signal that ends this job is forwarded to them at once"
    yield from ON_SIGNAL
    yield f"{tasks_command(job_script, rules)} &"
    yield "tasks=$!"
    yield WAIT
    how = (
        rules.requeue
        if job_script.request.notify is None
        # at_exit must not count an element as ended which starts again
        else f"requeued=1; {rules.requeue}"
    )
    yield from requeue_lines(how) if job_script.requeue else ()
    yield 'exit "$code"\n'


NOTIFY_SCHEMA = "weigh.ended/1"
_NOTIFY_TIME = 20  # seconds; Slurm kills 30 s after it ended a job
_POST = (
    "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], "
    'sys.argv[2].encode(), {"Content-Type": "application/json"}), timeout=10)'
)


def at_exit(job_script: JobScript, job_id: str) -> Iterator[str]:
    """Yield the lines that write the log's last line, and notify when the job ends.

    The element that ends last notifies; a link can be made only once. A job that was
    killed without a warning (KILL, a lost node) leaves no element that could.
    """
    target = job_script.request.notify
    if target is None:
        # in single quotes: $? is that at the exit, not the present one
        yield f"trap 'echo \"{ENDED} $?\"' EXIT"
        return
    # with its quotes, as it stands in JSON; bash gets it quoted once more
    name = msgspec.json.encode(job_script.name).decode()
    event = (
        f'{{"schema": "{NOTIFY_SCHEMA}", "job": "%s", "name": %s, "elements": '
        f'{job_script.elements}, "failed": %s, "state": "%s", "host": "%s", "ended": '
        "%s}"
    )
    # a command reads the event from its input
    run = f'bash -c {quoted(target)} <<<"$event"'
    if is_url(target):
        run = (
            f'{quoted(job_script.python)} -c {quoted(_POST)} {quoted(target)} "$event"'
        )
    yield "# the element that ends last notifies, once"
    yield "at_exit() {"
    yield f'  echo "{ENDED} $1"'
    # plan is empty until the element has begun: then there is no folder to count in
    yield '  [ -n "$plan" ] && [ -z "$requeued" ] || return'
    yield f'  local job="{job_id}" state=completed failed event'
    yield '  local ended="$plan/log/.ended_$job"'
    # one file per element with its exit code: whoever sees all of them is the last
    yield '  mkdir -p "$ended" && echo "$1" >"$ended/$element" || return'
    yield '  set -- "$ended"/[0-9]*'
    yield f'  [ "$#" -ge {job_script.elements} ] || return'
    # two elements may both see all files; only one can make the link
    yield '  ln -s "$HOSTNAME" "$ended/notified" 2>/dev/null || return'
    # lines that are not 0
    yield '  failed=$(cat "$@" | grep -cvx 0)'
    yield '  [ "$failed" -eq 0 ] || state=failed'
    yield f"  event=$(printf '{event}' \\"
    yield (f'    "$job" {quoted(name)} "$failed" "$state" "$HOSTNAME" "$(date +%s)")')
    yield '  export WEIGH_JOB="$job" WEIGH_STATE="$state"'
    yield f"  timeout {_NOTIFY_TIME} {run} ||"
    yield '    echo "weigh: the notification failed" >&2'
    yield "}"
    # empty in any case: the environment of a user may have variables of these names
    yield "plan= requeued="
    yield "trap 'at_exit $?' EXIT"


def is_url(text: str) -> bool:
    """Return whether *text* is an address to post to, not a command."""
    # with a blank in it, it is a command line that begins with an address
    return text.startswith(("http://", "https://")) and not text.split()[1:]


def announce(job_script: JobScript, job_id: str) -> Iterator[str]:
    """Yield the line by which a job writes its id into the folder of its submission.

    A `weigh submit` that got no answer finds the job there, even after its end.
    """
    # empty for a script that is only shown
    if job_script.sent:
        yield announce_line(job_id, job_script.sent)


def announce_line(job_id: str, sent: str) -> str:
    """Return the line of bash by which a job writes its id into the folder *sent*."""
    return f'ln -s -- "{job_id}" {quoted(sent)}/{ANNOUNCED} 2>/dev/null'


def check_needs(job_script: JobScript, rules: ScriptRules) -> Iterator[str]:
    """Yield the lines that end a job if a job that it needs has not succeeded."""
    if not (job_script.needs and rules.checks_needs):
        return
    weigh = f"{quoted(job_script.python)} -P -m weigh"
    yield "# the scheduler starts this job also after one that failed"
    yield f"{weigh} status --succeeded {' '.join(job_script.needs)} || exit"


def heading(job_script: JobScript) -> Iterator[str]:
    """Yield the comments that describe the script."""
    if job_script.command:
        yield ""
        yield f"# written by weigh {job_script.version}"
        return
    alone = job_script.together == 1
    tasks = "1 task" if alone else f"up to {job_script.together} tasks"
    if job_script.queue:
        tasks += " at a time, the longest that is left"
    elif not alone:
        tasks += " in parallel"
    elements = f"{job_script.elements} elements of " if job_script.is_array else ""
    yield ""
    yield f"# {elements}{tasks}; written by weigh {job_script.version}."
    yield "# You may edit it: only the scheduler reads it."


def tasks_command(job_script: JobScript, rules: ScriptRules) -> str:
    """Return the line that runs the tasks of ``$element`` of ``$plan``."""
    if job_script.command:
        return job_script.command
    # expanded by bash in the job: one script serves all elements
    log, tasks = '"$plan/log/tasks_$element.joblog"', '"$plan/tasks_$element.txt"'
    if job_script.tasks:
        tasks = f'{quoted(job_script.tasks)}/"tasks_$element.txt"'
    grace = GRACE if job_script.staging is None else job_script.staging.grace
    limit = job_script.request.time_limit
    # SECONDS is bash's own clock since the script began: set-up has used up a part
    until = "" if limit is None else f' --time "$(({limit} - SECONDS))s"'
    if limit is not None and warning(job_script) is not None:
        until = f' --time "$(({limit - _reserve(job_script)} - SECONDS))s"'
    own = " ".join(_own_flags(job_script, rules))
    if job_script.queue:
        # the elements share a folder in place of a task file each
        own, tasks = f"{own} --pull", f'"$plan"/{quoted(job_script.queue)}'
    return (
        f"{quoted(job_script.python)} -P -m weigh exec --jobs {job_script.together} "
        f"--grace {grace}{until} \\\n  {own} \\\n  --joblog {log} {tasks}"
    )


def _own_flags(job_script: JobScript, rules: ScriptRules) -> Iterator[str]:
    """Yield the options of weigh exec that one scheduler or plan needs."""
    yield rules.forget
    if rules.takes_gpus and job_script.request.gpus:
        yield _TAKE_GPUS.format(job_script.request.gpus)


def staged_lines(job_script: JobScript, rules: ScriptRules) -> str:
    """Return the lines that run the tasks of an element with stage-out."""
    lines = (
        *bind_lines(job_script.setup),
        *program_checks(job_script, tuple(filter(is_relative, job_script.programs))),
        "# of an earlier attempt only the results that were copied back count",
        _JOBLOG,
        # results of an earlier attempt were on a node's disk: what was not copied is
        # lost, so its tasks run again
        '[ ! -e "$joblog" ] || mv -f -- "$joblog" "$joblog.before"',
        f'[ ! -e "$joblog{HOME}" ] || cp -- "$joblog{HOME}" "$joblog"',
        tasks_command(job_script, rules),
    )
    return "\n".join(lines)


def when_home() -> str:
    """Return the lines that save the joblog once the results are copied back."""
    lines = (
        _JOBLOG,
        '[ -e "$joblog" ] || return 0',
        # renamed: a job that is killed here leaves the old one whole
        f'cp -- "$joblog" "$joblog.new" && mv -f -- "$joblog.new" "$joblog{HOME}"',
    )
    return "\n".join(lines)


def warning(job_script: JobScript) -> int | None:
    """Return how many seconds before the time limit the scheduler has to send a signal.

    weigh exec stops the tasks itself before a known limit; the signal is for tasks
    that do not stop. None means no signal.
    """
    if not reserved_time(job_script.staging, requeue=job_script.requeue):
        return None
    if job_script.request.time_limit is None:
        return _reserve(job_script)
    # later than the end that weigh exec chooses itself, and early enough for the rest
    return max(1, _reserve(job_script) // 2)


def _reserve(job_script: JobScript) -> int:
    """Return the seconds before the time limit that are reserved for stage-out."""
    # a short limit reserves a quarter at most
    most = reserved_time(job_script.staging, requeue=job_script.requeue)
    limit = job_script.request.time_limit
    return most if limit is None else reserved_of(limit, most)


_UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h
_PYTHON = re.compile(r"python[0-9.]*")
# a GPU runs code built for its own major version up to its minor one (sm_86), or
# translates what was built for any older one (compute_80)
TORCH_CHECK = """\
import importlib.util, platform, sys
torch = importlib.util.find_spec("torch") and __import__("torch")
if torch and not torch.cuda.is_available():
    sys.exit(f"weigh: torch sees no GPU on {platform.node()}")
try:
    built = torch.cuda.get_arch_list() if torch and torch.version.cuda else []
    major, minor = torch.cuda.get_device_capability() if built else (0, 0)
    kinds = [(kind, divmod(int(number.rstrip("abcdef")), 10)) for kind, _, number
             in (name.partition("_") for name in built)]
except Exception:
    kinds = []
names = " ".join(built) if kinds else ""
if kinds and not any(wanted <= (major, minor) and (kind == "compute" or
                     wanted[0] == major) for kind, wanted in kinds):
    sys.exit(f"weigh: torch {torch.__version__} was built for {names}, and "
             f"{torch.cuda.get_device_name()} on {platform.node()} is "
             f"sm_{major}{minor}")"""
# a GPU may be used without torch: then its check is only a remark
_NO_TORCH = 'echo "weigh: no task is known to import torch: they run" >&2'
WITHIN = '"$container"'
# how the program that runs a container is found, and what to report without it
_APPTAINER = (
    "runs=$(command -v apptainer || command -v singularity)",
    "neither apptainer nor singularity",
)
_PYXIS = (
    "runs=$(command -v srun) && srun --help | grep -q container-image",
    "no srun with --container-image (Pyxis)",
)
# a step that shares all that the element has: without --cpus-per-task it has one CPU.
# srun sets CUDA_VISIBLE_DEVICES to all GPUs of the job, and a task has its own.
# https://github.com/NVIDIA/pyxis/wiki/Usage
_PYXIS_STEP = (
    '--overlap --nodes=1 --ntasks=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" '
    "--container-image=%q --container-mount-home "
    '--container-mounts="$PWD:$PWD${WEIGH_SHARED:+,$WEIGH_SHARED:$WEIGH_SHARED}" '
    '--container-workdir="$PWD" env '
    '${CUDA_VISIBLE_DEVICES+"CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"} /bin/bash'
)
# by node: each may have another of the two programs, at another path
_FOLDER = '"$plan/log/container.$HOSTNAME"'


def setup_lines(job_script: JobScript) -> Iterator[str]:
    """Yield the lines that set up the environment of the tasks and check it."""
    made = (
        *_environment_lines(job_script.setup),
        *_container(job_script),
        *_thread_lines(job_script),
    )
    checks = tuple(_checks(job_script)) if job_script.setup.checks else ()
    if made:
        yield ""
        yield "# the environment of the tasks"
        yield from made
    if checks:
        yield ""
        yield "# check for missing programs first"
        yield from checks


def _thread_lines(job_script: JobScript) -> Iterator[str]:
    """Yield the line that gives each rank the threads of its CPUs, not of the node."""
    if job_script.request.ntasks:
        # libraries count the CPUs of the node, and each rank would start that many
        # threads
        each = request_of(job_script.request).cpus
        yield f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-{each}}}"'


def is_relative(name: str) -> bool:
    """Return whether a program's path is relative to its task's working directory."""
    return "/" in name and not name.startswith("/")


def bind_lines(setup: JobSetup) -> Iterator[str]:
    """Yield the lines that bind the staged inputs into the container."""
    if setup.is_pyxis:
        yield 'export WEIGH_SHARED="$shared"'
    elif setup.container is not None:
        yield 'export APPTAINER_BIND="${APPTAINER_BIND:+$APPTAINER_BIND,}$shared"'
        yield 'export SINGULARITY_BIND="${SINGULARITY_BIND:+$SINGULARITY_BIND,}$shared"'


def program_checks(job_script: JobScript, names: Sequence[str]) -> Iterator[str]:
    """Yield the lines that name missing programs, and end the job if it has no other.

    Tasks whose program is there run; those of a misspelt one fail by themselves.
    """
    is_only = len(job_script.programs) == 1
    # of a staged job's others, some are looked for elsewhere
    is_counted = 1 < len(names) == len(job_script.programs)
    not_found = f" exit {NOT_FOUND};" if is_only else ""
    if is_counted:
        yield "missing=0"
        not_found = " missing=$((missing + 1));"
    # of several it is counted with those that are not found
    not_executable = f" exit {NOT_EXECUTABLE};" if is_only else ""
    for word in map(quoted, names):
        if job_script.setup.container is not None:
            yield f"{WITHIN} -c 'command -v \"$1\"' - {word} >/dev/null ||"
            where, shown = "in the container", word
        else:
            if "/" in word:
                yield f"[ ! -f {word} ] || [ -x {word} ] ||"
                why = f'"weigh: not executable: chmod +x" {word}'
                yield f"  {{ echo {why} >&2;{not_executable} }}"
            # in the job's own environment: modules and conda have been loaded above
            yield f"command -v {word} >/dev/null ||"
            where = "on $(hostname)"
            # of a path the system's own words: it may be there, in a closed folder
            shown = f'"$(ls -d -- {word} 2>&1)"' if "/" in word else word
        yield f'  {{ echo "weigh: not found {where}:" {shown} >&2;{not_found} }}'
    if is_counted:
        yield f'[ "$missing" -lt {len(names)} ] || exit {NOT_FOUND}'


def _environment_lines(setup: JobSetup) -> Iterator[str]:
    if setup.modules:
        # defines `module`, which a shell that is no login shell does not have
        yield "source /etc/profile"
        yield from (f"module load {quoted(name)} || exit" for name in setup.modules)
    if setup.conda is not None:
        # `conda activate` is a function that only this hook defines
        yield 'eval "$(conda shell.bash hook)" || exit'
        yield f"conda activate {quoted(setup.conda)} || exit"
    if setup.venv is not None:
        yield f"source {quoted(setup.venv + '/bin/activate')} || exit"
    yield from setup.lines


def image_as_run(image: str, *, is_pyxis: bool) -> str:
    """Return an image as its program reads it, typed as Apptainer or enroot writes it.

    ``docker://nvcr.io/nvidia/x`` is ``nvcr.io#nvidia/x`` for enroot: with a slash it
    would look for all of it in Docker's own registry. No version of Pyxis needs
    ``docker://`` (https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md).
    """
    name = image.removeprefix("docker://")
    if name == image:  # a path, or of another kind
        return image
    if not is_pyxis:
        return f"docker://{name.replace('#', '/', 1)}"
    registry, slash, path = name.partition("/")
    # the registry that enroot asks if none is named
    if registry in {"docker.io", "index.docker.io"}:
        return path
    # https://pkg.go.dev/github.com/distribution/reference: or it is a user's name
    is_registry = registry == "localhost" or bool({".", ":"} & {*registry})
    return f"{registry}#{path}" if slash and is_registry and "#" not in name else name


def _container(job_script: JobScript) -> Iterator[str]:
    """Yield the lines that write a bash wrapper which runs each task in the container.

    BASH_ENV makes weigh exec start every task with bash. The working directory is
    bound into the container.
    """
    image = job_script.setup.container
    if image is None:
        return
    gpu = " --nv" if job_script.request.gpus else ""
    begin = f'exec{gpu} --bind "$PWD" %q /bin/bash'
    find, missing = _APPTAINER
    if job_script.setup.is_pyxis:
        begin, find, missing = _PYXIS_STEP, *_PYXIS
    yield f"{find} || {{"
    yield f'  echo "weigh: {missing} on $(hostname)" >&2'
    yield f"  exit {NOT_FOUND}"
    yield "}"
    # docker://... is fetched; a plain path has to exist
    if not image.partition("://")[1]:
        yield f"[ -e {quoted(image)} ] || {{"
        yield f'  echo "weigh: no container on $(hostname):" {quoted(image)} >&2'
        yield f"  exit {_UNAVAILABLE}"
        yield "}"
    yield f"mkdir -p {_FOLDER} || exit"
    yield f"container={_FOLDER}/bash"
    yield f'printf \'#!/bin/bash\\nexec %q {begin} "$@"\\n\' "$runs" \\'
    # several elements on one node write the same file: each replaces it whole
    name = image_as_run(image, is_pyxis=job_script.setup.is_pyxis)
    yield f'  {quoted(name)} >"$container.$$" && chmod 755 "$container.$$" &&'
    yield '  mv -f -- "$container.$$" "$container" || exit'
    # from here on `bash` is the wrapper
    yield f'export PATH={_FOLDER}:"$PATH" BASH_ENV='


def _checks(job_script: JobScript) -> Iterator[str]:
    setup = job_script.setup
    staged = job_script.staging is not None
    # a relative program of a staged task is there only once its inputs are
    here = [name for name in job_script.programs if not (staged and is_relative(name))]
    yield from program_checks(job_script, tuple(here))
    python = _python(job_script)
    if job_script.request.gpus and python is not None:
        # only a task that is known to import torch must fail without a GPU
        ends = f"exit {_UNAVAILABLE}" if job_script.imports_torch else _NO_TORCH
        yield f"{_run_program_line(python, TORCH_CHECK, setup)} || {ends}"


def _run_program_line(python: str, program: str, setup: JobSetup) -> str:
    if setup.container is None:
        return f"{quoted(python)} -c {quoted(program)}"
    return f'{WITHIN} -c \'"$0" -c "$@"\' {quoted(python)} {quoted(program)}'


def _python(job_script: JobScript) -> str | None:
    """Return the Python that the tasks start with, or that of their environment."""
    setup = job_script.setup
    for name in job_script.programs:
        if _PYTHON.fullmatch(posixpath.basename(name)):
            staged_in = job_script.staging is not None and is_relative(name)
            return None if staged_in else name
    return "python" if setup.conda or setup.venv else None


# Grid Engine requeues a job with this exit code, which weigh exec never returns
AGAIN = 99
MOST_RUNS = 100  # consecutive ones in which no task has ended
# exit codes of weigh exec after TERM, after the scheduler's USR1 or XCPU, and if it
# leaves tasks in a queue because time is over
_OUT_OF_TIME = "143|138|152|124"
_TIMES = r"s/[0-9]+(:[0-9]+)+(\.[0-9]+)?//g; s/[0-9]+-[0-9]+-[0-9]+//g"
_REAL_NUMBERS = r"s/[0-9]*\.[0-9]+(e[-+]?[0-9]+)?//g"


def requeue_lines(how: str) -> Iterator[str]:
    """Yield the lines that requeue the job after its tasks ended with ``$code``.

    ``$by`` is the signal that ended them, empty if weigh exec stopped them before the
    time limit; *how* is the bash that requeues the job.
    """
    yield "# at the time limit: requeue while the job makes progress"
    yield "makes_progress() {"
    yield '  local joblog="$plan/log/tasks_$element.joblog" ended=0 lines runs=0'
    yield "  local ended_before=-1 lines_before=-1"
    yield '  [ ! -e "$joblog" ] || ended=$(wc -l <"$joblog")'
    # progress: an ended task, or lines of output that are new once times and measured
    # numbers are taken out (an epoch, not a loss)
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
    yield f"if [[ $code =~ ^({_OUT_OF_TIME})$ && $by =~ ^(USR1|XCPU|)$ ]]; then"
    yield "  if makes_progress; then"
    yield '    echo "weigh: time limit reached: requeued, to continue from here" >&2'
    yield f"    {how}"
    yield "  else"
    yield '    echo "weigh: time limit reached, no progress since the last attempt:" \\'
    yield '      "not requeued (weigh resume runs what is left)" >&2'
    yield "  fi"
    yield "fi"
