"""Bash that makes the environment of the tasks, and sees that it is there.

What is missing is said in the first second, on the node, in place of a day on the CPU.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from shlex import quote as quoted

from weigh.model.job import JobScript, Setup

_UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h
_NOT_FOUND = 127
_PYTHON = re.compile(r"python[0-9.]*")
_TORCH = (
    'import sys, importlib.util as u; t = u.find_spec("torch") and '
    '__import__("torch"); sys.exit(bool(t) and not t.cuda.is_available())'
)
_IMPORTS = """\
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        sys.exit(f"weigh: {sys.executable} cannot import {name}: {error}")"""
WITHIN = '"$container"'
_FOLDER = '"$plan/log/container.$HOSTNAME"'


def setup_lines(script: JobScript) -> Iterator[str]:
    """Write what makes the environment of the tasks, and sees that it is there."""
    made = (*_environment(script.setup), *_container(script))
    checks = tuple(_checks(script)) if script.setup.checks else ()
    if made:
        yield ""
        yield "# the environment of the tasks"
        yield from made
    if checks:
        yield ""
        yield "# what is missing is said before anything runs"
        yield from checks


def is_relative(name: str) -> bool:
    """Say whether a program is looked for in the folder that its task runs in."""
    return "/" in name and not name.startswith("/")


def bind_lines(setup: Setup) -> Iterator[str]:
    """Write what lets the container see inputs that were staged in for all tasks."""
    if setup.container is not None:
        yield 'export APPTAINER_BIND="${APPTAINER_BIND:+$APPTAINER_BIND,}$shared"'
        yield 'export SINGULARITY_BIND="${SINGULARITY_BIND:+$SINGULARITY_BIND,}$shared"'


def program_checks(names: Iterable[str], setup: Setup) -> Iterator[str]:
    """Write what ends the job where one of these programs is not there."""
    for name in names:
        word = quoted(name)
        if setup.container is None:
            yield f"command -v {word} >/dev/null ||"
        else:
            yield f"{WITHIN} -c 'command -v \"$1\"' - {word} >/dev/null ||"
        where = "on $(hostname)" if setup.container is None else "in the container"
        yield f'  {{ echo "weigh: not found {where}:" {word} >&2; exit {_NOT_FOUND}; }}'


def _environment(setup: Setup) -> Iterator[str]:
    if setup.modules:
        yield "source /etc/profile"
        yield from (f"module load {quoted(name)} || exit" for name in setup.modules)
    if setup.conda is not None:
        yield 'eval "$(conda shell.bash hook)" || exit'
        yield f"conda activate {quoted(setup.conda)} || exit"
    if setup.venv is not None:
        yield f"source {quoted(setup.venv + '/bin/activate')} || exit"
    yield from setup.lines


def _container(script: JobScript) -> Iterator[str]:
    """Write a bash that runs inside the container: each task is started by it.

    BASH_ENV has weigh exec start every task by a bash, GNU parallel knows
    PARALLEL_SHELL; the folder that tasks run in is there inside as well.
    """
    image = script.setup.container
    if image is None:
        return
    gpu = " --nv" if script.wanted.gpus else ""
    yield "runs=$(command -v apptainer || command -v singularity) || {"
    yield '  echo "weigh: neither apptainer nor singularity on $(hostname)" >&2'
    yield f"  exit {_NOT_FOUND}"
    yield "}"
    if not image.partition("://")[1]:
        yield f"[ -e {quoted(image)} ] || {{"
        yield f'  echo "weigh: no container on $(hostname):" {quoted(image)} >&2'
        yield f"  exit {_UNAVAILABLE}"
        yield "}"
    yield f"mkdir -p {_FOLDER} || exit"
    yield f"container={_FOLDER}/bash"
    yield (
        f'printf \'#!/bin/bash\\nexec %q exec{gpu} --bind "$PWD" %q /bin/bash '
        f'"$@"\\n\' "$runs" \\'
    )
    yield f'  {quoted(image)} >"$container.$$" && chmod 755 "$container.$$" &&'
    yield '  mv -f -- "$container.$$" "$container" || exit'
    yield f'export PATH={_FOLDER}:"$PATH" PARALLEL_SHELL="$container" BASH_ENV='


def _checks(script: JobScript) -> Iterator[str]:
    setup = script.setup
    staged = script.staging is not None
    here = [name for name in script.programs if not (staged and is_relative(name))]
    yield from program_checks(here, setup)
    python = _python(script)
    if setup.imports:
        yield f"{_run(python or 'python', _IMPORTS, setup)} \\"
        yield f"  {' '.join(map(quoted, setup.imports))} || exit {_UNAVAILABLE}"
    if script.wanted.gpus and python is not None:
        yield f"{_run(python, _TORCH, setup)} ||"
        yield (
            '  { echo "weigh: torch sees no GPU on $(hostname)" >&2; '
            f"exit {_UNAVAILABLE}; }}"
        )


def _run(python: str, program: str, setup: Setup) -> str:
    if setup.container is None:
        return f"{quoted(python)} -c {quoted(program)}"
    return f'{WITHIN} -c \'"$0" -c "$@"\' {quoted(python)} {quoted(program)}'


def _python(script: JobScript) -> str | None:
    """Give the Python that tasks begin with, or the one of their environment."""
    setup = script.setup
    for name in script.programs:
        if _PYTHON.fullmatch(posixpath.basename(name)):
            staged_in = script.staging is not None and is_relative(name)
            return None if staged_in else name
    return "python" if setup.conda or setup.venv else None
