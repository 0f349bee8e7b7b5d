import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.errors import FormatError
from weigh.schedulers import gridengine as gridengine_text
from weigh.schedulers import slurm as slurm_text
from weigh.units import (
    DAY,
    KIB,
    MIB,
    duration_or_dash,
    format_brief,
    format_duration,
    format_size,
    parse_duration,
    parse_limit,
    parse_size,
    size_or_dash,
)

SIZES = st.integers(min_value=0, max_value=1 << 60)


@given(SIZES)
@example(KIB * KIB - 1)
@example(1023 * MIB + 1023 * KIB)
def test_a_size_written_and_read_again_is_within_half_a_percent(size: int) -> None:
    assert abs(parse_size(format_size(size)) - size) <= 0.005 * size


@given(SIZES, SIZES)
def test_of_two_sizes_the_larger_is_never_written_as_the_smaller(
    one: int, other: int
) -> None:
    small, large = sorted((one, other))

    assert parse_size(format_size(small)) <= parse_size(format_size(large))


def slurm_time(text: str) -> float:
    read = parse_duration(text)
    assert read == slurm_text.TEXT.parse_time(text)
    return read


def test_sizes_and_times_are_read_and_written_as_they_were_reviewed() -> None:
    def short(text: str) -> tuple[str, str]:
        seconds = None if text == "None" else float(text)
        return format_brief(seconds or 0.0), duration_or_dash(seconds)

    questions: dict[str, Callable[[str], object]] = {
        "a short time and a duration, written": short,
        "a size or a dash": lambda text: size_or_dash(eval(text)),
        "a size, written": lambda text: format_size(int(text)),
        "a size, read: of four gibibytes in every common spelling, of none, and what "
        "is no size": parse_size,
        "a duration, written": lambda text: format_duration(float(text)),
        "a duration, read: as people write it, and what is none": parse_duration,
        "a time in one of Slurm's forms: sbatch(1), --time; measured with Slurm "
        "22.05.8": slurm_time,
    }
    check_answers(Path(__file__).with_name("units.texts"), questions)


def test_a_bare_number_is_seconds_only_where_the_caller_allows() -> None:
    assert parse_duration("90", bare_unit=1) == 90


@given(st.integers(min_value=1, max_value=1000 * DAY))
def test_what_is_written_for_a_scheduler_is_read_back(seconds: int) -> None:
    assert parse_duration(slurm_text.TEXT.format_time(seconds)) == seconds
    assert parse_duration(gridengine_text.TEXT.format_time(seconds)) == seconds


@given(st.integers(min_value=MIB, max_value=1 << 50))
def test_a_size_that_is_written_for_a_scheduler_is_read_back(size: int) -> None:
    assert parse_size(
        slurm_text.TEXT.format_memory(size)
    ) == slurm_text.TEXT.parse_memory(slurm_text.TEXT.format_memory(size))


@given(st.floats(min_value=0, max_value=1000 * DAY))
def test_a_time_that_is_shown_can_be_typed(seconds: float) -> None:
    shown = parse_duration(format_duration(seconds))
    assert abs(shown - seconds) <= max(0.005, 0.02 * seconds)


def test_a_limit_is_rounded_up_to_whole_seconds() -> None:
    assert parse_limit("0.2s") == 1


@pytest.mark.parametrize("number", ["8", "8000", ".5", "8.", "1e2", "2.5e3", "60"])
@pytest.mark.parametrize("parse", [parse_size, parse_duration])
def test_what_a_refusal_suggests_can_be_written(
    parse: Callable[[str], float], number: str
) -> None:
    with pytest.raises(FormatError) as refused:
        parse(number)

    _, _, advice = str(refused.value).partition("write ")
    words = re.findall(r"[0-9.][0-9.e:]*[A-Za-z]*", advice)
    assert words
    for word in words:
        parse(word)  # raises what cannot be written


def test_a_suggested_number_keeps_its_value() -> None:
    assert parse_size("1.5M") == 1.5 * MIB
    assert parse_duration("90m") == 60 * parse_duration("90s")
