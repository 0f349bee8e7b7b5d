"""A request as text: ``#SBATCH``, ``#$``, flags or JSON."""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias, get_args

import msgspec

from weigh.errors import UsageError
from weigh.model.record import Request
from weigh.schedulers.gridengine import text as gridengine_text
from weigh.schedulers.script import Dialect
from weigh.schedulers.slurm import text as slurm_text

SCHEMA = "weigh.request/1"
WIDTH = 80

Form: TypeAlias = Literal["slurm", "gridengine", "flags", "json"]
FORMS: tuple[Form, ...] = get_args(Form)

_DIALECTS: dict[str, Dialect] = {
    slurm_text.NAME: slurm_text,
    gridengine_text.NAME: gridengine_text,
}


def render(
    request: Request,
    form: str,
    *,
    scheduler: str = slurm_text.NAME,
    records: tuple[str, ...] = (),
    history: object = None,
) -> tuple[str, ...]:
    """Write *request* in one of FORMS; *scheduler* selects the flags.

    *records* are the ids that it is based on, *history* how it was learnt from them;
    both are for the JSON form.

    Raises:
        UsageError: there is no such form.
    """
    if form in _DIALECTS:
        dialect = _DIALECTS[form]
        return tuple(f"{dialect.PREFIX} {d}" for d in dialect.directives(request))
    if form == "flags":
        return (" ".join(_DIALECTS[scheduler].directives(request)),)
    if form == "json":
        return tuple(_document(request, records, history).splitlines())
    raise UsageError(f"no such form: {form!r} (one of {', '.join(FORMS)})")


def slurm_line(request: Request) -> str:
    """Write *request* as one ``#SBATCH`` line."""
    return _one_line(slurm_text, request)


def gridengine_line(request: Request) -> str:
    """Write *request* as one ``#$`` line."""
    return _one_line(gridengine_text, request)


def packed_lines(request: Request, form: str, width: int) -> tuple[str, ...]:
    """Write *request* for one scheduler on as few lines of *width* as possible."""
    prefix = _DIALECTS[form].PREFIX
    lines: list[str] = []
    for directive in _DIALECTS[form].directives(request):
        if lines and len(lines[-1]) + 1 + len(directive) <= width:
            lines[-1] += f" {directive}"
        else:
            lines.append(f"{prefix} {directive}")
    return tuple(lines)


def any_layout_lines(
    request: Request, width: int, form: str = slurm_text.NAME
) -> tuple[str, ...]:
    """Write the request for any placement of the ranks, if there is one."""
    flags = _DIALECTS[form].any_layout(request) if form in _DIALECTS else ()
    return tuple(folded(f"or, on any nodes: {' '.join(flags)}", width) if flags else ())


def note_lines(request: Request, *, indent: str = "") -> tuple[str, ...]:
    """Write the request's notes, folded to 80 columns after *indent*."""
    return tuple(
        indent + line
        for note in request.notes
        for line in folded(note, WIDTH - len(indent))
    )


def _one_line(dialect: Dialect, request: Request) -> str:
    return " ".join((dialect.PREFIX, *dialect.directives(request)))


def folded(text: str, width: int) -> Iterator[str]:
    """Fold *text* between words to *width* columns."""
    long: Callable[[str], int] = len
    if not text.isascii():
        from weigh.render.columns import columns_of  # noqa: PLC0415 - rarely

        long = columns_of
    line = ""
    for word in text.split():
        if line and long(line) + 1 + long(word) > width:
            yield line
            line = "  " + word  # indented, so that the start of each note is visible
        else:
            line = f"{line} {word}" if line else word
    yield line


def _document(request: Request, records: tuple[str, ...], history: object) -> str:
    # the schema comes first: it names the format
    fields = {
        "schema": SCHEMA,
        **msgspec.to_builtins(request),
        "records": records,
        "slurm": slurm_text.directives(request),
        "gridengine": gridengine_text.directives(request),
        **({} if history is None else {"history": msgspec.to_builtins(history)}),
    }
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()
