"""Lines that bash runs as they are meant: no rule has anything against them."""

import pytest
from some_scripts import CWD, sbatch

from weigh.schedulers.shell import read_body

MISSING = {
    f"{CWD}/{name}": "missing"
    for name in (
        "sort",
        "sort -u",
        "tee",
        "grep",
        "b",
        "3",
        "list.txt",
        "sub",
        "x",
        "cat",
    )
}
REQUEST = ("--mem=1G", "--time=10", "--array=1-4%2", "--output=o_%a.log")
BODIES = {
    "a loop fed by a process": (
        'while read -r a b; do :; done < <(sort -u "$SLURM_ARRAY_TASK_ID")\n'
    ),
    "output through a process": 'exec > >(tee -a "log_$SLURM_ARRAY_TASK_ID") 2>&1\n',
    "a closed descriptor": 'exec 3> "o_$SLURM_ARRAY_TASK_ID"; echo a >&3; exec 3>&-\n',
    "a comparison of words": (
        "[[ $HOSTNAME < b || a > b ]] && echo $SLURM_ARRAY_TASK_ID\n"
    ),
    "a comparison of numbers": "if (( SLURM_ARRAY_TASK_ID > 3 )); then echo b; fi\n",
    "two processes compared": 'diff <(sort "$SLURM_ARRAY_TASK_ID") <(sort b) || true\n',
    "quotes within a substitution": (
        'x="$(echo "a > b" "$SLURM_ARRAY_TASK_ID")"; echo "$x"\n'
    ),
    "a descriptor in a variable": 'exec {log}> "o_$SLURM_ARRAY_TASK_ID" {log}>&-\n',
    "a digit before a redirection": 'echo 2 > "o_$SLURM_ARRAY_TASK_ID"\n',
    "a regular expression": "[[ $SLURM_ARRAY_TASK_ID =~ ^(a|b>c)$ ]] || echo b\n",
    "a case within a substitution": (
        "x=$(case $SLURM_ARRAY_TASK_ID in 1) echo a > /dev/null;; (2) echo b;; esac)\n"
    ),
    "a subshell elsewhere": (
        "mkdir -p made\n(cd made && cat ../list)\necho $SLURM_ARRAY_TASK_ID\n"
    ),
    "arithmetic of shifts": "echo $((1<<SLURM_ARRAY_TASK_ID)) $((2>1))\n",
    "a loop's step with an input of its own": (
        "while read -r a; do\nsrun echo $SLURM_ARRAY_TASK_ID < <(echo b)\n"
        "done < /etc/hosts\n"
    ),
    "a template of mktemp": (
        "x=$(mktemp -d /scratch/x.XXXXXX); echo $x $SLURM_ARRAY_TASK_ID\n"
    ),
    "a loop that reads another descriptor": (
        "while read -r -u 3 a; do\nsrun echo $SLURM_ARRAY_TASK_ID\ndone 3< /etc/hosts\n"
    ),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_nothing_is_found_in_good_bash(body: str) -> None:
    assert not sbatch(*REQUEST, body=body, paths=MISSING)


def test_an_output_that_all_elements_write_by_a_process_is_found() -> None:
    found = sbatch(
        *REQUEST, body="exec > >(tee run.log) 2>&1\necho $SLURM_ARRAY_TASK_ID\n"
    )

    assert "all elements write to run.log" in found["output-shared"].effect


@pytest.mark.parametrize(
    "text", ["if true; then", "a $(", "x=(", "done", "a ) b", "'", "f() { a", "$(" * 90]
)
def test_unclear_shell_has_no_findings(text: str) -> None:
    assert not read_body(f"a > b\n{text}\n").commands
