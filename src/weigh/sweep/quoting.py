"""Quote a command as one line that bash reads back word for word.

A task file is read by lines, so no word may contain a character that some reader takes
as the end of a line: these, and bytes that are not UTF-8, are octal in ``$'...'``.
"""

import re
import shlex
from collections.abc import Sequence

# what may end a line for some reader (str.splitlines has the longest list), every
# other control character, and what surrogateescape makes of bytes that are no UTF-8
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_IN_DOLLAR_QUOTES = re.compile(f"[\\\\']|{_UNSAFE.pattern}")
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}

# bash(1), RESERVED WORDS: only the first word of a command is taken for one
_RESERVED = frozenset(
    (
        *("case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for"),
        *("function", "if", "in", "select", "then", "time", "until", "while"),
    )
)


def shell_line(argv: Sequence[str]) -> str:
    """Return *argv* as one line of bash that contains no newline."""
    # only the first word can be a keyword or an assignment
    first, *rest = argv
    return " ".join([_command_word(first), *map(bash_quoted, rest)])


def bash_quoted(command_word: str) -> str:
    """Quote *command_word* for bash on one line.

    Return it unchanged if it needs no quotes.
    """
    if _UNSAFE.search(command_word):
        return (
            "$'" + _IN_DOLLAR_QUOTES.sub(_escaped_in_dollar_quotes, command_word) + "'"
        )
    return shlex.quote(command_word)


def _command_word(command_word: str) -> str:
    """Quote a word that bash would read as an assignment or a keyword."""
    text = bash_quoted(command_word)
    if text == command_word and (command_word in _RESERVED or "=" in command_word):
        return f"'{command_word}'"
    return text


def _escaped_in_dollar_quotes(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    # each byte of a character by itself: $'...' knows bytes only
    raw = character.encode("utf-8", "surrogateescape")
    return "".join(f"\\{byte:03o}" for byte in raw)
