"""Write what is generated from the code: the reference pages, man pages, completion.

    python tools/reference.py FOLDER

writes docs/reference/*.md and share/** below FOLDER. The repository has the same files;
a test generates them again and compares, so that they cannot go stale.
"""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints
from xml.sax.saxutils import escape

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete
from click_man.core import generate_man_page

import weigh
from weigh import errors
from weigh.cli.help_groups import HELP_ALL
from weigh.cli.main import VERBS, read_page
from weigh.cli.main import weigh as command_line
from weigh.schedulers.lint.rules import TABLE as RULE_TABLE

ROOT = Path(__file__).parents[1]
_MODULES = re.compile(r"\b(?:weigh|collections|typing)(?:\.[a-z_]+)*\.(?=[A-Z])")
SHOWN = ("weigh run", "weigh plan", "weigh submit", "weigh report")  # in the picture
LINE_HEIGHT, GLYPH, MARGIN = 18, 7.8, 20
DATE = "2026-11-21"  # of the man pages: that of the release, not of the build
COMPLETION = {
    BashComplete: "share/bash-completion/completions/weigh",
    ZshComplete: "share/zsh/site-functions/_weigh",
    FishComplete: "share/fish/vendor_completions.d/weigh.fish",
}
Files = Iterator[tuple[str, str]]


def files() -> Files:
    """Yield (path, text) of all that is generated."""
    yield "docs/reference/command-line.md", command_line_page()
    yield "docs/reference/python.md", python_page()
    yield "docs/reference/rules.md", rules_page()
    yield "docs/cheatsheet.md", read_page("cheatsheet")
    yield from man_pages()
    yield from completions()
    yield "docs/images/loop.svg", recording()


def command_line_page() -> str:
    """Write every verb with its help, in the order of `weigh --help`."""
    parts = [
        "# The command line",
        "Generated from the program; `weigh VERB --help-all` says the same.",
    ]
    top = _top()
    parts.append(_fence(command_line.get_help(top), "text"))
    # the one table of them, which stands where the errors do
    table = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    parts += ["## Exit codes", _fence(textwrap.dedent(table), "text")]
    for name in VERBS:
        command = command_line.get_command(top, name)
        assert command is not None
        parts += _help_of(command, name, top, level=2)
    return "\n\n".join(parts) + "\n"


def python_page() -> str:
    """Write every public name with its signature and docstring."""
    parts = [
        "# From Python",
        "Generated from the code. How it goes together: [in Python](../python.md).",
    ]
    for name in weigh.__all__:
        if name.startswith("_"):
            continue
        found = getattr(weigh, name)
        parts.append(f"## weigh.{name}")
        if inspect.isclass(found):
            parts.append(_fence(_fields(found), "python"))
        else:
            signature = _MODULES.sub("", f"{name}{inspect.signature(found)}")
            parts.append(_fence(signature.replace("~", ""), "python"))
        parts.append(_fence(inspect.getdoc(found) or "", "text"))
    return "\n\n".join(parts) + "\n"


def rules_page() -> str:
    """Write the rules of `weigh check`, with what each finds."""
    parts = [
        "# The rules of weigh check",
        "Generated from the program. [Ignore one](../job-scripts.md#weigh-check).",
    ]
    for group, rules in RULE_TABLE:
        rows = "\n".join(f"| `{name}` | {what} |" for name, what in rules)
        parts.append(f"## {group}\n\n| rule | finds |\n|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def man_pages() -> Files:
    """Yield a man page for the program and each verb, its subcommands included."""
    top = _top()
    for name, (_, text) in VERBS.items():
        command = command_line.get_command(top, name)
        assert command is not None
        command.short_help = text
        command_line.add_command(command, name)  # where click-man looks for them
        context = click.Context(command, info_name=name, parent=top)
        yield f"share/man/man1/weigh-{name}.1", _man(context)
    command_line.short_help = "measure a job before you submit it to the cluster"
    yield "share/man/man1/weigh.1", _man(top)


def completions() -> Files:
    """Yield the script of each shell that asks weigh what may come next."""
    for shell_class, path in COMPLETION.items():
        completer = shell_class(command_line, {}, "weigh", "_WEIGH_COMPLETE")
        # not its source(), which starts bash to ask for its version
        script = shell_class.source_template % completer.source_vars()
        yield path, f"{script.strip()}\n"


def recording() -> str:
    """Draw the loop, as the tutorial shows it, for a terminal 80 wide."""
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    typed = re.findall(r"```console\n(\$ .*?)\n```", page, re.DOTALL)
    shown = [one for one in typed if one.removeprefix("$ ").startswith(SHOWN)]
    lines = "\n\n".join(shown).splitlines()
    height = LINE_HEIGHT * len(lines) + 2 * MARGIN
    texts = (_svg_line(number, line) for number, line in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 {height}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">\n'
        f'<rect width="680" height="{height}" rx="8" fill="#16191d"/>\n'
        + "\n".join(filter(None, texts))
        + "\n</svg>\n"
    )


def _svg_line(number: int, line: str) -> str:
    if not line:
        return ""
    y = MARGIN + LINE_HEIGHT * (number + 0.7)
    colour = "#7fd1ae" if line.startswith("$ ") else "#d5d9de"
    width = f'textLength="{GLYPH * len(line):.0f}"' if len(line) > 1 else ""
    return (
        f'<text x="{MARGIN}" y="{y:.1f}" fill="{colour}" {width} '
        f'xml:space="preserve">{escape(line)}</text>'
    )


def _top() -> click.Context:
    """Return the context that ``weigh`` has when it is called."""
    return click.Context(
        command_line, info_name="weigh", **command_line.context_settings
    )


def _help_of(
    command: click.Command, name: str, parent: click.Context, level: int
) -> Iterator[str]:
    context = click.Context(
        command, info_name=name, parent=parent, max_content_width=80
    )
    context.terminal_width = 80
    context.meta[HELP_ALL] = True
    yield f"{'#' * level} {context.command_path}"
    yield _fence(command.get_help(context), "text")
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            child = command.get_command(context, below)
            assert child is not None
            yield from _help_of(child, below, context, level + 1)


def _man(context: click.Context) -> str:
    page = generate_man_page(context, version=weigh.__version__, date=DATE)
    return "\n".join(_unfilled(page.strip().splitlines())) + "\n"


def _unfilled(lines: list[str]) -> Iterator[str]:
    """Keep the lines after click's mark as they stand, as click does."""
    is_kept = False
    for line in lines:
        if line == "\b":
            is_kept = True
            yield ".nf"
        else:
            if is_kept and line.startswith("."):
                is_kept = False
                yield ".fi"
            yield line


def _fields(kind: type) -> str:
    hints = get_type_hints(kind)
    names = getattr(kind, "__struct_fields__", ())
    lines = [f"    {name}: {_word(hints[name])}" for name in names]
    return "\n".join([f"class {kind.__name__}:", *lines])


def _word(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) else _MODULES.sub("", str(hint))


def _fence(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def main(argv: list[str]) -> int:
    """Write all below the folder named, which exists."""
    if len(argv) != 1 or not Path(argv[0]).is_dir():
        print("usage: python tools/reference.py FOLDER", file=sys.stderr)
        return 2
    for path, text in files():
        target = Path(argv[0], path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
