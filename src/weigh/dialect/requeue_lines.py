"""Bash that puts a job back into its queue when its time is over, while it gets on.

It has got on when more of its tasks have ended than after the run before, or when they
printed a line that no run has printed. A program that begins anew each time prints what
it has printed already: numbers with a point, times and dates are left out of account,
for they differ from run to run.
"""

from collections.abc import Iterator

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
