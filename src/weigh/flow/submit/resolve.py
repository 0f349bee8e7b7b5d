"""What to ask a scheduler for: what was said, else what the plan says."""

from collections.abc import Sequence

import msgspec

from weigh import gpu_models
from weigh.errors import FormatError, UsageError
from weigh.model.job import Wanted
from weigh.model.plan import Plan
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.local.jobs import NAME as LOCAL
from weigh.schedulers.protocol import Scheduler
from weigh.schedulers.script import positive_number
from weigh.schedulers.slurm import commands as slurm_commands
from weigh.units import GIB, MIB, Bytes

THROTTLE = 10
_NO_MEMORY = "memory: not known, so the queue's default (--memory SIZE)"
_NO_TIME = "time: not known, so the queue's default (--time TIME)"
UNKNOWN = frozenset({_NO_MEMORY, _NO_TIME})  # the notes that say so
# on top of the memory where nobody measured what is mapped: libraries, locales, weigh
_MAPPED: Bytes = GIB
_MAPPED_A_TASK: Bytes = 512 * MIB


def parse_gpus(text: str | None) -> tuple[str | None, int]:
    """Read ``2``, ``v100`` or ``v100:2``.

    Raises:
        FormatError: none of those.
    """
    if text is None:
        return None, 0
    kind, colon, count = text.rpartition(":")
    if not colon:
        kind, count = ("", text) if text.isdecimal() else (text, "1")
    if not positive_number(count) or (colon and not kind):
        raise FormatError(f"not GPUs: {text!r} (write it like 1, v100 or v100:2)")
    return kind or None, int(count)


# what a script of ours says itself: said twice, it would not be the job that we follow
_OWN = {
    slurm_commands.NAME: {
        **dict.fromkeys(("array", "a"), "weigh plan makes the elements, --throttle"),
        **dict.fromkeys(("output", "o", "error", "e"), "weigh logs shows what it says"),
        **dict.fromkeys(("chdir", "D", "wrap"), "the job runs where it was submitted"),
        "open-mode": "each element has a log of its own",
    },
    gridengine_commands.NAME: {
        **dict.fromkeys(("t", "tc"), "weigh plan makes the elements, --throttle"),
        **dict.fromkeys(("o", "e", "j"), "weigh logs shows what it says"),
        **dict.fromkeys(("wd", "cwd"), "the job runs where it was submitted"),
        **dict.fromkeys(("S", "b", "terse", "sync"), "the script is weigh's own"),
    },
}


def refuse_own(extra: Sequence[tuple[str, str]], kind: str) -> None:
    """See that no flag of the scheduler's takes away what weigh follows the job by.

    Raises:
        UsageError: one does; says what there is in its place.
    """
    for name, _ in extra:
        instead = _OWN.get(kind, {}).get(name)
        if instead is not None:
            raise UsageError(f"--{name}: the script says that itself ({instead})")


def asked(plan: Plan, said: Wanted, scheduler: Scheduler) -> tuple[Wanted, list[str]]:
    """Fill in from the plan what was not said; note what nobody said.

    Raises:
        UsageError: a task needs several nodes, and the scheduler has one for it.
    """
    ask = plan.ask
    notes: list[str] = []
    if ask.nodes > 1 and scheduler.name != slurm_commands.NAME:
        raise UsageError(
            f"{scheduler.name} has one node for a task here: several take Slurm"
        )
    wanted = msgspec.structs.replace(
        said,
        cpus=said.cpus or ask.cpus,
        memory=ask.memory if said.memory is None else said.memory,
        time_limit=ask.time_limit if said.time_limit is None else said.time_limit,
        throttle=_throttle(said, plan, scheduler.name),
        nodes=ask.nodes,
    )
    if not said.gpus and ask.gpus:
        kind, note = _gpu_word(ask.gpu, scheduler)
        wanted = msgspec.structs.replace(wanted, gpus=ask.gpus, gpu_type=kind)
        notes += note
    if scheduler.name == gridengine_commands.NAME and wanted.virtual_memory is None:
        wanted, note = _with_virtual(wanted, plan)
        notes += note
    if scheduler.name == gridengine_commands.NAME and wanted.gpus and wanted.cpus > 1:
        wanted, note = _one_slot(wanted, scheduler)
        notes += note
    if scheduler.name == gridengine_commands.NAME and wanted.after:
        notes.append("Grid Engine waits until a job has ended, even if it failed")
    if scheduler.name != LOCAL:
        if wanted.memory is None:
            notes.append(_NO_MEMORY)
        if wanted.time_limit is None:
            notes.append(_NO_TIME)
    return wanted, notes


def _gpu_word(
    name: str | None, scheduler: Scheduler
) -> tuple[str | None, tuple[str, ...]]:
    """Find the site's word for a GPU: of ``v100-32gb`` it may know ``v100`` only."""
    if name is None or scheduler.name == LOCAL:
        return None, ()
    types = scheduler.gpu_types()
    alike = _alike(name, types)
    if alike:
        return max(alike, key=len), ()
    known = f": it has {', '.join(types)}" if types else ""
    note = f"any GPU: the site has no word for {name}{known} (--gpus TYPE:N)"
    return None, (note,)


def _alike(name: str, types: Sequence[str]) -> list[str]:
    """Return the words that may be the card; a slice of one is never the whole card."""
    profile = gpu_models.profile_of(name)
    if profile is None:
        plain = name.lower()
        return [word for word in types if plain.startswith(word.lower())]
    slices = [word for word in types if gpu_models.profile_of(word) == profile]
    cards = _cards(name)
    same = [word for word in slices if cards & _cards(word)]
    return same or [word for word in slices if word.lower() == profile]


def _cards(name: str) -> set[str]:
    try:
        return {model.name for model in gpu_models.called(name)}
    except UsageError:  # a word of the site's own
        return set()


def _one_slot(wanted: Wanted, scheduler: Scheduler) -> tuple[Wanted, tuple[str, ...]]:
    """Ask for one slot where each would take the GPUs anew."""
    word = scheduler.cpus_beside_gpus(wanted.complexes)
    if word is None:
        return wanted, ()
    note = f"one slot and not {wanted.cpus}: here each takes its own GPUs"
    extra = wanted.extra
    if word:
        extra = (*extra, ("l", f"{word}={wanted.cpus}"))
        note += f"; {word}={wanted.cpus} asks for the CPUs"
    return msgspec.structs.replace(wanted, cpus=1, extra=extra), (note,)


def _throttle(said: Wanted, plan: Plan, scheduler: str) -> int | None:
    if scheduler == LOCAL:
        return said.throttle or 1
    if len(plan.elements) == 1:
        return None
    return said.throttle or THROTTLE


def _with_virtual(wanted: Wanted, plan: Plan) -> tuple[Wanted, tuple[str, ...]]:
    """Reckon h_vmem from the memory: it counts what is mapped as well."""
    if wanted.gpus:
        note = "h_vmem is left out: CUDA maps far more than it uses (--h-vmem SIZE)"
        return wanted, (note,)
    if wanted.memory is None:
        return wanted, ()
    together = max(len(element.tasks) for element in plan.elements)
    size = wanted.memory + _MAPPED + together * _MAPPED_A_TASK
    note = (
        "h_vmem counts what is mapped, too, which nobody measured: the memory and "
        "what libraries map (--h-vmem SIZE)"
    )
    return msgspec.structs.replace(wanted, virtual_memory=size), (note,)
