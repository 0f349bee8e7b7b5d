"""``weigh doctor``: check this machine, and with ``--job`` a job before submission."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.errors import WeighError
from weigh.flow.doctor.checklist import MACHINE_CHECKS, checklist
from weigh.flow.doctor.facts import LIMIT_CHECKS, PATIENCE, gather
from weigh.flow.site.ask import Ask, ask, in_time
from weigh.model.doctor import Diagnosis, Facts, Git, JobFacts, Path, PythonEnvironment
from weigh.model.plan import Plan
from weigh.probe.filesystem import read_disk
from weigh.probe.python_environment import (
    environment_at,
    environment_of,
    find_conda,
    find_python,
)
from weigh.schedulers import KINDS
from weigh.schedulers.dialect import whole_number
from weigh.store.index import Head, read_index
from weigh.store.location import locate
from weigh.units import Seconds

_PLAN = "plan.json"
_SUFFIXES = (*(name for kind in KINDS.values() for name in kind.suffixes), "sh", "job")
_SCRIPTS = tuple(f".{name}" for name in _SUFFIXES)
_LONGEST_SCRIPT = 1 << 20
_MOST_WORDS, _MOST_PATHS = 400, 40
_GIT_PATIENCE: Seconds = 10.0
_PREFIXES = "|".join(
    re.escape(kind.text.PREFIX) for kind in KINDS.values() if kind.text.PREFIX
)
_DIRECTIVE = re.compile(rf"(?m)^(?:{_PREFIXES})\s+(.*)")
_ACTIVATE = re.compile(
    r"(?m)^\s*(?:(?:source|\.)\s+(\S+)/bin/activate\b"
    r"|(?:conda|mamba|micromamba|source)\s+activate\s+(\S+))"
)
_BRANCH = re.compile(r"(?m)^# branch\.(\S+) (.*)$")
# folders that every machine has its own of
_SYSTEM = ("/bin", "/usr", "/etc", "/dev", "/proc", "/sys", "/lib", "/opt", "/sbin")


def doctor(
    cwd: str, env: Mapping[str, str], *, job: str | None = None, ask: Ask = ask
) -> Diagnosis:
    """Collect the facts of this machine, and judge them.

    *job* names a plan or script; empty, the one that is in *cwd*.
    """
    facts = gather(cwd, env, ask)
    if job is not None:
        facts = msgspec.structs.replace(facts, job=_job(job, cwd, env, ask))
    return diagnose(facts)


def diagnose(facts: Facts) -> Diagnosis:
    """Judge the facts."""
    checks = (*MACHINE_CHECKS, *LIMIT_CHECKS)
    found = tuple(check for one in checks for check in one(facts))
    return Diagnosis(host=facts.host, checks=found, job=checklist(facts))


def _job(named: str, cwd: str, env: Mapping[str, str], ask: Ask) -> JobFacts:
    (found,) = in_time([lambda: job_facts(named, cwd, env, ask)], patience=2 * PATIENCE)
    if found is None:
        why = f"its disk has not answered for {2 * PATIENCE:g} s"
        return JobFacts(file=named or None, trouble=why, git_trouble=why)
    return found


def job_facts(named: str, cwd: str, env: Mapping[str, str], ask: Ask) -> JobFacts:
    """Collect the facts of the plan or script *named*, or of the only one here."""
    path = os.path.join(cwd, named) if named else _only_one(cwd)
    facts = JobFacts(trouble="no plan or script was named, and not just one is here")
    texts: list[str] = []
    if path is not None:
        facts, texts = _read(path, env)
        facts = msgspec.structs.replace(facts, file=os.path.relpath(path, cwd))
    folder = os.path.dirname(path) if path and facts.kind == "script" else cwd
    git, trouble = _git(folder, env, ask)
    runs, gpu_runs = _runs(texts, facts, cwd, env)
    return msgspec.structs.replace(
        facts,
        git=git,
        git_trouble=trouble,
        data=tuple(_data(texts, cwd)),
        runs=runs,
        gpu_runs=gpu_runs,
        **_environment(texts, cwd, env),
    )


def parse_git(text: str) -> Git:
    """Read ``git status --porcelain=v2 --branch``."""
    branch = dict(_BRANCH.findall(text))
    lines = [line for line in text.splitlines() if line[:1] not in {"#", "!", ""}]
    ahead = branch.get("ab", "").split(" ")[0]
    commit = branch.get("oid")
    return Git(
        changed=sum(line[0] != "?" for line in lines),
        untracked=sum(line[0] == "?" for line in lines),
        ahead=whole_number(ahead[1:]) if ahead.startswith("+") else None,
        upstream=branch.get("upstream"),
        commit=None if commit == "(initial)" else commit,
    )


def _only_one(cwd: str) -> str | None:
    """Find the one plan, or else the one job script, that is in *cwd*."""
    folders = [os.path.join(cwd, "plan", one) for one in _names(f"{cwd}/plan")]
    plans = [one for one in folders if os.path.isfile(os.path.join(one, _PLAN))]
    if len(plans) == 1:
        return plans[0]
    scripts = [
        path
        for name in _names(cwd)
        if name.endswith(_SCRIPTS)
        and _DIRECTIVE.search(_text(path := os.path.join(cwd, name)))
    ]
    return scripts[0] if len(scripts) == 1 and not plans else None


def _read(path: str, env: Mapping[str, str]) -> tuple[JobFacts, list[str]]:
    """Read a plan or script, and its shell lines: of a plan, an example a kind."""
    plan = path if os.path.basename(path) == _PLAN else os.path.join(path, _PLAN)
    if os.path.isfile(plan):
        return _read_plan(plan)
    if os.path.isdir(path):
        return JobFacts(trouble="it is a folder and no plan"), []
    if not os.path.isfile(path):
        return JobFacts(trouble="it is not there"), []
    text = _text(path)
    options = "\n".join(_DIRECTIVE.findall(text))
    asks = any(kind.lint.requests_gpus(options, env) for kind in KINDS.values())
    return JobFacts(kind="script", asks_gpus=asks), text.splitlines()


def _read_plan(path: str) -> tuple[JobFacts, list[str]]:
    try:
        with open(path, "rb") as file:
            plan = msgspec.json.decode(file.read(), type=Plan)
    except (OSError, msgspec.MsgspecError) as error:
        return JobFacts(kind="plan", trouble=f"it cannot be read: {error}"), []
    folder = os.path.dirname(path)
    missing = tuple(
        name for name in plan.files if not os.path.isfile(os.path.join(folder, name))
    )
    runs = min((kind.runs for kind in plan.kinds), default=0)
    facts = JobFacts(
        kind="plan",
        tasks=plan.tasks,
        missing_files=missing,
        asks_gpus=plan.request.gpus > 0,
        runs=runs,
        gpu_runs=runs if any(kind.used.gpu_memory for kind in plan.kinds) else 0,
    )
    return facts, [kind.example for kind in plan.kinds]


def _git(
    folder: str, env: Mapping[str, str], ask: Ask
) -> tuple[Git | None, str | None]:
    argv = ("git", "-C", folder or ".", "status", "--porcelain=v2", "--branch")
    # no lock is taken, nothing is written, no password prompt appears
    ours = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    reply = ask(argv, env={**env, **ours}, patience=_GIT_PATIENCE)
    if reply.is_answer:
        return parse_git(reply.stdout), None
    return None, reply.complaint().removeprefix("fatal: ")


def _words(texts: Sequence[str]) -> Iterator[str]:
    """Return the words of shell lines, and what stands behind an ``=`` in them."""
    for line in texts:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote that goes on in the next line
            words = line.split()
        for word in words:
            yield word
            name, equals, value = word.partition("=")
            if equals and name:
                yield value


def _data(texts: Sequence[str], cwd: str) -> Iterator[Path]:
    """Find the files and folders that the commands name, and this folder."""
    seen: set[str] = set()
    words = list(_words(texts))[:_MOST_WORDS]
    for word in [".", *words]:
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(word)))
        is_path = word == "." or "/" in word or "." in word
        if path in seen or not is_path or path.startswith(_SYSTEM):
            continue
        if os.path.exists(path) and len(seen) < _MOST_PATHS:
            seen.add(path)
            disk = read_disk("data", path)
            yield Path(os.path.relpath(path, cwd), disk.kind, disk.is_shared)


def _environment(
    texts: Sequence[str], cwd: str, env: Mapping[str, str]
) -> dict[str, object]:
    """Find the environment that a script activates, or the one that is active now."""
    found = _ACTIVATE.search("\n".join(texts))
    if found is None:
        return {"environment": environment_of(find_python(env))}
    venv, conda = found.groups()
    prefix = _venv(venv, cwd, env) if venv else find_conda(conda, env)
    one = PythonEnvironment(kind="none") if prefix is None else environment_at(prefix)
    return {"activates": venv or conda, "environment": one}


def _venv(written: str, cwd: str, env: Mapping[str, str]) -> str | None:
    home = env.get("HOME", "~")
    written = written.strip("\"'")
    for name in ("${HOME}", "$HOME", "~"):
        written = home + written[len(name) :] if written.startswith(name) else written
    path = os.path.join(cwd, written)
    return path if os.path.isfile(os.path.join(path, "bin", "activate")) else None


def _runs(
    texts: Sequence[str], facts: JobFacts, cwd: str, env: Mapping[str, str]
) -> tuple[int, int]:
    """Count the records of what a script runs; a plan says itself."""
    if facts.kind != "script":
        return facts.runs, facts.gpu_runs
    words = set(_words(texts))
    try:
        heads = [entry.head for entry in read_index(locate(cwd, env)).entries]
    except WeighError:
        return 0, 0
    mine = [head for head in heads if _is_run_of(head, words)]
    return len(mine), sum(bool(head.usage and head.usage.gpus) for head in mine)


def _is_run_of(head: Head, words: set[str]) -> bool:
    """Return whether a script has a record's program and its first argument."""
    if head.state != "COMPLETED" or not head.command:
        return False
    programs = {os.path.basename(word) for word in words}
    first = [word for word in head.command[1:2] if not word.startswith("-")]
    return os.path.basename(head.command[0]) in programs and set(first) <= words


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_SCRIPT)
    except OSError:
        return ""
