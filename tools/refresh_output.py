"""Type the ``console`` blocks of pages again and put in what they print now.

    python tools/refresh_output.py docs/tutorial.md ...

Read the result before you commit it: what a page explains may no longer be there.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

import doc_pages as pages  # noqa: E402
import test_docs_run as docs_run  # noqa: E402

MOST = 30  # lines of output


def refreshed(page: Path) -> str:
    """Give the text of a page with the output that its commands have now."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home, "work")
        folder.mkdir()
        env = docs_run.environment(Path(home))
        for block in pages.blocks(page):
            if "files" in block.words:
                shutil.copytree(ROOT / block.words["files"], folder, dirs_exist_ok=True)
            if block.language == docs_run.CONSOLE:
                new = "\n".join(_shown(block, folder, env))
                text = text.replace(f"```console\n{block.text}```", _fence(new), 1)
    return text


def _shown(block: pages.Block, folder: Path, env: dict[str, str]) -> list[str]:
    lines = []
    for command in pages.commands(block):
        printed = docs_run.typed_until(command, folder, env, block.words)
        printed = printed.replace(str(folder), "/home/you/work")
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
