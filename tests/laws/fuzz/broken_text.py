"""Text as it should not be: anything at all, and real samples with something wrong."""

from hypothesis import strategies as st

DEEP = 3000
# what has broken readers: numbers out of any range, marks that open and never close,
# letters that look like digits, halves of characters, other line ends
_TOKENS = (
    *("-1", "0", "1_0", "1e999", "1e308", "-0.0", "nan", "inf", "0x10", "9" * 25),
    *("9" * 5000, "٣", "²", "\0", "\r", "\r\n", "\n\n", "\x85", "\u2028", "\ufeff"),
    *("\udcff", "é", "\t", " ", "", ",", ";", ":", "=", "%", "|", "/", "-", "..", "#"),
    *("'", '"', "\\", "`", "$", "${", "$(", "((", "[", "]", "{", "}", "<", ">", "&"),
    *("<<EOF\n", "[" * DEEP, '{"a":' * DEEP, "(" * DEEP, "null", "true", "[]", "{}"),
    *("-9999999999999999999", "1-999999999", "0001-01-01T00:00:00", "9999-12-31"),
    *("1969-12-31T23:59:59", "2026-13-45T99:99:99", "N/A", "UNLIMITED", "(null)"),
)
_LONGEST = 400


def anything() -> st.SearchStrategy[str]:
    """Give any text, halves of characters too."""
    return st.text(st.characters(), max_size=200)


@st.composite
def spoiled(draw: st.DrawFn, samples: tuple[str, ...]) -> str:
    """Give one of *samples* with a few places cut, doubled, or written over."""
    text = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 20)))
        match draw(st.integers(0, 4)):
            case 0:
                text = text[:start] + text[stop:]
            case 1:
                text = text[:stop] + text[start:]
            case 2:
                text = text[:start]
            case 3:
                text = text[:start] + draw(anything())[:20] + text[stop:]
            case _:
                text = text[:start] + draw(st.sampled_from(_TOKENS)) + text[stop:]
    return text


def endless(samples: tuple[str, ...], size: int) -> list[str]:
    """Give *size* letters of one thing again and again, behind how samples begin."""
    units = (*samples, *_ENDLESS, *(one[:_LONGEST] for one in samples))
    texts = [(unit * (size // len(unit) + 1))[:size] for unit in filter(None, units)]
    begins = {one[: len(one) // 2] for one in samples}
    texts += [one + mark * size for one in sorted(begins) for mark in (" ", "0", "a,")]
    return texts


# what is written again and again: each word, and each of these letters
_ENDLESS_WORDS = """
    a= a, 0, 0-9, 0/ $( ${ a| "" '' % && a:b, 1: {" ] /* .. |
"""
_ENDLESS = (
    *" \n\t0a,-=[{('\"\\$<",
    *_ENDLESS_WORDS.split(),
    "1/2 ",
    "a b ",
    "#SBATCH ",
    "#$ -",
    "<<a ",
    "\\\n",
)
