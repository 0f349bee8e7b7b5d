import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transcript import named_rows

from weigh.errors import FormatError
from weigh.schedulers import gridengine as gridengine_text
from weigh.schedulers import slurm as slurm_text
from weigh.units import (
    DAY,
    GIB,
    KIB,
    MIB,
    format_duration,
    format_size,
    parse_duration,
    parse_limit,
    parse_size,
)

ROWS = named_rows(Path(__file__).with_name("units.texts"))
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


@pytest.mark.parametrize("text", ["8000", "1", " 16 ", "1.5", "1e3"])
def test_a_size_without_a_unit_is_refused_with_its_two_readings(text: str) -> None:
    number = text.strip()
    with pytest.raises(FormatError) as refused:
        parse_size(text)

    assert f"{number}M or {number}B (bytes)" in str(refused.value)
    assert parse_size(f"{number}M") == float(number) * MIB
    assert parse_size(f"{number}B") == round(float(number))


def test_nothing_needs_no_unit() -> None:
    assert (parse_size("0"), parse_duration("0")) == (0, 0)


@pytest.mark.parametrize(
    "text", ["4GiB", "4G", "4g", "4 GB", "4gib", " 4 GiB ", "4096M", "4194304 KiB"]
)
def test_every_common_spelling_of_four_gibibytes_is_read(text: str) -> None:
    assert parse_size(text) == 4 * GIB


@pytest.mark.parametrize(
    ("size", "text"),
    ROWS["sizes"],
)
def test_a_size_is_written_with_three_digits_and_a_binary_unit(
    size: str, text: str
) -> None:
    assert format_size(int(size)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "G", "GiB", "-1", "-4G", "nan", "inf", "infinity", "four", "4 X",
        "4GG", "4G4", "1,5G", "1e308G", "5i", "1_000", "٤G", "0x10", "9" * 5000 + "P",
    ],
)  # fmt: skip
def test_what_is_not_a_size_is_refused_in_words(text: str) -> None:
    with pytest.raises(FormatError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    ROWS["durations"],
)
def test_a_duration_is_written_as_a_person_writes_it(seconds: str, text: str) -> None:
    assert format_duration(float(seconds)) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    ROWS["typed durations"],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: str) -> None:
    assert parse_duration(text) == float(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "", "m", "-5", "1h30", "1h1h", "1:2:3:4", "-1:00:00", "1-", "1-2-3", "a:b:c",
        "1 0m", "5 minutes", "²", "9" * 5000, "1:00:" + "9" * 5000, "9" * 5000 + "d",
    ],
)  # fmt: skip
def test_what_is_not_a_duration_is_refused_in_words(text: str) -> None:
    with pytest.raises(FormatError, match="not a time"):
        parse_duration(text)


# sbatch(1), --time; measured with Slurm 22.05.8
@pytest.mark.parametrize(("text", "seconds"), ROWS["Slurm's times"])
def test_a_time_in_one_of_slurm_s_forms_is_what_slurm_takes_it_for(
    text: str, seconds: str
) -> None:
    read = parse_duration(text)
    assert read == int(seconds) == slurm_text.TEXT.parse_time(text)


@pytest.mark.parametrize("text", ["60", "1", " 90 ", "0.5"])
def test_a_time_without_a_unit_is_refused_with_its_two_readings(text: str) -> None:
    number = text.strip()
    with pytest.raises(FormatError) as refused:
        parse_duration(text)

    assert f"write {number}m (minutes) or {number}s (seconds)" in str(refused.value)
    assert parse_duration(f"{number}m") == 60 * parse_duration(f"{number}s")


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
