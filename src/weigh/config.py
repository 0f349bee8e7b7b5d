"""Settings from ``WEIGH_*`` variables and files: the project's, the user's, the site's.

They apply below the options of the command line. A layer nearer to the user wins, key
by key. If no file exists, loading costs a few ``stat`` calls and imports nothing.

`KEYS` has a `SettingKind` for each setting: its conversion, and what is allowed. An
invalid value is a FormatError of one form: "FILE: KEY must be ALLOWED, not VALUE".
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeAlias, cast

import msgspec

from weigh.errors import FormatError, close_names
from weigh.model.mask import SecretMask, parse_mask
from weigh.project_folders import (
    distrust_reason,
    folders_of_project,
)
from weigh.regular_file import is_regular_file, only_regular
from weigh.units import MIB, Bytes, parse_duration, parse_size

Value: TypeAlias = str | int | float | bool

SITE_FILE = "/etc/weigh/config.toml"
PREFIX = "WEIGH_"
# a larger file is a mistake, and would be parsed at each start
_LARGEST_FILE: Bytes = MIB

# a variable is always text; a file has true and false of its own
_ANSWERS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


class ConfigSetting(msgspec.Struct, frozen=True):
    """One value and its origin: the path of a file, or the name of a variable."""

    value: Value
    origin: str  # where a message points to


class ConfigValues(msgspec.Struct, frozen=True):
    """The settings in force by key, and one warning per unknown key.

    ``gpus`` is the memory of GPUs by the site's names, ``cluster`` what the site wants
    and scratch disks, ``exec`` the options of that verb, ``mask`` what is hidden in
    records, ``ignore`` the rules whose findings `weigh check` ignores.
    """

    settings: dict[str, ConfigSetting] = {}
    warnings: tuple[str, ...] = ()
    gpus: dict[str, Bytes] = {}
    cluster: dict[str, object] = {}
    exec: dict[str, ConfigSetting] = {}  # by long names of options
    submit: dict[str, ConfigSetting] = {}  # see SUBMIT_KEYS
    mask: SecretMask = SecretMask()
    ignore: tuple[str, ...] = ()
    allow_nan: bool = False  # what tasks print may be NaN: see `weigh check`

    def value(self, key: str) -> Value | None:
        """Return the value in force for *key*, or None if nothing sets it."""
        setting = self.settings.get(key)
        return None if setting is None else setting.value


class SettingKind(msgspec.Struct, frozen=True):
    """A kind of value: the type it has in a file, and what a message says is allowed.

    ``parse`` turns a value of that type into the setting; it raises ValueError for one
    that is not allowed.
    """

    type: Any  # a type for msgspec.convert
    allowed: str  # completes "KEY must be"
    # None: the converted value is the setting
    parse: Callable[[Any], Any] | None = None

    def read(self, where: str, written_value: object) -> Any:  # noqa: ANN401 - of the kind
        """Convert *written_value*, which stands at *where*.

        Raises:
            FormatError: *written_value* is not of this kind; names *where*.
        """
        try:
            found = msgspec.convert(written_value, self.type)
            return found if self.parse is None else self.parse(found)
        except (msgspec.ValidationError, ValueError) as error:
            raise FormatError(
                f"{where} must be {self.allowed}, not {written_value!r}"
            ) from error
        except FormatError as error:
            raise FormatError(f"{where}: {error}") from error


def _positive_seconds(written: str | float) -> float:
    try:
        # a number without a unit is seconds
        seconds = parse_duration(str(written), bare_unit=1)
    except FormatError as error:
        raise ValueError(written) from error
    # this rejects nan as well
    if not 0 < seconds < float("inf"):
        raise ValueError(written)
    return seconds


def _parsed_yes_or_no(written: str | bool) -> bool:  # noqa: FBT001 - as in a file
    answer = written if isinstance(written, bool) else _ANSWERS.get(written.lower())
    if answer is None:
        raise ValueError(written)
    return answer


def _checked_size_text(written: str) -> str:
    parse_size(written)
    # stays text, so that a message can quote what was written
    return written


def _parsed_gpu_memory(written: str) -> Bytes:
    memory = parse_size(written)
    if memory < MIB:  # a bare number is bytes, which is never meant
        raise ValueError(written)
    return memory


_SHARE = SettingKind(str | int | float, "like '20%' or 0.2")
_SECONDS = SettingKind(str | int | float, "a time above 0", _positive_seconds)
_YES_NO = SettingKind(bool | str, "true or false", _parsed_yes_or_no)
_SIZE = SettingKind(str, "like '64G'", _checked_size_text)
_TEXT = SettingKind(Annotated[str, msgspec.Meta(min_length=1)], "text")
_GPU_MEMORY = SettingKind(str, "like '32510MiB'", _parsed_gpu_memory)
_NAMES = SettingKind(list[str], "a list of names: ['no-throttle']")
_OPTION = SettingKind(str | int | float | bool, "text, a number, true or false")

KEYS = {
    "headroom": _SHARE,
    "interval": _SECONDS,
    "login_node": _YES_NO,
    "quiet": _YES_NO,
    "scratch": _TEXT,
    "stage_max": _SIZE,
    "stalled_after": _SECONDS,
    "wait_orphans": _YES_NO,
}

# the keys of [cluster] are read where they are used; [exec] has the long names of
# that verb's options, whose values the verb itself checks
_TABLE = dict[str, Any]
TABLES = {
    "gpus": SettingKind(_TABLE, "a table of names and sizes: [gpus]"),
    "cluster": SettingKind(_TABLE, "a table: [cluster]"),
    "exec": SettingKind(_TABLE, "a table of its options: [exec]"),
    "submit": SettingKind(_TABLE, "a table: [submit]"),
    "records": SettingKind(_TABLE, "a table: [records]"),
    "check": SettingKind(_TABLE, "a table: [check]"),
}
EXEC_KEYS = (
    "jobs",
    "per_gpu",
    "retries",
    "halt",
    "timeout",
    "end_stuck",
    "grace",
    "memory",
    "guard",
    "pin",
)
# of [cluster]; tables of it are schedulers by their names
CLUSTER_KEYS = (
    *("memory", "exclusive", "constraint", "account", "qos"),
    *("require", "container"),
)
SUBMIT_KEYS = {
    "heal": SettingKind(bool | str, "true, false or limits: 'memory=64G,rounds=4'"),
}
# the tables that have known keys; that of no name are the plain keys of a file
_KINDS_BY_TABLE: dict[str, dict[str, SettingKind]] = {
    "": KEYS,
    "exec": dict.fromkeys(EXEC_KEYS, _OPTION),
    "submit": SUBMIT_KEYS,
    "check": {"ignore": _NAMES, "allow_nan": _YES_NO},
    "records": {"mask": SettingKind(Any, "patterns or false")},
}


def load_config(
    cwd: str, env: Mapping[str, str], *, site_file: str = SITE_FILE
) -> ConfigValues:
    """Read all layers that exist for the folder *cwd*.

    Raises:
        FormatError: a file or variable is invalid; names it, and the key or line.
    """
    config = ConfigValues()
    # the site first: the user's file overrides it
    for path in (site_file, _user_file(env)):
        if path and is_regular_file(path):
            config = _with_file(
                config, path, _parsed_settings(path, _settings_file_bytes(path))
            )
    # the project's file overrides both: it is nearer to the work
    config = _with_project(config, cwd, env)
    return msgspec.structs.replace(
        config, settings=config.settings | _from_environment(env)
    )


def _with_project(
    config: ConfigValues, cwd: str, env: Mapping[str, str]
) -> ConfigValues:
    """Return *config* with the nearest ``weigh.toml`` or ``[tool.weigh]`` above *cwd*.

    A file that others may write is not read: its settings would be theirs.
    """
    for directory in folders_of_project(cwd, env):
        for name in ("weigh.toml", "pyproject.toml"):
            path = os.path.join(directory, name)
            if not is_regular_file(path):
                continue
            distrust = distrust_reason(path)
            if distrust and name == "weigh.toml":
                warning = f"{path}: not read: {distrust}"
                warnings = (*config.warnings, warning)
                # no search further up: those settings are the ones that this file was
                # to replace
                return msgspec.structs.replace(config, warnings=warnings)
            # a pyproject.toml may belong to other tools only, so it is skipped without
            # a warning
            table = None if distrust else _weigh_settings_table(path)
            if table is not None:
                table, ignored = _allowed_project_settings(path, table)
                found = _with_file(config, path, table)
                # the warnings of _with_file include those of the layers before
                warnings = (*found.warnings, *ignored)
                return msgspec.structs.replace(found, warnings=warnings)
    return config


def _allowed_project_settings(
    path: str, table: Mapping[str, object]
) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return what a project's file may set, and a warning for each other setting.

    Others may have written it: it came with a repository. So it cannot show what is
    hidden in records.
    """
    records = table.get("records")
    if not isinstance(records, dict) or records.get("mask") is not False:
        return table, ()
    name = "records.mask = false"
    warning = f"{path}: {name} belongs into your own settings or the site's; ignored"
    kept = {key: value for key, value in records.items() if key != "mask"}
    return {**table, "records": kept}, (warning,)


