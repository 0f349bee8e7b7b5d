"""``weigh.map``: call a function once per item, each call as a task of `weigh exec`.

A call is a process of its own: ``python -m weigh.flow.exec.map FOLDER NUMBER DIGEST``
loads the function by its name, calls it and leaves the result in FOLDER. The digest is
the item's, so that a changed item is another task.
"""

import hashlib
import os
import pickle
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from weigh.errors import UsageError, WeighError
from weigh.flow.run.run_measured import error_in
from weigh.model.plan import Task
from weigh.store.location import locate
from weigh.sweep.table import header, row, table_path

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_MAIN, _AS_MAIN = "__main__", "__mp_main__"  # the second as multiprocessing has it
_UNDER_WAY = "__weigh_import__"  # in the main program's module while it is imported
_LONGEST = 60  # characters of an item, for readers of the task file
_MOST_NAMED = 3


class _Call(NamedTuple):
    """What the calls share: where modules are, the main program, the function."""

    path: list[str]
    main: str | None
    argv: list[str]
    function: bytes


def map(  # noqa: A001 - always written weigh.map
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    jobs: int | None = None,
    name: str | None = None,
) -> list[_Result]:
    """Call *function* with each item, in processes of their own, and measure each.

    As ``weigh exec`` does it: *jobs* at once (one per CPU or GPU), a record per call,
    and again with more memory if one runs out. With a *name* the results are kept in
    ``.weigh/map/NAME``: the same call later returns them, and calls only what failed
    or changed. The function must be at the top of a file; items and results must be
    picklable. Put the call below ``if __name__ == "__main__":``.

    Raises:
        UsageError: the function or an item cannot be sent to another process.
        WeighError: some calls failed; the message names them and their output.
    """
    root = os.path.join(locate(os.getcwd(), os.environ), "map")
    if hasattr(sys.modules.get(_MAIN), _UNDER_WAY):
        raise UsageError(
            "map: the file calls it when imported: put it below "
            'if __name__ == "__main__":'
        )
    items = list(items)
    tasks = [_pickled(item, f"item {number}") for number, item in enumerate(items, 1)]
    call = _call_of(function)
    folder = _folder(root, name)
    lines = []
    for number, (data, shown) in enumerate(tasks, 1):
        digest = hashlib.sha256(data).hexdigest()[:12]
        _write(os.path.join(folder, f"{number}-{digest}.item"), data)
        words = [sys.executable, "-P", "-m", __name__, folder, str(number), digest]
        what = f"{getattr(function, '__name__', 'function')}({shown})"
        lines.append((f"{shlex.join(words)}  # {what}", what, f"{number}-{digest}"))
    _write(os.path.join(folder, "call"), pickle.dumps(tuple(call)))
    file = os.path.join(folder, "tasks.txt")
    _write(file, "".join(f"{line}\n" for line, _, _ in lines).encode())
    _write_table(file, [line for line, _, _ in lines], items)
    if lines:
        _execute(file, jobs)
    results = _results(folder, [(what, stem) for _, what, stem in lines])
    if name is None:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def _folder(root: str, name: str | None) -> str:
    """Return the folder of a call, made if necessary.

    Raises:
        UsageError: the name is no name of a folder.
        WeighError: it cannot be made.
    """
    if name is not None and (not name or name != os.path.basename(name.strip(". "))):
        raise UsageError(f"map: {name!r:.40} is no name for a folder")
    try:
        os.makedirs(root, exist_ok=True)
        if name is None:
            return tempfile.mkdtemp(prefix="call-", dir=root)
        folder = os.path.join(root, name)
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise WeighError(f"map: {error.filename}: {error.strerror}") from error
    return folder


def _pickled(value: object, what: str) -> tuple[bytes, str]:
    """Return *value* as bytes, and as a reader of the task file sees it.

    Raises:
        UsageError: it cannot be pickled.
    """
    try:
        data = pickle.dumps(value)
    except Exception as error:
        raise UsageError(f"map: {what} cannot be pickled: {error}") from error
    shown = ascii(value)
    return data, shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def _call_of(function: Callable[..., object]) -> _Call:
    """Return what another process needs to find *function*.

    Raises:
        UsageError: it cannot be found by its name.
    """
    name = getattr(function, "__qualname__", repr(function))
    main = getattr(sys.modules.get(_MAIN), "__file__", None)
    if getattr(function, "__module__", None) == _MAIN and main is None:
        raise UsageError(f"map: define {name} in a file, and import it here")
    try:
        data = pickle.dumps(function)
    except Exception as error:
        raise UsageError(
            f"map: {name} has no name that another process could import: define it "
            "at the top of a file"
        ) from error
    path = [os.path.abspath(folder or os.curdir) for folder in sys.path]
    return _Call(path, main and os.path.abspath(main), sys.argv, data)


