"""Sessions of Python: worked examples, each a sentence, what is typed, what it gives.

A session is a text with prose and ``>>>`` lines, as the standard library's doctest
reads it: where a promise is one call and one answer, it takes two lines.
"""

import doctest
from collections.abc import Mapping
from pathlib import Path

import pytest


def check_session(path: Path, names: Mapping[str, object]) -> None:
    """Type what a session has, where *names* are known, and compare the answers."""
    parts = doctest.DocTestParser().get_doctest(
        path.read_text(), dict(names), path.name, str(path), 0
    )
    assert parts.examples, f"{path} has no >>> line"
    failures: list[str] = []
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False
    )
    runner.run(parts, out=failures.append, clear_globs=False)
    if failures:
        pytest.fail("".join(failures), pytrace=False)
