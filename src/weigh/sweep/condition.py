"""Conditions on parameters: ``lr < 1e-2 or seed == 1``, read as a small language.

Comparisons, ``in``, ``and``, ``or``, ``not`` and the arithmetic of numbers. The text
is parsed, never executed: there are no calls, attributes, indices or powers in it.
"""

import ast
import operator
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from weigh.errors import FormatError
from weigh.sweep.values import Value

Row: TypeAlias = Mapping[str, Value]
Condition: TypeAlias = Callable[[Row], bool]

_Term: TypeAlias = Callable[[Row], Any]

_LONGEST = 1000
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _is_in(one: object, many: object) -> bool:
    if isinstance(many, tuple) or (isinstance(one, str) and isinstance(many, str)):
        return one in many
    raise TypeError


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _is_in,
    ast.NotIn: lambda one, many: not _is_in(one, many),
}


def parse_condition(text: str, names: Collection[str]) -> Condition:
    """Parse a condition on the parameters *names*.

    The returned function raises FormatError if the condition makes no sense for a row,
    for example if it compares text with a number.

    Raises:
        FormatError: *text* is not a condition, or has an unknown name.
    """
    if "\0" in text:
        raise _refusal(text, "null bytes")
    try:
        tree = _parse(text)
        judge = _boolean(tree.body, names)
    except SyntaxError as error:
        raise _refusal(text, _syntax(text, error)) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refusal(text, "too deep, or no text") from error

    def holds(row: Row) -> bool:
        try:
            return bool(judge(row))
        except TypeError as error:
            raise _refusal(
                text, f"text and numbers do not mix: {_values(row)}"
            ) from error
        except (ArithmeticError, RecursionError) as error:
            raise _refusal(text, f"{error}: {_values(row)}") from error

    return holds


def _parse(text: str) -> ast.Expression:
    if len(text) > _LONGEST:
        raise SyntaxError(f"longer than {_LONGEST} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes such as "\d"
        return ast.parse(text.strip(), mode="eval")


def _term(node: ast.expr, names: Collection[str]) -> _Term:
    """Turn one node into a function of a row.

    Raises:
        SyntaxError: the node is not allowed in a condition.
    """
    match node:
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return _boolean(node, names)
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return lambda _: value
        case ast.Name() | ast.Attribute():
            return _parameter(node, names)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            terms = [_term(element, names) for element in elements]
            return lambda row: tuple(term(row) for term in terms)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _term(operand, names)
            return lambda row: -_number(number(row))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            apply = _ARITHMETIC[type(op)]
            one, other = _term(left, names), _term(right, names)
            return lambda row: apply(_number(one(row)), _number(other(row)))
        case _:
            raise SyntaxError(f"{ast.unparse(node)!r} cannot stand in a condition")


def _boolean(node: ast.expr, names: Collection[str]) -> _Term:
    """Turn a boolean node into a function; refuse any other node."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            parts = [_boolean(value, names) for value in values]
            return lambda row: all(part(row) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=values):
            parts = [_boolean(value, names) for value in values]
            return lambda row: any(part(row) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _boolean(operand, names)
            return lambda row: not inner(row)
        case ast.Compare():
            return _comparison(node, names)
        case ast.Constant(value=bool() as value):
            return lambda _: value
        case _:
            _term(node, names)  # an error inside it comes first
            word = ast.unparse(node)
            raise SyntaxError(f"{word!r} is not true or false (write {word} == ...)")


def _comparison(node: ast.Compare, names: Collection[str]) -> _Term:
    first = _term(node.left, names)
    links = []
    for op, right in zip(node.ops, node.comparators, strict=True):
        if type(op) not in _COMPARISONS:
            raise SyntaxError("'is' cannot stand in a condition (write ==)")
        links.append((_COMPARISONS[type(op)], _term(right, names)))

    def compare(row: Row) -> bool:
        left = first(row)
        for holds, term in links:
            right = term(row)
            if not holds(left, right):
                return False
            left = right
        return True

    return compare


def _parameter(node: ast.expr, names: Collection[str]) -> _Term:
    """Look a name up in the row, dots and all: ``optimizer.lr`` is one name."""
    name = ast.unparse(node)
    if name not in names:
        known = ", ".join(names)
        raise SyntaxError(
            f"{name} is not a parameter (there are: {known}; text goes in quotes)"
        )
    return lambda row: row[name]


def _number(value: object) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise TypeError


def _syntax(text: str, error: SyntaxError) -> str:
    if error.lineno is None:  # ours
        return error.msg
    if "=>" in text or "=<" in text:
        return "write >= or <="
    if "=" in text and not re.search("[=!<>]=", text):
        return "write == to compare"
    if not error.offset or error.offset > len(text.strip()):
        return "it is incomplete"
    return f"{error.msg}, character {error.offset}"


def _values(row: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items())


def _refusal(text: str, why: str) -> FormatError:
    return FormatError(f"condition {text[:80]!r}: {why}")
