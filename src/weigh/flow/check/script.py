"""``weigh check SCRIPT``: what would go wrong with a job script that someone wrote."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Literal, TypeVar

import msgspec

from weigh.errors import UsageError, cannot_read
from weigh.flow.here import Here
from weigh.flow.site.ask import CommandRunner, ask_scheduler
from weigh.flow.site.cluster import live_limits, site_flags, site_requires
from weigh.flow.site.schedulers import current_user
from weigh.model.lint import (
    CheckedScript,
    CommandPlace,
    LintFinding,
    PathKind,
    ScriptFacts,
)
from weigh.probe.filesystem import read_disk
from weigh.schedulers import KINDS, installed_scheduler
from weigh.schedulers.kind import LiveAnswers, SchedulerLint
from weigh.schedulers.lint.case import note, problem
from weigh.schedulers.lint.environment_rules import BARE_PATH
from weigh.schedulers.lint.rules import acknowledged
from weigh.schedulers.script import ScriptLine, ScriptText

_LONGEST = 4 << 20  # the usual limit of schedulers on a script
_MOST_LINES_READ = 64 << 20  # bytes of a file whose lines are counted
_MOST_OF_LINES = 1 << 18  # bytes of a file whose lines are read
_MOST_OPTIONS = 64 << 10  # bytes of a scheduler's file of options
_PATIENCE = 5.0  # seconds

_Value = TypeVar("_Value")


def check_here(
    here: Here,
    path: str,
    *,
    form: str | None,
    run_command: CommandRunner = ask_scheduler,
) -> CheckedScript:
    """Return what is wrong with a job script, here and on this machine's cluster.

    *form* is a scheduler's name, by default what its directives are.

    Raises:
        UsageError: there is no such file, it is no text, or no such form.
        FormatError: a settings file does not parse.
    """
    text = read_script_file(os.path.join(here.cwd, path), path)
    scheduler = form or guess(text) or installed_scheduler(here.env)
    if not KINDS[scheduler].traits.takes_scripts:
        title, tool = KINDS[scheduler].title, KINDS[scheduler].submits
        cure = f"({tool} -dry-run /dev/null {path} does)"
        raise UsageError(f"{path}: weigh checks no scripts for {title} {cure}")
    dialect = dialect_of(scheduler)
    live = LiveAnswers()
    # without the scheduler's commands there is no cluster to query
    if shutil.which(KINDS[scheduler].lists, path=here.env.get("PATH", "")):
        awaited = dialect.awaited(text)
        live = live_limits(scheduler, awaited, env=here.env, run_command=run_command)
    facts = facts_of(here, scheduler=scheduler, live_answers=live)
    found, script = dialect.lint(text, facts), dialect.script_as_started(text, facts)
    program = shellcheck_program(here.env)
    # shellcheck would only repeat that the script cannot be parsed
    is_readable = not any(one.rule == "syntax" for one in found)
    if program is not None and script.is_shell and is_readable:
        found = (*found, *shellcheck_findings(script, program))
    kept, ignored = acknowledged(text, found, here.settings.ignore)
    return CheckedScript(
        script=path,
        scheduler=scheduler,
        directives=len(dialect.directives(text)),
        findings=kept,
        acknowledged=ignored,
        lacks_shellcheck=program is None and script.is_shell,
    )


def facts_of(
    here: Here, *, scheduler: str = "", live_answers: LiveAnswers | None = None
) -> ScriptFacts:
    """Return the facts of this machine; files are looked up on demand.

    Without a *scheduler* neither its files of options nor the settings count.

    Raises:
        FormatError: a value of ``[cluster]`` in the settings is invalid.
    """
    live_answers = live_answers or LiveAnswers()  # no scheduler was asked
    site = here.settings.cluster if scheduler else {}
    files = dialect_of(scheduler).default_files(here.cwd, here.env) if scheduler else ()
    return ScriptFacts(
        cwd=here.cwd,
        home=here.env.get("HOME") or None,
        user=here.env.get("USER") or current_user(),
        paths=LazyLookup(_kind),
        lines=LazyLookup(_count_lines),
        texts=LazyLookup(_beginning_of),
        files=LazyLookup(_numbers_of_existing_paths),
        executable=LazyLookup(_is_executable),
        local_disks=LazyLookup(_is_on_local_disk),
        commands=LazyLookup(lambda name: _command_place(name, here.env)),
        variables=here.env,
        jobs=live_answers.jobs,
        limits=live_answers.limits,
        syntax=LazyLookup(_bash_syntax_errors),
        defaults=tuple(_contents_of(files)),
        required=site_requires(site),
        per_cpu=scheduler in KINDS and site_flags(scheduler, site).per_cpu,
    )


def _bash_syntax_errors(text: str) -> str:
    """Return what bash reports about *text*; it runs nothing."""
    program = shutil.which("bash", path=BARE_PATH)
    if program is None:
        # KeyError: not known, so no rule that needs it applies
        raise KeyError(text)
    ran = subprocess.run(
        # -n: only parse
        [program, "-O", "extglob", "-n"],
        input=text.encode("utf-8", "surrogateescape"),
        capture_output=True,
        env={"LC_ALL": "C"},
        timeout=_PATIENCE,
        check=False,
    )
    return ran.stderr.decode(errors="replace")


def _contents_of(files: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the *files*, (name, path), that exist."""
    for name, path in files:
        try:
            if stat.S_ISREG(os.stat(path).st_mode):
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield name, file.read(_MOST_OPTIONS)
        except (OSError, ValueError):
            continue  # the scheduler does without it as well


