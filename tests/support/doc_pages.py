"""The code blocks of the documentation, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
WALKS = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *WALKS,
]
WRITTEN = [
    page for page in PAGES if page not in WALKS and page.parent.name != "reference"
]
_CODE = ("fence", "code_block")
_STOPS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "&>"}
_DIRECTIVE = re.compile(r"^<!-- (\w[\w ]*?)(?:: (.*?))? -->$")


class Block(NamedTuple):
    """One code block: its page, its line there, its language, its text.

    ``words`` are what comments directly before it say: ``<!-- not run: why -->``.
    """

    page: Path
    line: int
    language: str
    text: str
    words: dict[str, str]
    fenced: bool = True

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Command(NamedTuple):
    """A command line of a block, and the output that the page shows for it."""

    line: str
    output: tuple[str, ...]


@cache
def blocks(page: Path) -> list[Block]:
    """Give the code blocks of a page."""
    found = []
    words: dict[str, str] = {}
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            for line in token.content.splitlines():
                if match := _DIRECTIVE.match(line.strip()):
                    words[match[1]] = match[2] or ""
        elif token.type in _CODE:
            assert token.map is not None
            language = token.info.strip() or "text"
            found.append(
                Block(
                    page,
                    token.map[0] + 1,
                    language,
                    token.content,
                    words,
                    fenced=token.type == "fence",
                )
            )
            words = {}
    return found


BLOCKS = [one for page in WRITTEN for one in blocks(page)]


def commands(block: Block) -> Iterator[Command]:
    """Yield what a block types after ``$``; lines that end in a backslash go on."""
    typed: str | None = None
    output: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if typed is not None:
                yield Command(typed, tuple(output))
            typed, output = line[2:], []
        elif typed is not None and typed.endswith("\\") and not output:
            typed += f"\n{line}"
        elif typed is not None:
            output.append(line)
    if typed is not None:
        yield Command(typed, tuple(output))


def weigh_argvs(block: Block) -> Iterator[list[str]]:
    """Yield the words of every call of weigh in a block.

    Where some lines begin with ``$``, the others are output.
    """
    lines = block.text.replace("\\\n", " ").replace("$!", "1").splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")]
    for line in typed or lines:
        if re.match(r"(weigh|python -m weigh) [a-z]+( |$)", line):
            yield _first_command(line.removeprefix("python -m ").removeprefix("weigh "))


def _first_command(line: str) -> list[str]:
    """Split a line for a shell; what follows a pipe or a redirection is no word."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    argv = []
    for word in words:
        if word in _STOPS:
            break
        argv.append(word)
    return argv
