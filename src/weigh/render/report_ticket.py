"""Text for a support ticket: job, node, time, how it ended, how often."""

from collections.abc import Iterator

import msgspec

from weigh.render.printable import printable
from weigh.render.request_lines import folded

WIDTH = 80
_MARGIN = 12


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, or one run, with what the support staff need to know.

    ``attempts`` counts starts of the task and ``alike`` those that ended the same way;
    ``others`` counts other tasks that did. ``tail`` is the end of the output. ``unit``
    is what a task is called: of a script's job, an element.
    """

    job: str
    task: str
    scheduler: str | None
    node: str | None
    state: str
    is_failure: bool
    ending: str
    when: str
    requested: str
    used: str
    command: str
    folder: str | None
    output: str | None
    attempts: int
    alike: int
    succeeded: bool
    others: int
    nodes: tuple[str, ...]
    versions: str
    tail: tuple[str, ...] = ()
    unit: str = "task"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A message to the user of a job that somebody else looks at, such as support.

    ``advice`` are notes, each with the flags to write.
    """

    job: str
    name: str
    ending: str
    when: str
    node: str | None
    requested: str
    used: str
    advice: tuple[tuple[str, str], ...] = ()


def render_ticket(ticket: Ticket | Letter) -> str:
    """Write a ticket as plain text; the error's tail comes last."""
    if isinstance(ticket, Letter):
        return "\n".join(_letter(ticket))
    return "\n".join(_lines(ticket))


def _letter(letter: Letter) -> Iterator[str]:
    where = f" on {letter.node}" if letter.node else ""
    when = f" at {letter.when}" if letter.when else ""
    first = (
        f"your job {letter.job} ({letter.name}) started{where}{when}, and ended as: "
    )
    yield from ("Hello,", "")
    yield from _paragraph(f"{first}{letter.ending}.")
    if letter.requested or letter.used:
        used = letter.used or "not known to accounting"
        yield from _paragraph(
            f"It requested {letter.requested or 'the defaults'}; used: {used}."
        )
    if letter.advice:
        yield from ("", "What to change in its job script:", "")
        for words, flag in letter.advice:
            lines = folded(printable(words), WIDTH - 4)
            yield from (
                f"  {'-' if n == 0 else ' '} {one}" for n, one in enumerate(lines)
            )
            if flag:
                yield f"      {flag}"
    yield ""
    yield from _paragraph(
        "To measure what it needs: run it once as `weigh run -- COMMAND`; "
        "`weigh request` then prints the lines for the job script."
    )


def _paragraph(text: str) -> Iterator[str]:
    return (line.strip() for line in folded(printable(text), WIDTH))


def reproduced_words(ticket: Ticket) -> str:
    """Write whether a further attempt ended the same way."""
    if ticket.succeeded:
        return f"no: attempt {ticket.attempts} succeeded"
    if not ticket.is_failure:
        return "nothing failed"
    if ticket.attempts > 1:
        how = "yes" if ticket.alike > 1 else "no"
        return f"{how}: {ticket.alike} of {ticket.attempts} attempts ended this way"
    if ticket.others:
        return f"not retried, but the same in other {ticket.unit}s"
    is_of_plan = ticket.task or ticket.unit != "task"
    return "not retried" + (" (weigh resume)" if is_of_plan else "")


def _lines(ticket: Ticket) -> Iterator[str]:
    yield from _entry("job", f"{ticket.job}  {ticket.task}".strip())
    yield from _entry("scheduler", ticket.scheduler)
    yield from _entry("node", ticket.node or "unknown")
    yield from _entry("ended", ticket.ending)
    yield from _entry("when", ticket.when)
    yield from _entry("requested", ticket.requested)
    yield from _entry("used", ticket.used)
    yield from _entry("command", ticket.command)
    yield from _entry("folder", ticket.folder)
    yield from _entry("output", ticket.output)
    yield from _entry("attempts", str(ticket.attempts))
    yield from _entry("reproduced", reproduced_words(ticket))
    if ticket.others:
        where = ", ".join(ticket.nodes[:5])
        more = "" if len(ticket.nodes) <= 5 else ", ..."  # noqa: PLR2004 - as above
        at = f", on {where}{more}" if where else ""
        noun = ticket.unit + ("" if ticket.others == 1 else "s")
        yield from _entry("the same", f"in {ticket.others:,} other {noun}{at}")
    yield from _entry("versions", ticket.versions)
    if ticket.tail:
        yield "last lines of output:"
        yield from (f"  {printable(line)}" for line in ticket.tail)


def _entry(name: str, text: str | None) -> Iterator[str]:
    if not text:
        return
    for line in folded(printable(text), WIDTH - _MARGIN):
        yield f"{name:<{_MARGIN}}{line}"
        name = ""
