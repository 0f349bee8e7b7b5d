"""Settings below the flags: ``WEIGH_*``, the project's file, the user's, the site's.

A layer nearer the user wins, key by key. Where no file exists this costs a few
``stat`` calls and imports nothing.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from weigh.errors import FormatError
from weigh.model.mask import Mask, parse_mask
from weigh.units import MIB, Bytes, parse_duration, parse_size

Value: TypeAlias = str | int | float | bool

SITE_FILE = "/etc/weigh/config.toml"
PREFIX = "WEIGH_"

# what kind of word each key takes
KEYS = {
    "headroom": "share",
    "interval": "seconds",
    "login_node": "yes",
    "quiet": "yes",
    "scratch": "text",
    "stalled_after": "seconds",
    "wait_orphans": "yes",
}

# tables: [gpus] of names and memory, [cluster] as `weigh cluster --write-config`
# writes it, [exec] of that verb's options by their long names
GPUS, CLUSTER, EXEC, RECORDS = "gpus", "cluster", "exec", "records"
EXEC_KEYS = (
    "jobs",
    "per_gpu",
    "retries",
    "oom_retries",
    "halt",
    "timeout",
    "grace",
    "memory",
    "guard",
    "pin",
    "wait_orphans",
    "quiet",
)

_YES = {"1": True, "true": True, "yes": True, "on": True}
_NO = {"0": False, "false": False, "no": False, "off": False}


class Setting(msgspec.Struct, frozen=True):
    """One value and where it was set: a file's path or a variable's name."""

    value: Value
    origin: str


class Config(msgspec.Struct, frozen=True):
    """The settings in force by key, and a line of warning for each key unknown.

    ``gpus`` is the memory of a site's GPUs by the names it has for them, ``cluster``
    what a file says of its queues and scratch disks, ``exec`` the options of that verb,
    ``mask`` what is hidden in records.
    """

    settings: dict[str, Setting] = {}
    warnings: tuple[str, ...] = ()
    gpus: dict[str, Bytes] = {}
    cluster: dict[str, object] = {}
    exec: dict[str, Setting] = {}
    mask: Mask = Mask()

    def value(self, key: str) -> Value | None:
        """Return the value in force for *key*, or None where nothing sets it."""
        setting = self.settings.get(key)
        return None if setting is None else setting.value


def load(cwd: str, env: Mapping[str, str], *, site_file: str = SITE_FILE) -> Config:
    """Read every layer that exists, as seen from *cwd*.

    Raises:
        FormatError: a file or variable does not parse; names it, and the line.
    """
    settings: dict[str, Setting] = {}
    warnings: list[str] = []
    gpus: dict[str, Bytes] = {}
    cluster: dict[str, object] = {}
    exec_: dict[str, Setting] = {}
    mask = Mask()
    for path, table in _tables(cwd, env, site_file):
        found, unknown = _from_table(path, table)
        settings |= found
        warnings += unknown
        gpus |= _gpus(path, table.get(GPUS, {}))
        cluster |= _cluster(path, table.get(CLUSTER, {}))
        options, strange = _exec(path, table.get(EXEC, {}))
        exec_ |= options
        warnings += strange
        mask, strange = _mask(path, table.get(RECORDS, {}), mask)
        warnings += strange
    settings |= _from_environment(env)
    return Config(
        settings=settings,
        warnings=tuple(warnings),
        gpus=gpus,
        cluster=cluster,
        exec=exec_,
        mask=mask,
    )


def _tables(
    cwd: str, env: Mapping[str, str], site_file: str
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the files that exist and what they hold, the weakest first."""
    for path in (site_file, _user_file(env)):
        if path and _is_file(path):
            yield path, _parsed(path, _contents(path))
    project = _project_table(cwd)
    if project:
        yield project


def _user_file(env: Mapping[str, str]) -> str | None:
    base = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the XDG standard: a relative one is ignored
        home = env.get("HOME")
        base = os.path.join(home, ".config") if home else ""
    return os.path.join(base, "weigh", "config.toml") if base else None


def _project_table(cwd: str) -> tuple[str, Mapping[str, object]] | None:
    """Find the nearest ``weigh.toml`` or ``[tool.weigh]`` from *cwd* upwards."""
    for directory in _upwards(cwd):
        path = os.path.join(directory, "weigh.toml")
        if _is_file(path):
            return path, _parsed(path, _contents(path))
        path = os.path.join(directory, "pyproject.toml")
        table = _tool_table(path) if _is_file(path) else None
        if table is not None:
            return path, table
    return None


