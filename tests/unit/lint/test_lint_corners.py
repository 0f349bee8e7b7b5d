"""What the lint says of scripts that few people write, and somebody does."""

import pytest
from msgspec.structs import replace
from some_limits import GRIDENGINE, SLURM
from some_scripts import CWD, of_slurm, qsub, sbatch

from weigh.schedulers.shell import read_body

DATA = "cat data_${SLURM_ARRAY_TASK_ID}.csv\n"


def test_a_home_that_is_not_known_hides_a_path() -> None:
    found = sbatch("--chdir=/x", body="cd ~/work\ncat in.txt\n", home=None)

    assert "missing-path" not in found


def test_only_templates_with_files_report_which_array() -> None:
    body = DATA + "cat other_${SLURM_ARRAY_TASK_ID}.csv\n"
    files = {f"{CWD}/data_{{}}.csv": (), f"{CWD}/other_{{}}.csv": (4,)}

    found = sbatch(body=body, files=files)["no-array"]

    assert found.effect.startswith("one file other_N.csv, N = 4")


def test_a_path_that_another_variable_hides_has_no_template() -> None:
    found = sbatch("--array=1-3", body="cat $DATA/a_${SLURM_ARRAY_TASK_ID}.csv\n")

    assert "element-without-input" not in found


def test_grid_engine_s_variable_is_undefined_without_an_array() -> None:
    found = qsub("-cwd", body="python run.py $SGE_TASK_ID\n")["no-array"]

    assert "'undefined' unless submitted with -t" in found.effect


@pytest.mark.parametrize("flag", ["-a", "--arg-file", "::::"])
def test_a_file_of_arguments_for_parallel_is_one_that_is_read(flag: str) -> None:
    body = f"parallel echo {flag} args_${{SLURM_ARRAY_TASK_ID}}.txt\n"
    files = {f"{CWD}/args_{{}}.txt": (1, 2)}

    found = sbatch("--array=1-3", body=body, files=files)

    assert "element 3 has none" in found["element-without-input"].effect


def test_an_interpreter_has_an_absolute_path() -> None:
    found = of_slurm("#!bash\n#SBATCH --mem=1G\nhostname\n")["interpreter"]

    assert "not an absolute path" in found.effect


def test_a_range_that_grid_engine_cannot_read_is_refused() -> None:
    found = qsub("-cwd", "-t one-ten")["array"]

    assert not found.accepted


def test_a_shell_that_is_not_there_is_pointed_out() -> None:
    found = qsub("-cwd", "-S /bin/zsh", paths={"/bin/zsh": "missing"})

    assert found["interpreter"].effect == "/bin/zsh does not exist"


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


def test_a_name_without_a_slash_is_sourced_from_the_path() -> None:
    assert "missing-path" not in sbatch(
        body="source activate\n", paths={f"{CWD}/activate": "missing"}
    )


def test_a_flag_with_a_point_in_it_is_no_file() -> None:
    assert "missing-path" not in sbatch(
        body="python -Ximporttime=a.b run\n", paths={f"{CWD}/run": "missing"}
    )


@pytest.mark.parametrize("maker", ["git clone https://x/y", "tar xf data.tar"])
def test_behind_what_brings_many_files_none_is_missed(maker: str) -> None:
    body = f"{maker}\npython train.py\n"

    found = sbatch(body=body, paths={f"{CWD}/train.py": "missing"})

    assert "missing-path" not in found


def test_behind_a_second_component_directives_are_about_that() -> None:
    found = sbatch("--mem=1G", "hetjob", "--no-such-option")

    assert "unknown-option" not in found


def test_a_short_flag_takes_no_value() -> None:
    assert not {"unknown-option", "option-value"} & {*sbatch("-H", "-W")}


@pytest.mark.parametrize(
    ("word", "cure"), [("-z", ""), ("-zork", "#SBATCH --zork")], ids=["one", "word"]
)
def test_an_unknown_letter_is_refused(word: str, cure: str) -> None:
    found = sbatch(word)["unknown-option"]

    assert (found.accepted, found.cure) == (False, cure)


