"""A request as text: directives of a scheduler, flags or JSON."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import UsageError
from weigh.lazy_modules import lazy_module
from weigh.model.record import Request
from weigh.render.printable import WIDTH, indented_json, printable_text, width_of
from weigh.schedulers import KINDS, kind_or_first

if TYPE_CHECKING:
    from weigh.schedulers import kind as scheduler_kind
else:  # imported when it is first used: weigh exec takes only the folding from here
    scheduler_kind = lazy_module("weigh.schedulers.kind")

SCHEMA = "weigh.request/1"

FLAGS, JSON = "flags", "json"
FORMS = (*KINDS, FLAGS, JSON)


def request_form_lines(
    request: Request,
    form: str,
    *,
    scheduler: str | None = None,
    records: tuple[str, ...] = (),
    history: object = None,
) -> tuple[str, ...]:
    """Write *request* in one of FORMS; *scheduler* selects the flags.

    *records* are the ids that it is based on, *history* how it was learnt from them;
    both are for the JSON form.

    Raises:
        UsageError: there is no such form.
    """
    if form in KINDS:
        dialect = KINDS[form].text
        directives = dialect.directives(request)
        return tuple(scheduler_kind.directive_line(dialect, d) for d in directives)
    if form == FLAGS:
        return (" ".join(kind_or_first(scheduler).text.directives(request)),)
    if form == JSON:
        return tuple(_request_json(request, records, history).splitlines())
    raise UsageError(f"no such form: {form!r} (one of {', '.join(FORMS)})")


def packed_lines(request: Request, form: str | None, width: int) -> tuple[str, ...]:
    """Write *request* for one scheduler on as few lines of *width* as possible.

    *form* is by default the first of the table.
    """
    dialect = kind_or_first(form).text
    lines: list[str] = []
    for directive in dialect.directives(request):
        fits = lines and len(lines[-1]) + 1 + len(directive) <= width
        # behind a prefix one line takes several; a submit description takes one each
        if fits and dialect.PREFIX:
            lines[-1] += f" {directive}"
        else:
            lines.append(scheduler_kind.directive_line(dialect, directive))
    return tuple(lines)


def any_layout_notes(request: Request, form: str | None = None) -> tuple[str, ...]:
    """Return the request for any placement of the ranks, if there is one.

    *form* is by default the first of the table.
    """
    flags = kind_or_first(form).text.any_layout(request)
    return (f"or, on any nodes: {' '.join(flags)}",) if flags else ()


def folded_note_lines(notes: Sequence[str], *, indent: str = "") -> tuple[str, ...]:
    """Write notes, folded to 80 columns after *indent*."""
    return tuple(
        indent + line
        for note in notes
        for line in folded_lines(printable_text(note), WIDTH - len(indent))
    )


def folded_lines(long_text: str, width: int) -> Iterator[str]:
    """Fold *long_text* between words to *width* columns."""
    line = ""
    for word in long_text.split():
        if line and width_of(line) + 1 + width_of(word) > width:
            yield line
            line = "  " + word  # indented, so that the start of each note is visible
        else:
            line = f"{line} {word}" if line else word
    yield line


def named_lines(
    name: str, text: str, *, indent: int = 4, name_width: int = 9
) -> Iterator[str]:
    """Write a row: its name once, and its text folded behind it; nothing without text.

    The text may hold what a program or a scheduler printed.
    """
    text = printable_text(text)
    row = f"{'':{indent}}{name:<{name_width}}{text}".rstrip()
    if not text or width_of(row) <= WIDTH:
        yield from [row] if text else ()
        return
    lines = folded_lines(text, WIDTH - indent - name_width)
    yield from lines_behind_name(name, lines, indent=indent, name_width=name_width)


def lines_behind_name(
    name: str, lines: Iterable[str], *, name_width: int, indent: int = 2
) -> Iterator[str]:
    """Write *lines* below each other, with a name before the first."""
    for line in lines:
        yield f"{'':{indent}}{name:<{name_width}}{line}"
        name = ""


def _request_json(request: Request, records: tuple[str, ...], history: object) -> str:
    # the schema comes first: it names the format
    fields = {
        "schema": SCHEMA,
        **msgspec.to_builtins(request),
        "records": records,
        **{name: kind.text.directives(request) for name, kind in KINDS.items()},
        **({} if history is None else {"history": msgspec.to_builtins(history)}),
    }
    return indented_json(fields)
