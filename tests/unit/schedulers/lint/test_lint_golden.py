"""Whole scripts against what real daemons made of them (tests/support/data/lint)."""

import json
from pathlib import Path
from typing import Any

import msgspec
from some_limits import GRIDENGINE, SLURM
from some_scripts import facts

from weigh.errors import FormatError
from weigh.model.lint import ScriptFacts
from weigh.schedulers import gridengine as gridengine_text
from weigh.schedulers import slurm as slurm_text
from weigh.schedulers.gridengine import lint as gridengine_lint
from weigh.schedulers.script import read_script
from weigh.schedulers.slurm import lint as slurm_lint
from weigh.schedulers.slurm.directives import read_options

DATA = Path(__file__).parents[3] / "support" / "data" / "lint"
SBATCH = json.loads((DATA / "sbatch-22.05.8.json").read_text())["cases"]
QSUB = json.loads((DATA / "qsub-8.1.9.json").read_text())["cases"]

# held jobs are accepted before a node is looked for; --hint's words are not known here
NOT_ASKED = {"mem 8T", "gres gpu:V100:1", "hint typo"}
# what the scheduler itself refuses in one line: what no user writes, and names
LEFT_TO_IT = {"nul", "empty file", "hard soft", "mail-type bad", "m bad"} | {
    *("constraint nosuch", "qos bad", "account bad", "nodelist bad", "gres v100:1"),
    *(
        "array 1001",
        "array 1001b",
        "t 1-80000",
        "gres gpu=1",
        "gres gpu:1:v100",
        "gpus-per-task no ntasks",
        "tc alone",
    ),
    *("mem and mem-per-cpu", "pe unknown", "l unknown", "P nosuch", "-A=lab", "q two"),
}


def sbatch_options(script: str) -> dict[str, str]:
    read = read_options(read_script(script))
    return {one.name: one.value for one in read.options}


def test_sbatch_refuses_what_the_lint_refuses() -> None:
    for case in SBATCH:
        if case["name"] not in NOT_ASKED | LEFT_TO_IT:
            found = slurm_lint.LINT.lint(case["script"], facts(limits=SLURM))
            refused = [one for one in found if not one.accepted]
            assert bool(refused) == case["refused"], (case["name"], refused)


def test_qsub_refuses_what_the_lint_refuses() -> None:
    for case in QSUB:
        if case["name"] not in LEFT_TO_IT:
            found = gridengine_lint.LINT.lint(case["script"], facts(limits=GRIDENGINE))
            refused = [one for one in found if not one.accepted]
            assert bool(refused) == case["refused"], (case["name"], refused)


def test_options_are_read_as_sbatch_read_them() -> None:
    for case in SBATCH:
        if not case["refused"]:
            is_read_as_sbatch_read_it(case)


def is_read_as_sbatch_read_it(case: dict[str, Any]) -> None:
    understood, options = case["understood"], sbatch_options(case["script"])
    memory = options.get("mem")
    if memory not in (None, "0"):
        mebibytes = slurm_text.TEXT.parse_memory(memory)
        assert slurm_text.TEXT.parse_memory(understood["MinMemoryNode"]) == mebibytes
    else:
        assert "MinMemoryNode" not in understood or memory == "0"
    limit = slurm_text.TEXT.parse_time(understood["TimeLimit"])
    if "time" in options and limit is not None:
        seconds = slurm_text.TEXT.parse_time(options["time"]) or 0
        assert -(-seconds // 60) * 60 == limit  # Slurm keeps whole minutes
    elif "time" not in options and not case["name"].startswith("pbs"):
        assert limit == (3600 if understood["Partition"] == "long" else 600)


def test_resources_are_read_as_qsub_read_them() -> None:
    for case in QSUB:
        if not case["refused"]:
            is_read_as_qsub_read_it(case)


def is_read_as_qsub_read_it(case: dict[str, Any]) -> None:
    read = gridengine_lint.read_qsub_options(read_script(case["script"]))
    ours = {o.name[2:]: o.value for o in read.options if o.name.startswith("l:")}
    hard = case.get("understood", {}).get("hard", "")
    theirs = dict(part.split("=") for part in hard.split(",") if part)
    assert {k: as_seconds(k, v) for k, v in ours.items()} == theirs


def as_seconds(name: str, value: str) -> str:
    if not name.endswith("_rt"):
        return value
    try:
        return str(gridengine_text.TEXT.parse_time(value))
    except FormatError:
        return value


def test_a_script_that_is_right_has_no_problem() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --time=00:10:00 --mem=800M\n"
        "#SBATCH --output=%x-%j.out\npython3 -c 'print(1)'\n"
    )
    assert slurm_lint.LINT.lint(text, facts(limits=SLURM)) == ()


def test_findings_are_plain_data() -> None:
    found = slurm_lint.LINT.lint("#!/bin/bash\n#SBATCH --mem=4\n", ScriptFacts())
    assert msgspec.json.decode(msgspec.json.encode(found[0]))["line"] == 2
