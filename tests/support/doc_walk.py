"""Do what the pages show, block after block, in one folder a page.

What comments before a block say about it:

- ``<!-- files: examples/tutorial -->``: put these folders' files there first
- ``<!-- file: weigh.toml -->``: the block is this file, and is written there
- ``<!-- before: touch a -->``: a command that readers do not have to see
- ``<!-- exit: 1 -->``: how the last command of the block ends
- ``<!-- until: 12 done -->``: type the command again until it says so
- ``<!-- given: loader model -->``: names that a piece of Python takes for granted
- ``<!-- needs: spacy -->``: not run without that module, program or scheduler
- ``<!-- shown by: weigh request leak -->``: a ``text`` block is some lines of that
- ``<!-- varies: speed -->``: lines that begin so, or not at all, by chance
- ``<!-- not run: why -->``
- ``<!-- ends: try: 2 failed -->``: what `weigh status` says of the plan `try` at last

What a page plans is submitted at its end, and has to run whole.

``console`` blocks are typed, and their output is compared. Figures differ from machine
to machine: of each line of output the words at its beginning are looked for; ``...``
stands for lines left out. ``bash`` and ``python`` blocks have to succeed.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from doc_pages import ROOT, WALKS, Block, Command, blocks, commands
from processes import WEIGH
from run_captured import run_captured
from written_programs import programs_without

PATIENCE = 1800.0  # seconds until a test gives up; torch on a busy machine
NOT_RUN = "not run"
_FIGURES = re.compile(
    r"\b([0-9a-f]{12}|[0-9a-f]{6})\b"
    r"|[0-9][0-9.,:e%-]*( ?(s|ms|KiB|MiB|GiB|B|h|m|[KMGT])\b)?"
)
_COMMENT = re.compile(r"^# +")
_SCHEDULERS = {"slurm": "SLURM_CONF", "gridengine": "SGE_ROOT"}
# with these on PATH and no scheduler behind them, weigh would ask them for long
_ASKED = "s(batch|run|alloc|info|queue|acct|acctmgr|control|cancel)|q[a-z]+"
# what is more than words and quotes to bash
_OF_SHELL = frozenset("|&;<>()$`\\*?[]#~{}!\n")
_GIVEN = """\
from unittest.mock import MagicMock
{names} = [MagicMock(name="given") for _ in range({count})]
"""


class Place(NamedTuple):
    """Where a page is followed: the folder, and a user's environment."""

    folder: Path
    env: dict[str, str]


def place(home: Path, scheduler: Mapping[str, str] | None = None) -> Place:
    """Give a folder to work in; no scheduler is there, unless one is given."""
    folder = home / "work"
    folder.mkdir()
    return Place(folder, environment(home, scheduler))


