"""``weigh doctor``: a line a check, its cure below it; or one document."""

from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.doctor import DoctorCheck, DoctorDiagnosis
from weigh.render.columns import wrap_by_columns
from weigh.render.printable import WIDTH, printable_text
from weigh.render.request_lines import lines_behind_name
from weigh.units import count_with_noun

_MARKS = {"ok": "ok", "warning": "warning", "broken": "BROKEN"}
_TICKS = {"ok": "[x]", "warning": "[ ]", "broken": "[!]"}
_MARK_WIDTH = max(map(len, _MARKS.values()))


def doctor_document(diagnosis: DoctorDiagnosis) -> bytes:
    """Write all of it as one document."""
    document = msgspec.to_builtins(diagnosis)
    return msgspec.json.encode(document | {"broken": diagnosis.is_broken})


def doctor_page(diagnosis: DoctorDiagnosis) -> list[str]:
    """Write the page and, last, how many lines need a look."""
    checks = (*diagnosis.checks, *diagnosis.job)
    width = max(len(check.name) for check in checks)
    lines = [f"  weigh doctor on {printable_text(diagnosis.host)}"]
    for check in diagnosis.checks:
        lines += _lines_of_check(
            check, f"  {_MARKS[check.state]:<{_MARK_WIDTH}}", width
        )
    if diagnosis.job:
        lines += ["", "  before a job is submitted"]
        for check in diagnosis.job:
            lines += _lines_of_check(
                check, f"  {_TICKS[check.state]:<{_MARK_WIDTH}}", width
            )
    return [*lines, "", f"  {_problems_in_words(checks)}"]


def _lines_of_check(check: DoctorCheck, mark: str, width: int) -> Iterator[str]:
    start = f"{mark}  {check.name:<{width}}  "
    yield from _indented_rows(start, check.text)
    if check.cure is not None:
        yield from _indented_rows(" " * len(start) + "-> ", check.cure)


def _indented_rows(start: str, row_text: str) -> Iterator[str]:
    """Break *row_text* between words, behind *start*; a path too long is left whole."""
    room = WIDTH - len(start)
    rows = wrap_by_columns(
        printable_text(row_text), room, break_long_words=False, break_on_hyphens=False
    )
    yield from lines_behind_name(start, rows or [""], indent=0, name_width=len(start))


def _problems_in_words(checks: Sequence[DoctorCheck]) -> str:
    broken = sum(check.state == "broken" for check in checks)
    warnings = sum(check.state == "warning" for check in checks)
    counts = [f"{broken} broken"] if broken else []
    if warnings:
        counts.append(count_with_noun(warnings, "warning"))
    if not counts:
        return "no problems found"
    return ", ".join(counts) + ("" if broken else ", nothing broken")
