"""The rows of the table of sbatch's mistakes: each is caught before submission."""

from typing import Any

import msgspec
import pytest
from some_limits import SLURM
from some_scripts import CWD, HOME, of_slurm, sbatch, stated

from weigh.model.cluster import UNTYPED, NodeType, QueueLimits
from weigh.model.lint import CommandPlace

LAX = msgspec.structs.replace(SLURM, enforced=False)
NO = "refused"

# the line of the script, the rule, how severe, and words of its effect or cure
BEYOND_THE_CLUSTER = [
    ("-p shrot", "unknown-queue", NO, "did you mean short?"),
    ("--mem=40G", "memory-beyond-node", NO, "40.0 GiB"),
    ("--mem=40G", "memory-beyond-node", NO, "31.2 GiB"),
    ("--mem-per-cpu=8G -c 4", "memory-beyond-node", NO, "32.0 GiB"),
    ("-p gpu --mem=20G", "memory-beyond-queue", NO, ""),
    ("-c 9", "cpus-beyond-node", NO, ""),
    ("-N 1 --tasks-per-node=9", "cpus-beyond-node", NO, ""),
    ("--gres=gpu:v10:1", "gpus-beyond-node", NO, "did you mean v100?"),
    ("-p long --gres=gpu:v100:1", "gpus-beyond-node", NO, "queue gpu, short has"),
    ("--gres=gpu:v100:5", "gpus-beyond-node", NO, "has 4"),
    ("--account=nosuch", "unknown-account", NO, ""),
    ("--qos=nosuch", "unknown-qos", NO, ""),
    ("--constraint=nosuch", "unknown-constraint", NO, ""),
    ("--nodelist=nosuch", "unknown-node", NO, ""),
    ("--array=1-1001", "array-size", NO, "1,000"),
    ("-p long", "default-time", "note", "the default of long is 1 h 00 m"),
    ("-p long", "default-memory", "note", "the default of long is 1.00 GiB"),
    ("-p gpu", "default-gpu", "note", ""),
]
WAITS_FOR_EVER = [
    ("-p gpu --mem=20G", "memory-beyond-queue", "problem", "never starts"),
    ("--time=12:00:00", "time-beyond-queue", "problem", "queue long allows it"),
    ("--time=0", "time-beyond-queue", "problem", ""),
    ("--time=UNLIMITED", "time-beyond-queue", "problem", ""),
    ("-N 4", "nodes-beyond-queue", "problem", ""),
]
ANYWHERE = [
    ("--gres=gpu=1", "gpus", NO, "gpu:1"),
    ("--gres=gpu:1:v100", "gpus", NO, "gpu:v100:1"),
    ("--gres=v100:1", "gpus", NO, "gpu:v100:1"),
    *((f"--time={time}", "time", NO, "") for time in ("abc", "1h", "1d", "24h")),
    ("--mem=1.5G", "memory", NO, "whole numbers only: 1536M"),
    ("--mem=4GiB", "memory", NO, "write 4G"),
    ("--mem=4 G", "stray-word", NO, ""),
    ("--mem=4", "memory-in-mib", "", "is 4.00 MiB; 4 GiB are 4G"),
    ("--mem=16", "memory-in-mib", "problem", ""),
    ("--mem=17", "memory-in-mib", "note", ""),
    ("--time=24:00", "time-in-minutes", "", "is 24 minutes"),
    ("--time=1:00", "time-in-minutes", "", "1 hour is 01:00:00"),
    ("--time=24:00", "time-in-minutes", "", "a day is 24:00:00 or 1-0"),
    ("--time=2:30", "time-in-minutes", "", "2 h 30 m is 02:30:00"),
    ("--time=24", "time-in-minutes", "", ""),
    ("--patition=short", "unknown-option", NO, "did you mean --partition?"),
    ("--cpu-per-task=2", "unknown-option", NO, "did you mean --cpus-per-task?"),
    ("--mem_per_cpu=1G", "unknown-option", NO, "did you mean --mem-per-cpu?"),
    ("--workdir=/tmp", "unknown-option", NO, "did you mean --chdir?"),
    ("--gpu=1", "unknown-option", NO, ""),
    ("-z", "unknown-option", NO, ""),
    ("-zork", "unknown-option", NO, "#SBATCH --zork"),
    ("--signal=FOO@60", "option-value", NO, ""),
    *((f"--array={text}", "array", NO, "") for text in ("5-1", "a-b", "1..10")),
    ("--array=", "array", "problem", ""),
    ("--array=0-999", "no-throttle", "note", ""),
    ("--mem=8G --mem-per-gpu=4G", "memory", NO, ""),
    ("--dependency=after_ok:1", "dependency", NO, ""),
    ("--outpu=$HOME/x.out", "literal-dollar", "problem", ""),
    ("--output=$HOME/x.out", "literal-dollar", "problem", ""),
    ("--output=~/x.out", "literal-dollar", "problem", ""),
    ("--output=/home/$USER/x.out", "literal-dollar", "problem", ""),
    ("--job-name=$USER-x", "literal-dollar", "", ""),
    ("--chdir=~/work", "literal-dollar", "", "the job runs in /tmp"),
    ("--input=$HOME/in.txt", "literal-dollar", "", "the job fails without a log"),
    ("-o logs/%j/out.txt", "log-directory", "", ""),
    ("--output=logs/", "log-directory", "", "names a directory: no log is written"),
    ("--output=%Q.out", "log-pattern", "", "%Q is not a Slurm pattern"),
    ("--output=%a.out", "log-pattern", "", "%j is the job id"),
    ("--array=1-3 -o out.txt", "log-shared", "", ""),
    ("-J=train", "short-equals", "", ""),
    ("-o=train.out", "short-equals", "", ""),
]


