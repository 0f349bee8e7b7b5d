"""Arrays against a script's lists, files and outputs; commands that cannot work."""

import pytest
from some_scripts import CWD, qsub, sbatch

FILES = {f"{CWD}/in_{{}}.csv": (1, 2, 3)}
MATCHES = {f"{CWD}/data/*.csv": 2, f"{CWD}/*.txt": 9}
LINES = {f"{CWD}/ids.txt": 3}


@pytest.mark.parametrize(
    ("indices", "body"),
    [
        ("0-4", "A=(a b c)\n./x ${A[$SLURM_ARRAY_TASK_ID]}\n"),
        ("1-3", "A=(\n a # one\n b\n 'c d'\n)\n./x \"${A[SLURM_ARRAY_TASK_ID]}\"\n"),
        ("0-3", "A=(a b c)\n./x ${A[$((SLURM_ARRAY_TASK_ID-1))]}\n"),
        ("0-2", "F=(data/*.csv)\n./x ${F[$SLURM_ARRAY_TASK_ID]}\n"),
    ],
)
def test_an_index_beyond_a_bash_array_is_found(indices: str, body: str) -> None:
    found = sbatch(f"--array={indices}", body=body, matches=MATCHES, lines=LINES)
    assert found["element-without-input"].severity == "problem"


@pytest.mark.parametrize(
    ("indices", "body"),
    [
        ("0-2", "A=(a b c)\n./x ${A[$SLURM_ARRAY_TASK_ID]}\n"),
        ("1-3", "A=(a b c)\n./x ${A[$SLURM_ARRAY_TASK_ID-1]}\n"),
        ("0-8", "A=(a b c)\n./x ${A[$((SLURM_ARRAY_TASK_ID % 3))]}\n"),
        ("0-8", "A=(a b c)\nA+=(d e f g h i)\n./x ${A[$SLURM_ARRAY_TASK_ID]}\n"),
        ("0-8", "A=($LIST)\n./x ${A[$SLURM_ARRAY_TASK_ID]}\n"),
        ("0-8", "F=(unknown/*.csv)\n./x ${F[$SLURM_ARRAY_TASK_ID]}\n"),
        ("0-8", "i=$((SLURM_ARRAY_TASK_ID / 3))\nA=(a b c)\n./x ${A[$i]}\n"),
    ],
)
def test_an_index_that_fits_or_is_not_known_is_left_alone(
    indices: str, body: str
) -> None:
    found = sbatch(f"--array={indices}", body=body, matches=MATCHES, lines=LINES)
    assert "element-without-input" not in found


def test_grid_engine_indexes_bash_arrays_too() -> None:
    body = "A=(a b c)\n./x ${A[$((SGE_TASK_ID-1))]}\n"
    assert "element-without-input" in qsub("-t 1-4", body=body)
    assert "element-without-input" not in qsub("-t 1-3", body=body)
    assert "element-without-input" in qsub("-t 1-3", body=body.replace("-1", ""))


@pytest.mark.parametrize(
    ("body", "severity"),
    [
        ("python a.py --in in_$SLURM_ARRAY_TASK_ID.csv\n", "problem"),
        ("python a.py --input=in_${SLURM_ARRAY_TASK_ID}.csv\n", "problem"),
        ("id=$SLURM_ARRAY_TASK_ID\ncat in_$id.csv\n", "problem"),
        ("python a.py in_$SLURM_ARRAY_TASK_ID.csv\n", "note"),
    ],
)
def test_an_array_longer_than_its_files_is_found(body: str, severity: str) -> None:
    found = sbatch("--array=1-5", body=body, files=FILES)
    assert found["element-without-input"].severity == severity


def test_outputs_of_an_earlier_run_are_not_inputs() -> None:
    for flag in ("--out", "--save-dir", "-o", "--checkpoint"):
        body = f"python a.py {flag} in_$SLURM_ARRAY_TASK_ID.csv\n"
        assert "element-without-input" not in sbatch(
            "--array=1-5", body=body, files=FILES
        )


@pytest.mark.parametrize(
    "body",
    [
        'f=$(sed -n "${SLURM_ARRAY_TASK_ID}p" ids.txt)\n./x $f\n',
        'f=$(sed "${SLURM_ARRAY_TASK_ID}q;d" ids.txt)\n./x $f\n',
        "f=$(head -n $SLURM_ARRAY_TASK_ID ids.txt | tail -n 1)\n./x $f\n",
        "f=$(awk -v n=$SLURM_ARRAY_TASK_ID 'NR==n' ids.txt)\n./x $f\n",
        'n=$SLURM_ARRAY_TASK_ID\nf=$(sed -n "${n}p" ids.txt)\n./x $f\n',
    ],
)
def test_an_array_longer_than_its_lines_is_found(body: str) -> None:
    found = sbatch("--array=1-5", body=body, lines=LINES, matches=MATCHES)
    assert found["element-without-input"].severity == "problem"


@pytest.mark.parametrize(
    "body",
    [
        "python a.py $SLURM_ARRAY_TASK_ID > out/log\n",
        "python a.py $SLURM_ARRAY_TASK_ID 2>&1 | tee train.log\n",
        "python a.py $SLURM_ARRAY_TASK_ID > run_${SLURM_ARRAY_JOB_ID}.log\n",
        "OUT=results\npython a.py $SLURM_ARRAY_TASK_ID > $OUT/log 2>&1\n",
        "cd $SLURM_SUBMIT_DIR\npython a.py $SLURM_ARRAY_TASK_ID &> log\n",
    ],
)
def test_an_output_that_all_elements_write_is_found(body: str) -> None:
    assert sbatch("--array=0-9", body=body)["output-shared"].severity == "problem"