def test_a_missing_folder_of_two_logs_is_reported_once() -> None:
    found = sbatch(
        "--output=logs/a.out", "--error=logs/a.err", paths={f"{CWD}/logs": "missing"}
    )

    assert found["log-directory"].text == "--output=logs/a.out"


def test_an_input_with_a_variable_stays_as_it_is() -> None:
    found = sbatch("--input=$HOME/in.txt")["literal-dollar"]

    assert "the job fails without a log" in found.effect
    assert "literal-dollar" not in sbatch("--input=in.txt")


@pytest.mark.parametrize("pattern", ["%u", "%x"])
def test_a_user_s_or_job_s_name_in_a_log_folder_is_filled_in(pattern: str) -> None:
    filled = {"%u": "me", "%x": "train"}[pattern]

    found = sbatch(
        "--job-name=train",
        f"--output=logs/{pattern}/%j.out",
        paths={f"{CWD}/logs/{filled}": "missing"},
    )

    assert found["log-directory"].cure == f"mkdir -p logs/{filled}"


def test_a_pattern_that_slurm_does_not_know_is_pointed_out() -> None:
    assert (
        "%Q is not a Slurm pattern" in sbatch("--output=%Q.out")["log-pattern"].effect
    )


def test_an_element_s_number_in_a_job_that_is_no_array_is_a_huge_one() -> None:
    assert sbatch("--output=%a.out")["log-pattern"].cure == "%j is the job id"
    assert "log-pattern" not in sbatch("--array=1-3", "--output=%a.out")


def test_a_home_in_chdir_stays_as_it_is() -> None:
    found = sbatch("--chdir=~/work")["literal-dollar"]

    assert "the job runs in /tmp" in found.effect


def test_a_chdir_that_only_the_nodes_may_have_is_a_note() -> None:
    found = sbatch("--chdir=/scratch/me", paths={"/scratch/me": "missing"})["chdir"]

    assert found.severity == "note"


def test_a_throttle_that_is_no_number_has_no_effect() -> None:
    found = sbatch("--array=0-9%x", body="echo $SLURM_ARRAY_TASK_ID\n")

    assert "no effect" in found["no-throttle"].effect
    assert "array" not in found  # sbatch accepts it


def test_a_dependency_may_be_a_bare_number() -> None:
    found = sbatch("--dependency=41", jobs={"41": None})

    assert "job 41 is not known" in found["dependency"].effect


def test_a_directive_without_its_hash_is_a_command() -> None:
    found = sbatch(body="SBATCH --mem=4G\n")["ignored-directive"]

    assert "bash takes it for a command" in found.effect


def test_a_word_in_small_letters_behind_a_hash_and_a_space_is_prose() -> None:
    assert "ignored-directive" not in sbatch(body="# sbach --mem --time\n")


def test_two_fields_with_minutes_are_hours_and_minutes_to_their_writer() -> None:
    found = sbatch("--time=2:30")["time-in-minutes"]

    assert found.cure.startswith("2 h 30 m is 02:30:00")


def test_a_newline_within_a_case_ends_no_command() -> None:
    body = read_body(
        "case $1\nin\n  a)\n\n python a.py ;;\n\n b) python b.py ;;\nesac\n"
    )

    assert [one.words for one in body.commands] == [
        ("python", "a.py"),
        ("python", "b.py"),
    ]


def test_what_waits_for_a_failure_waits_for_ever_behind_a_success() -> None:
    found = sbatch("--dependency=afternotok:41", jobs={"41": "COMPLETED"})

    assert "job 41 has completed" in found["dependency"].effect


def test_a_log_folder_named_by_what_is_not_known_is_not_looked_for() -> None:
    found = sbatch("--output=logs/%x/%j.out", paths={f"{CWD}/logs/%x": "directory"})

    assert "log-directory" not in found


def test_what_ends_at_once_keeps_no_trap_waiting() -> None:
    found = sbatch("--signal=B:USR1@60", body="trap 'kill 0' USR1\necho a\nls\n")

    assert "deferred-trap" not in found


def test_a_log_that_is_named_like_a_folder_is_written_nowhere() -> None:
    found = sbatch("--output=logs/")["log-directory"]

    assert found.effect == "names a directory: no log is written"
