"""What short words make of figures, each by its value: words.texts has them."""

import shlex
from pathlib import Path

from msgspec import convert
from transcript import check_answers

from weigh.flow.report.forms import escaped_markdown
from weigh.model.progress import MemoryExtrapolation
from weigh.render.comparison_lines import FigureChange, figure_change_text
from weigh.render.printable import short_command, three_digit_text
from weigh.render.region_lines import call_count_text
from weigh.render.words import extrapolation_words, unit_value_text
from weigh.units import GIB


def figure_text(words: str) -> str:
    value, unit = words.split()
    known = None if value == "None" else float(value)
    return unit_value_text(known, unit)  # type: ignore[arg-type]


def change_text(words: str) -> str:
    """Return the words for a ratio, a difference, and the bounds of what is noise."""
    numbers = [None if word == "None" else float(word) for word in words.split()]
    fields = dict(zip(("ratio", "difference", "low", "high"), numbers, strict=False))
    if "high" in fields:
        fields["distinguishable"] = False
    return figure_change_text("wall_time", "seconds", convert(fields, FigureChange))


def prediction_text(words: str) -> str:
    value, low, high = (int(word) * GIB for word in words.split())
    return extrapolation_words(MemoryExtrapolation(value, low, high, 60.0, 2.0, 0.9))


def test_words_are_as_they_were_reviewed() -> None:
    check_answers(
        Path(__file__).with_name("words.texts"),
        {
            "a figure in its unit": figure_text,
            "hours": lambda text: three_digit_text(float(text)),
            "calls of a phase": lambda text: call_count_text(int(text)),
            "a change of time": change_text,
            "a change of utilisation": lambda points: figure_change_text(
                "gpu_utilization", "per cent", FigureChange(2.0, float(points))
            ),
            "a prediction, and its interval unless that is one size": prediction_text,
            "a command in a list": lambda line: short_command(shlex.split(line)),
            "Markdown": escaped_markdown,
        },
    )
