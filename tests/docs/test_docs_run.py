"""What the pages show in ``console`` blocks happens when it is typed.

The blocks of a page are typed in order in one folder, with the files that the page
names (``<!-- files: examples/tutorial -->``). Figures differ from machine to machine:
of each line of output the words at its beginning are looked for; ``...`` stands for
lines left out. ``<!-- until: 12 done -->`` types the command again until it says so.
"""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, Block, Command, blocks, commands

CONSOLE = "console"
PATIENCE = 120.0
RUN = {
    page: found
    for page in PAGES
    if (found := [one for one in blocks(page) if one.language == CONSOLE])
}
_FIGURES = re.compile(r"[0-9][0-9.,:e%-]*( ?(s|ms|KiB|MiB|GiB|B|h|m)\b)?|[0-9a-f]{12}")


def label(line: str) -> str:
    """Give the words that a line of output begins with, without figures."""
    begin = re.split(r" {2,}", line.strip())[0]
    return " ".join(_FIGURES.sub("#", begin).split())[:40]


def environment(home: Path) -> dict[str, str]:
    """Give a user's environment on a machine without a scheduler."""
    tools = home / "bin"
    tools.mkdir()
    for name in ("weigh", "python"):
        tools.joinpath(name).symlink_to(Path(sys.executable).parent / name)
    return {
        "HOME": str(home),
        "PATH": f"{tools}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "WEIGH_LOGIN_NODE": "no",
    }


def typed(command: Command, folder: Path, env: dict[str, str]) -> str:
    """Type a command; give what it printed. It has to succeed."""
    done = subprocess.run(
        ["bash", "-c", command.line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{command.line}\n{done.stdout}"
    return done.stdout


def typed_until(
    command: Command, folder: Path, env: dict[str, str], words: dict[str, str]
) -> str:
    """Type a command, again and again where a page says until when."""
    printed = typed(command, folder, env)
    end = time.monotonic() + PATIENCE
    while words.get("until", "") not in printed:
        assert time.monotonic() < end, printed
        time.sleep(1)
        printed = typed(command, folder, env)
    return printed


def missing(command: Command, printed: str) -> list[str]:
    """Give the lines that the page shows and the command did not print."""
    there = {label(line) for line in printed.splitlines()}
    shown = (line for line in command.output if line.strip() not in {"", "..."})
    return [line for line in shown if label(line) not in there]


def follow(block: Block, folder: Path, env: dict[str, str]) -> None:
    for command in commands(block):
        printed = typed_until(command, folder, env, block.words)
        assert not missing(command, printed), f"{block}\n{printed}"


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in RUN])
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    files = [one.words["files"] for one in RUN[page] if "files" in one.words]
    for name in files:
        shutil.copytree(ROOT / name, folder, dirs_exist_ok=True)
    folder.mkdir(exist_ok=True)
    env = environment(tmp_path)

    for block in RUN[page]:
        follow(block, folder, env)
