"""The checks of a job before it is submitted: code, data, sizes, script."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.errors import WeighError
from weigh.flow.doctor.machine_checks import (
    PATIENCE,
    environment_words,
    has_scheduler,
    torch_check,
)
from weigh.flow.here import Here
from weigh.flow.site.ask import CommandRunner
from weigh.model.doctor import DoctorCheck, PythonEnvironment
from weigh.model.plan import Plan
from weigh.probe.filesystem import read_disk
from weigh.probe.python_environment import (
    environment_at,
    environment_of,
    find_conda,
    find_python,
)
from weigh.schedulers import KINDS
from weigh.store.index import RecordHead, read_index
from weigh.store.location import locate_store
from weigh.sweep.quoting import bash_quoted
from weigh.units import count_with_noun

_PLAN = "plan.json"
_LONGEST_SCRIPT = 1 << 20  # bytes
# words of shell lines, and paths that exist, which are looked at
_MOST_WORDS, _MOST_PATHS = 400, 40
_SHOWN = 3  # names
_PREFIXES = "|".join(
    re.escape(kind.text.PREFIX) for kind in KINDS.values() if kind.text.PREFIX
)
# directives of all schedulers: a script may have several kinds
_DIRECTIVE = re.compile(rf"(?m)^(?:{_PREFIXES})\s+(.*)")
_ACTIVATE = re.compile(
    r"(?m)^\s*(?:(?:source|\.)\s+(\S+)/bin/activate\b"
    r"|(?:conda|mamba|micromamba|source)\s+activate\s+(\S+))"
)
_BRANCH = re.compile(r"(?m)^# branch\.(\S+) (.*)$")
# folders that every machine has its own of
_SYSTEM = ("/usr", "/bin", "/lib", "/etc", "/dev", "/proc", "/sys", "/opt", "/run")


class DoctorJob(msgspec.Struct, frozen=True, kw_only=True):
    """A plan or script as read, with its shell lines: of a plan, one of each kind.

    ``runs`` counts the records that its request is based on, ``gpu_runs`` those that
    used a GPU. ``description`` is what it is, ``trouble`` why it cannot be submitted.
    """

    name: str
    folder: str
    lines: tuple[str, ...] = ()
    asks_gpus: bool = False
    runs: int = 0
    gpu_runs: int = 0
    description: str = ""
    trouble: str | None = None


def job_checks(
    here: Here, named: str, run_command: CommandRunner
) -> Iterator[DoctorCheck]:
    """Yield the checks of the plan or script *named*."""
    job = read_job(here, named)
    yield _code_check(job.folder, here.env, run_command)
    yield _data_check(here, job)
    yield from _environment_checks(here, job)
    if job.runs:
        yield DoctorCheck("RAM", "ok", f"known from {count_with_noun(job.runs, 'run')}")
    else:
        cure = "weigh run -- COMMAND (or weigh scan), then weigh request"
        yield DoctorCheck("RAM", "warning", "unknown: its command has no record", cure)
    if not job.asks_gpus:
        yield DoctorCheck("GPUs", "ok", "it requests none")
    elif job.gpu_runs:
        text = f"GPU memory is known from {count_with_noun(job.gpu_runs, 'run')}"
        yield DoctorCheck("GPUs", "ok", text)
    else:
        cure = "weigh run -- COMMAND on a GPU node, to measure memory and load"
        text = "it requests GPUs, but no record used one"
        yield DoctorCheck("GPUs", "warning", text, cure)
    if job.trouble is None:
        yield DoctorCheck("script", "ok", job.description)
    else:
        cure = "weigh doctor --job PLAN or SCRIPT; weigh plan makes a plan"
        yield DoctorCheck("script", "broken", f"{job.name}: {job.trouble}", cure)


def read_job(here: Here, named: str) -> DoctorJob:
    """Read a plan or a script, and count the records of what it runs."""
    path = os.path.join(here.cwd, named)
    # the plan's file or its folder
    plan = path if os.path.basename(path) == _PLAN else os.path.join(path, _PLAN)
    if os.path.isfile(plan):
        return _read_plan_files(named, plan, here.cwd)
    folder = os.path.dirname(path) or here.cwd
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_SCRIPT)
    except IsADirectoryError:
        return DoctorJob(
            name=named, folder=here.cwd, trouble="it is a folder and no plan"
        )
    except OSError as error:
        why = "it is not there" if not os.path.exists(path) else str(error.strerror)
        return DoctorJob(name=named, folder=here.cwd, trouble=why)
    directives = "\n".join(_DIRECTIVE.findall(text))
    lines = tuple(text.splitlines())
    heads = _records_of(here, lines)
    return DoctorJob(
        name=named,
        folder=folder,
        lines=lines,
        asks_gpus=any(
            k.lint.requests_gpus(directives, here.env) for k in KINDS.values()
        ),
        runs=len(heads),
        gpu_runs=sum(bool(head.usage and head.usage.gpus) for head in heads),
        description=f"{named} exists; check it with: weigh check {bash_quoted(named)}",
    )


def _read_plan_files(named: str, path: str, cwd: str) -> DoctorJob:
    try:
        with open(path, "rb") as file:
            plan = msgspec.json.decode(file.read(), type=Plan)
    except (OSError, msgspec.MsgspecError) as error:
        return DoctorJob(name=named, folder=cwd, trouble=f"it cannot be read: {error}")
    folder = os.path.dirname(path)
    missing = [one for one in plan.files if not os.path.isfile(f"{folder}/{one}")]
    names = ", ".join(missing[:_SHOWN])
    # the kind with the fewest records decides how well the plan is known
    runs = min((kind.runs for kind in plan.kinds), default=0)
    return DoctorJob(
        name=named,
        folder=cwd,
        lines=tuple(kind.example for kind in plan.kinds),
        asks_gpus=plan.request.gpus > 0,
        runs=runs,
        gpu_runs=runs if any(kind.used.gpu_memory for kind in plan.kinds) else 0,
        description=f"{named}: a plan of {plan.tasks} tasks",
        trouble=f"{len(missing)} task files are missing: {names}" if missing else None,
    )


def _code_check(
    folder: str, env: Mapping[str, str], run_command: CommandRunner
) -> DoctorCheck:
    """Check that the code is committed and pushed."""
    argv = ("git", "-C", folder, "status", "--porcelain=v2", "--branch")
    # no lock is taken, nothing is written, no password prompt appears
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    reply = run_command(argv, env={**env, **quiet}, patience=PATIENCE)
    if not reply.is_answer:
        why = reply.complaint().removeprefix("fatal: ")
        cure = "git init; git add -A; git commit; push it to a server"
        return DoctorCheck("code", "warning", f"unknown: {why}", cure)
    return code_check_of(reply.out)


def code_check_of(status: str) -> DoctorCheck:
    """Judge the output of ``git status --porcelain=v2 --branch``."""
    branch = dict(_BRANCH.findall(status))
    # "#" lines describe the branch, "!" lines ignored files
    lines = [line for line in status.splitlines() if line[:1] not in {"#", "!", ""}]
    new = sum(line[0] == "?" for line in lines)
    # commits that the upstream branch lacks, as in "+2 -0"
    ahead = branch.get("ab", "+0").split(" ")[0].removeprefix("+")
    if lines or branch.get("oid") == "(initial)":
        words = [f"{len(lines) - new} changed"] if len(lines) > new else []
        words += [f"{new} new"] if new else []
        text = f"not committed: {', '.join(words) or 'nothing at all yet'}"
        cure = "git add, git commit: then the record names the code that ran"
        return DoctorCheck("code", "warning", text, cure)
    if "upstream" not in branch:
        cure = "git push -u origin HEAD"
        return DoctorCheck("code", "warning", "committed, but not pushed", cure)
    if ahead != "0":
        commits = (
            count_with_noun(int(ahead), "commit") if ahead.isdecimal() else "commits"
        )
        return DoctorCheck("code", "warning", f"{commits} not pushed", "git push")
    return DoctorCheck("code", "ok", f"committed and pushed to {branch['upstream']}")


def _data_check(here: Here, job: DoctorJob) -> DoctorCheck:
    """Check that the files which the commands name are on a disk that nodes see."""
    if not has_scheduler(here.env):
        return DoctorCheck(
            "data", "ok", "the job runs on this machine: it has these disks"
        )
    disks = {
        os.path.relpath(path, here.cwd): read_disk("data", path)
        for path in named_paths(job.lines, here.cwd)
    }
    local = [name for name, disk in disks.items() if disk.is_shared is False]
    if not local:
        kinds = ", ".join(sorted({disk.kind or "?" for disk in disks.values()}))
        return DoctorCheck("data", "ok", f"its files are on a shared disk ({kinds})")
    shown = ["this directory" if name == "." else name for name in local[:_SHOWN]]
    more = f" and {len(local) - _SHOWN} more" if len(local) > _SHOWN else ""
    text = f"on this machine's own disk: {', '.join(shown)}{more}"
    cure = (
        "nodes may not see it: copy it to the shared disk, or weigh submit --stage-in"
    )
    return DoctorCheck("data", "warning", text, cure)


def named_paths(lines: Sequence[str], cwd: str) -> list[str]:
    """Return this folder, and the files and folders that shell lines name."""
    paths = {cwd: None}
    for word in list(_shell_words(lines))[:_MOST_WORDS]:
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(word)))
        # only words like a path: any word may be the name of a file by chance
        is_path = "/" in word or "." in word
        if is_path and not path.startswith(_SYSTEM) and os.path.exists(path):
            paths[path] = None
    return list(paths)[:_MOST_PATHS]


def _shell_words(lines: Sequence[str]) -> Iterator[str]:
    """Return the words of shell lines, and what stands behind an ``=`` in them."""
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote that goes on in the next line
            words = line.split()
        for word in words:
            yield word
            name, equals, value = word.partition("=")
            if equals and name:
                yield value


def _environment_checks(here: Here, job: DoctorJob) -> Iterator[DoctorCheck]:
    """Check the environment that a script activates, or the one that is active now."""
    activates, found = activated_environment(here, job.lines)
    if found.kind == "none":
        text = f"{activates}: environment not found on this machine"
        cure = "create it (conda create, python -m venv), or load its module"
        shown = "no python on PATH" if activates is None else text
        yield DoctorCheck("environment", "warning", shown, cure)
        return
    yield DoctorCheck("environment", "ok", environment_words(found))
    if found.torch is not None and job.asks_gpus:
        yield torch_check(found, is_likely=True, is_requested=True)


def activated_environment(
    here: Here, lines: Sequence[str]
) -> tuple[str | None, PythonEnvironment]:
    """Return the name that a script activates, None for none, and what that is."""
    found = _ACTIVATE.search("\n".join(lines))
    if found is None:
        return None, environment_of(find_python(here.env))
    # of the two forms only one has matched
    venv, conda = found.groups()
    prefix = _venv_folder(here, venv) if venv else find_conda(conda, here.env)
    if prefix is None:
        return venv or conda, PythonEnvironment(kind="none")
    return venv or conda, environment_at(prefix)


def _venv_folder(here: Here, written: str) -> str | None:
    written = written.strip("\"'")
    # a shell expands these, and the script was not run
    for name in ("${HOME}", "$HOME", "~"):
        if written.startswith(name):
            written = here.env.get("HOME", "~") + written[len(name) :]
    path = os.path.join(here.cwd, written)
    return path if os.path.isfile(os.path.join(path, "bin", "activate")) else None


def _records_of(here: Here, lines: Sequence[str]) -> list[RecordHead]:
    """Return the records of what a script runs: its program and first argument."""
    words = set(_shell_words(lines))
    programs = {os.path.basename(word) for word in words}
    try:
        heads = [
            entry.head for entry in read_index(locate_store(here.cwd, here.env)).entries
        ]
    except WeighError:
        return []
    return [
        head
        for head in heads
        if head.state == "COMPLETED"
        and head.command
        and os.path.basename(head.command[0]) in programs
        # an option as the first argument does not distinguish scripts
        and {one for one in head.command[1:2] if not one.startswith("-")} <= words
    ]
