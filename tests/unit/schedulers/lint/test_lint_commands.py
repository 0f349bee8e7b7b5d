"""What the commands of a script do with what the job gets, under either scheduler."""

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from some_limits import GRIDENGINE, SLURM, idle_node
from some_scripts import (
    CWD,
    facts,
    of_gridengine,
    of_slurm,
    qsub,
    sbatch,
    script,
    stated,
)

from weigh.flow.check.script import facts_of
from weigh.flow.here import here_of
from weigh.model.cluster import UNTYPED, ClusterLimits, QueueLimits
from weigh.model.lint import CommandPlace
from weigh.schedulers.gridengine import lint as gridengine_lint
from weigh.schedulers.script import read_script
from weigh.schedulers.shell import read_body
from weigh.units import GIB

KNOWN: dict[str, Any] = {
    "files": {
        f"{CWD}/in_{{}}.csv": (1, 2, 3),
        f"{CWD}/tasks_{{}}.txt": tuple(range(20)),
        f"{CWD}/later_{{}}.txt": (),
    },
    "lines": {f"{CWD}/ids.txt": 3, f"{CWD}/params.txt": 20},
}
GONE: dict[str, Any] = {
    "paths": {f"{CWD}/solver": "file", f"{CWD}/a.py": "file"},
    "executable": {f"{CWD}/solver": False, f"{CWD}/a.py": False},
}
SOLVERS = [
    *("./solver in.dat\n", "srun ./solver\n", "srun -n 4 --exclusive ./solver\n"),
    *("mpirun -np 4 ./solver\n", "time ./solver\n"),
]


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
                if limits.startswith("with what is there"):
                    body, _, known = body.rpartition(" | ")
                end = "" if limits == "whole scripts" else "\n"
                yield scheduler, limits, rule, verdict, directives, body + end, known
            elif line.startswith("@"):
                limits = line.removeprefix("@ ")
            elif not line.startswith("#"):
                rule = line


