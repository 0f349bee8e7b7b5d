"""Lines that were meant as directives and that sbatch passes over without a word."""

import re
from collections.abc import Iterator

from weigh.dialect.lint.case import Case, Rule, error, note
from weigh.dialect.lint.slurm_options import PREFIX
from weigh.dialect.script import Line
from weigh.model.lint import Finding

_MEANT = re.compile(r"\s*(?:(?P<hashes>#+)(?P<gap>\s*))?(?P<word>\w+)\s*(?=-)")
_WORD = "SBATCH"
_ALIKE = 0.75
_PBS = "#PBS"


def _ignored(case: Case) -> Iterator[Finding]:
    first = case.script.first_command or len(case.script.lines) + 1
    for line in case.script.lines:
        if line.line in case.body.documents:
            continue  # a script that writes another one
        if line.text.startswith(PREFIX):
            if line.line > first and line.text.removeprefix(PREFIX)[:1] in " \t-":
                effect = f"after the first command (line {first}): ignored"
                cure = "move it above all commands"
                yield error(line, "directive-after-command", effect, cure)
            continue
        found = _MEANT.match(line.text)
        if found and found["hashes"] and _is_meant(found, line.text[found.end() :]):
            yield _passed_over(line, found)
        elif found and found["word"] == _WORD:
            effect = "no '#' before it: a command that bash does not find"
            yield error(line, "misspelled-directive", effect, f"{PREFIX} ...")


def _passed_over(line: Line, found: re.Match[str]) -> Finding:
    ignored = "sbatch ignores this line"
    if found["word"] != _WORD:
        effect = f"{found['hashes']}{found['gap']}{found['word']}: {ignored}"
        code = "misspelled-directive"
        return error(line, code, effect, f"write {PREFIX}")
    if found["gap"]:
        return error(line, "space-in-directive", f"a space after '#': {ignored}")
    if len(found["hashes"]) > 1:
        return note(line, "commented-directive", f"'##' is a comment: {ignored}")
    effect = f"spaces before '#': {ignored}"
    return error(line, "indented-directive", effect, "begin it in the first column")


def _is_meant(found: re.Match[str], rest: str) -> bool:
    word = found["word"]
    if word == _WORD:
        return True
    if not word.isupper() and not all(one.startswith("-") for one in rest.split()):
        return False  # `# sbatch --array=1-9 job.sh` tells how to submit
    if word.upper() == _WORD:
        return True
    if found["gap"] and not word.isupper():
        return False
    import difflib  # noqa: PLC0415 - only for a comment that looks like a directive

    return difflib.SequenceMatcher(None, word.upper(), _WORD).ratio() >= _ALIKE


def _continued(case: Case) -> Iterator[Finding]:
    for line in case.script.lines:
        if line.text.startswith(PREFIX) and line.text.rstrip().endswith("\\"):
            effect = "a directive cannot go on in the next line: that is a command"
            cure = "write #SBATCH on each line"
            yield error(line, "continued-directive", effect, cure)


def _other_dialect(case: Case) -> Iterator[Finding]:
    pbs = next((one for one in case.script.lines if one.text.startswith(_PBS)), None)
    if pbs is not None:
        yield note(pbs, "pbs", "sbatch reads #PBS lines as well")


RULES: tuple[Rule, ...] = (_ignored, _continued, _other_dialect)
