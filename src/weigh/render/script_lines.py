"""Text and JSON of ``weigh check SCRIPT``: problems, notes, a summary line."""

from collections.abc import Iterator

import msgspec

from weigh.model.lint import SCHEMA, CheckedScript, LintFinding
from weigh.render.columns import columns_of, text_cut_to_columns
from weigh.render.printable import indented_json, printable_text, utf8_text
from weigh.render.request_lines import folded_lines
from weigh.schedulers import kind_or_first

WIDTH = 80

_WIDEST_TEXT = 28  # columns of the quoted part of the script
_NARROWEST_MESSAGE = 34  # columns; with less, each message goes below its place


def script_check_lines(checked: CheckedScript, width: int = WIDTH) -> Iterator[str]:
    """Write the screen: problems by line, then notes, then the summary."""
    problems = checked.problems
    notes = [one for one in checked.findings if one.severity == "note"]
    rows = [_finding_row(checked, one) for one in (*problems, *notes)]
    if rows:
        yield from _finding_table_lines(rows, width)
    yield _sum_line(checked)
    if checked.acknowledged:
        names = ", ".join(dict.fromkeys(one.rule for one in checked.acknowledged))
        yield from folded_lines(f"ignored as requested: {names}", width)
    if checked.lacks_shellcheck:
        yield "mistakes of the shell not checked: install shellcheck"


def script_check_json(checked: CheckedScript) -> str:
    """Write one JSON document, the schema first."""
    return indented_json(script_check_document(checked))


def script_check_document(checked: CheckedScript) -> dict[str, object]:
    """Return the findings as a JSON object."""
    problems = checked.problems
    return {
        "schema": SCHEMA,
        "script": utf8_text(checked.script),
        "scheduler": checked.scheduler,
        "directives": checked.directives,
        "problems": len(problems),
        "accepted": all(one.accepted for one in problems),
        "findings": [_finding_document(one) for one in checked.findings],
        "ignored": [_finding_document(one) for one in checked.acknowledged],
    }


def _finding_document(lint_finding: LintFinding) -> dict[str, object]:
    return {
        name: utf8_text(value) if isinstance(value, str) else value
        for name, value in msgspec.to_builtins(lint_finding).items()
    }


def _finding_row(
    checked: CheckedScript, lint_finding: LintFinding
) -> tuple[str, str, str]:
    place = printable_text(checked.script)
    if lint_finding.line is not None:
        place += f":{lint_finding.line}"
    message = (
        f"{lint_finding.effect}; {lint_finding.cure}"
        if lint_finding.cure
        else lint_finding.effect
    )
    message = f"{message} [{lint_finding.rule}]"
    if lint_finding.severity == "note":
        message = f"note: {message}"
    return place, printable_text(lint_finding.text), printable_text(message)


def _finding_table_lines(
    finding_rows: list[tuple[str, str, str]], width: int
) -> Iterator[str]:
    places = max(columns_of(place) for place, _, _ in finding_rows)
    texts = min(_WIDEST_TEXT, max(columns_of(text) for _, text, _ in finding_rows))
    # no finding quotes the script: no column for it
    gap = "  " if texts else ""
    room = width - places - 2 - texts - len(gap)
    if room < _NARROWEST_MESSAGE:
        yield from _stacked_finding_lines(finding_rows, width)
        return
    for place, text, message in finding_rows:
        short = text_cut_to_columns(text, texts)
        head = (
            f"{_filled_to_width(place, places)}  {_filled_to_width(short, texts)}{gap}"
        )
        for line in folded_lines(message, room):
            yield (head + line).rstrip()
            head = " " * (width - room)


def _stacked_finding_lines(
    finding_rows: list[tuple[str, str, str]], width: int
) -> Iterator[str]:
    """Write each message below its place, if the window is too narrow."""
    for place, text, message in finding_rows:
        yield text_cut_to_columns(f"{place}  {text}".rstrip(), width)
        for line in folded_lines(message, width - 4):
            yield f"    {line}"


def _filled_to_width(cell_text: str, width: int) -> str:
    return cell_text + " " * (width - columns_of(cell_text))


def _sum_line(checked: CheckedScript) -> str:
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
