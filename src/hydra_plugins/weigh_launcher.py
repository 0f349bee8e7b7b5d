"""Hydra's ``hydra/launcher=weigh``: a multirun becomes a plan, and is submitted.

Hydra imports this at the start of every application, so it imports nothing of weigh:
`weigh plan` and `weigh submit` run as programs.
"""

import csv
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, setup_globals
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

_log = logging.getLogger(__name__)
# of the application's own flags, those that its jobs need too; each has a value
_KEPT = ("--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd")
# of hydra's own overrides, those that are about the multirun
_OF_MULTIRUN = ("launcher", "sweeper", "sweep", "mode", "run", "job.num", "job.id")
_SEPARATE = frozenset("/.=")
# of weigh's options, those that are keys of this launcher
_KEYS = (
    *("name", "records", "gpu", "gpu_memory", "per_gpu"),
    *("memory", "cpus", "time", "on", "queue"),
)


@dataclass
class WeighLauncherConf:
    """What `weigh plan` and `weigh submit` are told; see their options."""

    _target_: str = "hydra_plugins.weigh_launcher.WeighLauncher"
    name: str | None = None
    records: str | None = None
    gpu: str | None = None
    gpu_memory: str | None = None
    per_gpu: int | None = None
    memory: str | None = None
    cpus: int | None = None
    time: str | None = None
    plan: list[str] = field(default_factory=list)
    on: str | None = None
    queue: str | None = None
    submit: list[str] = field(default_factory=list)
    dry_run: bool = False


ConfigStore.instance().store(
    group="hydra/launcher", name="weigh", node=WeighLauncherConf, provider="weigh"
)


class WeighLauncher(Launcher):
    """Writes a task per job, packs them by `weigh plan`, and submits the plan."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - Hydra's own types
        self._options = options

    def setup(
        self,
        *,
        hydra_context: HydraContext,
        task_function: TaskFunction,  # each job is a process of its own
        config: DictConfig,
    ) -> None:
        """Take what Hydra hands over."""
        self._context, self._config = hydra_context, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit one task per job; their results are in the jobs' folders, later."""
        setup_globals()
        jobs = [
            self._job(list(overrides), number)
            for number, overrides in enumerate(job_overrides, initial_job_idx)
        ]
        folder = os.path.abspath(self._config.hydra.sweep.dir)
        os.makedirs(folder, exist_ok=True)
        name = self._name(initial_job_idx)
        path = os.path.join(folder, f"{name}.txt")
        lines = [_hydra_task_line(job) for job in jobs]
        with open(path, "w", encoding="utf-8") as tasks:
            tasks.writelines(f"{line}\n" for line in lines)
        _write_table(f"{path.removesuffix('.txt')}.tsv", lines, jobs)
        _run_weigh_verb("plan", path, f"--name={name}", *self._plan_options())
        _run_weigh_verb("submit", os.path.join("plan", name), *self._submit_options())
        return jobs

    def _name(self, first: int) -> str:
        name = self._options["name"] or self._config.hydra.job.name
        stamp = "".join(filter(str.isdigit, str(self._config.hydra.sweep.dir)))[-12:]
        batch = f"-{first}" if first else ""
        return f"{name}-{stamp}{batch}" if stamp else f"{name}{batch}"

    def _plan_options(self) -> Iterator[str]:
        names = ("gpu", "gpu_memory", "per_gpu", "memory", "cpus", "time")
        yield from _option_flags({name: self._options[name] for name in names})
        yield from _option_flags({"from": self._options["records"]})
        yield from self._options["plan"]

    def _submit_options(self) -> Iterator[str]:
        yield from _option_flags(
            {name: self._options[name] for name in ("on", "queue")}
        )
        yield from self._options["submit"]
        if self._options["dry_run"]:
            yield "--dry-run"

    def _job(self, overrides: list[str], number: int) -> JobReturn:
        """Return a job with the configuration and the folder that it will have."""
        config = self._context.config_loader.load_sweep_config(self._config, overrides)
        with open_dict(config):
            config.hydra.job.id = f"job_{number}"
            config.hydra.job.num = number
        state = Singleton.get_state()
        try:
            folder = os.path.join(
                str(OmegaConf.select(config, "hydra.sweep.dir")),
                str(OmegaConf.select(config, "hydra.sweep.subdir")),
            )
        finally:
            Singleton.set_state(state)
        job = JobReturn()
        job.overrides, job.working_dir = overrides, os.path.abspath(folder)
        job.cfg, job.hydra_cfg = config, OmegaConf.masked_copy(config, "hydra")
        job.task_name = str(config.hydra.job.name)
        job.return_value, job.status = None, JobStatus.COMPLETED
        return job


