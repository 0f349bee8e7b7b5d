"""Read where a run takes place: the machine, and the commit of the checkout.

The commit comes from git's own files, without running git.
"""

import os
from collections.abc import Mapping, Sequence

from weigh.model.record import RecordedHost
from weigh.regular_file import file_head
from weigh.units import Bytes

_LONGEST = 4096  # bytes of a file of git's
_LONGEST_LIST = 1 << 24  # bytes of its list of branches and tags: 200,000 of them
_HEX = frozenset("0123456789abcdef")
_LENGTHS = (40, 64)  # SHA-1, SHA-256


def read_host(proc_folder: str = "/proc") -> RecordedHost:
    """Read the machine's name and system, usable CPUs and memory."""
    name, system = _host_and_system_names()
    return RecordedHost(
        name=name,
        system=system,
        cpus=_usable_cpus(),
        memory=_total_memory(file_head(f"{proc_folder}/meminfo", _LONGEST)),
    )


def _host_and_system_names() -> tuple[str, str]:
    """Return (host name, system); Windows has no uname."""
    if not hasattr(os, "uname"):
        return os.environ.get("COMPUTERNAME", "localhost"), "Windows"
    uname = os.uname()
    return uname.nodename, uname.sysname


def may_be_login_node(
    env: Mapping[str, str], commands: Sequence[str], in_job: Sequence[str]
) -> bool:
    """Return whether the user came by ssh to a machine with a scheduler's commands.

    *commands* submit, and one of the variables *in_job* is set in each job. A
    workstation with the same commands has its user at its screen.
    """
    if not ("SSH_CONNECTION" in env or "SSH_TTY" in env):
        return False
    if any(name in env for name in in_job):
        return False
    return any(
        os.access(os.path.join(folder, command), os.X_OK)
        for folder in env.get("PATH", "").split(os.pathsep)
        for command in commands
    )


def _usable_cpus() -> int | None:
    # the CPUs that this process may use, not those of the machine
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _total_memory(meminfo: bytes) -> Bytes | None:
    """Read ``MemTotal:  16384 kB``, meminfo's first line."""
    words = meminfo.partition(b"\n")[0].split()
    if words[:1] != [b"MemTotal:"] or words[2:] != [b"kB"] or not words[1].isdigit():
        return None
    return int(words[1]) * 1024


def read_commit(folder: str) -> str | None:
    """Find the commit of the checkout that *folder* is in; None where there is none."""
    git = _find_git(folder)
    if git is None:
        return None
    head = _read_git(f"{git}/HEAD")
    # a detached HEAD has the commit itself
    if not head.startswith("ref: "):
        return _commit_in_text(head)
    name = head.removeprefix("ref: ")
    common = _read_git(f"{git}/commondir")  # a worktree keeps its branches elsewhere
    home = os.path.join(git, common) if common else git
    # a branch has a file of its own, or a line in packed-refs
    commit = _read_git(f"{home}/{name}")
    if not commit:
        packed = _read_git(f"{home}/packed-refs", _LONGEST_LIST).splitlines()
        lines = (line.partition(" ") for line in packed)
        commit = next((commit for commit, _, branch in lines if branch == name), "")
    return _commit_in_text(commit)


def _commit_in_text(text: str) -> str | None:
    return text if len(text) in _LENGTHS and _HEX.issuperset(text) else None


def _find_git(folder: str) -> str | None:
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return git
        # in a worktree or a submodule .git is a file that names the folder
        if os.path.isfile(git):
            target = _read_git(git).removeprefix("gitdir: ")
            return os.path.join(folder, target)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _read_git(path: str, most: Bytes = _LONGEST) -> str:
    if "\0" in path:  # a damaged file of git's may name anything
        return ""
    return file_head(path, most).decode(errors="replace").strip()
