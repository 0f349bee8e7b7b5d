"""The table of rules, and findings that a script acknowledges."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from some_scripts import facts

import weigh
from weigh.schedulers.gridengine import lint as gridengine_lint
from weigh.schedulers.lint.rules import RULES, TABLE, acknowledged
from weigh.schedulers.slurm import lint as slurm_lint

MAKERS = {"problem", "note", "refused", "make", "beyond_node", "beyond_queue"}
SOURCE = Path(weigh.__file__).parent


def written() -> Iterator[str]:
    """Yield the rule of each finding that the source makes, f-strings as patterns."""
    for row in (*slurm_lint.VALUES, *gridengine_lint.VALUES):
        yield re.escape(row.rule)
    folders = (SOURCE / "schedulers", SOURCE / "flow")
    for path in (one for folder in folders for one in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "rule":
                yield from _named(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in MAKERS and len(node.args) > 1:
                    yield from _named(node.args[1])
            elif isinstance(node, ast.Assign) and "code" in ast.dump(node.targets[0]):
                yield from _named(node.value)


def _named(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield re.escape(node.value)
    elif isinstance(node, ast.JoinedStr):
        parts = (
            re.escape(str(one.value)) if isinstance(one, ast.Constant) else r"[a-z]+"
            for one in node.values
        )
        yield "".join(parts)


def test_each_rule_that_is_reported_is_in_the_table_and_the_other_way_round() -> None:
    patterns = set(written())
    assert 60 < len(patterns) <= 90
    unlisted = [p for p in patterns if not any(re.fullmatch(p, r) for r in RULES)]
    assert unlisted == []
    unused = [r for r in RULES if not any(re.fullmatch(p, r) for p in patterns)]
    assert unused == []


def test_names_are_short_and_each_stands_once() -> None:
    names = [name for _, group in TABLE for name, _ in group]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", name) for name in names)
    assert max(map(len, names)) <= 26


SCRIPT = "#!/bin/bash\n#SBATCH --time=24:00\n#SBATCH --mem=4\nsleep 5 &\n"


def rules_of(text: str) -> tuple[set[str], set[str]]:
    """Return the rules that remain, and those that are ignored; no defaults."""
    kept, ignored = acknowledged(text, slurm_lint.LINT.lint(text, facts()), ())
    return {one.rule for one in kept}, {one.rule for one in ignored}


ALL = {"time-in-minutes", "memory-in-mib", "no-wait"}


@pytest.mark.parametrize(
    "comment",
    [
        "# weigh: ignore time-in-minutes",
        "# weigh: ignore time-in-minutes a quick test",
        "#weigh: ignore: time-in-minutes",
        "  # weigh: ignore time-in-minutes (a, b)",
    ],
)
def test_a_comment_acknowledges_a_rule_for_the_whole_script(comment: str) -> None:
    kept, ignored = rules_of(SCRIPT + comment + "\n")
    assert (kept, ignored) == (ALL - {"time-in-minutes"}, {"time-in-minutes"})
