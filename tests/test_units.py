import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.units import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
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


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_bare_number_is_bytes(size: int) -> None:
    assert parse_size(str(size)) == size


@pytest.mark.parametrize(
    "text", ["4GiB", "4G", "4g", "4 GB", "4gib", " 4 GiB ", "4096M", "4194304 KiB"]
)
def test_every_common_spelling_of_four_gibibytes_is_read(text: str) -> None:
    assert parse_size(text) == 4 * GIB


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (KIB, "1.00 KiB"),
        (392 * MIB, "392 MiB"),
        (MIB * KIB - 1, "1.00 GiB"),
        (round(2.45 * GIB), "2.45 GiB"),
        (12 * GIB, "12.0 GiB"),
    ],
)
def test_a_size_is_written_with_three_digits_and_a_binary_unit(
    size: int, text: str
) -> None:
    assert format_size(size) == text


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


@given(st.text(max_size=12))
def test_no_text_makes_the_size_parser_raise_anything_but_a_format_error(
    text: str,
) -> None:
    try:
        size = parse_size(text)
    except FormatError:
        return
    assert size >= 0


@given(st.integers(min_value=MINUTE, max_value=1000 * DAY))
def test_a_duration_written_and_read_again_is_within_two_percent(seconds: int) -> None:
    assert abs(parse_duration(format_duration(seconds)) - seconds) <= 0.02 * seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 s"),
        (0.25, "0.25 s"),
        (12.4, "12.4 s"),
        (59.94, "59.9 s"),
        (59.96, "1 m 00 s"),
        (200, "3 m 20 s"),
        (3599.6, "1 h 00 m"),
        (5400, "1 h 30 m"),
        (47 * HOUR, "47 h 00 m"),
        (2 * DAY, "2 d 00 h"),
    ],
)
def test_a_duration_is_written_as_a_person_says_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 2 * DAY),
        ("01:30:00", 5400),
        ("1-12:00:00", 36 * HOUR),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "", "m", "-5", "1h30", "24:00", "1:2:3:4", "-1:00:00", "1-", "1-12", "a:b:c",
        "1.5h", "5 minutes", "²", "9" * 5000, "1:00:" + "9" * 5000, "9" * 5000 + "d",
    ],
)  # fmt: skip
def test_what_is_not_a_duration_is_refused_in_words(text: str) -> None:
    with pytest.raises(FormatError, match="not a time"):
        parse_duration(text)


@given(st.text(alphabet="0123456789:-smhd .x٤", max_size=12))
def test_no_text_makes_the_duration_parser_raise_anything_but_a_format_error(
    text: str,
) -> None:
    try:
        seconds = parse_duration(text)
    except FormatError:
        return
    assert seconds >= 0
