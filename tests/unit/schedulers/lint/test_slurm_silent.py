"""The rows of the table of sbatch's mistakes: each is caught before submission."""

from typing import Any

import msgspec
import pytest
from some_limits import SLURM
from some_scripts import CWD, HOME, of_slurm, sbatch, stated

from weigh.model.cluster import UNTYPED, NodeType
from weigh.model.lint import CommandPlace

NO = "refused"


def test_gpus_without_a_type_may_be_of_any() -> None:
    nodes = (NodeType(gpus={UNTYPED: 4}, queues=("short",)),)
    limits = msgspec.structs.replace(SLURM, nodes=nodes)
    assert "gpus-beyond-node" not in sbatch("--gres=gpu:v100:2", limits=limits)


def test_a_directive_that_goes_on_in_the_next_line_ends_them_all() -> None:
    text = "#!/bin/bash\n#SBATCH --mem=8G \\\n--time=5\n#SBATCH -c 4\nhostname\n"
    assert "directive-after-command" in of_slurm(text)


@pytest.mark.parametrize(
    "text",
    [
        "# sbatch --array=1-9 job.sh\n",
        "# Slurm - the basics\n",
        "# BATCH size\n",
        "# SBATCH\n",
        "# sbach --mem --time\n",
        "cat <<EOF > job.sh\n#!/bin/bash\n#SBATCH --mem=8G\nEOF\nsbatch job.sh\n",
    ],
)
def test_prose_and_other_scripts_are_no_directives(text: str) -> None:
    found = of_slurm(f"#!/bin/bash\n{text}hostname\n")
    assert "directive-after-command" not in found
    assert {one.severity for one in found.values()} <= {"note"}


@pytest.mark.parametrize(
    ("line", "known", "rule", "words"),
    [
        ("--dependency=afterok:99", {"jobs": {"99": None}}, "dependency", "at once"),
        (
            *("--dependency=afterok:12:13", {"jobs": {"13": "FAILED"}}),
            *("dependency", "job 13 ended FAILED"),
        ),
        ("--dependency=afterok:1", {"jobs": {"1": "RUNNING"}}, "dependency", None),
        ("--dependency=41", {"jobs": {"41": None}}, "dependency", "41 is not known"),
        (
            *("--dependency=afternotok:41", {"jobs": {"41": "COMPLETED"}}),
            *("dependency", "job 41 has completed"),
        ),
        (
            *("-o logs/%j.out", {"paths": {f"{CWD}/logs": "missing"}}),
            *("log-directory", "mkdir -p logs"),
        ),
        (
            *("-o logs/%j.out", {"paths": {f"{CWD}/logs": "directory"}}),
            *("log-directory", None),
        ),
        (
            *("-o logs/%x/%j.out", {"paths": {f"{CWD}/logs/%x": "directory"}}),
            *("log-directory", None),
        ),
        (
            *("-J train -o logs/%x/%j", {"paths": {f"{CWD}/logs/train": "missing"}}),
            *("log-directory", "mkdir -p logs/train"),
        ),
        (
            *("-o logs/%u/%j.out", {"paths": {f"{CWD}/logs/me": "missing"}}),
            *("log-directory", "mkdir -p logs/me"),
        ),
        (
            f"-D {HOME}/run -o logs/x",
            {"paths": {f"{HOME}/run/logs": "missing", f"{HOME}/run": "directory"}},
            *("log-directory", ""),
        ),
        ("-D nosuch", {"paths": {f"{CWD}/nosuch": "missing"}}, "chdir", "/tmp"),
    ],
)
def test_what_a_directive_names_is_looked_up(
    line: str, known: dict[str, Any], rule: str, words: str | None
) -> None:
    found = sbatch(line, **known)
    assert rule not in found if words is None else stated(found, rule, "", words)


def test_a_chdir_that_only_the_nodes_may_have_is_a_note() -> None:
    found = sbatch("--chdir=/scratch/me", paths={"/scratch/me": "missing"})
    stated(found, "chdir", "note", "")


def test_a_missing_interpreter_fails_the_job() -> None:
    missing = {"/usr/bin/bsah": "missing"}
    found = of_slurm("#!/usr/bin/bsah\nhostname\n", paths=missing)
    stated(found, "interpreter", "problem", "")
    text, commands = "#!/usr/bin/env pyhton\nprint(1)\n", {"pyhton": CommandPlace()}
    stated(of_slurm(text, commands=commands), "interpreter", "", "pyhton")


def test_a_placeholder_is_reported_as_one_and_not_by_its_value() -> None:
    found = sbatch("--cpus-per-task=<PARAM_CPUS>")
    assert "placeholder" in found
    assert not {"option-value", "stray-word", "literal-dollar"} & set(found)
