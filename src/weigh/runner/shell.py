"""Decide whether a task line needs a shell, and which one.

Most lines are a program and its arguments: a shell that only starts them takes longer
than a short task runs. In case of doubt the line goes to the shell.
"""

import os
import re
from collections.abc import Mapping

# what no shell treats in a special way, so splitting is all it would do
_PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%_+:,./-@ \t="
# the same with quotes, in which a shell would replace nothing
_QUOTED = re.compile(rb"""(?:[A-Za-z0-9%_+:,./@ \t=-]|'[^']*'|"[^"$`\\!]*")*""")
# builtins that differ from the program of the same name, or have none
_SHELLS_OWN = frozenset(
    b"alias bg bind break builtin case cd command compgen continue coproc declare "
    b"dirs disown do done echo elif else enable esac eval exec exit export false fc "
    b"fg fi for function getopts hash help history if in jobs kill let local logout "
    b"mapfile popd printf pushd pwd read readarray readonly return select set shift "
    b"shopt source suspend test then time times trap type typeset ulimit umask "
    b"unalias unset until wait while . : [".split()
) - {b"false"}
_FUNCTION = b"BASH_FUNC_"  # how bash exports a function to its children


class LineShell:
    """Turns a line into a program and its arguments, for one environment."""

    def __init__(self, env: Mapping[bytes, bytes]) -> None:
        self._folders = env.get(b"PATH", os.defpath.encode()).split(b":")
        found = self._find_on_path(b"bash")
        self.program = found or b"/bin/sh"
        self._name = b"bash" if found else b"sh"
        # either may replace any program by a function
        self._always = b"BASH_ENV" in env or any(
            name.startswith(_FUNCTION) for name in env
        )
        self._programs: dict[bytes, bytes | None] = {}

    def words(self, task_line: bytes) -> tuple[bytes, list[bytes]]:
        """Return (program, argv) for *task_line*: its own, or those of a shell."""
        argv = None if self._always else plain_words(task_line)
        program = self._find(argv[0]) if argv else None
        if argv is None or program is None:
            return self.shell_words(task_line)
        return program, argv

    def shell_words(self, task_line: bytes) -> tuple[bytes, list[bytes]]:
        """Return (program, argv) of a shell that runs *task_line*."""
        return self.program, [self._name, b"-c", task_line]

    def _find(self, program_name: bytes) -> bytes | None:
        """Find a program on PATH, once for each name."""
        if program_name not in self._programs:
            found = program_name if _is_program(program_name) else None
            self._programs[program_name] = (
                found if b"/" in program_name else self._find_on_path(program_name)
            )
        return self._programs[program_name]

    def _find_on_path(self, program_name: bytes) -> bytes | None:
        paths = (os.path.join(folder, program_name) for folder in self._folders)
        return next(filter(_is_program, paths), None)


def _is_program(path: bytes) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def plain_words(task_line: bytes) -> list[bytes] | None:
    """Split a line that needs no shell into words; return None for others."""
    if task_line.translate(None, _PLAIN):
        if not _QUOTED.fullmatch(task_line):
            return None
        words = _unquoted_words(task_line)
    else:
        words = task_line.split()
    # NAME=value before a command is the shell's to set
    if not words or b"=" in words[0] or words[0] in _SHELLS_OWN:
        return None
    return words


def _unquoted_words(task_line: bytes) -> list[bytes]:
    import shlex  # noqa: PLC0415 - few lines have quotes

    words = shlex.split(task_line.decode("utf-8", "surrogateescape"))
    return [word.encode("utf-8", "surrogateescape") for word in words]


def does_shell_accept(task_line: bytes) -> bool:
    """Return whether a shell can parse *task_line*, without running it."""
    shell = LineShell(os.environb)
    program, argv = shell.shell_words(task_line)
    nothing = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
    # -n: parse and run nothing
    argv = [argv[0], b"-n", *argv[1:]]
    pid = os.posix_spawn(program, argv, os.environ, file_actions=[nothing])
    return os.waitpid(pid, 0)[1] == 0
