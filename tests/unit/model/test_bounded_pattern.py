import re

import pytest

from weigh.bounded_pattern import compile_bounded


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(\w+)*x", r"(?:a+)+$", r"((a|b)+c*)*", r"(x{1,50}){1,50}y"),
        *(r"(?=(\d+)+)z", r"(\w{1,9})*x", r"([-+]{2,9}[|+])*$"),
    ],
)
def test_a_pattern_that_may_never_end_is_refused(pattern: str) -> None:
    with pytest.raises(re.error, match="may never end"):
        compile_bounded(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"patient=(\d+)",
        r"sk-\w+",
        r"(?P<done>\d+)/(?P<total>\d+)",
        r"(?:foo|bar)+",
        r"(\d{2}:)*\d{2}",
        r"[ab]*(c?d)*",
        r"a.*b.*c",
    ],
)
def test_a_plain_pattern_is_compiled(pattern: str) -> None:
    assert compile_bounded(pattern).pattern == pattern