def _write(path: str, data: bytes) -> None:
    """Write a file as a whole or not at all.

    Raises:
        WeighError: it cannot be written.
    """
    part = f"{path}.{os.getpid()}"
    try:
        with open(part, "wb") as file:
            file.write(data)
        os.replace(part, path)
    except OSError as error:
        raise WeighError(f"map: {path}: {error.strerror}") from error


def _write_table(file: str, lines: Sequence[str], items: Sequence[object]) -> None:
    """Write the items as the tasks' parameters, if they are numbers, text or dicts."""
    settings = [
        {str(key): value for key, value in item.items()}
        if isinstance(item, dict)
        else {"item": item}
        for item in items
    ]
    values = (value for one in settings for value in one.values())
    if len({tuple(one) for one in settings}) != 1 or not all(
        isinstance(value, int | float | str) for value in values
    ):
        return
    rows = [header(tuple(settings[0]))]
    for number, (line, one) in enumerate(zip(lines, settings, strict=True), 1):
        texts = {name: str(value) for name, value in one.items()}
        rows.append(row(Task(number, line, {}), texts))
    _write(table_path(file), "".join(rows).encode("utf-8", "replace"))


def _execute(file: str, jobs: int | None) -> None:
    """Let `weigh exec` run the tasks; failed ones are named on stderr.

    Raises:
        WeighError: it could not run them.
    """
    options = [] if jobs is None else [f"--jobs={jobs}"]
    argv = [sys.executable, "-P", "-m", "weigh", "exec", "--resume-failed", *options]
    # stderr is inherited: that of a notebook or a test is no file
    done = subprocess.run([*argv, file], stdout=subprocess.DEVNULL, check=False)
    code = done.returncode
    if code not in {0, 1}:
        raise WeighError(f"map: weigh exec {file} ended with exit code {code}")


def _results(folder: str, calls: Sequence[tuple[str, str]]) -> list[Any]:
    """Return the results of the calls.

    Raises:
        WeighError: some left none.
    """
    results, failed, reasons = list[Any](), list[str](), list[str]()
    out = os.path.join(folder, "tasks.txt.out")
    for number, (what, stem) in enumerate(calls, 1):
        try:
            with open(os.path.join(folder, f"{stem}.result"), "rb") as file:
                results.append(pickle.load(file))  # noqa: S301 - written by our own task
        except FileNotFoundError:
            failed.append(what)
            printed = error_in(os.path.join(out, f"{number}.out"))
            reasons.append(printed or "it ended without a message")
    if failed:
        named = ", ".join(failed[:_MOST_NAMED])
        more = ", ..." if len(failed) > _MOST_NAMED else ""
        raise WeighError(
            f"map: {len(failed)} of {len(calls)} calls failed: {named}{more} "
            f"(the first: {reasons[0]}; all in {out})"
        )
    return results


def _main(folder: str, stem: str) -> None:
    """Call the function with one item, and keep the result."""
    with open(os.path.join(folder, "call"), "rb") as file:
        call = _Call(*pickle.load(file))  # noqa: S301 - written by our own process
    sys.path[:] = call.path
    if call.main is not None:
        # as multiprocessing does: the main program under another name than __main__
        main = types.ModuleType(_AS_MAIN)
        sys.modules[_MAIN] = sys.modules[_AS_MAIN] = main
        sys.argv = call.argv
        setattr(main, _UNDER_WAY, True)
        main.__dict__.update(runpy.run_path(call.main, run_name=_AS_MAIN))
        delattr(main, _UNDER_WAY)
    with open(os.path.join(folder, f"{stem}.item"), "rb") as file:
        data = file.read()
    function = pickle.loads(call.function)  # noqa: S301 - as above
    result = function(pickle.loads(data))  # noqa: S301 - as above
    _write(os.path.join(folder, f"{stem}.result"), pickle.dumps(result))
    with suppress(OSError):
        os.unlink(os.path.join(folder, f"{stem}.item"))


if __name__ == "__main__":
    _main(sys.argv[1], f"{sys.argv[2]}-{sys.argv[3]}")
