"""Whatever a text from outside holds, its reader answers or says what is wrong.

``WEIGH_FUZZ=long`` tries many more (``make soak`` does); one reader alone:
``-k 'slurm.nodes'``.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import pytest
from broken_text import anything, endless, spoiled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import INVENTED, READERS

from weigh.errors import WeighError

_IS_LONG = os.environ.get("WEIGH_FUZZ") == "long"
_EXAMPLES = 1500 if _IS_LONG else 12
_PATIENCE = 10.0  # seconds of the processor's: hung, whatever else the machine does
_ENDLESS = 200_000 if _IS_LONG else 8_000
some = settings(
    max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck)
)
every_reader = pytest.mark.parametrize("name", READERS)


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise in what uses up the processor's time without an end."""

    def raise_hung(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGVTALRM, raise_hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, _PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def read(name: str, text: str) -> None:
    """Have *text* read; what weigh says of it in its own words is an answer."""
    with no_hang(), suppress(WeighError):
        READERS[name].read(text)


@pytest.mark.parametrize(
    "name", [name for name, one in READERS.items() if one.samples is not INVENTED]
)
def test_a_real_sample_gives_something(name: str) -> None:
    assert READERS[name].read(READERS[name].samples[0])


@every_reader
@some
@given(text=anything())
def test_any_text_is_read_or_refused_in_our_words(name: str, text: str) -> None:
    read(name, text)


@every_reader
@pytest.mark.few(40)
@some
@given(data=st.data())
def test_a_spoiled_sample_is_read_or_refused_in_our_words(
    name: str, data: st.DataObject
) -> None:
    read(name, data.draw(spoiled(READERS[name].samples)))


@every_reader
@pytest.mark.few(20)
def test_a_text_without_end_is_read_in_time(name: str) -> None:
    for text in endless(READERS[name].samples, _ENDLESS):
        read(name, text)
