"""A job script for this machine: the elements one after the other, or a few at a time.

``bash job.sh`` runs them all. The shell waits for them in the background, so that what
ends it reaches the tasks.
"""

from collections.abc import Iterator
from shlex import quote as quoted

from weigh.model.job import JobScript
from weigh.schedulers.job_script import (
    ENDED,
    SHEBANG,
    TOLD,
    WAIT,
    announce,
    heading,
    setup_lines,
    tasks_command,
)

JOB = "WEIGH_JOB_ID"
_LONGEST_WAIT = 1  # seconds between looks at a job to wait for


def local_script(script: JobScript) -> str:
    """Write the script; ``WEIGH_JOB_ID`` names the job to its logs."""
    return "\n".join((SHEBANG, *heading(script), "", *_body(script)))


def log_name(job: str, element: int, *, is_array: bool) -> str:  # noqa: ARG001
    """Name the log of an element."""
    return f"{job}_{element}.out"


def _body(script: JobScript) -> Iterator[str]:
    at_once = script.request.throttle or 1
    yield f"export WEIGH_DIR={quoted(script.store)}"
    yield f"cd {quoted(script.cwd)} || exit"
    yield f"plan={quoted(script.folder)}"
    yield f"job=${{{JOB}:-here}}"
    yield from announce(script, "$job")
    yield from setup_lines(script)
    yield from _after(script)
    yield ""
    yield "element() {"
    yield f"  trap 'echo \"{ENDED} $?\"' EXIT"
    beyond = f"$(($1 + {script.first}))" if script.first else "$1"
    yield f"  element={beyond} SECONDS=0"
    yield from _tasks(script)
    yield "}"
    yield ""
    yield "# one element after the other, or a few at a time"
    yield "ended= worst=0"
    yield "trap 'ended=1 again=1; kill -TERM $(jobs -p) 2>/dev/null' TERM INT HUP"
    yield f"for number in {{0..{script.elements - 1}}}; do"
    yield f'  while [ "$(jobs -pr | wc -l)" -ge {at_once} ]; do wait -n; done'
    yield '  [ -z "$ended" ] || break'
    yield '  element "$number" >"$plan/log/${job}_$number.out" 2>&1 &'
    yield "  all+=($!)"
    yield "done"
    yield 'for tasks in "${all[@]}"; do'
    yield "  again=1"
    yield f"  {WAIT}"
    yield '  [ "$code" -le "$worst" ] || worst=$code'
    yield "done"
    yield 'exit "$worst"\n'


def _tasks(script: JobScript) -> Iterator[str]:
    if script.staging is not None:
        yield script.staged.rstrip("\n")
        return
    yield from (f"  {line}" for line in TOLD)
    yield f"  {tasks_command(script, 'local')} &"
    yield "  tasks=$!"
    yield f"  {WAIT}"
    yield from (f"  {line}" for line in script.gate.splitlines())
    yield '  exit "$code"'


def _after(script: JobScript) -> Iterator[str]:
    """Wait for other local jobs: each keeps its exit code in a file once it ended."""
    for job in script.request.after:
        ended = quoted(f"{script.store}/local/{job}/exit")
        lives = quoted(f"{script.store}/local/{job}/pid")
        yield ""
        yield f"# after {job} has succeeded"
        yield "until gone=$(cat " + lives + ') && ! kill -0 "$gone" 2>/dev/null; do'
        yield f"  sleep {_LONGEST_WAIT}"
        yield "done"
        yield f'[ "$(cat {ended} 2>/dev/null)" = 0 ] || exit 1'
