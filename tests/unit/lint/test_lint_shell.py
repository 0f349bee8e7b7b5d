"""Commands that a shell reads otherwise than they were meant."""

import msgspec
import pytest
from some_limits import SLURM
from some_scripts import of_slurm, qsub, sbatch, script

from weigh.flow.check.script import facts_of
from weigh.flow.here import here_of

BROKEN = [
    'echo "begin\npython x.py\n',
    "if [ -f x ]; then\n  echo a\n",
    "for i in 1 2; do\n  echo $i\n",
    "for i in 1 2: do\necho $i\ndone\n",
    "cat > f <<EOF\na\nEOF \npython x.py\n",
]


def checked(body: str) -> set[str]:
    """Return the rules that find something, with bash asked as `weigh check` does."""
    text = script("#SBATCH", "--time=1", body=body)
    known = facts_of(here_of("/", {}))
    return set(of_slurm(text, syntax=known.syntax))


@pytest.mark.parametrize("body", BROKEN)
def test_what_bash_cannot_read_is_found(body: str) -> None:
    assert "syntax" in checked(body)


@pytest.mark.parametrize(
    "body",
    [
        "shopt -s extglob\nrm !(a|b)\n",
        "case $1 in a) echo;; esac\n",
        "cat <<EOF\n$(date)\nEOF\n",
        "python x.py --input <your file>\n",
    ],
)
def test_what_bash_reads_and_templates_are_no_syntax_errors(body: str) -> None:
    assert "syntax" not in checked(body)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("cd $PBS_O_WORKDIR\n", "variable"),
        ("python x.py $NSLOTS\n", "variable"),
        ("mkdir out_$SLRUM_JOB_ID\n", "variable"),
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n", "variable"),
        ("mpirun -np $SLURM_NTASKS ./a\n", "variable"),
    ],
)
def test_what_runs_otherwise_than_meant_is_found(body: str, rule: str) -> None:
    assert rule in sbatch("--array=1-3%2", "--mem=1G", body=body)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("cd ${PBS_O_WORKDIR:-.}\n", "variable"),
        ('if [ -n "$NSLOTS" ]; then ./a $NSLOTS; fi\n', "variable"),
        ("NSLOTS=4\n./a $NSLOTS\n", "variable"),
        ("n=${SLURM_CPUS_PER_TASK:-1}\n", "variable"),
        ("echo $SLURMD_NODENAME\n", "variable"),
        ("./a $SLURM_JOB_NODELIST_HET_GROUP_1\n", "variable"),
        ("for SLURM_X in 1; do echo $SLURM_X; done\n", "variable"),
    ],
)
def test_what_runs_as_it_was_meant_is_not_reported(body: str, rule: str) -> None:
    assert rule not in sbatch("--time=1", body=body)


def test_a_variable_that_an_option_sets_is_not_empty() -> None:
    body = "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun -n $SLURM_NTASKS ./a\n"

    assert "variable" not in sbatch("-c 2", "--ntasks-per-node=2", body=body)


@pytest.mark.parametrize(
    ("body", "meant"), [("./a $TASK_ID\n", "SGE_TASK_ID"), ("./a $NSLOT\n", "NSLOTS")]
)
def test_a_variable_that_grid_engine_never_sets_is_found(body: str, meant: str) -> None:
    assert meant in qsub("-t 1-2", body=body)["variable"].cure


def test_one_unknown_node_stands_for_the_others() -> None:
    limits = msgspec.structs.replace(SLURM, node_names=("node1",))
    found = sbatch("--exclude=node[7-9]", limits=limits)["unknown-node"]

    assert "node7 does not exist" in found.effect


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("srun --gres=gpu:2 ./a\n", "step-beyond-job"),
        ("srun --mem=8G ./a\n", "step-beyond-job"),
        ("python x.py SLURM_ARRAY_TASK_ID\n", "elements-alike"),
    ],
)
def test_more_that_runs_otherwise_is_found(body: str, rule: str) -> None:
    lines = ("--array=1-3%2", "--mem=1G", "--gres=gpu:1", "--ntasks=1", "--nodes=1")

    assert rule in sbatch(*lines, body=body)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("srun --gres=gpu:1 --mem=500M ./a\n", "step-beyond-job"),
        ("python -c 'os.environ[\"SLURM_ARRAY_TASK_ID\"]'\n", "elements-alike"),
        ("printenv SLURM_ARRAY_TASK_ID\n", "elements-alike"),
    ],
)
def test_more_that_is_right_is_not_reported(body: str, rule: str) -> None:
    lines = ("--array=1-3%2", "--mem=1G", "--gres=gpu:1", "--ntasks=1", "--nodes=1")

    assert rule not in sbatch(*lines, body=body)


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
    ],
)
def test_results_that_are_removed_whether_or_not_they_were_copied(body: str) -> None:
    assert "unsafe-remove" in checked(body)


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
        f"{COPY} || {{ echo failed; exit 1; }}\nrm -rf $S\n",
    ],
)
def test_a_guarded_remove_is_left_alone(body: str) -> None:
    assert "unsafe-remove" not in checked(body)
