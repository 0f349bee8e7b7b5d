"""Read ``#$`` lines as qsub does: all of them, anywhere in the script.

The options are those of qsub(1) of Grid Engine 8.1.9 and later; how qsub splits
lines was observed on 8.1.9.
"""

from collections.abc import Iterator

import msgspec

from weigh.model.lint import Facts, Finding
from weigh.schedulers.lint.case import Option, Read, did_you_mean, refused
from weigh.schedulers.script import Line, Script

PREFIX = "#$"

_WITH_VALUE_WORDS = """
    a A ac adds ar b binding c ckpt dc dl e hold_jid hold_jid_ad i j jc js jsv l m M
    masterl masterq mods N now o ot P p par q R r rou S sc shell si sync t tc tcon umask
    v w wd xd @ u C pty
"""
_FLAG_WORDS = "bgio clear clearp cwd h hard help notify soft terse V verify"
_WITH_VALUE = frozenset(_WITH_VALUE_WORDS.split())
_FLAGS = frozenset(_FLAG_WORDS.split())
_PE = "pe"
_KNOWN = tuple(sorted(_WITH_VALUE | _FLAGS | {_PE}))
_OF_SLURM = {"--mem": "-l h_vmem=", "--time": "-l h_rt=", "--array": "-t "}


def directive_lines(script: Script) -> tuple[Line, ...]:
    """Return the directive lines that qsub reads."""
    return tuple(one for one in script.lines if one.text.startswith(PREFIX))


def read_options(script: Script, facts: Facts | None = None) -> Read:
    """Read the directives of *script*; ``-l`` yields one option per resource.

    A resource's option is named ``l:`` and its name; ``pe`` has both words as value.
    The options of ``sge_request`` files come first, without a line number; ``-clear``
    discards what was read before it.
    """
    options: list[Option] = []
    findings: list[Finding] = []
    for name, text in facts.defaults if facts is not None else ():
        for row in text.splitlines():
            if row.lstrip().startswith("#"):
                continue
            read = (one for one in _of_words(Line(0, row), _words(row)))
            options += [
                _from_file(one, name) for one in read if isinstance(one, Option)
            ]
    options = _since_clear(options)
    lines = directive_lines(script)
    for line in lines:
        for one in _of_words(line, _words(line.text.removeprefix(PREFIX))):
            if isinstance(one, Option):
                options.append(one)
            else:
                findings.append(one)
    return Read(tuple(_since_clear(options)), tuple(findings), lines)


def _from_file(option: Option, name: str) -> Option:
    return msgspec.structs.replace(option, text=f"{option.text} ({name})")


def _since_clear(options: list[Option]) -> list[Option]:
    last = max(
        (at for at, one in enumerate(options) if one.name == "clear"), default=-1
    )
    return options[last + 1 :]


def _of_words(line: Line, words: list[str]) -> Iterator[Option | Finding]:
    place = 0
    while place < len(words):
        word = words[place]
        rest = words[place + 1 :]
        if not word.startswith("-") or word == "-":
            yield _no_option(line, word, begun=place > 0)
            return
        name = word[1:]
        if name in _FLAGS:
            yield Option(name, "", line.line, word, word)
            place += 1
        elif name == _PE:
            yield _parallel(line, rest)
            place += 3
        elif name in _WITH_VALUE:
            if not rest:
                yield refused(line, "no-value", f"{word} without a value: refused")
                return
            text = f"{word} {rest[0]}"
            if name == "l":
                yield from _resources(line, rest[0])
            else:
                yield Option(name, rest[0], line.line, text, word + " ")
            place += 2
        else:
            yield _unknown(line, word)
            return


def _words(rest: str) -> list[str]:
    """Split the rest of a line; ``#`` begins a comment."""
    words: list[str] = []
    word, quote, begun = "", "", False
    for character in rest:
        if quote:
            quote = "" if character == quote else quote
            word += character if quote else ""
        elif character in "'\"":
            quote, begun = character, True
        elif character in " \t":
            if begun:
                words.append(word)
            word, begun = "", False
        elif character == "#" and not begun:
            return words
        else:
            word, begun = word + character, True
    return [*words, word] if begun else words


def _resources(line: Line, value: str) -> Iterator[Option]:
    for part in value.split(","):
        name, equals, amount = part.partition("=")
        if name:
            amount = amount if equals else "TRUE"
            yield Option(f"l:{name}", amount, line.line, f"-l {part}", "-l ")


def _parallel(line: Line, rest: list[str]) -> Option | Finding:
    words = [word for word in rest[:2] if word.strip()]
    if len(words) < len(("name", "slots")) or rest[1].startswith("-l"):
        name = (words or ["smp"])[0]
        effect = "-pe without a number of slots: refused"
        return refused(line, "pe-slots", effect, f"-pe {name.partition('=')[0]} 4")
    text = f"-pe {rest[0]} {rest[1]}"
    return Option(_PE, f"{rest[0]} {rest[1]}", line.line, text, "-pe ")


def _no_option(line: Line, word: str, *, begun: bool) -> Finding:
    if not word[0].isascii():
        effect = f"{word[0]!r} is not an ASCII '-': refused"
        return refused(line, "dash", effect, "type - again")
    if begun:
        effect = f"{word!r} is separated from its option: refused"
        return refused(line, "stray-word", effect, "no spaces within a value")
    if line.text.removeprefix(PREFIX)[:1] not in (" ", "\t"):
        effect = "'#$' begins a directive: qsub rejects this line"
        return refused(
            line, "accidental-directive", effect, "write '# $' for a comment"
        )
    return refused(line, "no-option", f"{word!r} is not an option: refused", f"-{word}")


def _unknown(line: Line, word: str) -> Finding:
    effect = f"qsub has no option {word}: refused"
    begun = word.partition("=")[0]
    if word.startswith("--"):
        meant = _OF_SLURM.get(begun)
        fix = f"a Slurm option; here {meant}" if meant else "a Slurm option"
    else:
        found = did_you_mean(begun[1:], [one for one in _KNOWN if len(one) > 1])
        fix = found.replace("did you mean ", "did you mean -")
        fix = "" if found.startswith("known: ") else fix
    return refused(line, "unknown-option", effect, fix)
