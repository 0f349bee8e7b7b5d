"""An array's elements against the files and lines that they read."""

import pytest
from some_scripts import CWD, HOME, qsub, sbatch

PARALLEL = "parallel --jobs 4 < 'tasks_'\"$SLURM_ARRAY_TASK_ID\"'.txt'\n"
TWENTY = {f"{CWD}/tasks_{{}}.txt": tuple(range(20))}
SED = 'ARGS=$(sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt)\npython run.py $ARGS\n'
LINES = {f"{CWD}/params.txt": 20}


def test_twenty_files_and_0_to_20_are_one_element_too_many() -> None:
    found = sbatch("--array=0-20", body=PARALLEL, files=TWENTY)
    one = found["element-without-input"]
    assert one.effect == "20 files tasks_N.txt, 0 to 19: element 20 has none"
    assert one.cure == "0-19 matches"


def test_as_many_elements_as_files_are_no_problem() -> None:
    found = sbatch("--array=0-19", body=PARALLEL, files=TWENTY)
    assert not {"element-without-input", "input-without-element"} & set(found)


def test_a_file_without_an_element_is_left_out() -> None:
    found = sbatch("--array=1-19", body=PARALLEL, files=TWENTY)
    assert "no element for 0" in found["input-without-element"].effect


def test_files_that_are_not_there_yet_print_nothing() -> None:
    files = {f"{CWD}/tasks_{{}}.txt": ()}
    found = sbatch("--array=0-20", body=PARALLEL, files=files)
    assert "element-without-input" not in found


def test_without_an_array_the_files_report_which_one() -> None:
    found = sbatch(body=PARALLEL, files=TWENTY)["no-array"]
    assert (found.severity, found.cure) == ("note", "sbatch --array 0-19")


def test_the_directory_of_the_guide_is_followed() -> None:
    body = f"cd ../../\n{PARALLEL}"
    files = {f"{HOME}/tasks_{{}}.txt": (0, 1)}
    known = {"cwd": f"{HOME}/script/interference", "files": files}
    found = sbatch("--array=0-2", body=body, **known)
    assert "element 2 has none" in found["element-without-input"].effect


@pytest.mark.parametrize(
    ("indices", "code"),
    [
        ("0-19", "element-without-input"),
        ("1-21", "element-without-input"),
        ("1-19", "input-without-element"),
    ],
)
def test_lines_count_from_one(indices: str, code: str) -> None:
    found = sbatch(f"--array={indices}", body=SED, lines=LINES)[code]
    assert found.cure == "1-20"


def test_as_many_elements_as_lines_are_no_problem() -> None:
    found = sbatch("--array=1-20%5", body=SED, lines=LINES)
    assert not {"element-without-input", "input-without-element"} & set(found)


def test_lines_are_counted_for_awk_as_well() -> None:
    body = 'awk "NR==$SGE_TASK_ID" params.txt | sh\n'
    found = qsub("-cwd", "-t 1-21", body=body, lines=LINES)
    assert "21 gets none" in found["element-without-input"].effect


def test_the_other_schedulers_variable_is_empty() -> None:
    assert "variable" in sbatch("--array=1-3", body="python x $SGE_TASK_ID\n")
    body = "python x $SLURM_ARRAY_TASK_ID\n"
    assert "variable" in qsub("-t 1-3", body=body)


def test_a_script_for_both_schedulers_is_no_problem() -> None:
    body = "N=${SLURM_ARRAY_TASK_ID:-$SGE_TASK_ID}\npython x $N\n"
    assert "variable" not in sbatch("--array=1-3", body=body)


def test_elements_that_are_all_alike_are_noted() -> None:
    found = sbatch("--array=1-3", body="python train.py\n")["elements-alike"]
    assert found.severity == "note"


@pytest.mark.parametrize(
    ("body", "noted"),
    [
        ("python x.py $SLURM_ARRAY_TASK_ID\n", True),
        ('[ -z "$SLURM_ARRAY_TASK_ID" ] && exit\npython x.py\n', False),
        ('if [ "$SLURM_ARRAY_TASK_ID" = "" ]; then n=1; fi\n', False),
        ("n=${SLURM_ARRAY_TASK_ID:-1}\npython x.py $n\n", False),
        ("SLURM_ARRAY_TASK_ID=${1}\npython x.py $SLURM_ARRAY_TASK_ID\n", False),
        ('echo "element $SLURM_ARRAY_TASK_ID"\npython x.py\n', False),
    ],
)
def test_an_index_without_an_array_is_noted_unless_the_script_copes(
    *, body: str, noted: bool
) -> None:
    assert ("no-array" in sbatch("--time=1", body=body)) == noted