def looked_up(there: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a row: its paths are those of a folder of work."""
    found = dict(there)
    for name in ("paths", "files"):
        parts = there.get(name, {}).items()
        found[name] = {posixpath.join(CWD, path): value for path, value in parts}
    commands = there.get("commands", {}).items()
    found["commands"] = {name: CommandPlace(*places) for name, places in commands}
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
    ask = sbatch if scheduler == "slurm" else qsub
    if limits == "whole scripts":
        found = of_slurm(body) if scheduler == "slurm" else of_gridengine(body)
    elif limits in LIMITS:
        known = {**KNOWN, **GONE, "limits": LIMITS[limits][scheduler]}
        found = ask(line, body=body, **known)
    else:
        found = ask(line, body=body, **looked_up(json.loads(there)))
    assert agrees(found, rule, verdict)


def test_an_executable_program_is_no_finding() -> None:
    known = {**GONE, "executable": {f"{CWD}/solver": True}}
    assert not any("not-executable" in sbatch(body=one, **known) for one in SOLVERS)


# programs and files


def test_a_script_of_python_has_no_shell_commands() -> None:
    found = of_slurm("#!/usr/bin/env python3\n#SBATCH --mem=1G\n[[x]]\n")
    assert {one.severity for one in found.values()} <= {"note"}


def test_the_program_behind_env_is_found() -> None:
    assert read_script("#!/usr/bin/env -S python3 -u\n").program == "python3"
    assert not read_script("#!/usr/bin/env python3\n").is_shell
    assert read_script("#! /bin/bash -l\n").program == "bash"


# with the limits of a cluster


def test_options_of_sge_request_count_before_the_scripts() -> None:
    home = ("sge_request", "# site\n-cwd -l h_rt=1:00:00\n")
    paths = {f"{CWD}/a.py": "file", "/home/me/a.py": "missing"}
    known: dict[str, Any] = {"body": "python a.py\n", "paths": paths}
    assert "missing-path" in qsub(**known)
    found = qsub(**known, defaults=(home,))
    assert not {"missing-path", "starts-at-home", "default-time"} & found.keys()
    assert "missing-path" in qsub("-clear", **known, defaults=(home,))
    assert "missing-path" in qsub("-wd /home/me", **known, defaults=(home,))


def test_a_finding_on_a_default_names_its_file_and_no_line() -> None:
    known = facts(defaults=(("~/.sge_request", "-t 5-1\n"),), limits=GRIDENGINE)
    text = "#!/bin/bash\nhostname\n"
    found = {one.rule: one for one in gridengine_lint.LINT.lint(text, known)}
    assert found["array"].line is None
    assert "(~/.sge_request)" in found["array"].text


def test_the_shell_is_no_question_where_the_queue_starts_the_script() -> None:
    queue = QueueLimits(name="a.q", start_mode="unix_behavior")
    assert "no-shell" not in qsub("-cwd", limits=ClusterLimits(queues=(queue,)))
    assert "no-shell" in qsub("-cwd")
    assert "interpreter" not in qsub("-S bash", limits=ClusterLimits(queues=(queue,)))
    assert qsub("-S bash")["interpreter"].severity == "note"


# what bash itself reads, and what is removed


def checked(body: str) -> set[str]:
    """Return the rules that find something, with bash asked as `weigh check` does."""
    text = script("#SBATCH", "--time=1", body=body)
    return set(of_slurm(text, syntax=facts_of(here_of("/", {})).syntax))


@pytest.mark.parametrize(
    ("body", "is_broken"),
    [
        ('echo "begin\npython x.py\n', True),
        ("if [ -f x ]; then\n  echo a\n", True),
        ("for i in 1 2; do\n  echo $i\n", True),
        ("for i in 1 2: do\necho $i\ndone\n", True),
        ("cat > f <<EOF\na\nEOF \npython x.py\n", True),
        ("shopt -s extglob\nrm !(a|b)\n", False),
        ("case $1 in a) echo;; esac\n", False),
        ("cat <<EOF\n$(date)\nEOF\n", False),
    ],
)
def test_what_bash_cannot_read_is_found(body: str, *, is_broken: bool) -> None:
    assert ("syntax" in checked(body)) is is_broken


def test_a_script_is_read_by_the_shell_that_an_option_names() -> None:
    known: dict[str, Any] = {"syntax": facts_of(here_of("/", {})).syntax}
    csh = "#$ -S /bin/csh\n#$ -cwd\nforeach x (1 2)\n  echo $x\nend\n"
    queue = QueueLimits(name="a.q", start_mode="unix_behavior")

    assert "syntax" not in of_gridengine(csh, **known)
    assert "syntax" in of_gridengine(csh.replace("csh", "bash"), **known)
    limits = ClusterLimits(queues=(queue,))  # such a queue starts sh
    assert "syntax" in of_gridengine(csh, limits=limits, **known)


def test_a_missing_interpreter_is_eqw() -> None:
    missing = {"/bin/bsah": "missing"}
    found = of_gridengine("#!/bin/bsah\nhostname\n", paths=missing)
    assert "Eqw" in found["interpreter"].effect


LIMITED = msgspec.structs.replace(
    GRIDENGINE,
    queues=tuple(
        msgspec.structs.replace(queue, memory=4 * GIB) for queue in GRIDENGINE.queues
    ),
)


def test_a_queue_limits_the_memory_of_a_slot_and_not_of_all() -> None:
    asked = ("-q all.q", "-pe smp 4", "-l h_vmem=3G")

    assert "memory-beyond-queue" not in qsub(*asked, limits=LIMITED)
    assert "memory-beyond-queue" in qsub("-l h_vmem=5G", limits=LIMITED)


def test_gpus_that_each_slot_takes_anew_are_counted_so() -> None:
    cell = msgspec.structs.replace(GRIDENGINE, per_slot=("ngpus", "h_vmem"))
    asked = ("-pe smp 4", "-l ngpus=2")

    found = qsub(*asked, limits=cell)

    assert "8 GPUs in total" in found["gpus-per-slot"].effect
    assert "gpus-beyond-node" in found
    assert not {"gpus-per-slot", "gpus-beyond-node"} & set(
        qsub(*asked, limits=GRIDENGINE)
    )


def test_where_no_queue_is_requested_the_cluster_is_what_is_too_small() -> None:
    queues = tuple(replace(one, default=False) for one in GRIDENGINE.queues)
    limits = replace(GRIDENGINE, queues=queues)
    found = qsub("-cwd", "-l h_vmem=40G", limits=limits)["memory-beyond-node"]
    assert "the largest node of the cluster has 32.0 GiB" in found.effect


def test_a_queue_may_allow_fewer_cpus_than_its_nodes_have() -> None:
    queue = replace(SLURM.queues[0], cpus=4)
    limits = replace(SLURM, queues=(queue, *SLURM.queues[1:]))
    found = sbatch("--cpus-per-task=6", limits=limits)["cpus-beyond-queue"]
    assert "6 CPUs on one node; short allows 4" in found.effect


def test_a_missing_folder_of_two_logs_is_reported_once() -> None:
    lines = ("--output=logs/a.out", "--error=logs/a.err")
    found = sbatch(*lines, paths={f"{CWD}/logs": "missing"})
    assert found["log-directory"].text == "--output=logs/a.out"


def test_a_newline_within_a_case_ends_no_command() -> None:
    text = "case $1\nin\n  a)\n\n python a.py ;;\n\n b) python b.py ;;\nesac\n"
    words = [one.words for one in read_body(text).commands]
    assert words == [("python", "a.py"), ("python", "b.py")]


def test_gpus_without_a_type_may_be_of_any() -> None:
    nodes = (idle_node(GIB, ("short",), UNTYPED),)
    limits = msgspec.structs.replace(SLURM, nodes=nodes)
    assert "gpus-beyond-node" not in sbatch("--gres=gpu:v100:2", limits=limits)


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
