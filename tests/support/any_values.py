"""Strategies for any value of a type, drawn by its annotations."""

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]


def values_of(kind: Any, plain: dict[Any, Strategy], **fields: Strategy) -> Strategy:
    """Draw values of *kind*; *plain* draws those of its types, *fields* some fields."""
    if kind in plain:
        return plain[kind]
    origin, words = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(words)
    inner = [values_of(word, plain) for word in words if word is not Ellipsis]
    if origin in {Union, UnionType}:
        return st.one_of(inner[::-1])
    if origin is tuple and Ellipsis in words:
        return st.lists(inner[0], max_size=2).map(tuple)
    if origin is not None:
        return (
            st.dictionaries(*inner, max_size=2) if origin is dict else st.tuples(*inner)
        )
    known = {
        name: values_of(word, plain)
        for name, word in get_type_hints(kind).items()
        if name not in fields
    }
    return st.builds(kind, **known, **fields)


PLAIN: dict[Any, Strategy] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    int: st.integers(0, 1 << 62),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}
