"""Text and JSON of ``weigh status``: tasks by state, failures, what waits and why."""

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.model.job import Submitted
from weigh.model.record import State
from weigh.model.report import AccountedStep
from weigh.render.columns import Column, table
from weigh.render.healing_lines import Healing, healing_rows
from weigh.render.printable import count, indented_json, printable, shortened
from weigh.render.progress_lines import Ends, ends_lines
from weigh.render.request_lines import WIDTH, folded
from weigh.render.submit_lines import moment
from weigh.render.words import STATE_WORDS, step_words
from weigh.schedulers.words import format_ranges
from weigh.units import MINUTE, Seconds, counted, format_duration

SCHEMA = "weigh.status/1"
_MOST_FAILURES = 5
_FOLDER = 20  # columns
_INDENT = " " * 13
_WORDS = {**STATE_WORDS, "COMPLETED": "done"}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A task that did not succeed; ``words`` is the line that states why."""

    task: int
    state: State
    reason: str | None = None
    words: str | None = None
    output: str | None = None


class Waiting(msgspec.Struct, frozen=True):
    """A number of elements that wait, or are unknown, for the same reason.

    ``since`` is when they were submitted, ``expected`` when the scheduler expects the
    first to start, in seconds since the epoch.
    """

    elements: int
    reason: str
    hopeless: bool = False
    since: Seconds | None = None
    expected: Seconds | None = None


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another one needs: ``words`` are the states of its unfinished tasks.

    ``ids`` are what the other one hangs on, empty if the job ``is_done``, or cannot
    succeed as things are (``is_blocked``). ``has_failed``: a task has.
    """

    name: str
    job: str
    ids: tuple[str, ...] = ()
    words: str = ""
    is_done: bool = False
    is_blocked: bool = False
    has_failed: bool = False


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job and those that resumed it; ``job`` is the latest of them.

    ``asked`` is when the scheduler reported it, in seconds since the epoch; ``trouble``
    is why a later query failed, ``accounting`` why accounting does not answer.
    ``unknown`` are elements whose state is unknown, ``cancelling`` counts elements that
    weigh cancelled and that have not ended yet. ``pulling`` are the nodes of elements
    that pull from a shared queue now, None without one; ``healing`` is None without a
    healer. ``steps`` are those of a job of one element, as accounting lists them.
    ``held`` tasks wait until the first ones of their plan have ended. ``needs`` are the
    jobs that have to succeed before it starts; ``way_out`` is the command that runs
    what is left. ``doubt`` is a task that is done though its output ends in an error.
    """

    job: Submitted
    jobs: tuple[str, ...]
    tasks: Mapping[State, int]
    elements: Mapping[State, int]
    total: int
    failures: tuple[Failure, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    ends: Ends | None = None
    asked: Seconds = 0.0
    trouble: str | None = None
    accounting: str | None = None
    unknown: tuple[Waiting, ...] = ()
    cancelling: int = 0
    pulling: tuple[str, ...] | None = None
    healing: Healing | None = None
    steps: tuple[AccountedStep, ...] = ()
    held: int = 0
    needs: tuple[Needed, ...] = ()
    way_out: str | None = None
    doubt: str | None = None

    @property
    def is_over(self) -> bool:
        """Return whether no task runs or waits, and no healer may send one again."""
        if self.healing is not None and self.healing.is_active and not self.is_done:
            return False
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


class QueuedElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the user that weigh did not submit: its elements by state."""

    scheduler: str
    job: str
    elements: Mapping[State, int]


def detail_lines(one: Standing, now: Seconds) -> Iterator[str]:
    """Write the details of one job."""
    ids = " -> ".join(one.jobs)
    name = printable(one.job.name)
    headline = f"  {name} {ids}   {_counts(one)}"
    if len(headline) <= WIDTH:
        yield headline
    else:
        yield shortened(f"  {name} {ids}", WIDTH)
        yield from (f"    {line}" for line in folded(_counts(one), WIDTH - 4))
    if one.ends is not None and not one.is_over:
        yield from (f"    {line}" for line in ends_lines(one.ends, WIDTH - 4))
    if one.pulling is not None and not one.is_over:
        yield from _entry("queue", _queue(one.pulling))
    if one.healing is not None:
        for title, text in healing_rows(one.healing, one.jobs[-1]):
            yield from _entry(title, text)
    yield from _failures(one.failures, _noun(one.job))
    yield from _remarks(one)
    if one.cancelling:
        yield from _entry(
            "cancel", f"{counted(one.cancelling, 'element')} being cancelled"
        )
    for unknown in one.unknown:
        text = f"{counted(unknown.elements, 'element')}: {unknown.reason}"
        yield from _entry("unknown", text)
    for title, text in (*_needs(one.needs), *_waiting(one, now)):
        yield from _entry(title, text)
    yield from _next(one)
    yield from _caveats(one, now)


def _remarks(one: Standing) -> Iterator[str]:
    doubt = f"{_noun(one.job)} {one.doubt}" if one.doubt else ""
    for title, words in (("note", doubt), ("steps", step_words(one.steps))):
        if words:
            yield from _entry(title, printable(words))


def _needs(needs: Sequence[Needed]) -> Iterator[tuple[str, str]]:
    """Yield the jobs that have to succeed first."""
    for need in needs:
        yield "after", f"{need.name} (job {need.job}): {need.words}"


