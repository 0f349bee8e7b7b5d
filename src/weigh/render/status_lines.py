"""Text and JSON of ``weigh status``: tasks by state, failures, what waits and why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from weigh.model.job import ACTIVE, SubmittedJob
from weigh.model.record import State
from weigh.render.columns import TableColumn, table_lines
from weigh.render.printable import WIDTH, indented_json, printable_text, shortened_text
from weigh.render.progress_lines import ExpectedEnd, ends_lines
from weigh.render.request_lines import named_lines
from weigh.render.submit_lines import start_time_text
from weigh.render.words import STATE_WORDS
from weigh.schedulers.words import format_ranges
from weigh.units import MINUTE, Seconds, count_with_noun, format_duration

SCHEMA = "weigh.status/1"
_MOST_FAILURES = 5  # groups of failures with the same reason
_INDENT = " " * 13  # as wide as the titles
_WORDS = {**STATE_WORDS, "COMPLETED": "done"}


class HealingRound(msgspec.Struct, frozen=True):
    """A job of a later round: how many tasks run again, and why."""

    round: int
    tasks: int
    reason: str
    jobs: tuple[str, ...]  # ids


class HealingState(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds that healing has sent, and what it does next.

    ``healer`` is the last healer, in this ``state``. ``stopped`` is why there is no
    further round, with the tasks ``left`` by cause. ``goes_on``: elements wait or run;
    ``words`` is the last line that the healer printed.
    """

    rounds: tuple[HealingRound, ...] = ()
    healer: str | None = None  # id of its job; None: there is none
    state: State | None = None  # None: no healer
    stopped: str | None = None  # None: healing may go on
    left: dict[str, int] = {}
    goes_on: bool = False
    words: str | None = None

    @property
    def is_active(self) -> bool:
        """Return whether a healer will still decide on a further round."""
        return self.stopped is None and self.state in ACTIVE


class TaskFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A task that did not succeed; ``words`` is the line that states why.

    ``more`` are further lines: where it was raised, or what a script printed behind it.
    """

    task: int
    state: State
    reason: str | None = None
    words: str | None = None
    more: tuple[str, ...] = ()
    output: str | None = None


class WaitingElements(msgspec.Struct, frozen=True):
    """A number of elements that wait, or are unknown, for the same reason.

    ``since`` is when they were submitted, ``expected`` when the scheduler expects the
    first to start, in seconds since the epoch.
    """

    elements: int
    reason: str
    hopeless: bool = False  # it can never start
    since: Seconds | None = None  # None: not known
    expected: Seconds | None = None  # None: the scheduler makes no forecast


class NeededJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another one needs: ``words`` are the states of its unfinished tasks.

    ``ids`` are what the other one hangs on, empty if the job ``is_done``, or cannot
    succeed as things are (``is_blocked``). ``has_failed``: a task has.
    """

    name: str  # of the plan or job
    job: str  # id
    ids: tuple[str, ...] = ()
    words: str = ""
    is_done: bool = False
    is_blocked: bool = False
    has_failed: bool = False


class JobStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job and those that resumed it; ``job`` is the latest of them.

    ``asked`` is when the scheduler reported it, in seconds since the epoch; ``trouble``
    is why a later query failed, ``accounting`` why accounting does not answer.
    ``unknown`` are elements whose state is unknown, ``cancelling`` counts elements that
    weigh cancelled and that have not ended yet. ``healing`` is None without a healer.
    ``unsent`` tasks are of a part that the scheduler refused. ``needs`` are the jobs
    that have to succeed before it starts; ``way_out`` is the command that runs what is
    left.
    ``doubt`` is a task that is done though its output ends in an error.
    """

    job: SubmittedJob
    jobs: tuple[str, ...]
    tasks: Mapping[State, int]
    elements: Mapping[State, int]
    total: int
    failures: tuple[TaskFailure, ...] = ()
    waiting: tuple[WaitingElements, ...] = ()
    ends: ExpectedEnd | None = None
    asked: Seconds = 0.0
    trouble: str | None = None
    accounting: str | None = None
    unknown: tuple[WaitingElements, ...] = ()
    cancelling: int = 0
    healing: HealingState | None = None
    unsent: int = 0
    needs: tuple[NeededJob, ...] = ()
    way_out: str | None = None
    doubt: str | None = None

    @property
    def is_over(self) -> bool:
        """Return whether no task runs or waits, and no healer may send one again."""
        # the healer decides after all elements have ended, and may send a new round
        if self.healing is not None and self.healing.is_active and not self.is_done:
            return False
        # an unknown state may still change, once accounting answers
        return not any(
            self.tasks.get(state) for state in ("PENDING", "RUNNING", "UNKNOWN")
        )

    @property
    def is_stuck(self) -> bool:
        """Return whether nothing runs and what waits can never start."""
        runs = self.tasks.get("RUNNING") or self.tasks.get("UNKNOWN")
        return not runs and bool(self.waiting) and all(w.hopeless for w in self.waiting)

    @property
    def is_done(self) -> bool:
        """Return whether every task succeeded."""
        return self.tasks.get("COMPLETED", 0) == self.total


def detail_lines(job_standing: JobStanding, current_time: Seconds) -> Iterator[str]:
    """Write the details of one job."""
    ids = " -> ".join(job_standing.jobs)
    name = printable_text(job_standing.job.name)
    counts = _task_counts_text(job_standing)
    headline = f"  {name} {ids}   {counts}"
    if len(headline) <= WIDTH:
        yield headline
    else:
        yield shortened_text(f"  {name} {ids}", WIDTH)
        yield from named_lines("", counts, name_width=0)
    if job_standing.ends is not None and not job_standing.is_over:
        yield from (f"    {line}" for line in ends_lines(job_standing.ends, WIDTH - 4))
    if job_standing.healing is not None:
        for title, text in healing_rows(job_standing.healing, job_standing.jobs[-1]):
            # the counts say that all tasks are done
            if title != "stopped" or not job_standing.is_done:
                yield from named_lines(title, text)
    yield from _failure_group_lines(job_standing.failures, job_standing.job.unit)
    for title, text in _rows_below_failures(job_standing, current_time):
        yield from named_lines(title, text)
    yield from next_command_lines(job_standing.way_out)
    yield from _status_warning_lines(job_standing, current_time)


def _rows_below_failures(
    job_standing: JobStanding, current_time: Seconds
) -> Iterator[tuple[str, str]]:
    if job_standing.doubt:
        yield "note", f"{job_standing.job.unit} {job_standing.doubt}"
    if job_standing.cancelling:
        elements = count_with_noun(job_standing.cancelling, "element")
        yield "cancel", f"{elements} being cancelled"
    for unknown in job_standing.unknown:
        elements = count_with_noun(unknown.elements, "element")
        yield "unknown", f"{elements}: {unknown.reason}"
    for need in job_standing.needs:
        yield "after", f"{need.name} (job {need.job}): {need.words}"
    yield from _waiting_entries(job_standing, current_time)


def _waiting_entries(
    job_standing: JobStanding, current_time: Seconds
) -> Iterator[tuple[str, str]]:
    """Yield what waits, and for what."""
    if job_standing.unsent:
        yield "waiting", f"{count_with_noun(job_standing.unsent, 'task')}, not sent"
    for wait in job_standing.waiting:
        if wait.hopeless and job_standing.needs:
            continue  # it can start once what it needs was resumed
        text = f"{count_with_noun(wait.elements, 'element')}: {wait.reason}"
        yield "waiting", text + _waiting_times_text(wait, current_time)


def _waiting_times_text(wait: WaitingElements, current_time: Seconds) -> str:
    """Write since when they wait, and when the first is expected to start."""
    words = []
    if wait.since is not None and current_time - wait.since >= MINUTE:
        words.append(f"for {format_duration(current_time - wait.since)}")
    if wait.expected is not None and wait.expected > current_time and not wait.hopeless:
        at = start_time_text(wait.expected, current_time)
        words.append(f"expected to start {at}")
    return f" ({', '.join(words)})" if words else ""


def list_lines(
    standings: Sequence[JobStanding], current_time: Seconds
) -> Iterator[str]:
    """Write one line per job."""
    columns = (
        TableColumn("job", lambda one: one.jobs[-1], right=False),
        TableColumn(
            "name", lambda one: printable_text(one.job.name), right=False, flexible=True
        ),
        TableColumn("on", lambda one: one.job.scheduler, right=False, drop=1),
        TableColumn(
            "submitted", lambda one: _age_text(current_time - one.job.submitted), drop=2
        ),
        TableColumn("tasks", _task_counts_text, right=False),
    )
    titles, *rows = table_lines(standings, columns)
    yield titles
    for row, one in zip(rows, standings, strict=True):
        yield row
        for title, text in _waiting_entries(one, current_time):
            yield from named_lines(title, text)
    # one warning for all jobs of a scheduler that does not answer
    troubles = {one.trouble: one for one in standings if one.trouble}
    for one in troubles.values():
        yield from _status_warning_lines(one, current_time)


def _age_text(seconds: Seconds) -> str:
    return f"{format_duration(max(0.0, seconds))} ago"


def status_json(standings: Sequence[JobStanding]) -> str:
    """Write the jobs as one JSON document."""
    return indented_json({"schema": SCHEMA, "jobs": standings})


def _task_counts_text(job_standing: JobStanding) -> str:
    parts = [
        f"{number:,} {word}"
        for state, word in _WORDS.items()
        if (number := job_standing.tasks.get(state, 0))
    ]
    total = count_with_noun(job_standing.total, job_standing.job.unit)
    return f"{total}: {', '.join(parts) or 'none'}"


def _failure_group_lines(failures: Sequence[TaskFailure], noun: str) -> Iterator[str]:
    """Yield the failures; those with the same reason as one, with the first output."""
    alike: dict[str, list[TaskFailure]] = {}
    for one in failures:
        reason = one.reason or one.state.lower().replace("_", " ")
        words = f": {one.words}" if one.words else ""
        # one line for all tasks with the same reason
        alike.setdefault(f"{reason}{words}", []).append(one)
    room = WIDTH - len(_INDENT)
    for why, same in [*alike.items()][:_MOST_FAILURES]:
        tasks = format_ranges([one.task for one in same])
        whose = f"{noun} {tasks}" if len(same) == 1 else f"{noun}s {tasks}"
        text = printable_text(f"{whose}  {why}")
        # an interrupted task did not fail: it waits to be resumed
        title = "left" if same[0].state == "INTERRUPTED" else "failed"
        yield f"    {title:<9}{shortened_text(text, room)}"
        for line in same[0].more:
            yield f"{_INDENT}{shortened_text(printable_text(line), room)}"
        if output := next((one.output for one in same if one.output), None):
            yield f"{_INDENT}{printable_text(output)}"
    shown = sum(map(len, [*alike.values()][:_MOST_FAILURES]))
    more = len(failures) - shown
    if more > 0:
        yield f"{_INDENT}and {more:,} more (--json has them all)"


def next_command_lines(way_out: str | None) -> Iterator[str]:
    """Write the command that runs what is left, if there is one."""
    if way_out is not None:
        title = "fixed?" if way_out.endswith(" --also bugs") else "next"
        yield f"    {title:<9}{printable_text(way_out)}"


def _status_warning_lines(
    job_standing: JobStanding, current_time: Seconds
) -> Iterator[str]:
    if job_standing.trouble:
        asked = job_standing.asked
        when = f"{format_duration(current_time - asked)} ago" if asked else "never"
        text = f"{job_standing.trouble} (last answer: {when})"
        yield from named_lines("warning", text)
    # the rows of unknown elements give accounting as their reason already
    if job_standing.accounting and not job_standing.unknown:
        text = f"accounting does not answer: {job_standing.accounting}"
        yield from named_lines("warning", text)


def round_words(rounds: Iterable[HealingRound]) -> Iterator[str]:
    """Yield how many tasks each job runs again, and why."""
    for sent in rounds:
        yield f"{count_with_noun(sent.tasks, 'task')} {sent.reason}"


def healing_rows(healing_state: HealingState, job_id: str) -> Iterator[tuple[str, str]]:
    """Yield titles and texts; *job_id* is the last one of the plan."""
    for number in dict.fromkeys(sent.round for sent in healing_state.rounds):
        ours = (sent for sent in healing_state.rounds if sent.round == number)
        yield f"round {number}", "; ".join(round_words(ours))
    healer = f"job {healing_state.healer}"
    if healing_state.stopped is not None:
        left = healing_state.left.items()
        causes = "; ".join(f"{count_with_noun(n, 'task')}: {why}" for why, n in left)
        yield "stopped", healing_state.stopped + (f": {causes}" if causes else "")
    # in this state the job runs weigh resume --heal just now
    elif healing_state.state == "RUNNING":
        yield "heals", f"{healer} decides on the next round"
    elif healing_state.state == "PENDING" and healing_state.healer is not None:
        yield "heals", f"{healer} follows when all elements have ended"
    elif healing_state.state == "CANCELLED":
        yield "heals", f"{healer} was cancelled"
    else:
        what = "follows" if healing_state.goes_on else "sent the next round"
        last = f" ({healer}: {healing_state.words or 'ended'})"
        was = last if healing_state.healer else ""
        yield "heals", f"no healer {what}{was}: weigh resume --heal {job_id}"
