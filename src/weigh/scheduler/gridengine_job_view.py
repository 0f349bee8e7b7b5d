"""What Grid Engine recorded as a job's request: ``qstat -j``, read as text."""

from weigh.dialect import gridengine
from weigh.dialect.numerals import whole_number
from weigh.errors import FormatError
from weigh.model.job import Understood
from weigh.scheduler.elements_view import count_elements
from weigh.scheduler.gridengine_view import is_gpu, is_gpu_type


def parse_job(text: str) -> Understood | None:
    """Read the job of *text*; None where there is none.

    A site may call its GPUs anything: without a name that is known for one, how many
    were requested is not known.
    """
    rows = _rows(text)
    if "job_number" not in rows:
        return None
    asked = _resources(rows.get("hard resource_list", ""))
    slots = _slots(rows.get("parallel environment", ""))
    tasks = rows.get("job-array tasks")
    each = _size(asked.get("h_vmem"))
    return Understood(
        virtual_memory=None if each is None else each * slots,
        cpus=slots,
        gpus=next((whole_number(asked[name]) for name in asked if is_gpu(name)), None),
        gpu_types=tuple(asked[name] for name in asked if is_gpu_type(name)),
        time_limit=_time(asked.get("h_rt")),
        queue=rows.get("hard_queue_list"),
        account=rows.get("project"),
        elements=count_elements(tasks) if tasks else None,
        throttle=whole_number(rows.get("maximum concurrency")),
    )


def _rows(text: str) -> dict[str, str]:
    """Split ``name:   value`` lines; the first of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _resources(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _slots(text: str) -> int:
    """Read ``smp range: 2``: the fewest of a range."""
    return whole_number(text.rpartition(":")[2].strip().partition("-")[0]) or 1


def _size(text: str | None) -> int | None:
    try:
        return None if text is None else gridengine.parse_memory(text)
    except FormatError:
        return None


def _time(text: str | None) -> int | None:
    try:
        return None if text is None else gridengine.parse_time(text)
    except FormatError:
        return None
