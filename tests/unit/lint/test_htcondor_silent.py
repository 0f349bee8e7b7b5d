"""Submit descriptions: what condor_submit refuses, holds for ever, or ignores."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from some_scripts import facts

from weigh.flow.check.check import is_job_script
from weigh.flow.check.script import guess
from weigh.model.limits import Limits, NodeType, QueueLimits
from weigh.model.lint import Facts, Finding
from weigh.schedulers.htcondor.lint import directives, lint
from weigh.schedulers.htcondor.text import parse_memory
from weigh.units import GIB, MIB

DATA = Path(__file__).parents[2] / "support/data/lint/condor_submit-23.9.6.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text())["cases"]
GOOD = """\
executable = job.sh
arguments = $(Process)
output = log/$(ClusterId)_$(ProcId).out
request_memory = 4G
queue 3
"""
POOL = Limits(
    queues=(QueueLimits(name="pool", default=True),),
    nodes=(NodeType(cpus=8, memory=32 * GIB, gpus={"V100": 4}, queues=("pool",)),),
    enforced=False,
)


def codes(text: str, **known: Any) -> list[str]:
    return [one.rule for one in lint(text, Facts(cwd="/home/me", **known))]


def name_of(case: dict[str, Any]) -> str:
    return str(case["name"])


def is_size(case: dict[str, Any]) -> bool:
    """Return whether condor_submit read memory, and no expression."""
    return str(case.get("understood", {}).get("RequestMemory", "")).isdecimal()


def changed(before: str, after: str) -> str:
    assert before in GOOD
    return GOOD.replace(before, after)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_condor_submit_refuses_what_the_lint_refuses(
    case: dict[str, Any],
) -> None:
    found = lint(case["script"], facts())

    assert any(not one.accepted for one in found) == case["refused"], found


# an item of queue that no line uses does no harm
@pytest.mark.parametrize(
    "case", [c for c in CASES if "the line '" in c.get("said", "")], ids=name_of
)
def test_what_condor_submit_warns_of_is_found(case: dict[str, Any]) -> None:
    assert {"unknown-command", "behind-queue"} & set(codes(case["script"]))


@pytest.mark.parametrize("case", [c for c in CASES if is_size(c)], ids=name_of)
def test_memory_is_read_as_condor_submit_read_it(case: dict[str, Any]) -> None:
    found = re.search(r"^request_memory = (.*)$", case["script"], re.MULTILINE)
    assert found is not None

    read = parse_memory(found[1].replace(" ", ""))

    assert read == int(case["understood"]["RequestMemory"]) * MIB


def test_a_good_description_has_no_findings() -> None:
    known = {"paths": {"/home/me/job.sh": "file", "/home/me/log": "directory"}}

    assert codes(GOOD, **known, executable={"/home/me/job.sh": True}, limits=POOL) == []
    assert directives(GOOD) == 4


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("request_memory = 4G\n", "", "default-memory"),
        ("request_memory = 4G", "reqest_memory = 4G", "unknown-command"),
        ("= 4G", "= 4", "memory-in-mebibytes"),
        ("= 4G", "= all", "undefined"),
        ("= 4G", "= 4G\nrequest_disk = 10", "disk-in-kibibytes"),
        ("_$(ProcId)", "", "log-shared"),
        ("$(ProcId)", "$(Procid0)", "unknown-macro"),
        ("log/", "~/log/", "literal-dollar"),
        ("log/$(ClusterId)", "log/%j$(ClusterId)", "literal-dollar"),
        ("queue 3", "queue 3\nrequest_cpus = 4", "behind-queue"),
        ("queue 3", "queue 0", "no-jobs"),
        ("queue 3", "notify_user = me@uni.edu\nqueue 3", "mail-without-type"),
        ("queue 3", "accounting_group = my_project\nqueue 3", "placeholder"),
        ("queue 3", "+Project = mine\nqueue 3", "undefined"),
        ("queue 3", "environment = A=1 B=2\nqueue 3", "environment"),
        ("executable", "universe = docker\nexecutable", None),
        ("= 4G", "= 2 * 1024", None),
        ("queue 3", "queue 3 file in (a b)", None),
        ("_$(ProcId)", "_$(Item)", None),
        ("= 4G", "= $(mine)\nmine = 4G", None),
        ("= 4G", "= 4G\nMy.Memory = 3", None),
    ],
)
def test_what_condor_submit_accepts_without_a_word_is_found(
    before: str, after: str, code: str | None
) -> None:
    found = codes(changed(before, after))

    assert found == [] if code is None else code in found


@pytest.mark.parametrize(
    ("paths", "executable", "code"),
    [
        ({"/home/me/job.sh": "missing"}, {}, "executable"),
        ({"/home/me/job.sh": "directory"}, {}, "executable"),
        ({"/home/me/job.sh": "file"}, {"/home/me/job.sh": False}, "not-executable"),
        ({"/home/me/log": "missing"}, {}, "log-directory"),
    ],
)
def test_files_that_are_not_there_put_a_job_on_hold(
    paths: dict[str, Any], executable: dict[str, bool], code: str
) -> None:
    assert codes(GOOD, paths=paths, executable=executable) == [code]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("request_cpus = 20", "cpus-beyond-node"),
        ("request_gpus = 5", "gpus-beyond-node"),
        ("request_memory = 64G", "memory-beyond-node"),
    ],
)
def test_what_no_slot_has_never_starts(line: str, code: str) -> None:
    found: tuple[Finding, ...] = lint(
        changed("queue 3", f"{line}\nqueue 3"), Facts(cwd="/", limits=POOL)
    )

    (one,) = found
    assert (one.rule, "never starts" in one.effect) == (code, True)


@pytest.mark.parametrize(
    ("text", "is_script"),
    [
        (GOOD, True),
        ("executable = /bin/true\nqueue\n", True),
        ("request_memory=4G\n", True),
        ("output=1.txt python train.py\noutput=2.txt python train.py\n", False),
        ("executable=./a.out ./run 1\n", False),
        ("python queue.py\nqueue-runner 3\n", False),
    ],
)
def test_a_description_is_checked_and_no_task_file_is_taken_for_one(
    tmp_path: Path, text: str, *, is_script: bool
) -> None:
    path = tmp_path / "some.txt"
    path.write_text(text)

    assert is_job_script(str(path)) is is_script
    assert not is_script or guess(text) == "htcondor"


def test_a_script_of_bash_that_sets_variables_is_no_description() -> None:
    assert guess("#!/bin/bash\n#SBATCH --mem=4G\noutput=x\nqueue=3\n") == "slurm"
    assert guess("#!/bin/bash\noutput=x\nexecutable=y\nqueue=3\n") is None
