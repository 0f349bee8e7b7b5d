"""The guide's checklist as checks: pure, from what was found out about the job."""

from collections.abc import Iterator

from weigh.flow.doctor.checks import environment_words, torch_check
from weigh.model.doctor import Check, Facts, JobFacts
from weigh.sweep.quoting import quoted

_SHOWN = 3


def checklist(facts: Facts) -> tuple[Check, ...]:
    """Tick what is ready of the job that was named; nothing where none was."""
    job = facts.job
    if job is None:
        return ()
    return (
        _code(job),
        _data(job, needs_shared=bool(facts.schedulers)),
        *_environment(job, facts),
        _memory(job),
        _gpus(job),
        _script(job),
    )


def _code(job: JobFacts) -> Check:
    git = job.git
    if git is None:
        cure = "git init; git add -A; git commit; push it to where you can get it back"
        return Check("code", "warning", f"not known: {job.git_trouble}", cure)
    if git.commit is None or git.changed or git.untracked:
        words = [f"{git.changed} changed"] if git.changed else []
        words += [f"{git.untracked} new"] if git.untracked else []
        text = f"not committed: {', '.join(words) or 'nothing at all yet'}"
        return Check("code", "warning", text, "git add, git commit: what ran is known")
    if git.upstream is None:
        cure = "git push -u origin HEAD"
        return Check("code", "warning", "committed, and pushed nowhere", cure)
    if git.ahead:
        text = f"{git.ahead} commit{'' if git.ahead == 1 else 's'} not pushed"
        return Check("code", "warning", text, "git push")
    return Check("code", "ok", f"committed and pushed to {git.upstream}")


def _data(job: JobFacts, *, needs_shared: bool) -> Check:
    local = [one for one in job.data if one.is_shared is False]
    if not needs_shared:
        return Check("data", "ok", "the job runs on this machine: it sees these disks")
    if not local:
        kinds = ", ".join(sorted({one.kind for one in job.data if one.kind}))
        return Check("data", "ok", f"what it names is on a shared disk ({kinds})")
    shown = ["this folder" if one.path == "." else one.path for one in local]
    names = ", ".join(shown[:_SHOWN])
    more = f" and {len(local) - _SHOWN} more" if len(local) > _SHOWN else ""
    text = f"on this machine's own disk: {names}{more} ({local[0].kind})"
    cure = (
        "nodes may not see it: copy it to the shared disk, or weigh submit --stage-in"
    )
    return Check("data", "warning", text, cure)


def _environment(job: JobFacts, facts: Facts) -> Iterator[Check]:
    one = job.environment
    if one is None or one.kind == "none":
        text = f"{job.activates}: no such environment found here"
        if job.activates is None:
            text = "no python is on PATH here"
        cure = "make it (conda create, python -m venv), or is it a module's?"
        yield Check("environment", "warning", text, cure)
        return
    yield Check("environment", "ok", environment_words(one))
    is_other = facts.environment is None or one.prefix != facts.environment.prefix
    if one.torch is not None and is_other:
        asks = job.asks_gpus is True
        yield torch_check(one, is_asked=asks, is_likely=bool(facts.schedulers))


def _memory(job: JobFacts) -> Check:
    if job.runs:
        return Check("RAM", "ok", f"known from {_runs(job.runs)}")
    cure = "weigh run -- COMMAND (or weigh scan), then weigh request"
    return Check("RAM", "warning", "not known: no record of its command", cure)


def _gpus(job: JobFacts) -> Check:
    if job.asks_gpus is None:
        cure = "name it: weigh doctor --job PLAN or SCRIPT"
        return Check("GPUs", "warning", "not known: no plan or script", cure)
    if not job.asks_gpus:
        return Check("GPUs", "ok", "it asks for none")
    if job.gpu_runs:
        return Check("GPUs", "ok", f"GPU memory is known from {_runs(job.gpu_runs)}")
    cure = "weigh run -- COMMAND on a GPU node: how much memory, how busy"
    return Check("GPUs", "warning", "it asks for GPUs, and no record used one", cure)


def _script(job: JobFacts) -> Check:
    if job.trouble is not None:
        what = f"{job.file}: {job.trouble}" if job.file else job.trouble
        cure = "weigh doctor --job PLAN or SCRIPT; weigh plan makes a plan"
        return Check("script", "broken" if job.file else "warning", what, cure)
    if job.missing_files:
        names = ", ".join(job.missing_files[:_SHOWN])
        text = f"{job.file}: {len(job.missing_files)} task files are gone: {names}"
        return Check("script", "broken", text, "weigh plan --replace")
    if job.kind == "plan":
        return Check("script", "ok", f"{job.file}: a plan of {job.tasks} tasks")
    return Check(
        "script",
        "ok",
        f"{job.file} is there; weigh check {quoted(job.file or '')} reads it",
    )


def _runs(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
