"""What to request next time: memory, time and CPUs, from the usage of elements."""

import heapq
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.model.job import JobRequest
from weigh.model.record import Record, State, Usage
from weigh.model.report import ReportMeasure, ReportNote
from weigh.planning.resume_policy import enough_time_factor
from weigh.request import (
    DEFAULT_HEADROOM,
    ENOUGH_RUNS,
    LEAST_VIRTUAL,
    SHORTEST_WORK,
    memory_to_request,
    round_memory,
    round_time,
    time_to_request,
)
from weigh.review.elements import ReviewedElement
from weigh.review.runs import ElementRequest, ReviewedRun
from weigh.schedulers import kind_or_first
from weigh.schedulers.kind import SchedulerKind, SchedulerText
from weigh.units import (
    MIB,
    MINUTE,
    Bytes,
    Seconds,
    count_with_noun,
    format_duration,
    format_limit,
    format_size,
)
from weigh.usage_needs import (
    cpus_for,
    cpus_to_request,
    has_waited,
    need_notes,
    small_read_words,
    wait_words,
)
from weigh.why_run_ended import out_of_memory, ran_out_on_gpu
from weigh.work_done_elsewhere import outside_work

# of a limit used: the next run may exceed it
_NEAR = 0.9
# of the request used: less is worth a line. 20 % of headroom and rounding leave a good
# request at 0.7 to 0.83; CPUs have neither
_WELL, _CPUS_WELL = 0.7, 0.8
_PETTY = 100 * MIB  # a smaller gain is not worth a line
# a plan allows for twice the least time or more where tasks share a GPU
_PETTY_TIME: Seconds = 10 * MINUTE


# what resuming answers with more of what was too small
RAN_SHORT: frozenset[State] = frozenset({"OUT_OF_MEMORY", "TIMEOUT"})


class AdviceSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What advice is based on: elements, what they requested, and the measures.

    ``unit`` is what a row of the report is: a task, an element of a script's job.
    ``next_requests`` are what resuming the job requests, by how tasks ended.
    ``packing_command`` plans the tasks anew.
    """

    elements: Sequence[ReviewedElement]
    requested: ElementRequest
    measures: dict[str, ReportMeasure]
    unit: str = "task"
    next_requests: Mapping[State, JobRequest] = {}  # empty: nothing can be resumed
    packing_command: str = "weigh plan TASKS"

    @property
    def completed(self) -> int:
        """Return the number of elements that completed."""
        return sum(ended_well(one) for one in self.elements)

    @property
    def runs(self) -> list[ReviewedRun]:
        """Return all attempts in all elements."""
        return [run for one in self.elements for run in one.runs]

    @property
    def last_runs(self) -> list[ReviewedRun]:
        """Return the last attempt at each task."""
        return [run for run in self.runs if run.is_last]

    @property
    def records(self) -> list[Record]:
        """Return the record of each attempt that was measured."""
        return [run.record for run in self.runs if run.record is not None]

    @property
    def usages(self) -> list[Usage]:
        """Return the usage of each attempt that was measured."""
        return [one.usage for one in self.records if one.usage is not None]

    @property
    def kind(self) -> SchedulerKind:
        """Return the scheduler whose flags are written."""
        return kind_or_first(self.requested.scheduler)

    @property
    def dialect(self) -> SchedulerText:
        """Return how that scheduler writes its flags."""
        return self.kind.text

    @property
    def limits_addresses(self) -> bool:
        """Return whether that scheduler limits address space, not memory."""
        return self.kind.traits.address_space is not None

    def few(self) -> str:
        """Return the number of completed runs in words; nothing if enough.

        Of a script's element, whose runs do different work, all count as one.
        """
        number = self.completed
        if self.unit != "element":
            number = sum(run.row.state == "COMPLETED" for run in self.last_runs)
        if number >= ENOUGH_RUNS or not self.elements:
            return ""
        noun = "element" if self.unit == "element" else "run"
        return count_with_noun(number, noun) if number else f"no {noun} completed"


def ended_well(element: ReviewedElement) -> bool:
    """Return whether most tasks completed, so that usage shows the need."""
    rows = [run.row for run in element.runs if run.is_last]
    # one bad input among many must not keep an element's usage from counting
    good = sum(row.state == "COMPLETED" for row in rows)
    return good > len(rows) / 2


def finding_note(
    about: str, words: str, weight: float, flag: str | None = None
) -> ReportNote:
    """Return a note about what should be changed."""
    return ReportNote(
        about=about, words=words, flag=flag, weight=weight, is_finding=True
    )


def resource_notes(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield what to request of memory, time and CPUs."""
    yield from _memory_advice(subject)
    yield from _time_limit_advice(subject)
    yield from _cpu_advice(subject)
    yield from _cpu_waits(subject)
    yield from _small_reads(subject)


