"""How wide a line is on a terminal, counted without weigh's own code."""

import unicodedata


def columns_of(line: str) -> int:
    """Count the columns of a terminal that a line takes (UAX #11, and no marks)."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in line)
    return len(line) + wide - sum(unicodedata.combining(c) > 0 for c in line)