def _hydra_task_line(job: JobReturn) -> str:
    """Return the task of a job: the application with the job's overrides."""
    number = job.hydra_cfg.hydra.job.num
    of_hydra = OmegaConf.to_container(job.hydra_cfg.hydra.overrides.hydra)  # as typed
    given = dict.fromkeys([*of_hydra, *job.overrides])
    own = [word for word in given if not _is_of_multirun(word)]
    places = [
        f"hydra.run.dir={_hydra_quoted(job.working_dir)}",
        f"hydra.job.num={number}",
    ]
    words = [*_application_words(), *own, "hydra.mode=RUN", *places]
    return shlex.join(words)


def _hydra_quoted(path: str) -> str:
    """Quote *path* in Hydra's grammar: ``a=1,b=2`` of override_dirname has to be."""
    if re.fullmatch(r"[\w/.+@-]+", path):
        return path
    text = re.sub(r'(\\*)"', r'\1\1\\"', path)
    return '"' + re.sub(r"(\\+)$", r"\1\1", text) + '"'


def _is_of_multirun(override: str) -> bool:
    rest = override.lstrip("+~").removeprefix("hydra")
    if rest == override.lstrip("+~") or rest[:1] not in _SEPARATE:
        return False
    of = next((one for one in _OF_MULTIRUN if rest[1:].startswith(one)), None)
    return of is not None and rest[len(of) + 1 :][:1] in {"", *_SEPARATE}


def _application_words() -> Iterator[str]:
    """Yield the words that start this application, without its overrides."""
    yield sys.executable
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None:
        yield os.path.abspath(sys.argv[0])
    else:
        yield from ("-m", spec.name.removesuffix(".__main__"))
    words = iter(sys.argv[1:])
    for word in words:
        if word in _KEPT:
            yield from (word, next(words, ""))
        elif word.startswith(tuple(f"{name}=" for name in _KEPT)):
            yield word


def _write_table(path: str, lines: Sequence[str], jobs: Sequence[JobReturn]) -> None:
    """Write the overrides as the tasks' parameters, where all jobs have the same."""
    settings = [
        dict(word.lstrip("+").partition("=")[::2] for word in filter_overrides(found))
        for found in (job.overrides for job in jobs)
    ]
    if len({tuple(one) for one in settings}) != 1:
        return
    with open(path, "w", encoding="utf-8", newline="") as table:
        rows = csv.writer(table, "excel-tab", lineterminator="\n")
        rows.writerow(["Seq", *settings[0], "Command"])
        for number, (line, one) in enumerate(zip(lines, settings, strict=True), 1):
            rows.writerow([number, *one.values(), line])


def _option_flags(options: dict[str, object]) -> Iterator[str]:
    for name, value in options.items():
        if value is not None:
            yield f"--{name.replace('_', '-')}={value}"


def _run_weigh_verb(*words: str) -> None:
    """Run a verb of weigh.

    Raises:
        CompactHydraException: it failed; with its message.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "weigh", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout + done.stderr).splitlines()
    last = lines.pop() if done.returncode and done.stderr.strip() else None
    for line in lines:
        _log.info(line)
    if done.returncode:
        raise CompactHydraException(
            _with_launcher_keys(last or f"weigh {words[0]}: exit {done.returncode}")
        )


def _with_launcher_keys(message: str) -> str:
    """Return a message with the keys of this launcher for the options of weigh."""
    for key in _KEYS:
        option = "--from" if key == "records" else f"--{key.replace('_', '-')}"
        ours = f"hydra.launcher.{key}"
        message = re.sub(rf"{option}(?: (?=[A-Z0-9]|local)|=)", f"{ours}=", message)
        message = re.sub(rf"{option}(?![\w-])", ours, message)
    return message