@pytest.mark.parametrize(
    "body",
    [
        "python a.py > out_$SLURM_ARRAY_TASK_ID.log\n",
        "python a.py > out_$SLURM_JOB_ID.log\n",
        "python a.py $SLURM_ARRAY_TASK_ID > /dev/null\n",
        "mkdir d$SLURM_ARRAY_TASK_ID\ncd d$SLURM_ARRAY_TASK_ID\npython a.py > log\n",
        "cd $TMPDIR\npython a.py > log\n",
        "d=run_$SLURM_ARRAY_TASK_ID\npython a.py > $d/log\n",
        "if [ $SLURM_ARRAY_TASK_ID = 0 ]; then python a.py > log; fi\n",
        "python a.py > $(date +%s).log\n",
        "python a.py > /tmp/log\n",
    ],
)
def test_outputs_of_their_own_are_left_alone(body: str) -> None:
    assert "output-shared" not in sbatch("--array=0-9", body=body)


def test_a_line_added_by_all_elements_is_a_note() -> None:
    body = "python a.py $SLURM_ARRAY_TASK_ID >> all.log\n"
    assert sbatch("--array=0-9", body=body)["output-shared"].severity == "note"


def test_the_job_id_of_grid_engine_is_one_for_all_tasks() -> None:
    body = "python a.py $SGE_TASK_ID > out.$JOB_ID.txt\n"
    assert "output-shared" in qsub("-t 1-4", body=body)


@pytest.mark.parametrize(
    ("word", "cure"),
    [
        ("res_$SLURM_ARRAY_TASK_ID_x.csv", "${SLURM_ARRAY_TASK_ID}_x"),
        ("out_$SLURM_JOB_ID_train", "${SLURM_JOB_ID}_train"),
        ("$SLURM_ARRAY_TASKID", "did you mean SLURM_ARRAY_TASK_ID?"),
        ("${SLURM_CPU_PER_TASK}", "did you mean SLURM_CPUS_PER_TASK?"),
    ],
)
def test_a_variable_that_slurm_never_sets_is_found(word: str, cure: str) -> None:
    assert sbatch("-c 2", body=f"./x {word}\n")["variable"].cure == cure


@pytest.mark.parametrize(
    "body",
    [
        "./x $SLURM_ARRAY_TASK_ID $SLURM_TMPDIR ${SLURM_NTASKS:-1}\n",
        "SLURM_JOB_ID_x=1\n./x $SLURM_JOB_ID_x\n",
        "./x '$SLURM_ARRAY_TASK_ID_x'\n",
        "./x $SLURM_SITE_SPECIAL\n",
    ],
)
def test_variables_that_are_set_are_left_alone(body: str) -> None:
    assert "variable" not in sbatch("-c 2", body=body)


def test_a_variable_that_grid_engine_never_sets_is_found() -> None:
    assert qsub("-t 1-4", body="./x a_$SGE_TASK_ID_b\n")["variable"].cure == (
        "${SGE_TASK_ID}_b"
    )
    assert "variable" not in qsub("-t 1-4", body="./x $SGE_TASK_LAST $NSLOTS\n")


@pytest.mark.parametrize(
    "body",
    [
        "./solver in.dat\n",
        "srun ./solver\n",
        "srun -n 4 --exclusive ./solver\n",
        "mpirun -np 4 ./solver\n",
        "time ./solver\n",
    ],
)
def test_a_program_without_the_execute_bit_is_found(body: str) -> None:
    path = f"{CWD}/solver"
    known = {"paths": {path: "file"}, "executable": {path: False}}
    assert "not-executable" in sbatch(body=body, **known)
    assert "not-executable" in qsub("-cwd", body=body, **known)
    assert "not-executable" not in sbatch(body=f"chmod +x solver\n{body}", **known)
    run = {"paths": {path: "file"}, "executable": {path: True}}
    assert "not-executable" not in sbatch(body=body, **run)


def test_an_argument_need_not_be_executable() -> None:
    path = f"{CWD}/a.py"
    known = {"paths": {path: "file"}, "executable": {path: False}}
    assert "not-executable" not in sbatch(body="srun python ./a.py\n", **known)
    assert "not-executable" not in sbatch(body="bash ./a.py\n", **known)


@pytest.mark.parametrize(
    "body",
    [
        "trap 'touch stop' USR1\npython a.py\n",
        "trap 'touch stop' USR1\nsrun python a.py\n",
        "stop() { touch x; }\ntrap stop SIGUSR1\nmpirun ./a\n",
        "trap 'touch stop' USR1\n./a\n",
    ],
)
def test_a_trap_before_a_command_in_the_foreground_is_found(body: str) -> None:
    found = sbatch("--signal=B:USR1@60", body=body)["deferred-trap"]
    assert found.severity == "problem"
    waits = body.replace("\n", " &\nwait\n").replace("USR1 &\nwait", "USR1")
    assert "deferred-trap" not in sbatch("--signal=B:USR1@60", body=waits)
    assert sbatch("--mem=1G", body=body)["deferred-trap"].severity == "note"
