"""Conditions on parameters: ``lr < 1e-2 or seed == 1``, read as a small language.

Comparisons, ``in``, ``and``, ``or``, ``not`` and the arithmetic of numbers. The text
is parsed, and evaluated only if there is nothing else in it: no calls, attributes,
indices or powers.
"""

import ast
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from weigh.errors import FormatError
from weigh.sweep.values import Value

Row: TypeAlias = Mapping[str, Value]
Condition: TypeAlias = Callable[[Row], bool]

_LONGEST = 1000  # characters
_NUMBER_CALL = "number()"  # no parameter can have this name


def _checked_number(row_value: object) -> int | float:
    # True is an int to Python, but no number in a condition; text times a number would
    # be long
    if isinstance(row_value, int | float) and not isinstance(row_value, bool):
        return row_value
    raise TypeError


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
        tree.body = _boolean_node(tree.body, names)
        code = compile(ast.fix_missing_locations(tree), "condition", "eval")
    except SyntaxError as error:
        raise _condition_error(
            condition_text, _syntax_error_text(condition_text, error)
        ) from error
    # thousands of nested parentheses
    except (ValueError, RecursionError, MemoryError) as error:
        raise _condition_error(condition_text, "too deep, or no text") from error

    known = {"__builtins__": {}, _NUMBER_CALL: _checked_number}

    def holds(parameter_row: Row) -> bool:
        try:
            # of the nodes below alone: no call of the user's can be among them
            return bool(eval(code, known, parameter_row))  # noqa: S307
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


def _condition_node(node: ast.expr, names: Collection[str]) -> ast.expr:
    """Return a node as it may be evaluated.

    Raises:
        SyntaxError: it is not allowed in a condition.
    """
    match node:
        case ast.BoolOp(values=values):
            node.values = [_boolean_node(value, names) for value in values]
        case ast.UnaryOp(op=ast.Not()):
            node.operand = _boolean_node(node.operand, names)
        case ast.Compare(ops=comparisons, comparators=others):
            if any(isinstance(one, ast.Is | ast.IsNot) for one in comparisons):
                raise SyntaxError("'is' cannot stand in a condition (write ==)")
            node.left = _condition_node(node.left, names)
            node.comparators = [_condition_node(other, names) for other in others]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            node.elts = [_condition_node(element, names) for element in elements]
        case ast.UnaryOp(op=ast.USub()):
            node.operand = _number_node(node.operand, names)
        # no powers: 9**9**9 would never end
        case (
            ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div())
            | ast.BinOp(op=ast.FloorDiv() | ast.Mod())
        ):
            node.left = _number_node(node.left, names)
            node.right = _number_node(node.right, names)
        case ast.Constant(value=bool() | int() | float() | str()):
            pass
        # a dotted name is an attribute to Python, and one parameter here
        case ast.Name() | ast.Attribute():
            return _parameter_node(ast.unparse(node), names)
        case _:
            raise SyntaxError(f"{ast.unparse(node)!r} cannot stand in a condition")
    return node


def _parameter_node(name: str, names: Collection[str]) -> ast.expr:
    if name not in names:
        known = ", ".join(names)
        raise SyntaxError(
            f"{name} is not a parameter (there are: {known}; text goes in quotes)"
        )
    return ast.Name(name, ast.Load())


def _boolean_node(node: ast.expr, names: Collection[str]) -> ast.expr:
    """Return a node that is true or false; refuse any other node."""
    word = ast.unparse(node)
    found = _condition_node(node, names)  # an error inside it comes first
    match found:
        case ast.BoolOp() | ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return found
        case ast.Constant(value=bool()):
            return found
        case _:
            raise SyntaxError(f"{word!r} is not true or false (write {word} == ...)")


def _number_node(node: ast.expr, names: Collection[str]) -> ast.expr:
    """Return a node whose value is checked to be a number."""
    function = ast.Name(_NUMBER_CALL, ast.Load())
    return ast.Call(function, [_condition_node(node, names)], [])


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