def _user_file(env: Mapping[str, str]) -> str | None:
    base = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the XDG standard ignores a relative one
        home = env.get("HOME")
        base = os.path.join(home, ".config") if home else ""
    return os.path.join(base, "weigh", "config.toml") if base else None


def _weigh_settings_table(path: str) -> Mapping[str, object] | None:
    """Return weigh's settings in a project's file; None in another tool's pyproject."""
    text = _settings_file_bytes(path)
    if os.path.basename(path) == "weigh.toml":
        return _parsed_settings(path, text)
    if b"weigh" not in text:  # do not parse, or complain about, another tool's file
        return None
    tool = _parsed_settings(path, text).get("tool")
    table = tool.get("weigh") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise FormatError(f"{path}: tool.weigh must be a table: [tool.weigh]")
    return table


def _settings_file_bytes(path: str) -> bytes:
    try:
        with open(path, "rb", opener=only_regular) as file:
            # one byte more than allowed shows that the file is too large
            contents = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
    if len(contents) > _LARGEST_FILE:
        raise FormatError(f"{path}: larger than 1 MiB: no file of settings")
    return contents


def _parsed_settings(path: str, contents: bytes) -> Mapping[str, object]:
    import tomllib  # noqa: PLC0415 - start-up time: only where a file exists

    try:
        return tomllib.loads(contents.decode())
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        raise FormatError(f"{path}: not UTF-8 (at line {line})") from error
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits
        raise FormatError(f"{path}: not TOML: {error}") from error


