"""The request of a job: read from the options and the plan, then compared.

Options come first, the plan fills in the rest. After the submission the request is
compared with what the scheduler recorded.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from glob import glob
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weigh.errors import FormatError, NoClusterError, UsageError
from weigh.flow.here import Here
from weigh.flow.site import schedulers
from weigh.flow.site.ask import ask_scheduler
from weigh.flow.site.cluster import in_site_words
from weigh.lazy_modules import lazy_module
from weigh.model.element_time import GRACE, reserved_of
from weigh.model.job import (
    HealLimits,
    JobRequest,
    JobSetup,
    RecordedRequest,
    SubmittedJob,
)
from weigh.model.plan import Plan
from weigh.schedulers import KINDS, find_kind
from weigh.schedulers.kind import DialectOptions, DialectTraits
from weigh.schedulers.reachable import Scheduler
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.schedulers.words import positive_number
from weigh.units import (
    GIB,
    MIB,
    MINUTE,
    Bytes,
    format_limit,
    format_size,
    parse_limit,
    parse_size,
)

if TYPE_CHECKING:
    from weigh import gpu_models
    from weigh.planning import queue_order
    from weigh.probe import cgroup, host
    from weigh.runner import slots
else:  # each is imported when it is first used
    gpu_models = lazy_module("weigh.gpu_models")
    queue_order = lazy_module("weigh.planning.queue_order")
    cgroup = lazy_module("weigh.probe.cgroup")
    host = lazy_module("weigh.probe.host")
    slots = lazy_module("weigh.runner.slots")

_NO_MEMORY = "memory is not known: the queue's default applies (--memory SIZE)"
_NO_TIME = "time is not known: the queue's default applies (--time TIME)"
_NO_GPU = "no NVIDIA GPU on this machine: its tasks run without one"
_NVIDIA_DEVICES = "/dev/nvidia[0-9]*"  # one per GPU
UNKNOWN = frozenset({_NO_MEMORY, _NO_TIME})
# added to the memory for mapped libraries and locales, which were not measured
_MAPPED: Bytes = GIB
_MAPPED_PER_TASK: Bytes = 512 * MIB
_CLOSE = 0.01  # sizes are printed with three digits, and rounded up per slot
_THREADS = (2, 4)  # per core: schedulers allocate whole cores


# one word without a slash: no command, and no URL
_ADDRESS = re.compile(r"[^\s/@]+@[^\s/@]+")
_HALF_ADDRESS = re.compile(r"[^\s/@]*@[^\s/]*")


class HealOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to submit to, and what healing may do."""

    scheduler: str | None = None
    heal: str | None = None
    """Its limits as typed, see `heal_limits_of_text`; None: as the settings have it."""
    again: bool = False
    dry_run: bool = False


class SubmitOptions(HealOptions, frozen=True, kw_only=True):
    """The options as typed; None: take the value from the plan.

    Sizes and times are text here, read once the scheduler is known.
    """

    plan: str | None = None
    """The directory of a plan; None: a ``command`` is submitted."""
    command: tuple[str, ...] = ()
    name: str | None = None
    memory: str | None = None
    time: str | None = None
    cpus: int | None = None
    gpus: str | None = None
    nodes: int | None = None
    queue: str | None = None
    account: str | None = None
    notify: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    """The jobs that were sent just now, and may have failed already."""
    then: str | None = None
    throttle: int | None = None
    setup: JobSetup = JobSetup()
    stage_in: tuple[str, ...] = ()
    stage_out: str | None = None
    requeue: bool = False
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def stages(self) -> bool:
        """Return whether files are staged."""
        return bool(self.stage_in or self.stage_out)


def where_to(here: Here, options: HealOptions) -> str:
    """Return the scheduler: the one that is typed, or the first with a cluster."""
    if options.scheduler is not None:
        return options.scheduler
    *others, last = schedulers.available_schedulers(here.env)
    for name in others:
        with suppress(NoClusterError):
            refuse_without_cluster(here, name)
            return name
    return last  # taken as it is