def memory_flag(subject: AdviceSubject, memory: Bytes) -> str:
    """Write the flag that requests *memory*.

    A limit on address space is per slot, for the number of slots that are advised.
    """
    per_cpu = subject.dialect.OPTIONS.memory_per_cpu
    if subject.requested.per_cpu and per_cpu is not None:
        # both flags are typed together: the memory is divided by the CPUs that are
        # advised
        cpus = fewer_cpus(subject) or subject.requested.cpus or 1
        return per_cpu.format(subject.dialect.format_memory(-(-memory // cpus)))
    if not subject.limits_addresses:
        return subject.dialect.OPTIONS.memory.format(
            subject.dialect.format_memory(memory)
        )
    virtual = _enough_address_space(subject, memory)
    return _per_slot(
        subject, virtual, fewer_cpus(subject) or subject.requested.cpus or 1
    )


def time_flag(subject: AdviceSubject, seconds: Seconds) -> str:
    """Write the flag that requests *seconds* of wall time."""
    return subject.dialect.OPTIONS.time.format(subject.dialect.format_time(seconds))


def cpu_flag(subject: AdviceSubject, cpu_count: int) -> str:
    """Write the flag that requests *cpu_count*."""
    options = subject.dialect.OPTIONS
    flag = options.cpus.format(cpu_count)
    if cpu_count == 1 and options.one_cpu is not None:
        flag = options.one_cpu
    if subject.requested.per_cpu and subject.requested.memory:
        # the memory per CPU has to grow when CPUs are fewer
        all_of_it = less_memory(subject) or subject.requested.memory
        return f"{flag} {memory_flag(subject, all_of_it)}"
    # a limit per slot times fewer slots would be less in all: it is written again
    memory = _with_slots(subject) if subject.limits_addresses else None
    return flag if memory is None else f"{flag} {_per_slot(subject, memory, cpu_count)}"


def unmeasured_parts(subject: AdviceSubject) -> tuple[str, ...]:
    """Return what was not measured: less cannot be advised then."""
    found = (part for record in subject.records for part in record.missing)
    return tuple(dict.fromkeys(found))


def fewer_cpus(subject: AdviceSubject) -> int | None:
    """Return how many CPUs are enough, if a smaller request is worth a note.

    None for a job on several nodes, whose CPUs are counted together.
    """
    # what was not measured may have been busy
    if unmeasured_parts(subject) or subject.requested.nodes > 1:
        return None
    measure, requested = subject.measures.get("cpus"), subject.requested.cpus
    enough = enough_cpus(subject)
    if not requested or enough is None or measure is None or measure.median is None:
        return None
    # the busiest element decides how many are enough, the usual one whether it is worth
    # it
    is_fewer = enough < requested and measure.median / requested < _CPUS_WELL
    return enough if is_fewer and subject.completed else None


def less_memory(subject: AdviceSubject) -> Bytes | None:
    """Return how much memory is enough, if a smaller request is worth a note.

    None if it is unknown: no run completed, one was killed for memory, memory was
    still rising, a part was not measured, or address space is limited, which is not
    smaller.
    """
    if unmeasured_parts(subject):
        return None
    requested, need = subject.requested.memory, _largest_memory_need(subject)
    if not requested or need is None or not subject.completed or _is_rising(subject):
        return None
    enough = memory_to_request(need)
    # in share and in bytes: 30 % of 200 MiB are no reason to change a script
    is_less = need / requested < _WELL and requested - enough >= _PETTY
    # an element that was killed needs more, whatever the others used
    if not is_less or _count_in_state(subject, "OUT_OF_MEMORY"):
        return None
    # where address space is limited, less memory is a smaller request only if it is
    # limited to less
    return None if _is_held_by_addresses(subject, enough) else enough


def _is_held_by_addresses(subject: AdviceSubject, enough: Bytes) -> bool:
    """Return whether address space prevents a smaller request."""
    if not subject.limits_addresses:
        return False
    requested = subject.requested.virtual_memory or subject.requested.memory or 0
    return (
        # 0: no source knows the address space, so that less may break the program
        not _address_space_with_headroom(subject)
        or _enough_address_space(subject, enough) >= requested
    )


def _with_slots(subject: AdviceSubject) -> Bytes | None:
    """Return the address space of all slots; None if none is requested."""
    requested = subject.requested.virtual_memory or subject.requested.memory
    less = less_memory(subject)
    if less is not None:
        return _enough_address_space(subject, less)
    return requested


def _enough_address_space(subject: AdviceSubject, memory: Bytes) -> Bytes:
    return max(
        memory, LEAST_VIRTUAL, round_memory(_address_space_with_headroom(subject))
    )


def _per_slot(subject: AdviceSubject, virtual: Bytes, slots: int) -> str:
    size = subject.dialect.format_memory(-(-virtual // slots))
    return subject.dialect.OPTIONS.memory.format(size)


def _address_space_with_headroom(subject: AdviceSubject) -> float:
    """Return the largest address space of any source, with headroom."""
    measure = subject.measures.get("memory")
    others = measure.others if measure else ()
    sizes = [one.virtual for one in subject.elements if one.virtual is not None]
    # the scheduler's own figure counts, too: it includes what ran outside weigh
    source = _virtual_source(subject)
    sizes += [round(one.value) for one in others if one.source == source]
    return max(sizes, default=0) * (1 + DEFAULT_HEADROOM)


def _virtual_source(subject: AdviceSubject) -> str:
    return subject.kind.accounting.WORDS.virtual


def enough_memory(subject: AdviceSubject) -> Bytes | None:
    """Return the memory to request, by the largest need; None if unknown."""
    need = _largest_memory_need(subject)
    return None if need is None else memory_to_request(need)


def _cpus_of_busiest(subject: AdviceSubject) -> float | None:
    """Return how many CPUs the busiest element used; None if unknown."""
    measure = subject.measures.get("cpus")
    if measure is None or measure.most is None:
        return None
    # a run that was killed or ended at once was busy with its start-up
    whole = [
        one.cpus
        for one in subject.elements
        if one.cpus is not None
        and (one.wall_time or 0.0) >= SHORTEST_WORK
        and all(run.row.state == "COMPLETED" for run in one.runs)
    ]
    return max(whole, default=measure.most)


def enough_cpus(subject: AdviceSubject) -> int | None:
    """Return how many CPUs are enough for the busiest element; None if unknown."""
    used = _cpus_of_busiest(subject)
    if used is None:
        return None
    enough = cpus_to_request(used)
    waited = _usages_that_waited(subject)
    if not waited:
        return enough
    # one run per element: what each would have used without waiting is known
    if all(len(one.runs) == 1 for one in subject.elements):
        return max(enough, *map(cpus_for, waited))
    return max(enough, subject.requested.cpus or 1)  # they may have waited for others


def _usages_that_waited(subject: AdviceSubject) -> list[Usage]:
    """Return the usage of the runs that waited for CPUs."""
    return [usage for usage in subject.usages if has_waited(usage)]


def _memory_advice(subject: AdviceSubject) -> Iterator[ReportNote]:
    measure, requested = subject.measures.get("memory"), subject.requested.memory
    # the figures are a client's: no advice follows from them
    if (who := _who_did_the_work(subject)) is not None:
        yield finding_note("memory", who, 90)
        return
    killed = tasks_out_of_memory(subject)
    # the state is the same for both memories, the way out is not
    on_gpu = _count_in_state(subject, "OUT_OF_MEMORY") - killed
    enough = enough_memory(subject)
    if on_gpu:
        yield _out_of_gpu_memory(on_gpu, subject.unit)
    if killed:
        yield _out_of_memory_note(subject, killed, measure)
    elif requested and enough is not None:
        need = _largest_memory_need(subject) or 0
        if need / requested >= _NEAR:
            yield _near_memory(subject, enough, need)
        elif (less := less_memory(subject)) is not None:
            yield _less_memory(subject, less, need)


def _who_did_the_work(subject: AdviceSubject) -> str | None:
    """Return who did the work in place of what was measured, if others did."""
    return next(filter(None, map(outside_work, subject.records)), None)


def tasks_out_of_memory(subject: AdviceSubject) -> int:
    """Return how many tasks ran out of host memory."""
    return sum(
        run.row.state == "OUT_OF_MEMORY" and not _ran_out_of_gpu_memory(run)
        for run in subject.last_runs
    )


def _ran_out_of_gpu_memory(reviewed_run: ReviewedRun) -> bool:
    """Return whether it was a GPU's memory that a task ran out of."""
    if reviewed_run.record is not None and ran_out_on_gpu(reviewed_run.record.outcome):
        return True
    lacked = out_of_memory(reviewed_run.row.error or "")
    return lacked is not None and lacked.on_gpu


def _out_of_gpu_memory(task_count: int, unit: str) -> ReportNote:
    what = count_with_noun(task_count, unit)
    words = (
        f"{what} ran out of a GPU's memory: use a larger GPU or a smaller batch; more "
        "host memory does not help"
    )
    return finding_note("GPU mem", words, 100)


def _largest_memory_need(subject: AdviceSubject) -> Bytes | None:
    """Return the largest need of any element; None if unknown.

    If a job ran longer than weigh measured, the scheduler's figure counts, too.
    """
    needs = [one.need for one in subject.elements if one.need is not None]
    time, memory = subject.measures.get("time"), subject.measures.get("memory")
    # another time of the job means that weigh saw only a part of it
    if needs and memory and time and time.others:
        source = _virtual_source(subject)
        others = (one for one in memory.others if one.source != source)
        needs += (round(one.value) for one in others)
    return max(needs, default=None)


def _less_memory(subject: AdviceSubject, enough: Bytes, need: Bytes) -> ReportNote:
    less = 1 - enough / (subject.requested.memory or enough)
    words = (
        f"request {format_size(enough)}: {100 * less:.0f} % less, still "
        f"{_excess_text(enough, need)} peak usage"
    )
    return finding_note("memory", words, 60 * less, memory_flag(subject, enough))


def _out_of_memory_note(
    subject: AdviceSubject, killed: int, measure: ReportMeasure | None
) -> ReportNote:
    """Advise what resuming requests, else twice what was granted, or more.

    If nothing was requested, the note with the whole request has the figure.
    """
    # a run that requested nothing had the memory of its control group
    limits = (usage.memory_limit or 0 for usage in subject.usages)
    requested = max(subject.requested.memory or 0, *limits, 0)
    most = (measure.most if measure else None) or 0
    addresses = subject.requested.virtual_memory or 0
    resumed = subject.next_requests.get("OUT_OF_MEMORY")
    if resumed is not None and resumed.memory:
        again, virtual = resumed.memory, resumed.virtual_memory or resumed.memory
    else:  # what it had was too small, by an unknown factor
        again = max(round_memory(requested * 2), memory_to_request(most))
        # where address space is limited, that limit may be what was reached
        virtual = max(again, 2 * addresses)
    had, more = (f" with {format_size(requested)}" if requested else ""), again
    # a script of the user's own names that limit alone
    if subject.limits_addresses and not requested and addresses:
        had = f" with {format_size(addresses)} of address space"
        more = _enough_address_space(subject, virtual)
    over = most > (requested or addresses)
    held = f", {format_size(round(most))} were measured" if over else ""
    verb = "was" if killed == 1 else "were"
    words = f"{count_with_noun(killed, subject.unit)} {verb} killed for memory{had}"
    if subject.requested.is_nothing:
        return finding_note("memory", f"{words}{held}: the true need is unknown", 100)
    return finding_note(
        "memory",
        f"{words}{held}: request {format_size(more)}; the true need is unknown and may "
        "be higher",
        100,
        memory_flag(subject, virtual if subject.limits_addresses else again),
    )


def _near_memory(subject: AdviceSubject, enough: Bytes, need: Bytes) -> ReportNote:
    share = need / (subject.requested.memory or need)
    words = f"{100 * share:.0f} % of it was used: with a little more the job is killed"
    if share > 1:
        words = (
            f"{format_size(need)} were used, more than requested: where the limit is "
            "enforced, the job is killed"
        )
    # notes are sorted by weight: what loses work comes before what only wastes
    return finding_note("memory", words, 80, memory_flag(subject, enough))


def _time_limit_advice(subject: AdviceSubject) -> Iterator[ReportNote]:
    measure, requested = subject.measures.get("time"), subject.requested.time_limit
    # elements that were stopped show no need: the longest that ended does not matter
    late = _count_in_state(subject, "TIMEOUT")
    most = _longest_wall_time(measure)
    if late:
        yield _timed_out_note(subject, late)
    elif requested and most is not None:
        enough, share = time_to_request(most), most / requested
        if share >= _NEAR:
            words = (
                f"the longest ran {format_duration(most)}, {100 * share:.0f} % of the "
                "limit: on a slower node it is stopped"
            )
            yield finding_note("time", words, 78, time_flag(subject, enough))
        elif share < _WELL and requested - enough > _PETTY_TIME and subject.completed:
            yield _less_time(subject, enough, most)


def forecast_time(subject: AdviceSubject) -> Seconds | None:
    """Return the longest time that unfinished runs need by their progress, if known."""
    longest: Seconds | None = None
    for run in subject.runs:
        progress = None if run.record is None else run.record.progress
        if progress is not None and run.row.state != "COMPLETED":
            longest = max(longest or 0.0, progress.whole_time or 0.0) or None
    return longest


def _longest_wall_time(measure: ReportMeasure | None) -> Seconds | None:
    """Return the longest time that counts against the limit, of any source."""
    if measure is None or measure.most is None:
        return None
    return max([measure.most, *(one.value for one in measure.others)])


def _timed_out_note(subject: AdviceSubject, late: int) -> ReportNote:
    requested = subject.requested.time_limit
    what = f"{count_with_noun(late, subject.unit)} {'was' if late == 1 else 'were'}"
    needs = forecast_time(subject) or 0.0
    if requested and needs:
        what = f"by its progress about {format_duration(needs)} are needed; {what}"
    resumed = subject.next_requests.get("TIMEOUT")
    if resumed is not None and resumed.time_limit:
        enough = resumed.time_limit
        more = f"{format_limit(enough)}, as weigh resume does"
    else:  # of runs outside of jobs, which nothing resumes
        limit = requested or 1
        enough = round_time(enough_time_factor(limit, needs) * limit)
        more = format_limit(enough) if requested and needs else "twice as much"
    words = f"{what} stopped by the time limit: request {more}"
    flag = time_flag(subject, enough) if requested else None
    return finding_note("time", words, 90, flag)


def _less_time(
    subject: AdviceSubject, enough: int, longest_time: Seconds
) -> ReportNote:
    number = subject.completed
    slowest = "the measured time" if number == 1 else f"the slowest of {number:,}"
    words = (
        f"request {format_limit(enough)}: the job may start sooner; "
        f"{_excess_text(enough, longest_time)} {slowest}"
    )
    less = 1 - enough / (subject.requested.time_limit or enough)
    return finding_note("time", words, 30 * less, time_flag(subject, enough))


def _cpu_advice(subject: AdviceSubject) -> Iterator[ReportNote]:
    measure, requested = subject.measures.get("cpus"), subject.requested.cpus
    enough = enough_cpus(subject)
    if measure is None or not requested or enough is None or measure.median is None:
        return
    # the median: one element that waited for its input is not a rule
    if cpus_to_request(measure.median) > requested:
        words = (
            f"{measure.median:.1f} were busy, more than the {requested} requested: on "
            "nodes that enforce the limit it takes longer"
        )
        yield ReportNote(about="CPUs", words=words, weight=20)
    elif (fewer := fewer_cpus(subject)) is not None:
        words = (
            f"request {fewer}: at most {_cpus_of_busiest(subject) or 0:.1f} of the "
            f"{requested} were used"
        )
        less = 1 - fewer / requested
        yield finding_note("CPUs", words, 50 * less, cpu_flag(subject, fewer))


def _cpu_waits(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield what the run that waited longest for a CPU waited for."""
    waited = _usages_that_waited(subject)
    if not waited:
        return
    worst = max(waited, key=_wait_time)
    # one that was stopped would have gone on, for a time that is unknown
    completed = any(
        one.usage is worst and one.state == "COMPLETED" for one in subject.records
    )
    notes = (wait_words(worst), *(need_notes(worst) if completed else ()))
    yield ReportNote(about="CPUs", words="; ".join(notes), weight=25)


def _small_reads(subject: AdviceSubject) -> Iterator[ReportNote]:
    """Yield what the task with most reads does to a shared file system."""
    harms = [usage for usage in subject.usages if any(small_read_words(usage))]
    for worst in heapq.nlargest(1, harms, key=_read_calls):
        words = " ".join(small_read_words(worst))
        yield ReportNote(about="disk", words=words, weight=25)


def _read_calls(usage: Usage) -> int:
    return 0 if usage.file_calls is None else usage.file_calls.reads


def _wait_time(usage: Usage) -> Seconds:
    return 0.0 if usage.cpu_wait is None else usage.cpu_wait.time


def _is_rising(subject: AdviceSubject) -> bool:
    """Return whether memory was rising when a run ended, so the need is unknown."""
    return any(run.row.growing for run in subject.runs)


def _count_in_state(subject: AdviceSubject, state: str) -> int:
    return sum(run.row.state == state for run in subject.last_runs)


def _excess_text(enough: float, largest_amount: float) -> str:
    if largest_amount <= 0:  # nothing was used
        return "more than"
    share = 100 * (enough / largest_amount - 1)
    # 12 x is easier to read than 1100 %
    if share < 1000:  # noqa: PLR2004 - a percentage to read
        return f"{share:.0f} % above"
    return f"{enough / largest_amount:.0f} x"
