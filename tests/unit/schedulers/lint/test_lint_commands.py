"""What the commands of a script do with what the job gets, under either scheduler."""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from some_limits import GRIDENGINE, SLURM
from some_scripts import (
    CWD,
    HOME,
    facts,
    first_findings,
    qsub,
    sbatch,
    stated,
)

from weigh.flow.check.script import facts_of
from weigh.flow.here import here_of
from weigh.model.cluster import ClusterLimits
from weigh.model.lint import CommandPlace
from weigh.schedulers import KINDS
from weigh.schedulers.gridengine import lint as gridengine_lint
from weigh.schedulers.lint.rules import RULES
from weigh.schedulers.script import read_script

KNOWN: dict[str, Any] = {
    "files": {
        f"{CWD}/in_{{}}.csv": (1, 2, 3),
        f"{CWD}/tasks_{{}}.txt": tuple(range(20)),
        f"{CWD}/later_{{}}.txt": (),
    },
    "lines": {f"{CWD}/ids.txt": 3, f"{CWD}/params.txt": 20},
    "paths": {f"{CWD}/solver": "file", f"{CWD}/a.py": "file"},
    "executable": {f"{CWD}/solver": False, f"{CWD}/a.py": False},
}
ESCAPES = {"n": "\n", "r": "\r", "b": "\ufeff", "\\": "\\"}
LIMITS: dict[str, dict[str, ClusterLimits | None]] = {
    "without limits": {"slurm": None, "gridengine": None},
    "with the limits of the cluster": {"slurm": SLURM, "gridengine": GRIDENGINE},
    "with limits that nobody enforces": {
        "slurm": msgspec.structs.replace(SLURM, enforced=False)
    },
}


def judged_scripts() -> Iterator[tuple[str, ...]]:
    """Yield rows of both tables: limits, rule, verdict, directives, body, facts."""
    for scheduler in ("slurm", "gridengine"):
        limits = rule = ""
        path = Path(__file__).with_name(f"judged_scripts.{scheduler}.txt")
        for line in path.read_text().splitlines():
            if line.startswith("    "):
                verdict, directives, body = line[4:].split(" | ", 2)
                body = re.sub(r"\\(.)", lambda one: ESCAPES[one[1]], body)
                known = "{}"
                if "with what is there" in limits or "with the file" in limits:
                    body, _, known = body.rpartition(" | ")
                end = "" if limits.startswith("whole scripts") else "\n"
                yield scheduler, limits, rule, verdict, directives, body + end, known
            elif line.startswith("@"):
                limits = line.removeprefix("@ ")
            elif not line.startswith("#"):
                rule = line


def looked_up(there: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a row: its paths are those of a folder of work."""
    found = dict(there)
    for name in ("paths", "files", "executable"):
        parts = there.get(name, {}).items()
        found[name] = {posixpath.join(CWD, path): value for path, value in parts}
    commands = there.get("commands", {}).items()
    found["commands"] = {name: CommandPlace(*places) for name, places in commands}
    if "limits" in there:
        found["limits"] = msgspec.convert(there["limits"], ClusterLimits)
    if found.pop("bash", False):  # asked as `weigh check` does
        found["syntax"] = facts_of(here_of("/", {})).syntax
    return found


def agrees(found: dict[str, Any], rule: str, verdict: str) -> bool:
    """Return whether the rule states what the row says."""
    if verdict == "nothing":
        return rule not in found
    if rule == "any":
        return all(one.accepted for one in found.values()) == (verdict == "accepted")
    severity, _, words = verdict.partition(": ")
    if severity not in {"note", "problem", "refused"}:
        severity, words = "", "" if verdict == "found" else verdict
    return bool(stated(found, rule, severity, words))


@pytest.mark.parametrize("row", [*judged_scripts()], ids=" ".join)
def test_a_script_is_judged_by_what_the_scheduler_does_with_it(
    row: tuple[str, ...],
) -> None:
    scheduler, limits, rule, verdict, line, body, there = row
    if limits in LIMITS:
        known = {**KNOWN, "limits": LIMITS[limits][scheduler]}
    elif path := limits.partition("with the file ")[2]:
        known = {"texts": {posixpath.join(CWD, path.replace("~", HOME)): there}}
    else:
        known = looked_up(json.loads(there, strict=False))
    if limits.startswith("whole scripts"):
        found = first_findings(KINDS[scheduler].lint, body, **known)
    else:
        ask = sbatch if scheduler == "slurm" else qsub
        found = ask(*filter(None, [line]), body=body, **known)
    assert agrees(found, rule, verdict)
    assert {*found} <= {*RULES}


def test_each_rule_of_the_table_is_found_in_a_script() -> None:
    judged = ((rule, verdict) for _, _, rule, verdict, *_ in judged_scripts())
    shown = {rule for rule, verdict in judged if verdict != "nothing"}
    of_verbs = {"no-such-node", "shellcheck", "unknown-rule"}
    assert shown - {"any"} | of_verbs == {*RULES}


def test_the_program_behind_env_is_found() -> None:
    assert read_script("#!/usr/bin/env -S python3 -u\n").program == "python3"
    assert not read_script("#!/usr/bin/env python3\n").is_shell
    assert read_script("#! /bin/bash -l\n").program == "bash"


def test_a_finding_on_a_default_names_its_file_and_no_line() -> None:
    known = facts(defaults=(("~/.sge_request", "-t 5-1\n"),), limits=GRIDENGINE)
    text = "#!/bin/bash\nhostname\n"
    found = {one.rule: one for one in gridengine_lint.LINT.lint(text, known)}
    assert found["array"].line is None
    assert "(~/.sge_request)" in found["array"].text