def refuse_without_cluster(here: Here, name: str) -> None:
    """Refuse a scheduler whose commands reach no cluster, by its cheapest query.

    Raises:
        NoClusterError: they reach none.
    """
    kind = KINDS[name]
    reply = ask_scheduler(kind.probe, env=here.env)
    if not reply.is_answer and kind.backend.NO_CLUSTER.search(reply.complaint()):
        raise NoClusterError(kind.submits, kind.backend.LOGIN_HINT)


def typed_request(
    here: Here, options: SubmitOptions, kind: str, after: tuple[str, ...] = ()
) -> JobRequest:
    """Return the request as typed, in the site's words; the plan fills in the rest.

    Raises:
        UsageError: the scheduler *kind* does not have what was typed, or the job script
            sets it itself.
        FormatError: a size, a time or a GPU does not parse.
    """
    refuse_own(options.extra, kind)
    if options.requeue and kind == LOCAL:
        raise UsageError(
            "--requeue: jobs on this machine have no queue (omit --requeue and --time: "
            "they run until they are done)"
        )
    gpu_type, gpus = parse_gpus(options.gpus)
    address, command = _whom_to_notify(options.notify)
    limit = None if options.time is None else parse_limit(options.time)
    job_request = JobRequest(
        cpus=options.cpus or 0,  # 0: the plan's
        memory=None if options.memory is None else parse_size(options.memory),
        time_limit=limit,
        gpus=gpus,
        gpu_type=gpu_type,
        queue=options.queue,
        account=options.account,
        mail=address,
        notify=command,
        throttle=options.throttle,
        after=after,
        extra=options.extra,
    )
    refuse_absent(job_request, kind)
    return in_site_words(job_request, kind, here.settings.cluster)


