"""Results that are removed uncopied, steps that eat a loop's input, Java's heaps."""

import pytest
from some_scripts import qsub, sbatch

COPY = "rsync -a $S/out/ /home/me/out"


@pytest.mark.parametrize(
    "body",
    [
        f"{COPY}\nrm -rf $S\n",
        f"{COPY}\nrm -rf ${{S}}/out/*\n",
        "cp -r $S/out /home/me/\nrm --recursive $S/\n",
        f"if [ -f x ]; then\n  echo\nfi\n{COPY}; rm -fr $S\n",
        "mkdir -p $S && cd $S || exit\ncp -r out /home/me/\nrm -rf $S\n",
        "cd $S\nrsync -a --remove-source-files out /home/me/\ncd /\nrm -rf $S\n",
        "mv $S/out /home/me/\nrm -rf $S || true\n",
        f"{COPY} || echo failed\nrm -rf $S\n",
        f"set -e\n{COPY} || true\nrm -rf $S\n",
        f"{COPY}\nfind $S -delete\n",
        f"trap 'rm -rf $S' EXIT\npython a.py\n{COPY}\n",
        f"set -e\ntrap 'cd /; rm -rf $S' TERM EXIT\n{COPY} || exit 1\n",
        f"finish() {{\n  {COPY}\n  rm -rf $S\n}}\ntrap finish EXIT\npython a.py\n",
    ],
)
def test_results_that_are_removed_whether_or_not_they_were_copied(body: str) -> None:
    assert "unsafe-remove" in sbatch(body=body)


@pytest.mark.parametrize(
    "body",
    [
        f"{COPY} && rm -rf $S\n",
        f"set -e\n{COPY}\nrm -rf $S\n",
        f"set -euo pipefail\n{COPY}\nrm -rf $S\n",
        f"{COPY} || exit 1\nrm -rf $S\n",
        f"{COPY}\n[ $? -eq 0 ] || exit 1\nrm -rf $S\n",
        f"if {COPY}; then\n  rm -rf $S\nfi\n",
        f"{COPY}\nif [ -d /home/me/out/a ]; then\n  rm -rf $S\nfi\n",
        "rsync -a /home/me/data $S/data\nrm -rf $S\n",  # brought in, not home
        f"{COPY}\nrm -rf $T\n",
        f"{COPY}\nrm $S/out/lock\n",
        f"rm -rf $S/out\n{COPY}\n",
        "cd $S\ncp -r out /home/me/\ncd $T\nrm -rf out\n",
        "(cd $S && tar cf a.tar out)\ncp a.tar /home/me/\nrm -rf $S\n",
        f"trap '{COPY} && rm -rf $S' EXIT\npython a.py\n",
        f"trap 'rm -rf $S' EXIT\n{COPY} || {{ trap - EXIT; exit 1; }}\n",
        f"trap 'rm -rf $T' EXIT\n{COPY}\n",
        f"trap 'rm -f $S/lock' EXIT\n{COPY}\n",
        f"{COPY} || {{ echo failed; exit 1; }}\nrm -rf $S\n",
    ],
)
def test_a_guarded_remove_is_left_alone(body: str) -> None:
    assert "unsafe-remove" not in sbatch(body=body)


@pytest.mark.parametrize(
    "body",
    [
        "while read a; do\n  srun ./a $a\ndone < l.txt\n",
        "cat l | while read -r a\ndo\n  mpirun ./a\ndone\n",
    ],
)
def test_a_step_that_reads_the_input_of_its_loop_is_found(body: str) -> None:
    assert "loop-input" in sbatch(body=body)


@pytest.mark.parametrize(
    "body",
    [
        "while read a; do\n  srun ./a $a < /dev/null\ndone < l.txt\n",
        "while read a; do\n  srun ./a $a \\\n    < /dev/null\ndone < l.txt\n",
        "while read a; do\n  srun ./a <<EOF\n$a\nEOF\ndone < l.txt\n",
        "while read a; do\n  srun --input none ./a\ndone < l.txt\n",
        "while read a; do\n  echo $a\ndone < l.txt\nsrun ./a\n",
    ],
)
def test_a_step_with_an_input_of_its_own_is_none(body: str) -> None:
    assert "loop-input" not in sbatch(body=body)


@pytest.mark.parametrize(
    ("lines", "heap", "is_found"),
    [
        ("-l h_vmem=4G", "-Xmx4g", True),
        ("-l h_vmem=4G", "-Xmx2g", False),
        ("-l h_vmem=4G -pe smp 4", "-Xmx8g", False),
        ("-l h_vmem=4G", "-Xmx$MEM", False),
    ],
)
def test_a_java_heap_as_large_as_the_memory_is_found(
    lines: str, heap: str, *, is_found: bool
) -> None:
    found = qsub(lines, body=f"java {heap} -jar a.jar\n")
    assert ("heap-beyond-memory" in found) == is_found


def test_a_java_heap_counts_under_slurm_too() -> None:
    assert "heap-beyond-memory" in sbatch("--mem=8G", body="java -Xmx8G -jar a.jar\n")
    enough = sbatch("--mem-per-cpu=4G", "-c 4", body="java -Xmx8G -jar a.jar\n")
    assert "heap-beyond-memory" not in enough
