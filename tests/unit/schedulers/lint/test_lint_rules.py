"""The table of rules, and findings that a script acknowledges."""

import re

import pytest
from some_scripts import facts

from weigh.schedulers.lint.rules import TABLE, acknowledged
from weigh.schedulers.slurm import lint as slurm_lint


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
