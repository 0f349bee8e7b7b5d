"""Change figures of a module one at a time, and print which changes no test notices.

    python tools/mutate.py src/weigh/planning/queue_order.py tests/verbs/plan
    python tools/mutate.py --seed 7 --each 2 src/weigh/estimate tests/unit/estimate

A mutant is a comparison turned, a number changed, a branch left out, `and` and `or` or
plus and minus exchanged: `--each` of each kind, drawn with `--seed`. The file is put
back. A survivor that changes nothing which a user sees is yours to judge.
"""

import argparse
import ast
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TURNED = {  # the name of an operator's class: how it is written, and its opposite
    "Lt": ("<", "<="), "LtE": ("<=", "<"), "Gt": (">", ">="), "GtE": (">=", ">"),
    "Eq": ("==", "!="), "NotEq": ("!=", "=="), "In": ("in", "not in"),
    "NotIn": ("not in", "in"), "Is": ("is", "is not"), "IsNot": ("is not", "is"),
    "And": ("and", "or"), "Or": ("or", "and"), "Add": ("+", "-"), "Sub": ("-", "+"),
}  # fmt: skip
Mutation = tuple[Path, int, int, str]  # the file, two offsets in it, what stands there


def operators(node: ast.AST) -> tuple[str, ast.AST, ast.expr, ast.expr] | None:
    """Return kind, operator and both sides of an expression that has two."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return "compare", node.ops[0], node.left, node.comparators[0]
    if isinstance(node, ast.BoolOp) and not node.values[2:]:
        return "bool", node.op, node.values[0], node.values[1]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        if not isinstance(node.left, texts) and not isinstance(node.right, texts):
            return "sign", node.op, node.left, node.right
    return None


def mutations(path: Path) -> Iterator[tuple[str, Mutation]]:
    """Return what can be changed in a file; texts, types and decorators stay."""
    content = path.read_bytes()
    starts = [0]
    for row in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))

    def begin(node: ast.expr) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def end(node: ast.expr) -> int:
        return starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    kept: set[int] = set()
    for node in ast.walk(ast.parse(content)):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        parts += getattr(node, "decorator_list", [])
        parts += node.values if isinstance(node, ast.JoinedStr) else []
        kept |= {id(inner) for part in parts if part for inner in ast.walk(part)}
        if id(node) in kept:
            continue
        if found := operators(node):
            kind, operator, left, right = found
            between = content[end(left) : begin(right)].decode()
            new = between.replace(*TURNED[type(operator).__name__], 1)
            yield kind, (path, end(left), begin(right), new)
        elif isinstance(node, ast.If | ast.IfExp):
            test = content[begin(node.test) : end(node.test)].decode()
            place = (path, begin(node.test), end(node.test))
            yield "branch", (*place, f"(False and ({test}))")
        elif isinstance(node, ast.Constant) and type(node.value) in {int, float}:
            new = f"({content[begin(node) : end(node)].decode()} * 2 + 1)"
            yield "number", (path, begin(node), end(node), new)


def failed(tests: list[str]) -> bool:
    """Return whether any of the tests fails, or they take too long."""
    argv = ["timeout", "-k", "9", "420", sys.executable, "-m", "pytest", "-xq", *tests]
    return subprocess.run(argv, capture_output=True, check=False).returncode > 0


def main() -> None:
    """Draw, change, test, put back, print."""
    options = argparse.ArgumentParser(description=__doc__)
    for name in "--seed", "--each":
        options.add_argument(name, type=int, default=1)
    options.add_argument("source", type=Path)
    options.add_argument("tests", nargs="+")
    given = options.parse_args()
    if failed(given.tests):
        sys.exit("the tests fail without a mutant")
    kinds, source = defaultdict(list), given.source
    for path in [source] if source.is_file() else sorted(source.rglob("*.py")):
        for kind, mutation in mutations(path):
            kinds[kind].append(mutation)
    draw, results = random.Random(given.seed), []  # noqa: S311 - no secret
    for kind, choice in sorted(kinds.items()):
        for path, first, last, new in draw.sample(choice, min(given.each, len(choice))):
            before, times = path.read_bytes(), path.stat()
            number = before.count(b"\n", 0, first)
            after = before[:first] + new.encode() + before[last:]
            try:
                path.write_bytes(after)
                results.append(failed(given.tests))
            finally:
                path.write_bytes(before)
                # what was compiled of the mutant is not taken for this
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            rows = [
                text.splitlines()[number].decode().strip() for text in (before, after)
            ]
            word = "killed" if results[-1] else "SURVIVED"
            print(word, kind, f"{path}:{number + 1}", *rows, sep="  ", flush=True)
    print(f"{results.count(False)} of {len(results)} survived")


if __name__ == "__main__":
    main()
