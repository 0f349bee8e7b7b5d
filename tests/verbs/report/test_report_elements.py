"""What an element held at once, against counting moment by moment."""

from hypothesis import given
from hypothesis import strategies as st

from weigh.review.elements import most_at_once

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10), st.integers(0, 100)), max_size=8
)


@given(SPANS)
def test_the_most_at_once_is_that_of_the_fullest_second(
    spans: list[tuple[int, int, int]],
) -> None:
    whole = [(float(start), float(start + wall), size) for start, wall, size in spans]
    held = [
        sum(size for start, wall, size in spans if start <= second < start + wall)
        for second in range(50)
    ]
    assert most_at_once(whole) == (max(held) if spans else None)


@given(st.floats(0, 2e9), st.floats(0, 100))
def test_a_run_of_no_length_counts(start: float, size: float) -> None:
    assert most_at_once([(start, start, size)]) == size