def _with_file(
    config: ConfigValues, path: str, table: Mapping[str, object]
) -> ConfigValues:
    """Return *config* with the settings of one more file, which take precedence."""
    tables = {
        name: kind.read(f"{path}: {name}", table.get(name, {}))
        for name, kind in TABLES.items()
    }
    # tables were read above; what is left are the plain keys
    tables[""] = {key: value for key, value in table.items() if key not in TABLES}
    warnings = list(config.warnings)
    found: dict[str, dict[str, ConfigSetting]] = {}
    for name, kinds in _KINDS_BY_TABLE.items():
        found[name], unknown = _read_keys(path, tables[name], kinds, name)
        warnings += unknown
    warnings += _unknown_cluster_key_warnings(path, tables["cluster"])
    mask, ignore = config.mask, config.ignore
    # patterns and names of several files add up
    if "mask" in tables["records"]:
        nearer = parse_mask(f"{path}: records.mask", tables["records"]["mask"])
        mask = SecretMask(mask.patterns + nearer.patterns, nearer.off)
    if "ignore" in found["check"]:
        ignore = (*ignore, *cast("list[str]", found["check"]["ignore"].value))
    allow_nan = found["check"].get("allow_nan")
    gpus = {
        name: _GPU_MEMORY.read(f"{path}: gpus.{name}", value)
        for name, value in tables["gpus"].items()
    }
    return ConfigValues(
        settings=config.settings | found[""],
        warnings=tuple(warnings),
        gpus=config.gpus | gpus,
        # a queue table in a nearer file replaces the whole table, not single queues
        cluster=config.cluster | tables["cluster"],
        exec=config.exec | found["exec"],
        submit=config.submit | found["submit"],
        mask=mask,
        ignore=ignore,
        allow_nan=config.allow_nan if allow_nan is None else bool(allow_nan.value),
    )


def _unknown_cluster_key_warnings(
    path: str, table: Mapping[str, object]
) -> Iterator[str]:
    """Yield a warning for each unknown key of ``[cluster]``.

    A table of it may be that of a scheduler, whose names are not known here.
    """
    for key, value in table.items():
        if key not in CLUSTER_KEYS and not isinstance(value, dict):
            yield _unknown_key_warning(path, f"cluster.{key}", key, CLUSTER_KEYS)


def unknown_tables(config: ConfigValues, schedulers: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each table of ``[cluster]`` that no part of weigh reads."""
    known = [*CLUSTER_KEYS, *schedulers]
    for key, value in config.cluster.items():
        if isinstance(value, dict) and key not in known:
            yield _unknown_key_warning("settings", f"cluster.{key}", key, known)


def _read_keys(
    path: str,
    table: Mapping[str, object],
    kinds: Mapping[str, SettingKind],
    table_name: str,
) -> tuple[dict[str, ConfigSetting], list[str]]:
    """Read the known keys of *table*; return a warning for each of the others."""
    settings, warnings = {}, []
    prefix = f"{table_name}." if table_name else ""
    for written, value in table.items():
        # TOML files use dashes or underscores, as the options do
        key = written.replace("-", "_")
        kind = kinds.get(key)
        if kind is not None:
            where = f"{path}: {prefix}{written}"
            settings[key] = ConfigSetting(kind.read(where, value), path)
        else:
            name = f"{prefix}{written}" if prefix else repr(written)
            warnings.append(_unknown_key_warning(path, name, key, kinds))
    return settings, warnings


def _from_environment(env: Mapping[str, str]) -> dict[str, ConfigSetting]:
    """Read the variables of known keys; others with the prefix are read elsewhere."""
    return {
        key: ConfigSetting(kind.read(name, value), name)
        for key, kind in KEYS.items()
        if (value := env.get(name := PREFIX + key.upper(), "").strip())
    }


def _unknown_key_warning(
    path: str, full_key: str, key: str, known_keys: Iterable[str]
) -> str:
    near = close_names(key, known_keys, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{path}: unknown key {full_key}{hint}; ignored"
