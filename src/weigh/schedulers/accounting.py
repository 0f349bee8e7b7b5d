"""What accounting reports of a job, and the DCGM table that an epilogue logs."""

import re
from collections.abc import Iterator, Mapping

from weigh.errors import SchedulerError
from weigh.model.report import AccountedElement, GpuTable
from weigh.schedulers import KINDS
from weigh.schedulers import slurm as slurm_text
from weigh.schedulers.command import Runner
from weigh.schedulers.slurm import accounting as slurm
from weigh.schedulers.words import whole_number
from weigh.units import Seconds

# for one command; a report is shown without accounting rather than late
_PATIENCE: Seconds = 30.0
NAMES = {kind.name: kind.accounts for kind in KINDS.values()}


def accounting_of_job(
    scheduler: str, job_id: str, *, run: Runner, env: Mapping[str, str]
) -> tuple[AccountedElement, ...]:
    """Return what accounting reports about *job_id*; empty if it does not answer.

    *run* runs its command. Jobs on this machine have no accounting.
    """
    if scheduler not in KINDS:
        return ()
    source = KINDS[scheduler].accounting
    try:
        # a report has weigh's own figures: accounting that fails takes nothing from it
        ran = run(source.argv(job_id), env, timeout=_PATIENCE)
    except SchedulerError:
        return ()
    return source.parse(ran.out) if ran.code == 0 else ()


def sample_interval(
    scheduler: str, *, run: Runner, env: Mapping[str, str]
) -> Seconds | None:
    """Return the seconds between the site's samples of memory; None if unknown.

    Grid Engine's figure is the kernel's own, not sampled.
    """
    if scheduler != slurm_text.TEXT.NAME:
        return None
    try:
        ran = run(slurm.INTERVAL_ARGV, env, timeout=_PATIENCE)
    except SchedulerError:
        return None
    return slurm.parse_interval(ran.out) if ran.code == 0 else None


_BEGIN = re.compile(r"^\|\s*GPU ID:\s*(\S+)", re.MULTILINE)
_ROW = re.compile(r"^\|([^|]*)\|([^|]*)\|\s*$", re.MULTILINE)
_FIGURE = re.compile(r"\b(Avg|Max|Min):\s*([0-9.]{1,20}|N/A)")
# a log may repeat them without end; more GPUs than that are on no node
_MOST_TABLES = 64


def read_tables(text: str) -> tuple[GpuTable, ...]:
    """Read every DCGM table in a log; a figure that is ``N/A`` becomes None."""
    return tuple(_tables(text))


def _tables(text: str) -> Iterator[GpuTable]:
    begins = list(_BEGIN.finditer(text))[:_MOST_TABLES]
    for number, begin in enumerate(begins):
        # a table ends where the next one begins: rows of the same names follow for each
        # GPU
        end = begins[number + 1].start() if number + 1 < len(begins) else len(text)
        rows = {
            name.strip(): value.strip()
            for name, value in _ROW.findall(text[begin.end() : end])
        }
        # other tables of a log may have a GPU ID, too
        if "Max GPU Memory Used (bytes)" in rows:
            yield _gpu_table_of_rows(begin[1], rows)


def _gpu_table_of_rows(gpu: str, rows: dict[str, str]) -> GpuTable:
    power = _minimum_to_maximum(rows.get("Power Usage (Watts)", ""))
    busy = _minimum_to_maximum(rows.get("SM Utilization (%)", ""))
    return GpuTable(
        gpu=gpu,
        gpu_memory=whole_number(rows["Max GPU Memory Used (bytes)"]),
        utilization=_share_of_per_cent(busy.get("Avg")),
        process_utilization=_share_of_per_cent(
            _accounting_number(rows.get("Avg SM Utilization (%)", ""))
        ),
        # mean, largest and smallest are equal in power and in use: there was one sample
        one_look=len(set(power.values())) == len(set(busy.values())) == 1,
    )


def _minimum_to_maximum(text: str) -> dict[str, float]:
    """Read ``Avg: 39, Max: 39, Min: 39``."""
    found = ((name, _accounting_number(value)) for name, value in _FIGURE.findall(text))
    return {name: value for name, value in found if value is not None}


def _accounting_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _share_of_per_cent(per_cent: float | None) -> float | None:
    return None if per_cent is None else per_cent / 100
