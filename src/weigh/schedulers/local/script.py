"""A job script for this machine, which runs a few elements at a time.

``bash job.sh`` runs all elements. They run in the background while the shell waits, so
that a signal to it reaches the tasks.
"""

from collections.abc import Iterator
from shlex import quote as quoted

from weigh.model.job import JobScript
from weigh.schedulers.job_script import (
    ON_SIGNAL,
    SHEBANG,
    WAIT,
    ScriptRules,
    announce,
    at_exit,
    check_needs,
    heading,
    setup_lines,
    tasks_command,
)

JOB = "WEIGH_JOB_ID"
FOLDER = "local"  # in the store: one folder per job
CANCELLED = "cancelled"  # there: the job is; with _N: its element N alone
ELEMENT = "element"  # there, with _N: the process of element N
AWAITED = "awaited"  # there: the ids of the jobs that it waits for, once changed
# a local job is never requeued; its shell may itself run inside a job of Slurm
RULES = ScriptRules(
    job_id="$job",
    requeue="",
    forget="${SLURM_RESTART_COUNT:+--forget-survivors}",
    checks_needs=True,
)
_LONGEST_WAIT = 1  # seconds between checks of a job to wait for


def local_script(job_script: JobScript) -> str:
    """Return the script; ``WEIGH_JOB_ID`` is the job id in the names of its logs."""
    return "\n".join(
        (SHEBANG, *heading(job_script), "", *_local_body_lines(job_script))
    )


def local_log_name(job_id: str, element: int, *, is_array: bool) -> str:  # noqa: ARG001
    """Return the name of an element's log."""
    return f"{job_id}_{element}.out"


def _local_body_lines(job_script: JobScript) -> Iterator[str]:
    at_once = job_script.request.throttle or 1
    yield f"export WEIGH_DIR={quoted(job_script.store)}"
    yield f"cd {quoted(job_script.cwd)} || exit"
    yield f"plan={quoted(job_script.folder)}"
    yield f"job=${{{JOB}:-here}}"
    yield f'own="$WEIGH_DIR/{FOLDER}/$job"'
    yield from announce(job_script, "$job")
    yield from _wait_for_jobs_lines(
        job_script
    )  # the job that it waits for may make the environment
    yield from setup_lines(job_script)
    yield ""
    yield from _notify_function_lines(job_script)
    yield "element() {"
    *_, trap = at_exit(job_script, RULES.job_id)
    yield f"  {trap}"
    beyond = f"$(($1 + {job_script.first}))" if job_script.first else "$1"
    yield f"  element={beyond} SECONDS=0"
    yield from _local_task_lines(job_script)
    yield "}"
    yield ""
    yield "# one element after the other, or a few at a time"
    yield "ended= worst=0"
    yield "trap 'ended=1 again=1; kill -TERM $(jobs -p) 2>/dev/null' TERM INT HUP"
    yield f"for number in {{0..{job_script.elements - 1}}}; do"
    yield f'  while [ "$(jobs -pr | wc -l)" -ge {at_once} ]; do wait -n; done'
    yield '  [ -z "$ended" ] || break'
    yield f'  [ ! -e "$own/{CANCELLED}_$number" ] || continue'
    yield '  element "$number" >"$plan/log/${job}_$number.out" 2>&1 &'
    yield "  all+=($!)"
    yield f'  [ ! -d "$own" ] || echo $! >"$own/{ELEMENT}_$number"'
    yield "done"
    yield 'for tasks in "${all[@]}"; do'
    yield "  again=1"
    yield f"  {WAIT}"
    yield '  [ "$code" -le "$worst" ] || worst=$code'
    yield "done"
    yield 'exit "$worst"\n'


def _notify_function_lines(job_script: JobScript) -> Iterator[str]:
    """Yield the function that an element calls at its end, if it notifies."""
    *function, _ = at_exit(job_script, RULES.job_id)
    yield from (line for line in function if line != "plan= requeued=")


def _local_task_lines(job_script: JobScript) -> Iterator[str]:
    if job_script.staging is not None:
        yield job_script.staged.rstrip("\n")
        return
    yield from (f"  {line}" for line in ON_SIGNAL)
    yield f"  {tasks_command(job_script, RULES)} &"
    yield "  tasks=$!"
    yield f"  {WAIT}"
    yield '  exit "$code"'


def _wait_for_jobs_lines(job_script: JobScript) -> Iterator[str]:
    """Yield the lines that wait for other local jobs; each writes an exit code file.

    What the job waits for may change meanwhile: then a file in its folder has the ids.
    """
    request = job_script.request
    ids = " ".join((*request.after, *request.after_end))
    if not ids:
        return
    yield ""
    yield "# after other jobs; kill -0 finds a zombie, which has ended"
    yield f'jobs="$WEIGH_DIR/{FOLDER}"'
    yield "awaited() {"
    yield f'  cat "$jobs/$job/{AWAITED}" 2>/dev/null || echo {quoted(ids)}'
    yield "}"
    yield "have_ended() {"
    yield "  for before; do"
    yield '    [ -e "$jobs/$before/exit" ] ||'
    yield '      { gone=$(cat "$jobs/$before/pid") &&'
    yield '        ! kill -0 "$gone" 2>/dev/null; } ||'
    yield "      return 1"
    yield "  done"
    yield "}"
    yield "until"
    yield "  these=$(awaited)"
    yield '  have_ended $these && [ "$these" = "$(awaited)" ]'
    yield "do"
    yield f"  sleep {_LONGEST_WAIT}"
    yield "done"
    yield from check_needs(job_script, RULES)
