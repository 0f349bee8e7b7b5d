"""Type the ``console`` blocks of pages again and insert their current output.

    python tools/refresh_output.py docs/tutorial.md ...

For pages that need a scheduler, first run eval "$(ci/slurm-up.sh)"; for those of Grid
Engine ci/gridengine-up.sh.
Read the result before you commit it: the output may lack what the page explains.
"""

import os
import re
import socket
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import doc_pages as pages  # noqa: E402
import doc_walk as walk  # noqa: E402

MOST = 45  # lines of output


def refreshed(page: Path) -> str:
    """Return the text of a page with the current output of its commands."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder, "home")
        home.mkdir()
        here = walk.place(home, _scheduler())
        for block in pages.blocks(page):
            walk.prepare(block, here)
            if not walk.is_run(block, here.env):
                continue
            if block.language == "console":
                new = "\n".join(_shown(block, here))
                text = text.replace(f"```console\n{block.text}```", _fence(new), 1)
            else:
                walk.follow(block, here)
    return text


def _scheduler() -> dict[str, str]:
    """Return the scheduler of this shell: one that ci/ started, if any."""
    named = ("SLURM_CONF", "SGE_")
    return {key: value for key, value in os.environ.items() if key.startswith(named)}


def _shown(block: pages.Block, here: walk.Place) -> list[str]:
    lines = []
    for command, output in walk.typed(block, here):
        printed = output.replace(str(here.folder), "/home/you/work")
        printed = printed.replace(here.env["HOME"], "/home/you")
        printed = re.sub(rf"\b{socket.gethostname()}\b", "laptop", printed)
        lines += [f"$ {command.line}", *_short(printed.rstrip().splitlines())]
    return lines


def _short(lines: list[str]) -> list[str]:
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    if len(plain) <= MOST:
        return plain
    return [*plain[: MOST - 5], "...", *plain[-4:]]


def _fence(text: str) -> str:
    return f"```console\n{text}\n```"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(refreshed(Path(name).resolve()), encoding="utf-8")
