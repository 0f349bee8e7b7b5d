"""One count out of what a run prints: so many of so many, and who says so."""

from typing import NamedTuple

PATTERN = 0
FOLD = 1
EPOCH = 2
STEP = 3


class Mark(NamedTuple):
    """*done* of *total* steps, as one line says.

    ``label`` tells one counter of a source from another; ``rank`` is smaller for what
    contains the others; ``position`` is the line of a bar among several. An *ordinal*
    is the number of what is under way ("Epoch 3/10"), or of what just ended where the
    line is no *heading* but has figures. The total *is of the last*
    one where the tool is known to count from zero and to print the last number.
    """

    source: str
    label: str
    rank: int
    done: float
    total: float | None
    position: int = 0
    is_ordinal: bool = False
    is_heading: bool = False
    is_of_last: bool = False
