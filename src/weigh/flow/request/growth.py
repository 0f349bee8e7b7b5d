"""Carry a request on to the full length of the job, where memory still rises."""

import math
from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import FormatError, UsageError
from weigh.estimate.growth import (
    TIMED_LOOP,
    extrapolate,
    growth_of,
    progress_of,
    time_needed,
)
from weigh.model.progress import MemoryExtrapolation, MemoryGrowth, StepProgress
from weigh.model.record import Record, Request
from weigh.render.words import extrapolation_words, rate_words
from weigh.request import LEAST_MEMORY, STILL_RISING, round_memory, round_time
from weigh.units import Seconds, format_duration

_FAR = 4.0  # times the measured run, beyond which a line is a guess


class JobSteps(msgspec.Struct, frozen=True, kw_only=True):
    """How long the full job is, and how much of it was measured, as a user says.

    ``is_samples``: ``total`` counts samples, of which a batch of weigh.batches has
    several.
    """

    total: float
    done: float | None = None  # steps; None: as the record has it
    is_samples: bool = False


_SAMPLES = "samples"
_STEPS_FORM = "write it like 10000, 500/10000 or 88000samples"


def parse_job_steps(text: str) -> JobSteps:
    """Read the length of a full job: ``10000``, ``500/10000`` or ``88000samples``.

    Raises:
        FormatError: it is none, not above zero, or more was done than there is.
    """
    done_text, slash, total_text = text.strip().rpartition("/")
    is_samples = not slash and total_text.endswith(_SAMPLES)
    try:
        total = float(total_text.removesuffix(_SAMPLES) if is_samples else total_text)
        done = float(done_text) if slash else None
    except ValueError:
        total = done = math.nan
    if not 0 < total < math.inf or (done is not None and not 0 < done <= total):
        raise FormatError(f"--target {text}: no length of a job ({_STEPS_FORM})")
    return JobSteps(total=total, done=done, is_samples=is_samples)


class _ExtendedRun(msgspec.Struct, frozen=True):
    """One run carried on to the full job."""

    record: Record
    progress: StepProgress  # steps done, and of how many
    growth: MemoryGrowth  # how memory rises
    memory: MemoryExtrapolation  # at the end of the full job
    time: Seconds  # seconds of the full job


def carry_on(
    request: Request, records: Sequence[Record], steps: JobSteps | None = None
) -> Request:
    """Raise *request* to what the full job needs, and say in its notes what was done.

    Memory that rises goes on rising; time is what the remaining steps take. Without a
    number of steps, a timed loop that did not reach its end has it.

    Raises:
        UsageError: no record knows how many steps it did.
    """
    ahead = [one for record in records if (one := _ahead(record, steps)) is not None]
    if ahead:
        return _request_for_full_job(request, ahead)
    if steps is None:
        return _as_it_is(request, records)
    if steps.is_samples:
        raise UsageError(
            "--target: the records count no samples, only weigh.batches does "
            "(write --target DONE/TOTAL)"
        )
    if not any(record.series for record in records):
        raise UsageError(
            "no series of samples in the record: measure again with weigh run"
        )
    raise UsageError(
        "--target: how many were measured? write DONE/TOTAL (or report them: "
        "weigh.event)"
    )


def _ahead(record: Record, steps: JobSteps | None) -> _ExtendedRun | None:
    growth = _memory_growth_of(record)
    total, done = (None, None) if steps is None else (steps.total, steps.done)
    if steps is not None and steps.is_samples:
        each = samples_per_batch(record)
        # progress counts batches, so the samples become batches
        total = None if each is None else steps.total / each
    progress = progress_of(record, total=total, done=done)
    if growth is None or progress is None or progress.total is None:
        return None
    # the loop reached its own end, so the job is as long as what was measured
    if total is None and (steps is not None or progress.total <= progress.done):
        return None
    time = time_needed(record, progress)
    return _ExtendedRun(record, progress, growth, extrapolate(growth, time), time)


def _memory_growth_of(record: Record) -> MemoryGrowth | None:
    if record.series is None or record.usage is None:
        return None
    return growth_of(record.series.t, record.series.memory)


def _request_for_full_job(request: Request, ahead: Sequence[_ExtendedRun]) -> Request:
    most = max(ahead, key=lambda one: one.memory.high)
    longest = max(one.time for one in ahead)
    # headroom, or the upper bound where that is more
    memory = max(most.memory.value * (1 + request.headroom), most.memory.high)
    # below the peak that was measured there is nothing to add
    rising = most.memory.high > most.growth.peak
    sized = max(LEAST_MEMORY, round_memory(memory)) if rising else 0
    virtual = request.virtual_memory
    # the address space grows by what memory does
    if virtual is not None and rising:
        virtual = round_memory(virtual + most.memory.high - most.growth.peak)
    # the note asks for the length of the job, which is known now
    notes = (note for note in request.notes if note != STILL_RISING)
    time_limit = round_time(longest * (1 + request.headroom))
    return msgspec.structs.replace(
        request,
        memory=max(request.memory or 0, sized) or None,
        virtual_memory=virtual,
        # the request is never lowered: it covers what was measured
        time_limit=max(request.time_limit or 0, time_limit),
        notes=(*notes, *_growth_notes(most, longest)),
    )


def _growth_notes(most: _ExtendedRun, longest: Seconds) -> Iterator[str]:
    progress, memory, growth = most.progress, most.memory, most.growth
    total = progress.total or 0
    yield (
        f"{progress.done:g} of {total:g} {_steps_noun(most)} were measured "
        f"({progress.source}); all take about {format_duration(longest)}"
    )
    if memory.high > growth.peak and growth.trend is not None:
        yield (
            f"memory rises by {rate_words(growth.trend.rate)}: at the end "
            f"{extrapolation_words(memory)}, unless it levels off"
        )
        if memory.factor > _FAR:
            yield (
                f"that is {memory.factor:.0f} times as long as was measured: a longer "
                "run would make it more precise"
            )
    elif growth.growing is None:
        yield "the run was too short to see whether memory rises: measure a longer one"
    else:
        yield "memory had levelled out: the request is what the run used"


def samples_per_batch(record: Record) -> float | None:
    """Return how many samples a batch of the timed loop had; None if none counted."""
    loop = record.batches
    if loop is None or not loop.count:
        return None
    return loop.samples / loop.count if loop.samples else loop.size


def _steps_noun(most: _ExtendedRun) -> str:
    """Return what the steps are: who counts in samples must see that these are not."""
    each = samples_per_batch(most.record)
    # batches of one sample are what the user calls steps
    if each is None or most.progress.source != TIMED_LOOP or each <= 1:
        return "steps"
    return f"batches of {each:g} samples (--target Nsamples counts these)"


def _as_it_is(request: Request, records: Sequence[Record]) -> Request:
    """Report how fast memory rises if the length of the job is unknown."""
    rates = [
        growth.trend.rate
        for growth in map(_memory_growth_of, records)
        if growth is not None and growth.growing and growth.trend
    ]
    if not rates:
        return request
    rising = (
        f"memory was still rising at the end, by {rate_words(max(rates))}: a longer "
        "job needs more; state its length: weigh request --target DONE/TOTAL"
    )
    notes = tuple(rising if note == STILL_RISING else note for note in request.notes)
    return msgspec.structs.replace(request, notes=notes)