def dialect_of(scheduler: str) -> SchedulerLint:
    """Return the lint of a scheduler's scripts."""
    return KINDS[scheduler].lint


def guess(text: str) -> str | None:
    """Return the scheduler whose directives a script seems to have, or None."""
    lines = text.splitlines()
    counts = {
        kind.name: sum(map(bool, map(kind.directive.match, lines)))
        for kind in KINDS.values()
    }
    most = max(counts.values())
    likely = [name for name, count in counts.items() if count == most]
    # as many directives of two schedulers: the caller decides
    return likely[0] if len(likely) == 1 else None


class LazyLookup(Mapping[str, _Value], Generic[_Value]):
    """A mapping that looks up each key on demand.

    Only the lint knows which keys it needs. A key is unknown where *find* raises
    KeyError, or the error of a path that is not there or not ours to see.
    """

    def __init__(self, find: Callable[[str], _Value]) -> None:
        self._find = find
        self._found: dict[str, _Value] = {}

    def __getitem__(self, key: str) -> _Value:
        if key not in self._found:
            try:
                self._found[key] = self._find(key)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise KeyError(key) from error
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def read_script_file(full: str, path: str) -> str:
    """Return the text of the job script at *full*, called *path* by the user.

    Raises:
        UsageError: there is no such file, it is no text, or cannot be read.
    """
    try:
        found = os.stat(full)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{path}: not a file")
        if found.st_size > _LONGEST:
            raise UsageError(f"{path}: more than 4 MiB: no job script")
        with open(full, "rb") as file:
            return file.read(_LONGEST).decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise UsageError(f"no such file: {path}") from error
    except OSError as error:
        raise UsageError(cannot_read(path, error)) from error


def _kind(path: str) -> PathKind:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    return "directory" if stat.S_ISDIR(mode) else "file"


def _is_on_local_disk(path: str) -> bool:
    is_shared = read_disk(path).is_shared
    if is_shared is None:
        raise KeyError(path)
    return not is_shared


def _bytes_of_file(path: str, most: int) -> bytes:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise KeyError(path)
    with open(path, "rb") as file:
        return file.read(most)


def _count_lines(path: str) -> int:
    data = _bytes_of_file(path, _MOST_LINES_READ)
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def _beginning_of(path: str) -> str:
    """Return the beginning of a file with lines of text."""
    data = _bytes_of_file(path, _MOST_OF_LINES)
    if b"\0" in data:
        raise KeyError(path)
    return data.decode(errors="replace")


