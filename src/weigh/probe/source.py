"""Read which commit is checked out, from git's own files and without running git."""

import os

_LONGEST = 4096
_HEX = frozenset("0123456789abcdef")
_LENGTHS = (40, 64)  # SHA-1, SHA-256


def read_commit(folder: str) -> str | None:
    """Find the commit of the checkout that *folder* is in; None where there is none."""
    git = _find_git(folder)
    if git is None:
        return None
    head = _read(f"{git}/HEAD")
    if not head.startswith("ref: "):
        return _commit(head)
    name = head.removeprefix("ref: ")
    common = _read(f"{git}/commondir")  # a worktree keeps its branches elsewhere
    home = os.path.join(git, common) if common else git
    return _commit(_read(f"{home}/{name}") or _packed(f"{home}/packed-refs", name))


def _commit(text: str) -> str | None:
    return text if len(text) in _LENGTHS and _HEX.issuperset(text) else None


def _find_git(folder: str) -> str | None:
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return git
        if os.path.isfile(git):
            target = _read(git).removeprefix("gitdir: ")
            return os.path.join(folder, target)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _packed(path: str, name: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                commit, _, branch = line.rstrip("\n").partition(" ")
                if branch == name:
                    return commit
    except OSError:
        return ""
    return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST).strip()
    except (OSError, ValueError):  # the latter for a path with a null byte
        return ""
