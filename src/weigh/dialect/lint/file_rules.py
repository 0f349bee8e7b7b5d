"""What stands before any directive: bytes, the first line, the interpreter."""

from collections.abc import Iterator

from weigh.dialect.lint.case import Case, Rule, error, refused, warning
from weigh.dialect.script import Line
from weigh.model.lint import Finding

_SBATCH = "sbatch"
_ENV_WORDS = 2


def _byte_order_mark(case: Case) -> Iterator[Finding]:
    if not case.script.bom:
        return
    spot = Line(1, "")
    cure = "sed -i '1s/^\\xef\\xbb\\xbf//' removes it"
    if case.tool == _SBATCH:
        yield refused(spot, "bom", "begins with a byte order mark: refused", cure)
    else:
        effect = "begins with a byte order mark: '#!' is not seen, sh runs the script"
        yield error(spot, "bom", effect, cure)


def _carriage_returns(case: Case) -> Iterator[Finding]:
    number = case.script.carriage_returns
    if number is None:
        return
    spot = Line(number, "")
    cure = "sed -i 's/\\r$//' removes them"
    if case.tool == _SBATCH:
        effect = "line ends of Windows (CRLF): refused"
        yield refused(spot, "carriage-returns", effect, cure)
    elif number == 1 and case.script.interpreter:
        effect = (
            "line ends of Windows (CRLF): no interpreter of that name, Eqw for ever"
        )
        yield error(spot, "carriage-returns", effect, cure)
    else:
        effect = "line ends of Windows (CRLF): the last word of a line ends in \\r"
        yield error(spot, "carriage-returns", effect, cure)


def _nul(case: Case) -> Iterator[Finding]:
    if case.script.nul is not None:
        spot = Line(case.script.nul, "")
        yield refused(spot, "nul", "holds a NUL character: no script of text")


def _first_line(case: Case) -> Iterator[Finding]:
    lines = case.script.lines
    if not any(one.text.strip() for one in lines):
        yield refused(None, "empty", f"the script is empty: {case.tool} refuses it")
        return
    if case.script.interpreter:
        return
    later = next((one for one in lines if one.text.lstrip().startswith("#!")), None)
    where = "the first line must be '#!/bin/bash'"
    if later is not None:
        where = "'#!' counts only as the first two letters of the first line"
    spot = later or lines[0]
    if case.tool == _SBATCH:
        yield refused(spot, "no-shebang", f"{where}: refused")
    elif case.option("S") is None:
        effect = "no '#!': the queue's shell or /bin/sh runs it, maybe not bash"
        cure = "put #!/bin/bash first, and #$ -S /bin/bash"
        yield warning(spot, "no-shebang", effect, cure)


def _interpreter(case: Case) -> Iterator[Finding]:
    words = case.script.interpreter
    if not words:
        return
    spot, path = case.script.lines[0], words[0]
    after = "the job fails at once" if case.tool == _SBATCH else "Eqw for ever"
    if not path.startswith("/"):
        effect = f"{path} is no absolute path: {after}"
        yield error(spot, "interpreter", effect, "write #!/bin/bash")
    elif case.is_missing(path):
        yield error(spot, "interpreter", f"{path} does not exist: {after}")
    elif path.endswith("/env"):
        yield from _through_env(case, spot)


def _through_env(case: Case, spot: Line) -> Iterator[Finding]:
    words = case.script.interpreter[1:]
    if len(words) >= _ENV_WORDS and not words[0].startswith("-"):
        effect = f"env looks for one program called '{' '.join(words)}': not found"
        cure = f"write #!/usr/bin/env -S {' '.join(words)}"
        yield error(spot, "interpreter", effect, cure)
        return
    place = case.facts.commands.get(case.script.program)
    if place is not None and place.path is None:
        effect = f"no {case.script.program} on the PATH here: the job fails at once"
        yield error(spot, "interpreter", effect)


RULES: tuple[Rule, ...] = (
    _byte_order_mark,
    _carriage_returns,
    _nul,
    _first_line,
    _interpreter,
)