def _upwards(directory: str) -> Iterator[str]:
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def _tool_table(path: str) -> Mapping[str, object] | None:
    text = _contents(path)
    if b"weigh" not in text:  # no parser, and no complaint about another tool's file
        return None
    tool = _parsed(path, text).get("tool")
    table = tool.get("weigh") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise FormatError(f"{path}: tool.weigh must be a table: [tool.weigh]")
    return table


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):  # not there, not ours to see, or no path at all
        return False


def _contents(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error


def _parsed(path: str, contents: bytes) -> Mapping[str, object]:
    import tomllib  # noqa: PLC0415 - start-up time: only where a file exists

    try:
        return tomllib.loads(contents.decode())
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}: not UTF-8 (at line {line})") from error
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits
        raise FormatError(f"{path}: not TOML: {error}") from error


def _from_table(
    path: str, table: Mapping[str, object]
) -> tuple[dict[str, Setting], list[str]]:
    settings, warnings = {}, []
    for written, value in table.items():
        key = written.replace("-", "_")
        if key in KEYS:
            settings[key] = Setting(_checked(f"{path}: {written}", key, value), path)
        elif key not in {GPUS, CLUSTER, EXEC, RECORDS}:
            near = _nearest(key, KEYS)
            warnings.append(f"{path}: unknown key {written!r}{near}; ignored")
    return settings, warnings


def _exec(path: str, table: object) -> tuple[dict[str, Setting], list[str]]:
    """Read ``[exec]``; what its values mean is known where its options are."""
    if not isinstance(table, dict):
        raise FormatError(f"{path}: exec must be a table of its options: [exec]")
    options, warnings = {}, []
    for written, value in table.items():
        key = written.replace("-", "_")
        if key not in EXEC_KEYS:
            near = _nearest(key, EXEC_KEYS)
            warnings.append(f"{path}: unknown key exec.{written}{near}; ignored")
        elif isinstance(value, str | int | float):
            options[key] = Setting(value, path)
        else:
            raise FormatError(f"{path}: exec.{written} cannot be {value!r}")
    return options, warnings


def _mask(path: str, table: object, before: Mask) -> tuple[Mask, list[str]]:
    """Read ``[records] mask``; the patterns of several files add up."""
    if not isinstance(table, dict):
        raise FormatError(f"{path}: records must be a table: [records]")
    warnings = [
        f"{path}: unknown key records.{name}{_nearest(name, ('mask',))}; ignored"
        for name in table
        if name != "mask"
    ]
    if "mask" not in table:
        return before, warnings
    mask = parse_mask(f"{path}: records.mask", table["mask"])
    return Mask(before.patterns + mask.patterns, mask.off), warnings


def _cluster(path: str, table: object) -> dict[str, object]:
    if not isinstance(table, dict):
        raise FormatError(f"{path}: cluster must be a table: [cluster]")
    return table


def _gpus(path: str, table: object) -> dict[str, Bytes]:
    """Read ``[gpus]``: what programs can use of each, such as ``V100 = "32510MiB"``."""
    if not isinstance(table, dict):
        raise FormatError(f"{path}: gpus must be a table of names and sizes: [gpus]")
    return {name: _gpu_memory(f"{path}: gpus.{name}", table[name]) for name in table}


def _gpu_memory(where: str, value: object) -> Bytes:
    try:
        memory = parse_size(value) if isinstance(value, str) else 0
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error
    if memory < MIB:  # a bare number is bytes, and nobody means those
        raise FormatError(f"{where} must be like '32510MiB', not {value!r}")
    return memory


def _from_environment(env: Mapping[str, str]) -> dict[str, Setting]:
    """Read the variables of known keys; others of the prefix have other readers."""
    return {
        key: Setting(_checked(name, key, value), name)
        for key in KEYS
        if (value := env.get(name := PREFIX + key.upper(), "").strip())
    }


def _checked(where: str, key: str, value: object) -> Value:
    """Return *value* as the kind that *key* takes; a share stays as it is written."""
    kind = KEYS[key]
    if kind == "share":
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return value
        raise FormatError(f"{where} must be like '20%' or 0.2, not {value!r}")
    if kind == "text":
        if isinstance(value, str) and value:
            return value
        raise FormatError(f"{where} must be text, not {value!r}")
    answer = _seconds(value) if kind == "seconds" else _answer(value)
    if answer is None:
        meant = "a time above 0" if kind == "seconds" else "true or false"
        raise FormatError(f"{where} must be {meant}, not {value!r}")
    return answer


def _answer(value: object) -> bool | None:
    if isinstance(value, str):
        return (_YES | _NO).get(value.lower())
    return value if isinstance(value, bool) else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = parse_duration(str(value), bare=1)
    except FormatError:
        return None
    return number if 0 < number < float("inf") else None


def _nearest(key: str, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 - start-up time: only for a key that is off

    near = difflib.get_close_matches(key, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
