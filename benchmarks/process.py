"""Commands run as an ordinary user, with the kernel's account of what they used."""

import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

NOBODY = "nobody"
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"
PATIENCE = 120  # seconds; a tool that hangs is killed and has no answer


class Finished(NamedTuple):
    """A command that ended: CPU seconds with its children, and what it printed."""

    cpu: float
    stdout: str


class Started:
    """A command that runs."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen
        self.pid = popen.pid

    def wait(self) -> Finished:
        """Wait for its end; children that it reaped are in the account."""
        assert self._popen.stdout is not None
        impatience = threading.Timer(PATIENCE, self._popen.kill)
        impatience.start()
        _, status, usage = os.wait4(self.pid, 0)
        impatience.cancel()
        stdout = self._popen.stdout.read()
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        self._popen.stdout.close()
        if self._popen.returncode:
            print(
                f"bench: exit {self._popen.returncode}: {self._popen.args!r}",
                file=sys.stderr,
            )
        return Finished(usage.ru_utime + usage.ru_stime, stdout)


class User(NamedTuple):
    """Who runs the commands; *uid* is None for whoever we are."""

    name: str
    home: str
    uid: int | None = None
    gid: int | None = None
    note: str = ""

    def start(self, argv: Sequence[str], folder: str) -> Started:
        """Start a command in *folder*, its errors in a file there."""
        identity: dict[str, Any] = (
            {}
            if self.uid is None
            else {"user": self.uid, "group": self.gid, "extra_groups": []}
        )
        with open(f"{folder}/stderr", "w", encoding="utf-8") as stderr:
            return Started(
                subprocess.Popen(
                    argv,
                    cwd=folder,
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    **identity,
                )
            )

    def run(self, argv: Sequence[str], folder: str) -> Finished:
        """Run a command to its end."""
        return self.start(argv, folder).wait()

    def make_folder(self, path: str) -> str:
        """Make a folder that this user can write."""
        os.mkdir(path)
        if self.uid is not None:
            os.chown(path, self.uid, -1)
        return path

    def environment(self) -> dict[str, str]:
        """Return the variables that this user's commands find."""
        return {
            "PATH": PLAIN_PATH,  # ours may lead through folders closed to nobody
            "LANG": "C.UTF-8",
            "HOME": self.home,
            "WEIGH_DIR": f"{self.home}/.weigh",
        }


def ordinary_user(folder: str, programs: Sequence[str]) -> User:
    """Become nobody for all that follows where we are root, if nobody can run it all.

    *folder* becomes that user's home.
    """
    if os.getuid() != 0:
        return User(pwd.getpwuid(os.getuid()).pw_name, folder)
    account = pwd.getpwnam(NOBODY)
    os.chown(folder, account.pw_uid, -1)
    user = User(NOBODY, folder, account.pw_uid, account.pw_gid)
    for program in programs:
        try:
            user.run([program, "--help"], folder)
        except PermissionError:
            note = f"as root, because {NOBODY} cannot run {program}"
            return User("root", folder, note=note)
    return user


def cpu_time(pid: int) -> float:
    """Return the CPU seconds of a running process and of the children it reaped."""
    own = time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3) of that process
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return own + sum(int(ticks) for ticks in fields[13:15]) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Return the resident bytes of a running process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
