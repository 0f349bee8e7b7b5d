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

_LONGEST = 1000  # characters
# no powers: 9**9**9 would never end
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _contains_value(searched_value: object, many: object) -> bool:
    # text in text, or a value in a list: Python's other uses of "in" make no sense here
    if isinstance(many, tuple) or (
        isinstance(searched_value, str) and isinstance(many, str)
    ):
        return searched_value in many
    raise TypeError


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _contains_value,
    ast.NotIn: lambda one, many: not _contains_value(one, many),
}


def parse_condition(condition_text: str, names: Collection[str]) -> Condition:
    """Parse a condition on the parameters *names*.

    The returned function raises FormatError if the condition makes no sense for a row,
    for example if it compares text with a number.

    Raises:
        FormatError: *condition_text* is not a condition, or has an unknown name.
    """
    # versions of Python report a NUL differently: ValueError or SyntaxError
    if "\0" in condition_text:
        raise _condition_error(condition_text, "null bytes")
    try:
        tree = _parse_condition(condition_text)
        judge = _boolean_term(tree.body, names)
    except SyntaxError as error:
        raise _condition_error(
            condition_text, _syntax_error_text(condition_text, error)
        ) from error
    # thousands of nested parentheses
    except (ValueError, RecursionError, MemoryError) as error:
        raise _condition_error(condition_text, "too deep, or no text") from error

    def holds(parameter_row: Row) -> bool:
        try:
            return bool(judge(parameter_row))
        except TypeError as error:
            raise _condition_error(
                condition_text,
                f"text and numbers do not mix: {_row_values_text(parameter_row)}",
            ) from error
        except (ArithmeticError, RecursionError) as error:
            raise _condition_error(
                condition_text, f"{error}: {_row_values_text(parameter_row)}"
            ) from error

    return holds


def _parse_condition(condition_text: str) -> ast.Expression:
    if len(condition_text) > _LONGEST:
        raise SyntaxError(f"longer than {_LONGEST} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes such as "\d"
        return ast.parse(condition_text.strip(), mode="eval")


def _condition_term(condition_node: ast.expr, names: Collection[str]) -> _Term:
    """Turn one node into a function of a row.

    Raises:
        SyntaxError: the node is not allowed in a condition.
    """
    match condition_node:
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return _boolean_term(condition_node, names)
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return lambda _: value
        # a dotted name is an attribute to Python, and one parameter here
        case ast.Name() | ast.Attribute():
            return _parameter_term(condition_node, names)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            terms = [_condition_term(element, names) for element in elements]
            return lambda row: tuple(term(row) for term in terms)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _condition_term(operand, names)
            return lambda row: -_checked_number(number(row))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            apply = _ARITHMETIC[type(op)]
            one, other = _condition_term(left, names), _condition_term(right, names)
            return lambda row: apply(
                _checked_number(one(row)), _checked_number(other(row))
            )
        case _:
            raise SyntaxError(
                f"{ast.unparse(condition_node)!r} cannot stand in a condition"
            )


def _boolean_term(condition_node: ast.expr, names: Collection[str]) -> _Term:
    """Turn a boolean node into a function; refuse any other node."""
    match condition_node:
        case ast.BoolOp(op=ast.And(), values=values):
            parts = [_boolean_term(value, names) for value in values]
            return lambda row: all(part(row) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=values):
            parts = [_boolean_term(value, names) for value in values]
            return lambda row: any(part(row) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _boolean_term(operand, names)
            return lambda row: not inner(row)
        case ast.Compare():
            return _comparison_term(condition_node, names)
        case ast.Constant(value=bool() as value):
            return lambda _: value
        case _:
            _condition_term(condition_node, names)  # an error inside it comes first
            word = ast.unparse(condition_node)
            raise SyntaxError(f"{word!r} is not true or false (write {word} == ...)")


def _comparison_term(node: ast.Compare, names: Collection[str]) -> _Term:
    first = _condition_term(node.left, names)
    links = []
    # a chain such as 1 < x < 5 is true if each link is
    for op, right in zip(node.ops, node.comparators, strict=True):
        if type(op) not in _COMPARISONS:
            raise SyntaxError("'is' cannot stand in a condition (write ==)")
        links.append((_COMPARISONS[type(op)], _condition_term(right, names)))

    def compare(parameter_row: Row) -> bool:
        left = first(parameter_row)
        for holds, term in links:
            right = term(parameter_row)
            if not holds(left, right):
                return False
            left = right
        return True

    return compare


def _parameter_term(condition_node: ast.expr, names: Collection[str]) -> _Term:
    """Look a name up in the row, dots and all: ``optimizer.lr`` is one name."""
    name = ast.unparse(condition_node)
    if name not in names:
        known = ", ".join(names)
        raise SyntaxError(
            f"{name} is not a parameter (there are: {known}; text goes in quotes)"
        )
    return lambda row: row[name]


def _checked_number(row_value: object) -> int | float:
    # True is an int to Python, but no number in a condition
    if isinstance(row_value, int | float) and not isinstance(row_value, bool):
        return row_value
    raise TypeError


def _syntax_error_text(condition_text: str, error: SyntaxError) -> str:
    if error.lineno is None:  # ours
        return error.msg
    # the usual mistakes first: Python's own messages for them are hard to understand
    if "=>" in condition_text or "=<" in condition_text:
        return "write >= or <="
    if "=" in condition_text and not re.search("[=!<>]=", condition_text):
        return "write == to compare"
    # Python points behind the text where something is missing
    if not error.offset or error.offset > len(condition_text.strip()):
        return "it is incomplete"
    return f"{error.msg}, character {error.offset}"


def _row_values_text(parameter_row: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameter_row.items())


def _condition_error(condition_text: str, why: str) -> FormatError:
    return FormatError(f"condition {condition_text[:80]!r}: {why}")