def environment(
    home: Path, scheduler: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Give a user's environment."""
    tools = home / "bin"
    tools.mkdir()
    for name in ("weigh", "python", "torchrun", "snakemake"):
        # no link: a linked Python would not find the modules of its environment
        tool = tools / name
        if not Path(sys.executable).with_name(name).exists():
            continue
        tool.write_text(f'#!/bin/sh\nexec {Path(sys.executable).parent / name} "$@"\n')
        tool.chmod(0o755)
    others = "/usr/bin:/bin" if scheduler else programs_without(_ASKED, home.parent)
    return {
        **(scheduler or {}),
        "HOME": str(home),
        "USER": "you",
        "PATH": f"{tools}:{others}",
        "LANG": "C.UTF-8",
        "WEIGH_LOGIN_NODE": "no",
        # threads of numpy wait by turning: on a busy machine that costs most of all
        "OPENBLAS_NUM_THREADS": "1",
    }


def walk(
    page: Path,
    home: Path,
    scheduler: Mapping[str, str] | None = None,
    last: Block | None = None,
) -> None:
    """Do what a page shows, from its beginning to the block *last*, or its end."""
    here = place(home, scheduler)
    shown = blocks(page)
    for block in shown[: shown.index(last) + 1] if last else shown:
        prepare(block, here)
        if is_run(block, here.env):
            follow(block, here)
    run_plans_to_their_end(here, ends_of_plans(page), are_sent=scheduler is not None)


def ends_of_plans(page: Path) -> dict[str, str]:
    """Return what a page says on how plans end: ``<!-- ends: try: 2 failed -->``."""
    said = (one.words["ends"] for one in blocks(page) if "ends" in one.words)
    return dict(one.split(": ", 1) for one in said)


def run_plans_to_their_end(
    here: Place, ends: Mapping[str, str], *, are_sent: bool = False
) -> None:
    """Submit each plan that a page has made, and wait until all tasks are done.

    Where no scheduler is they run on this machine; one gets those alone that the page
    sends. A plan that prints well and runs nothing has happened. *ends* are the words
    of `weigh status` for the plans of which not all tasks succeed.
    """
    plans = sorted(one.parent for one in here.folder.glob("plan/*/plan.json"))
    if are_sent:
        plans = [plan for plan in plans if (plan / "sent").exists()]
    for plan in plans:
        if not (plan / "sent").exists():
            bash(f"weigh submit plan/{plan.name}", here)
    for plan in plans:
        bash(f"weigh status {plan.name} --wait || :", here)
        text = " ".join(bash(f"weigh status {plan.name}", here).split())
        tasks = text.partition(" tasks: ")
        expected = ends.get(plan.name, f"{tasks[0].split()[-1]} done")
        assert expected in tasks[2], f"{plan.name}: {expected!r} in\n{text}"


def left_out(page: Path, env: Mapping[str, str]) -> list[str]:
    """Give the blocks that need what is not here, and what that is."""
    return [
        f"{block} needs {' '.join(unmet(block, env))}"
        for block in blocks(page)
        if NOT_RUN not in block.words and unmet(block, env)
    ]


def is_run(block: Block, env: Mapping[str, str]) -> bool:
    return NOT_RUN not in block.words and not unmet(block, env)


def unmet(block: Block, env: Mapping[str, str]) -> list[str]:
    """Give what a block needs and this machine does not have."""
    return [
        word
        for word in block.words.get("needs", "").split()
        if not (
            _SCHEDULERS.get(word) in env
            or shutil.which(word, path=env["PATH"])
            or importlib.util.find_spec(word)
        )
    ]


def copy_sources(folder: Path, target: Path) -> None:
    """Copy a folder of these sources, without what somebody made there.

    A user follows the tutorial in examples/tutorial; git knows what is not from there.
    """
    # env: where git is missing the exit code is 127, and no exception
    command = ["env", "git", "-c", "safe.directory=*", "ls-files", "-z", "--", "."]
    listed = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if listed.returncode:  # not a clone
        shutil.copytree(folder, target, dirs_exist_ok=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / name, target / name)


def prepare(block: Block, here: Place) -> None:
    """Put there what a page says that it works on."""
    for name in block.words.get("files", "").split():
        copy_sources(ROOT / name, here.folder)
    if "file" in block.words:
        file = here.folder / block.words["file"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    if "before" in block.words and is_run(block, here.env):
        bash(block.words["before"], here)


def follow(block: Block, here: Place) -> None:
    """Do what one block shows."""
    if block.language == "console":
        for command, printed in typed(block, here):
            assert not missing(command, printed, block.words), f"{block}\n{printed}"
    elif "shown by" in block.words:
        command = Command(block.words["shown by"], tuple(block.text.splitlines()))
        printed = bash(command.line, here, int(block.words.get("exit", "0")))
        assert not missing(command, printed, block.words), f"{block}\n{printed}"
    elif block.page in WALKS or "file" in block.words:
        return  # how to install things, and the like
    elif block.language == "bash":
        bash(block.text, here)
    elif block.language == "python":
        python(block, here)


def typed(block: Block, here: Place) -> list[tuple[Command, str]]:
    """Type the commands of a block; give what each printed."""
    lines = list(commands(block))
    done = []
    for command in lines:
        code = int(block.words.get("exit", "0")) if command is lines[-1] else 0
        printed = bash(command.line, here, code)
        end = time.monotonic() + PATIENCE
        while block.words.get("until", "") not in printed:
            assert time.monotonic() < end, printed
            time.sleep(1)
            printed = bash(command.line, here, code)
        done.append((command, printed))
    return done


def bash(line: str, here: Place, code: int = 0) -> str:
    """Let bash run a line; give what it printed. It has to end with *code*."""
    if line.startswith("weigh ") and _OF_SHELL.isdisjoint(line):
        return _run([*WEIGH, *shlex.split(line)[1:]], here, code)
    return _run(["bash", "-ec", line], here, code)


def python(block: Block, here: Place) -> None:
    """Run a piece of Python; what it takes for granted is made up, nothing else."""
    names = block.words.get("given", "").split()
    given = _GIVEN.format(names=", ".join(names) + ",", count=len(names))
    _run(["python", "-c", (given if names else "") + block.text], here, 0)


def _run(argv: list[str], here: Place, code: int) -> str:
    done = run_captured(
        argv, cwd=here.folder, env=here.env, timeout=PATIENCE, merged=True
    )
    assert done.returncode == code, f"{argv[-1]}\n{done.returncode}\n{done.stdout}"
    return done.stdout


def missing(command: Command, printed: str, said: Mapping[str, str]) -> list[str]:
    """Give the lines that the page shows and the command did not print."""
    there = words(" ".join(_COMMENT.sub("", line) for line in printed.splitlines()))
    shown = (line for line in command.output if line.strip() not in {"", "..."})
    chance = tuple(said.get("varies", "...").split(", "))
    return [
        line
        for line in shown
        if label(line) not in there and not line.lstrip().startswith(chance)
    ]


def label(line: str) -> str:
    """Give the words that a line of output begins with, without figures.

    A longer figure may break a line at another word; a chart is another each time,
    Grid Engine's flags depend on the CPUs there are, and what stands in brackets on
    how many runs came to their end.
    """
    if line.strip().startswith("#$"):
        return "#$"
    first = re.split(r" {2,}|\|| \(", _COMMENT.sub("", line).strip())[0]
    return words(first)[:40].strip()


def words(text: str) -> str:
    return _FIGURES.sub("0", " ".join(text.split()))
