"""Text and JSON of ``weigh check SCRIPT``: problems, notes, a summary line."""

from collections.abc import Iterator

import msgspec

from weigh.model.lint import SCHEMA, Checked, Finding
from weigh.render.columns import columns_of, shortened
from weigh.render.printable import indented_json, printable, utf8_text
from weigh.render.request_lines import folded
from weigh.schedulers import kind_or_first

WIDTH = 80

_WIDEST_TEXT = 28
_NARROWEST_MESSAGE = 34


def render(checked: Checked, width: int = WIDTH) -> Iterator[str]:
    """Write the screen: problems by line, then notes, then the summary."""
    problems = checked.problems
    notes = [one for one in checked.findings if one.severity == "note"]
    rows = [_row(checked, one) for one in (*problems, *notes)]
    if rows:
        yield from _table(rows, width)
    yield _sum_line(checked)
    if checked.acknowledged:
        names = ", ".join(dict.fromkeys(one.rule for one in checked.acknowledged))
        yield from folded(f"ignored as requested: {names}", width)
    if checked.lacks_shellcheck:
        yield "mistakes of the shell not checked: install shellcheck"


def render_json(checked: Checked) -> str:
    """Write one JSON document, the schema first."""
    return indented_json(document(checked))


def document(checked: Checked) -> dict[str, object]:
    """Return the findings as a JSON object."""
    problems = checked.problems
    return {
        "schema": SCHEMA,
        "script": utf8_text(checked.script),
        "scheduler": checked.scheduler,
        "directives": checked.directives,
        "problems": len(problems),
        "accepted": all(one.accepted for one in problems),
        "findings": [_plain(one) for one in checked.findings],
        "ignored": [_plain(one) for one in checked.acknowledged],
    }


def _plain(one: Finding) -> dict[str, object]:
    return {
        name: utf8_text(value) if isinstance(value, str) else value
        for name, value in msgspec.to_builtins(one).items()
    }


def _row(checked: Checked, one: Finding) -> tuple[str, str, str]:
    place = printable(checked.script)
    if one.line is not None:
        place += f":{one.line}"
    message = f"{one.effect}; {one.cure}" if one.cure else one.effect
    message = f"{message} [{one.rule}]"
    if one.severity == "note":
        message = f"note: {message}"
    return place, printable(one.text), printable(message)


def _table(rows: list[tuple[str, str, str]], width: int) -> Iterator[str]:
    places = max(columns_of(place) for place, _, _ in rows)
    texts = min(_WIDEST_TEXT, max(columns_of(text) for _, text, _ in rows))
    gap = "  " if texts else ""
    room = width - places - 2 - texts - len(gap)
    if room < _NARROWEST_MESSAGE:
        yield from _stacked(rows, width)
        return
    for place, text, message in rows:
        short = shortened(text, texts)
        head = f"{_filled(place, places)}  {_filled(short, texts)}{gap}"
        for line in folded(message, room):
            yield (head + line).rstrip()
            head = " " * (width - room)


def _stacked(rows: list[tuple[str, str, str]], width: int) -> Iterator[str]:
    """Write each message below its place, if the window is too narrow."""
    for place, text, message in rows:
        yield shortened(f"{place}  {text}".rstrip(), width)
        for line in folded(message, width - 4):
            yield f"    {line}"


def _filled(text: str, width: int) -> str:
    return text + " " * (width - columns_of(text))


def _sum_line(checked: Checked) -> str:
    problems, tool = checked.problems, kind_or_first(checked.scheduler).submits
    if not problems:
        lines = "1 directive" if checked.directives == 1 else ""
        lines = lines or f"{checked.directives} directives"
        return f"no problem found in {lines} for {tool} and the commands"
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    accepted = sum(one.accepted for one in problems)
    if accepted == len(problems):
        what = "it" if accepted == 1 else "all of them"
        return f"{count}; {tool} would have accepted {what}"
    if not accepted:
        return f"{count}; {tool} would refuse the script"
    return f"{count}; {tool} would have accepted {accepted} of them"