def _whom_to_notify(targets: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the address to mail to, and the command or URL.

    Raises:
        UsageError: there are two of a kind, or half an address.
    """
    addresses = [target for target in targets if _ADDRESS.fullmatch(target)]
    others = [target for target in targets if target not in addresses]
    for target in filter(_HALF_ADDRESS.fullmatch, others):
        raise UsageError(
            f"--notify {target}: not an address (write it like me@uni.edu)"
        )
    for what, found in (("address", addresses), ("command or URL", others)):
        if len(found) > 1:
            raise UsageError(f"--notify: one {what}, not {' and '.join(found)}")
    return next(iter(addresses), None), next(iter(others), None)


def limits_of(here: Here, options: HealOptions, kind: str) -> HealLimits | None:
    """Return the limits of healing, as typed or set; None without healing.

    Raises:
        UsageError: the scheduler cannot heal.
        FormatError: a limit is invalid.
    """
    if options.heal == _NO_HEALING:
        return None
    scheduler = find_kind(kind)
    # a job can follow another
    can_heal = scheduler is None or scheduler.traits.waits
    setting = here.settings.submit.get("heal")
    # a setting is for all clusters: where it is not possible it is ignored
    if options.heal is None and not (setting and setting.value and can_heal):
        return None
    if scheduler is not None and not can_heal:
        raise UsageError(f"{scheduler.title} lets no job wait for another: omit --heal")
    found = dict[str, Any]()
    if setting is not None and isinstance(setting.value, str):
        where = f"{setting.origin}: submit.heal"
        found = heal_limits_of_text(setting.value, where)
    # what was typed comes before the settings
    typed = options.heal or ""
    return HealLimits(**found | heal_limits_of_text(typed, f"--heal={typed}"))


def heal_limits_of_text(text: str, where: str) -> dict[str, Any]:
    """Read ``memory=64G,time=2d,rounds=6,hours=500`` as fields of `HealLimits`.

    Raises:
        FormatError: a name or a value is invalid; names *where* it stands.
    """
    found = dict[str, Any]()
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name not in _HEAL_LIMITS:
            known = ", ".join(f"{one}=" for one in _HEAL_LIMITS)
            raise FormatError(f"{where}: no limit is called {name!r} ({known})")
        try:
            limit = _HEAL_LIMITS[name](value)
        except FormatError as error:
            raise FormatError(f"{where}: {name}: {error}") from error
        except ValueError:
            limit = math.nan
        if not 0 < limit < math.inf:  # nan is not
            raise FormatError(f"{where}: {name}: {value!r} is not a number above 0")
        found[f"max_{name}"] = limit
    return found


_HEAL_LIMITS: dict[str, Callable[[str], float]] = {
    "memory": parse_size,
    "time": parse_limit,
    "rounds": int,
    "hours": float,
}
_NO_HEALING = "no"


def parse_gpus(text: str | None) -> tuple[str | None, int]:
    """Read ``2``, ``v100`` or ``v100:2``.

    Raises:
        FormatError: *text* is none of these.
    """
    if text is None:
        return None, 0
    kind, colon, count = text.rpartition(":")
    if not colon:
        # a bare number is a count, a bare name one GPU of that type
        kind, count = ("", text) if text.isdecimal() else (text, "1")
    if not positive_number(count) or (colon and not kind):
        raise FormatError(f"not GPUs: {text!r} (write it like 1, v100 or v100:2)")
    return kind or None, int(count)


def refuse_own(extra: Sequence[tuple[str, str]], kind: str) -> None:
    """Refuse flags of the scheduler that the job script sets itself.

    Raises:
        UsageError: there is one; the message names the alternative. Jobs of this
            machine have no flags at all.
    """
    found = find_kind(kind)
    for name, _ in extra:
        option = f"{'-' if len(name) == 1 else '--'}{name}"
        if found is None:
            raise UsageError(f"jobs on this machine have no {option}: omit it")
        instead = found.backend.OWN.get(name)
        if instead is not None:
            raise UsageError(f"{option} is set by the job script ({instead})")


def refuse_absent(job_request: JobRequest, scheduler: str) -> None:
    """Refuse options for what the scheduler has not.

    Raises:
        UsageError: there is one.
    """
    kind = find_kind(scheduler)
    if kind is None:
        if job_request.queue:
            raise UsageError("jobs on this machine have no queue: omit --queue")
        return
    if job_request.queue and not kind.traits.queues:
        raise UsageError(f"{kind.title} has no queues: omit --queue")
    if job_request.after and not kind.traits.waits:
        raise UsageError(f"{kind.title} lets no job wait for another: omit --after")


def check_limits(heal_limits: HealLimits, job_request: JobRequest) -> None:
    """Compare the request with the limits of healing.

    Raises:
        UsageError: it is above them.
    """
    memory, time = job_request.memory or 0, job_request.time_limit or 0
    if memory > (heal_limits.max_memory or math.inf):
        raise UsageError(
            f"--heal=memory={format_size(heal_limits.max_memory or 0)} is less than "
            f"the request of an element: {format_size(memory)}"
        )
    if time > (heal_limits.max_time or math.inf):
        raise UsageError(
            f"--heal=time={format_limit(heal_limits.max_time or 0)} is less than the "
            f"time limit of an element: {format_limit(time)}"
        )


def complete_request(
    plan: Plan,
    typed: JobRequest,
    scheduler: Scheduler,
    reserved: int = 0,
    heal_limits: HealLimits | None = None,
) -> tuple[JobRequest, list[str]]:
    """Fill in from the plan what was not typed; return notes on what is missing.

    *reserved* are the seconds before the time limit that the job script needs.

    Raises:
        UsageError: a task needs several nodes, and this scheduler uses one; or the
            request is above *heal_limits*.
    """
    ask = plan.request
    notes: list[str] = []
    kind = find_kind(scheduler.name)
    traits = DialectTraits() if kind is None else kind.traits
    if ask.nodes > 1 and not traits.several_nodes:
        others = [one.title for one in KINDS.values() if one.traits.several_nodes]
        raise UsageError(
            f"{scheduler.name} runs a task on one node: several nodes need "
            f"{' or '.join(others)}"
        )
    if kind is not None and typed.extra:
        # the scheduler's own flags ask for something, too
        typed = kind.lint.read_flags(replace(typed, cpus=typed.cpus or ask.cpus))
    # ranks on the node that has most of them; 1 where tasks start none
    per_node = max(1, -(-ask.ntasks // ask.nodes))
    limit = typed.time_limit
    if limit is None:
        limit = queue_order.planned_limit(plan, reserved)
    else:
        limit, note_on_time = queue_order.enough_time(plan, limit, reserved)
        notes += [note_on_time] if note_on_time else []
    notes += _notes_on_less_memory(typed.memory, plan)
    request = replace(
        typed,
        # rounded up, so that each rank has the same number of CPUs
        cpus=-(-(typed.cpus or ask.cpus) // per_node) * per_node,
        memory=ask.memory if typed.memory is None else typed.memory,
        time_limit=limit,
        nodes=ask.nodes,
        ntasks=ask.ntasks,
    )
    if not typed.gpus and ask.gpus:
        name, note = _gpu_word(ask.gpu, scheduler)
        request = replace(request, gpus=ask.gpus, gpu_type=name)
        notes += note
    # Grid Engine kills by address space: it has to be derived from memory
    if traits.address_space is not None and request.virtual_memory is None:
        request, note = _with_virtual(request, plan, traits.address_space)
        notes += note
    # with one slot a count per slot is the count of the job
    if kind is not None and request.gpus and request.cpus > 1:
        request, note = _one_slot_request(request, scheduler, kind.text.OPTIONS)
        notes += note
    # after all else: how many fit on this machine depends on the request
    throttle = typed.throttle or _default_throttle(request, plan, scheduler.name)
    request = replace(request, throttle=throttle)
    # on this machine nothing is reserved, so nothing is missing
    is_local = scheduler.name == LOCAL
    notes += beyond_this_machine(request) if is_local else ()
    notes += () if is_local else _what_is_not_known(request, plan)
    if heal_limits is not None:
        check_limits(heal_limits, request)
    return request, notes


def _notes_on_less_memory(typed_memory: int | None, plan: Plan) -> Iterator[str]:
    planned_memory = plan.request.memory or 0
    if typed_memory is None or typed_memory >= planned_memory:
        return
    planned = f"the plan's {format_size(planned_memory)}"
    # of a command nobody has seen a plan
    if any(one.records for one in plan.kinds):
        planned = f"the {format_size(planned_memory)} planned from records"
    yield (
        f"--memory {format_size(typed_memory)} is less than {planned}: tasks may be "
        "killed"
    )


def _what_is_not_known(job_request: JobRequest, plan: Plan) -> Iterator[str]:
    if job_request.memory is None:
        yield _NO_MEMORY
    if job_request.time_limit is None:
        yield _NO_TIME
    # why, if there was a run
    if None in {job_request.memory, job_request.time_limit}:
        yield from dict.fromkeys(note for kind in plan.kinds for note in kind.notes)


def notes_on_no_time(limit: int | None, reserved: int) -> list[str]:
    """Return a note where tasks would be stopped as soon as they begin.

    *limit* and *reserved* are seconds; 0 and None are no limit.
    """
    if not limit or limit > GRACE + reserved_of(limit, reserved):
        return []
    last = f"the last {GRACE} seconds are for ending the tasks"
    return [f"--time {format_limit(limit)}: {last}, so they are stopped at once"]


def _gpu_word(
    name: str | None, scheduler: Scheduler
) -> tuple[str | None, tuple[str, ...]]:
    """Return the site's name of a GPU: for ``v100-32gb`` it may be ``v100``."""
    if name is None or scheduler.name == LOCAL:
        return None, ()
    types = scheduler.ask(scheduler.questions.gpu_types())
    alike = _similar_gpu_names(name, types)
    if alike:
        # the longest name fits most closely: v100-32gb rather than v100
        return max(alike, key=len), ()
    known = f": it has {', '.join(types)}" if types else ""
    note = f"any GPU: the site has no name for {name}{known} (--gpus TYPE:N)"
    return None, (note,)


def _similar_gpu_names(name: str, types: Sequence[str]) -> list[str]:
    """Return the site's names that may mean the GPU; a slice is never a whole GPU."""
    profile = gpu_models.profile_of(name)
    # a whole GPU; else the profile of a slice (MIG), such as 1g.10gb
    if profile is None:
        plain = name.lower()
        return [word for word in types if plain.startswith(word.lower())]
    slices = [word for word in types if gpu_models.profile_of(word) == profile]
    models = _models(name)
    same = [word for word in slices if models & _models(word)]
    # a site may name its slices by the profile alone
    return same or [word for word in slices if word.lower() == profile]


def _models(name: str) -> set[str]:
    try:
        return {model.name for model in gpu_models.gpu_models_called(name)}
    except UsageError:  # a name that only the site uses
        return set()


def _one_slot_request(
    job_request: JobRequest, scheduler: Scheduler, options: DialectOptions
) -> tuple[JobRequest, tuple[str, ...]]:
    """Request one slot where the site counts the GPUs once per slot."""
    word = scheduler.ask(scheduler.questions.cpu_resource(job_request.complexes))
    if word is None:
        return job_request, ()
    note = f"one slot instead of {job_request.cpus}: here the GPUs count per slot"
    extra = job_request.extra
    if word and options.resource is not None:
        name, value = options.resource
        extra = (*extra, (name, value.format(word, job_request.cpus)))
        note += f"; {word}={job_request.cpus} requests the CPUs"
    return replace(job_request, cpus=1, extra=extra), (note,)


def _default_throttle(
    job_request: JobRequest, plan: Plan, scheduler: str
) -> int | None:
    """Return how many elements run at once unless --jobs is given."""
    if scheduler == LOCAL:
        return min(len(plan.elements), elements_this_machine_holds(job_request))
    return None if len(plan.elements) == 1 else queue_order.AT_ONCE


def elements_this_machine_holds(job_request: JobRequest) -> int:
    """Return how many elements of a job have room side by side on this machine.

    At least 1: an element that is too large alone runs alone. Elements with GPUs take
    turns, as nothing here gives each of them other GPUs.
    """
    if job_request.gpus:
        return 1
    cpus, memory = _size_of_this_machine()
    counts = [cpus // max(1, job_request.cpus)]
    if job_request.memory:
        counts.append(memory // job_request.memory)
    return max(1, int(min(counts)))


def _size_of_this_machine() -> tuple[float, float]:
    """Return CPUs and memory; a container may have less than the machine."""
    machine = host.read_host()
    cpus = min(machine.cpus or 1, slots.read_cpu_quota() or math.inf)
    # 0 or None: no limit known
    limits = (machine.memory, *cgroup.limited_groups()[0].values())
    return cpus, min(filter(None, limits), default=math.inf)


def beyond_this_machine(job_request: JobRequest) -> Iterator[str]:
    """Yield what an element requests and cannot have: it runs without that."""
    cpus, memory = _size_of_this_machine()
    has = "this machine has {} of the {} requested: {}".format
    if (job_request.memory or 0) > memory:
        sizes = map(format_size, (int(memory), job_request.memory or 0))
        yield has(*sizes, "tasks that use more are killed")
    if job_request.cpus > cpus:
        yield has(f"{cpus:g}", f"{job_request.cpus} CPUs", "its tasks take turns")
    gpus = len(glob(_NVIDIA_DEVICES))
    if job_request.gpus and not gpus:
        yield _NO_GPU
    elif job_request.gpus > gpus:
        yield has(gpus, f"{job_request.gpus} GPUs", "its tasks run with fewer")


def _with_virtual(
    job_request: JobRequest, plan: Plan, name: str
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with address space, derived from memory and what is mapped.

    *name* is the scheduler's resource.
    """
    if job_request.gpus:
        note = f"{name} is not requested: CUDA maps more than it uses (-l {name}=SIZE)"
        return job_request, (note,)
    if job_request.memory is None:
        return job_request, ()
    size = job_request.memory + _MAPPED + plan.together * _MAPPED_PER_TASK
    measured = [kind.virtual_memory for kind in plan.kinds]
    known = [one for one in measured if one is not None]
    # all kinds, or the one that was not measured may map more
    if known and len(known) == len(measured):  # of libraries too, mapped and not used
        more = max(0, job_request.memory - (plan.request.memory or 0))  # as typed
        size = max(job_request.memory, plan.together * max(known) + more) + _MAPPED
        return replace(job_request, virtual_memory=size), ()
    note = (
        f"{name} is an estimate: it also counts mapped libraries, which were not "
        f"measured (-l {name}=SIZE)"
    )
    return replace(job_request, virtual_memory=size), (note,)


def check_understood(
    scheduler: Scheduler, submitted_jobs: Sequence[SubmittedJob]
) -> list[str]:
    """Return how the request that the scheduler recorded differs from the one sent.

    Only the first of *submitted_jobs* is compared: all parts of a plan have the same
    request.
    """
    if not submitted_jobs:
        return []
    recorded = scheduler.ask(scheduler.questions.understood(submitted_jobs[0].id))
    return [] if recorded is None else list(differences(submitted_jobs[0], recorded))


def differences(
    submitted_job: SubmittedJob, recorded: RecordedRequest
) -> Iterator[str]:
    """Yield each figure that the scheduler recorded differently, if it shows it.

    All figures are for one element, on all its nodes.
    """
    request, nodes = submitted_job.request, submitted_job.request.nodes
    slots = request.cpus or 1
    kind = find_kind(submitted_job.scheduler)
    memory = None if request.memory is None else request.memory * nodes
    address_space = (kind and kind.traits.address_space) or "address space"
    # sizes, and the number of parts each of which was rounded up to a whole MiB: a
    # request per CPU or per slot was rounded up on its own
    rounded = nodes * slots if request.site.per_cpu else nodes
    for what, size, got_size, parts in (
        ("memory", memory, recorded.memory, rounded),
        (address_space, request.virtual_memory, recorded.virtual_memory, slots),
    ):
        if size is None or got_size is None:
            continue
        if abs(size - got_size) > max(_CLOSE * size, parts * MIB):
            yield _differs(what, format_size(size), format_size(got_size))
    cpus = request.cpus * nodes
    # rounding up to whole cores is no difference
    same = {cpus, *(-(-cpus // threads) * threads for threads in _THREADS)}
    if cpus and recorded.cpus is not None and recorded.cpus not in same:
        yield _differs("CPUs", cpus, recorded.cpus)
    # a throttle above the number of elements has no effect, and one element is no array
    elements, throttle = submitted_job.elements, request.throttle
    types = ", ".join(recorded.gpu_types)
    has_type = (request.gpu_type or "").lower() in types.lower().split(", ")
    for name, requested, got in (
        ("GPUs", request.gpus * nodes, recorded.gpus),
        (
            "time",
            _whole_minutes(request.time_limit),
            _whole_minutes(recorded.time_limit),
        ),
        ("elements", elements if elements > 1 else None, recorded.elements),
        (
            "throttle",
            throttle if (throttle or 0) < elements else None,
            recorded.throttle,
        ),
        ("account", request.account, recorded.account),
        ("GPU type", request.gpu_type, None if has_type else types or None),
        ("queue", request.queue, recorded.queue),
    ):
        if None in {requested, got}:
            continue
        # accounts may be kept in lower case; of several queues the one of a job that
        # has started
        if not _words_of(got) <= _words_of(requested):
            yield _differs(name, requested, got)


def _differs(what: str, requested: object, got: object) -> str:
    return f"{what}: {requested} requested, but the scheduler recorded {got}"


def _words_of(value: object) -> set[str]:
    return set(str(value).lower().split(","))


def _whole_minutes(seconds: int | None) -> str | None:
    """Return a time limit as text, rounded up to whole minutes as schedulers do."""
    return None if seconds is None else format_limit(-(-seconds // MINUTE) * MINUTE)