@pytest.mark.parametrize(
    ("limits", "line", "rule", "severity", "words"),
    [
        *((SLURM, *row) for row in BEYOND_THE_CLUSTER),
        *((LAX, *row) for row in WAITS_FOR_EVER),
        *((None, *row) for row in ANYWHERE),
    ],
)
def test_what_a_directive_gets_wrong_is_found(
    limits: Any, line: str, rule: str, severity: str, words: str
) -> None:
    stated(sbatch(line, limits=limits), rule, severity, words)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (f"--nodelist={min(SLURM.node_names or ())}", "unknown-node"),
        ("--array=1-1000", "array-size"),
        ("--gres=tmpdisk:100", "gpus"),
        ("--mem=8000", "memory-in-mib"),
        ("--time=0-24:00", "time-in-minutes"),
        ("--time=90", "time-in-minutes"),
        ("--array=1-3 -o %A_%a.txt", "log-shared"),
        ("--array=1-3 -o %a.out", "log-pattern"),
        ("--array=0-999%10", "no-throttle"),
        ("--array=0-9", "no-throttle"),
        ("--dependency=afterok:1", "dependency"),
        ("--input=in.txt", "literal-dollar"),
        ("-H -W", "option-value"),
        ("-H -W", "unknown-option"),
    ],
)
def test_what_a_directive_gets_right_is_left_alone(line: str, rule: str) -> None:
    assert rule not in sbatch(line, limits=SLURM)


@pytest.mark.parametrize(
    ("flag", "rule", "is_found", "changes"),
    [
        ("--account=any", "unknown-account", False, {"accounts": None}),
        ("--array=1-101", "array-size", True, {"most_submitted": 100}),
        (
            *("--gres=gpu:v100:2", "gpus-beyond-node", False),
            {"nodes": (NodeType(gpus={UNTYPED: 4}, queues=("short",)),)},
        ),
        (
            *("-A lab", "unknown-account", True),
            {"queues": (QueueLimits(name="short", default=True, accounts=("other",)),)},
        ),
    ],
)
def test_a_cluster_is_judged_by_what_it_enforces(
    flag: str, rule: str, *, is_found: bool, changes: dict[str, Any]
) -> None:
    limits = msgspec.structs.replace(SLURM, **changes)
    assert (rule in sbatch(flag, limits=limits)) is is_found


