"""Transcripts: what commands print, whole, in a file that is reviewed as a diff.

A transcript has lines of comments, of commands, and of what these printed: standard
output, then standard error behind ``2> ``, then the exit code if it is not 0:

    # a task file that is not there
    $ weigh plan nosuch.txt
    2> weigh: cannot read nosuch.txt: No such file or directory
    [2]

An empty line of output is ``|``. ``WEIGH_NEW_GOLDEN=1 pytest ...`` writes the file anew
from its comments and commands.
"""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from textwrap import fill

from called_weigh import CalledWeigh

from weigh.errors import WeighError

PROMPT = "$ weigh "
# read at once: tests take variables of weigh away
WRITES_ANEW = bool(os.environ.get("WEIGH_NEW_GOLDEN"))


def check_transcript(
    path: Path,
    weigh: CalledWeigh,
    masks: Mapping[str, str] | None = None,
    given: Callable[[str], object] = str,
) -> None:
    """Call the commands of a transcript, and compare all that they print.

    *masks* are patterns of what differs from call to call, such as a folder or an id,
    and what stands for it in the file. *given* gets the words of each line that begins
    with ``## ``: it brings about the situation in which the next commands are called.
    """
    before = path.read_text()
    after = "\n".join(_played(before, weigh, masks or {}, given)) + "\n"
    if WRITES_ANEW:
        path.write_text(after)
    else:
        rows = before.splitlines(), after.splitlines()
        assert after == before, "\n".join(unified_diff(*rows, n=0, lineterm=""))


def with_compact_documents(weigh: CalledWeigh) -> CalledWeigh:
    """Return *weigh*, of whose JSON documents a member takes few lines."""

    def call(*words: str) -> tuple[int, str, str]:
        code, out, err = weigh(*words)
        if "--json" in words and out.startswith("{"):
            members = [
                f"{key}: {json.dumps(it)}" for key, it in json.loads(out).items()
            ]
            out = "\n".join(fill(row, 96, subsequent_indent="  ") for row in members)
        return code, out, err

    return call


def file_writer(folder: Path) -> Callable[[str], None]:
    """Return a *given* that writes a file: its name in *folder*, and its text.

    ``\\n`` in it begins a line; whoever likes may run it.
    """

    def write(words: str) -> None:
        name, _, text = words.partition(" ")
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("\\n", "\n") + "\n")
        path.chmod(0o755)

    return write


def check_texts(path: Path, texts: Mapping[str, str]) -> None:
    """Compare texts, each of a situation, with a file that has them under its name."""
    after = "\n".join(f"## {name}\n{text}" for name, text in texts.items()) + "\n"
    if WRITES_ANEW:
        path.write_text(after)
    assert after == path.read_text()


def differences(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the first text whole, and of the others what stands in place of its lines.

    ``@@ -7,2 +7 @@`` is where: two lines of the first text from the seventh on are one
    line of the other, its seventh, which follows.
    """
    rows = next(iter(texts.values())).splitlines()
    differs = dict[str, str]()
    for name, text in texts.items():
        changes = [*unified_diff(rows, text.splitlines(), n=0, lineterm="")][2:]
        kept = (row.removeprefix("+") for row in changes if row[0] != "-")
        differs[name] = "".join(f"{row}\n" for row in kept) if differs else text
    return differs


def check_answers(
    path: Path,
    questions: Mapping[str, Callable[[str], object]],
    masks: Mapping[str, str] | None = None,
) -> None:
    """Ask each question about the arguments below its name, ``## NAME``, in a file.

    Its rows are ``ARGUMENT => ANSWER``, or the error with which it is refused; *masks*
    are those of a transcript.
    """
    before, rows, ask = path.read_text(), list[str](), str
    for row in before.splitlines():
        argument, arrow, _ = row.rpartition(" =>")
        if arrow:
            try:
                answer = f"{ask(argument)}"
            except WeighError as error:
                answer = f"{type(error).__name__}: {error}"
            for pattern, name in (masks or {}).items():
                answer = re.sub(pattern, name, answer)
            row = f"{argument} => {answer}".rstrip()  # noqa: PLW2901 - its answer
        elif row.startswith("## "):
            ask = questions[row.removeprefix("## ")]  # type: ignore[assignment]
        rows.append(row)
    unasked = {f"## {name}" for name in questions}.difference(rows)
    assert not unasked, f"{path} asks nothing of {unasked}"
    after = "\n".join(rows) + "\n"
    if WRITES_ANEW:
        path.write_text(after)
    assert after == path.read_text()


def named_texts(path: Path) -> dict[str, str]:
    """Return the texts of a file by their names, which stand behind ``## ``."""
    parts = re.split(r"^## (.*)\n", path.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def named_rows(path: Path) -> dict[str, list[list[str]]]:
    """Return the rows of a file's tables by their names; `` = `` is between columns."""
    texts = named_texts(path).items()
    return {
        name: [row.split(" = ") for row in text.splitlines()] for name, text in texts
    }


def _played(
    text: str,
    weigh: CalledWeigh,
    masks: Mapping[str, str],
    given: Callable[[str], object],
) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith(PROMPT):
            yield line
            code, out, err = weigh(*shlex.split(line.removeprefix(PROMPT)))
            for pattern, name in masks.items():
                out, err = re.sub(pattern, name, out), re.sub(pattern, name, err)
            yield from (row.rstrip() or "|" for row in out.splitlines())
            yield from (f"2> {row}" for row in err.splitlines())
            yield from [f"[{code}]"] * (code != 0)
        elif line.startswith(("# ", "## ")) or not line:
            yield line
            if line.startswith("## "):
                given(line.removeprefix("## "))
