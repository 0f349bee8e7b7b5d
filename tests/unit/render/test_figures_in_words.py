"""What short words make of figures, each by its value."""

import pytest

from weigh.model.progress import MemoryExtrapolation
from weigh.model.report import Unit
from weigh.render.words import extrapolation_words, unit_value_text
from weigh.units import GIB, MIB


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.256, "share", "26 %"),
        (3 * MIB, "bytes", "3.00 MiB"),
        (90, "seconds", "1 m 30 s"),
        (None, "share", "-"),
        (float("inf"), "bytes", "-"),
        (0.004, "cpus", "0.00"),
        (3.999, "cpus", "4.00"),
        (9.994, "cpus", "9.99"),
        (9.996, "cpus", "10.0"),
        (12.59, "cpus", "12.6"),
        (99.96, "cpus", "100"),
    ],
)
def test_a_figure_is_written_in_its_unit(value: float, unit: Unit, text: str) -> None:
    assert unit_value_text(value, unit) == text


def test_a_prediction_has_its_interval_unless_that_is_one_size() -> None:
    ahead = MemoryExtrapolation(2 * GIB, GIB, 3 * GIB, 60.0, 2.0, 0.9)
    text = "2.00 GiB (between 1.00 and 3.00 GiB, 90 % confidence)"
    assert extrapolation_words(ahead) == text
    sure = MemoryExtrapolation(2 * GIB, 2 * GIB, 2 * GIB, 60.0, 2.0, 0.9)
    assert extrapolation_words(sure) == "2.00 GiB"