@pytest.mark.parametrize(
    ("text", "rule", "severity", "words"),
    [
        ("#SBATCH --mem=1G\nhostname\n", "no-shebang", NO, ""),
        ("#!/bin/bash\r\n#SBATCH -c 1\r\nls\r\n", "carriage-returns", NO, ""),
        ("\ufeff#!/bin/bash\nhostname\n", "bom", NO, ""),
        ("#!bash\nhostname\n", "interpreter", "", "not an absolute path"),
        ("#!/usr/bin/env python3 -u\nprint(1)\n", "interpreter", "", "env -S python3"),
        *(
            (f"#!/bin/bash\n{word} --mem=8G\nls\n", "ignored-directive", "problem", "")
            for word in ("#SBTACH", "#SBACTH", "#SABTCH", "#SBATC", "#sbatch")
        ),
        ("#!/bin/bash\n# SBATCH -c 2\n", "ignored-directive", "", "a space after '#'"),
        ("#!/bin/bash\n  #SBATCH -c 2\nls\n", "ignored-directive", "", ""),
        ("#!/bin/bash\nSBATCH -c 2\n", "ignored-directive", "", "takes it for a comm"),
        ("#!/bin/bash\n#SBATCH--time=24:00\nls\n", "time-in-minutes", "", ""),
        (
            "#!/bin/bash\nset -e\n#SBATCH -c 2\n",
            "directive-after-command",
            "",
            "line 2",
        ),
        ("#!/bin/bash\n#SBATCH -c 2 \\\n--time=5\nls\n", "ignored-directive", "", ""),
        ("#!/bin/bash\n{% if a %}\n#SBATCH -c 2\nls\n", "placeholder", "", ""),
    ],
)
def test_what_a_script_gets_wrong_is_found(
    text: str, rule: str, severity: str, words: str
) -> None:
    stated(of_slurm(text), rule, severity, words)


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
        "{% if a %}\n#SBATCH -c 2\n{% endif %}\n#SBATCH -n 1\n",
    ],
)
def test_prose_and_other_scripts_are_no_directives(text: str) -> None:
    found = of_slurm(f"#!/bin/bash\n{text}hostname\n")
    assert "directive-after-command" not in found
    severe = {rule for rule, one in found.items() if one.severity != "note"}
    assert severe <= {"placeholder"}


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


@pytest.mark.parametrize(
    "line",
    [
        *("--array=[1-32]", "--array=1,", "--array=1-9%x", "--cpus-per-task=+1"),
        *("--ntasks=1 --gpus=v100", "--mail-type=END,FOO", "--begin=now+1hour"),
        *("--begin=16:00", "--deadline=2030-01-01", "--exclusive=user", "--nodes=1-2"),
        *("--open-mode=a", "--hint=nomultithread", "--no-kill", "--profile=task"),
    ],
)
def test_what_sbatch_accepts_is_not_called_refused(line: str) -> None:
    assert all(one.accepted for one in sbatch(line).values())


@pytest.mark.parametrize(
    "line",
    [
        *("--cpus-per-task=1-2", "--ntasks=2-4", "--nodes=a", "--nodes=2-1"),
    ],
)
def test_what_sbatch_refuses_is_called_refused(line: str) -> None:
    assert not all(one.accepted for one in sbatch(line).values())


@pytest.mark.parametrize(
    "value", ["<PARAM_CPUS>", "{2.number of cpus}", "{{ cpus }}", "<%= cpus %>", "@N@"]
)
def test_a_template_is_reported_as_one_and_not_by_its_values(value: str) -> None:
    found = sbatch(f"--cpus-per-task={value}")
    assert "placeholder" in found
    assert not {"count", "stray-word", "literal-dollar"} & set(found)


@pytest.mark.parametrize(
    ("line", "body", "rule", "is_found"),
    [
        ("-t 1", "trap 'rm $T' TERM\nsrun python a.py\n", "deferred-trap", False),
        ("-t 1", "trap 'rm $T' TERM\npython a.py\n", "deferred-trap", True),
        ("-t 1 --signal=B:10@6", "trap 'ls' USR1\necho a\n", "deferred-trap", False),
        ("--array=0-19%2", "python a.py\n", "elements-alike", True),
        ("--array=0-19%1", "python a.py\n", "elements-alike", False),
        ("-t 1", "conda activate x\n", "conda", True),
        ("-t 1", "source v/bin/activate\nconda activate x\n", "conda", True),
        ("-t 1", ". ~/start_anaconda.sh\nconda activate x\n", "conda", False),
        ("-t 1", "source ~/conda/bin/activate\nconda activate x\n", "conda", False),
    ],
)
def test_the_body_is_judged_with_the_directives(
    line: str, body: str, rule: str, *, is_found: bool
) -> None:
    assert (rule in sbatch(line, body=body)) is is_found


def test_a_template_is_found_in_its_first_line() -> None:
    text = "#!/bin/bash\n#SBATCH -c 2\n{% if a %}\n#SBATCH -n 1\n"
    assert of_slurm(text)["placeholder"].line == 3


@pytest.mark.parametrize(("nodes", "cure"), [("4-2", "2-4"), ("4-a", ""), ("a-4", "")])
def test_nodes_that_run_backwards_are_turned_and_others_not_guessed(
    nodes: str, cure: str
) -> None:
    (found,) = (one for one in sbatch(f"--nodes={nodes}").values() if not one.accepted)
    assert cure in found.cure
    assert bool(found.cure) == bool(cure)
