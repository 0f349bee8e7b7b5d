"""Process ids: whether /proc has those of this process, and whether one is in use."""

import os


def is_own_proc(root: str = "/proc") -> bool:
    """Return whether the process ids in *root* are those that this process uses.

    False in a pid namespace that still shows the /proc of another one: there, 1234 is
    another process here, or none.
    """
    link = f"{root}/self"
    try:
        return os.readlink(link) == str(os.getpid())
    except OSError:  # a dangling link: this process is not in that namespace
        return not os.path.lexists(link)


def is_process_id_in_use(pid: int) -> bool:
    """Return whether *pid* is a process here, of any user; a zombie counts."""
    if pid <= 0:  # a driver's word for a process of another namespace
        return False
    if os.name != "posix":
        return True  # there os.kill would end the process, or interrupt its group
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
