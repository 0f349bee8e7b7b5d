"""Texts that users read are plain engineering English: worn words do not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from weigh.cli.main import weigh as main

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src/weigh").rglob("*.py"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]

# each with the word that the field uses instead
WORN = {
    r"told|tells?|telling": "shown, reported, warned",
    r"foretells?|foretold|foresee[sn]?|foresaw": "predict, forecast",
    r"beside": "vs., next to, in addition to",
    r"of now|as of then": "current",
    r"mends?|mended|mending": "fix",
    r"at hand": "available",
    r"for want of|want of (?:memory|room|space)": "lack of, out of",
    r"have end|has? it end": "terminate",
    r"for ever": "forever, never ends",
    r"says? nothing": "prints nothing",
    r"whatever they? (?:say|ask)s?": "",
    r"(?<!graphics )(?<!sound )cards?(?! of)": "GPU",
    r"asked for": "requested",
    r"a (?:file|line|record|slot|column|row|folder)"
    r" an? (?:task|element|run|job|rank|verb)": "one ... per ...",
    r"(?:one|two|\d+) a (?:CPU|GPU|node|task|slot|element)": "one per ...",
}
# the same for names of functions and classes, also of tests: one word of a name each
_WORN_IN_NAMES = """
    told tell tells telling foretell foretells foretold beside mend mends mended
    mending hush hushes hushed said says saying cure cures cured card cards
    heard hear hears wish wishes wanted
"""
WORN_IN_NAMES = frozenset(_WORN_IN_NAMES.split())
_MAYBE_WORN = re.compile(
    rf"(?:def|class) \w*(?:{'|'.join(WORN_IN_NAMES)})", re.IGNORECASE
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# keys of stored files, a site's own names and methods of Python's files stay
_KEY = re.compile(r'"\w+"|cards\?\)|\.tell\(')
PATTERN = re.compile("|".join(rf"\b(?:{word})\b" for word in WORN), re.IGNORECASE)


_BETWEEN = re.compile(r"""["']\s*\n\s*[bfr]*["']|\\[a-z]""")  # parts of one string


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            assert found is not None
            yield from commands(found, f"{name} {verb}")


def worn(text: str) -> list[str]:
    return [found[0] for found in PATTERN.finditer(text)]


def test_help_texts_have_no_worn_words() -> None:
    found = {
        f"{name}: {word}"
        for name, command in commands(main, "weigh")
        for word in worn(command.get_help(click.Context(command, info_name=name)))
    }
    assert found == set()


def test_messages_docstrings_and_comments_have_no_worn_words() -> None:
    found = {
        str(path.relative_to(ROOT)): words
        for path in SOURCES
        if (words := worn(_KEY.sub("", _BETWEEN.sub("", path.read_text()))))
    }
    assert found == {}


def names_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each function and class; fast where none is worn."""
    for node in ast.walk(ast.parse(text)) if _MAYBE_WORN.search(text) else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def test_functions_and_classes_have_no_worn_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in (*SOURCES, *sorted((ROOT / "tests").rglob("*.py")))
        for line, name in names_of(path.read_text())
        if WORN_IN_NAMES & {word.lower() for word in _WORD.findall(name)}
    ]
    assert found == []


def test_pages_have_no_worn_words() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{number}: {words}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if (words := worn(line))
    ]
    assert found == []