def _waiting(one: Standing, now: Seconds) -> Iterator[tuple[str, str]]:
    """Yield what waits, and for what."""
    tasks = counted(one.held, "task")
    if one.held and one.healing is not None and one.healing.is_active:
        yield "waiting", f"{tasks}: sized and sent when the first ones have ended"
    elif one.held:
        yield "waiting", f"{tasks}, not sent"
    for wait in one.waiting:
        if wait.hopeless and one.needs:
            continue  # it can start once what it needs was resumed
        noun = "element" if wait.elements == 1 else "elements"
        text = f"{count(wait.elements)} {noun}: {wait.reason}"
        yield "waiting", text + _moments(wait, now)


def _moments(wait: Waiting, now: Seconds) -> str:
    """Write since when they wait, and when the first is expected to start."""
    words = []
    if wait.since is not None and now - wait.since >= MINUTE:
        words.append(f"for {format_duration(now - wait.since)}")
    if wait.expected is not None and wait.expected > now and not wait.hopeless:
        words.append(f"expected to start {moment(wait.expected, now)}")
    return f" ({', '.join(words)})" if words else ""


def list_lines(
    standings: Sequence[Standing],
    now: Seconds,
    others: Sequence[QueuedElsewhere] = (),
    *,
    with_folder: bool = False,
) -> Iterator[str]:
    """Write one line per job; *others* are of the user, and not from weigh."""
    columns = [
        Column("job", tuple(one.jobs[-1] for one in standings), right=False),
        Column(
            "name",
            tuple(printable(one.job.name) for one in standings),
            right=False,
            flexible=True,
        ),
        Column("on", tuple(one.job.scheduler for one in standings), right=False),
        Column(
            "submitted",
            tuple(
                f"{format_duration(max(0.0, now - one.job.submitted))} ago"
                for one in standings
            ),
            drop=1,
        ),
        Column("tasks", tuple(_counts(one) for one in standings), right=False),
    ]
    if with_folder:
        folders = tuple(printable(_shown_folder(one.job.cwd)) for one in standings)
        columns.append(Column("folder", folders, right=False))
    if standings:
        yield from (line.rstrip() for line in table(columns, WIDTH))
    for other in others:
        words = (f"{count(n)} {_WORDS[state]}" for state, n in other.elements.items())
        name = f"{printable(other.job)}  {other.scheduler}, not from weigh"
        yield f"  {name}: {', '.join(words)}"
    troubles = {one.trouble: one for one in standings if one.trouble}
    for one in troubles.values():
        yield from _caveats(one, now)


def _shown_folder(folder: str) -> str:
    """Return the end of a folder, with ``~`` for the user's home."""
    home = os.path.expanduser("~")
    shown = f"~{folder[len(home) :]}" if folder.startswith(f"{home}/") else folder
    return shown if len(shown) <= _FOLDER else f"...{shown[-_FOLDER + 3 :]}"


def render_json(standings: Sequence[Standing]) -> str:
    """Write the jobs as one JSON document."""
    document = {"schema": SCHEMA, "jobs": [msgspec.to_builtins(s) for s in standings]}
    return indented_json(document)


def _counts(one: Standing) -> str:
    parts = [
        f"{count(number)} {word}"
        for state, word in _WORDS.items()
        if (number := one.tasks.get(state, 0))
    ]
    noun = _noun(one.job) + ("" if one.total == 1 else "s")
    return f"{count(one.total)} {noun}: {', '.join(parts) or 'none'}"


def _noun(job: Submitted) -> str:
    """Return what is counted: tasks of a plan, elements of a user's own script."""
    return "task" if job.own is None else "element"


def _failures(failures: Sequence[Failure], noun: str) -> Iterator[str]:
    """Yield the failures; those with the same reason as one, with the first output."""
    alike: dict[str, list[Failure]] = {}
    for one in failures:
        reason = one.reason or one.state.lower().replace("_", " ")
        words = f": {one.words}" if one.words else ""
        alike.setdefault(f"{reason}{words}", []).append(one)
    for why, same in [*alike.items()][:_MOST_FAILURES]:
        tasks = format_ranges([one.task for one in same])
        whose = f"{noun} {tasks}" if len(same) == 1 else f"{noun}s {tasks}"
        text = printable(f"{whose}  {why}")
        title = "left" if same[0].state == "INTERRUPTED" else "failed"
        yield f"    {title:<9}{shortened(text, WIDTH - len(_INDENT))}"
        if output := next((one.output for one in same if one.output), None):
            yield f"{_INDENT}{printable(output)}"
    shown = sum(map(len, [*alike.values()][:_MOST_FAILURES]))
    more = len(failures) - shown
    if more > 0:
        yield f"{_INDENT}and {count(more)} more (--json has them all)"


def _queue(nodes: Sequence[str]) -> str:
    """Write which elements pull from the queue, by node."""
    if not nodes:
        return "no element pulls now"
    names = dict.fromkeys(nodes)
    on = ", ".join(f"{name} ({nodes.count(name)})" for name in names)
    pull = "pulls" if len(nodes) == 1 else "pull"
    return f"{counted(len(nodes), 'element')} {pull} tasks, on {on}"


def _next(one: Standing) -> Iterator[str]:
    if one.way_out is not None:
        title = "fixed?" if one.way_out.endswith(" --bugs") else "next"
        yield f"    {title:<9}{printable(one.way_out)}"


def _caveats(one: Standing, now: Seconds) -> Iterator[str]:
    if one.trouble:
        when = "never" if not one.asked else f"{format_duration(now - one.asked)} ago"
        yield from _entry("warning", f"{one.trouble} (last answer: {when})")
    if one.accounting and not one.unknown:
        yield from _entry("warning", f"accounting does not answer: {one.accounting}")


def _entry(title: str, text: str) -> Iterator[str]:
    for number, line in enumerate(folded(printable(text), WIDTH - len(_INDENT))):
        yield f"    {title:<9}{line}" if number == 0 else f"{_INDENT}{line}"