def _is_executable(path: str) -> bool:
    mode = os.stat(path).st_mode
    anybody = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH  # root may also run no others
    return stat.S_ISDIR(mode) or bool(mode & anybody)


def _numbers_of_existing_paths(template: str) -> tuple[int, ...]:
    """Find the numbers for which the path exists that *template* has ``{}`` in."""
    parts = template.split("/")
    place = next(i for i, part in enumerate(parts) if "{}" in part)
    before, _, after = parts[place].partition("{}")
    # schedulers write numbers without leading zeros
    named = re.compile(rf"{re.escape(before)}(0|[1-9]\d{{0,8}}){re.escape(after)}")
    rest = parts[place + 1 :]
    numbers = []
    for name in os.listdir("/".join(parts[:place]) or "/"):
        found = named.fullmatch(name)
        path = "/".join((*parts[:place], name, *rest))
        if found and (not rest or os.path.exists(path)):
            numbers.append(int(found[1]))
    return tuple(sorted(numbers))


def _command_place(name: str, env: Mapping[str, str]) -> CommandPlace:
    path = shutil.which(name, path=env.get("PATH", ""))
    bare = shutil.which(name, path=BARE_PATH)
    if path and bare and os.path.realpath(path) == os.path.realpath(bare):
        bare = path  # /bin is /usr/bin on many systems
    return CommandPlace(path=path, bare_path=bare)


_SHELLS = {"bash": "bash", "sh": "sh", "dash": "dash", "": "bash"}
# errors of shellcheck that end no job: quotes around "${a[@]}", `for a in $(ls)`; and
# what `bash -n` finds as well
_HARMLESS = frozenset({2045, 2068, 1009, 1071, 1072, 1073})
# below its errors: {1..$n}, ssh that reads a loop's input, rm -r
# "$unset/", an option as a command behind a broken line
_HARMFUL = frozenset({2051, 2095, 2115, 2215})
_ONLY_IN_BASH = range(3000, 4000)
_SHELLCHECK_PATIENCE = 20.0  # seconds


class ShellcheckComment(msgspec.Struct, frozen=True):
    """One comment of ``shellcheck -f json1``."""

    line: int
    level: Literal["error", "warning", "info", "style"]
    code: int
    message: str


class ShellcheckReport(msgspec.Struct, frozen=True):
    """The document of ``shellcheck -f json1``."""

    comments: tuple[ShellcheckComment, ...]


def shellcheck_program(env: Mapping[str, str]) -> str | None:
    """Return the path of shellcheck, None if it is not installed."""
    return shutil.which("shellcheck", path=env.get("PATH", ""))


def shellcheck_findings(script: ScriptText, program: str) -> tuple[LintFinding, ...]:
    """Return what shellcheck finds that ends a job or changes what it does.

    An error is a problem, the rest are notes; style is left to shellcheck itself. There
    are none if the program fails: the scheduler's rules do without it.
    """
    shell = _SHELLS.get(script.program)
    if shell is None:
        return ()
    text = "\n".join(line.text for line in script.lines) + "\n"
    try:
        ran = subprocess.run(
            # --norc: a user's settings do not decide what ends a job
            [program, "--norc", "--format=json1", f"--shell={shell}", "-"],
            input=text.encode("utf-8", "replace"),
            capture_output=True,
            timeout=_SHELLCHECK_PATIENCE,
            check=False,
        )
        report = msgspec.json.decode(ran.stdout, type=ShellcheckReport)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return ()
    return tuple(
        _shellcheck_finding(script, comment)
        for comment in report.comments
        if (comment.level == "error" and comment.code not in _HARMLESS)
        or comment.code in _HARMFUL
        or comment.code in _ONLY_IN_BASH
    )


def _shellcheck_finding(script: ScriptText, comment: ShellcheckComment) -> LintFinding:
    # a comment may name the line behind the last one
    line = script.lines[min(comment.line, len(script.lines)) - 1]
    make = problem if comment.level == "error" else note
    effect = f"{comment.message.rstrip('.')} (SC{comment.code})"
    return make(ScriptLine(line.line, line.text.strip()), "shellcheck", effect, "")
