"""The rows of the table of sbatch's mistakes: each is caught before submission."""

import msgspec
import pytest
from some_limits import SLURM
from some_scripts import CWD, HOME, of_slurm, sbatch

from weigh.model.cluster import UNTYPED, NodeType, QueueLimits
from weigh.model.lint import CommandPlace

LAX = msgspec.structs.replace(SLURM, enforced=False)


def test_an_unknown_partition_is_refused_and_the_near_one_named() -> None:
    found = sbatch("-p shrot", limits=SLURM)["unknown-queue"]
    assert not found.accepted
    assert found.cure == "did you mean short?"


def test_more_memory_than_any_node_has_is_refused() -> None:
    found = sbatch("--mem=40G", limits=SLURM)["memory-beyond-node"]
    assert not found.accepted
    assert "40.0 GiB" in found.effect
    assert "31.2 GiB" in found.effect


def test_memory_for_each_cpu_counts_times_the_cpus() -> None:
    found = sbatch("--mem-per-cpu=8G -c 4", limits=SLURM)
    assert "32.0 GiB" in found["memory-beyond-node"].effect


def test_more_memory_than_the_partition_allows_waits_for_ever_if_not_enforced() -> None:
    strict = sbatch("-p gpu", "--mem=20G", limits=SLURM)["memory-beyond-queue"]
    lax = sbatch("-p gpu", "--mem=20G", limits=LAX)["memory-beyond-queue"]
    assert not strict.accepted
    assert lax.accepted
    assert "never starts" in lax.effect


def test_more_cpus_than_a_node_has_are_refused() -> None:
    found = sbatch("-c 9", limits=SLURM)["cpus-beyond-node"]
    assert not found.accepted
    assert found.text == "-c 9"


def test_more_time_than_the_partition_allows_names_one_that_takes_it() -> None:
    found = sbatch("--time=12:00:00", limits=LAX)["time-beyond-queue"]
    assert found.accepted
    assert found.cure == "queue long allows it"


def test_no_limit_of_time_waits_for_ever_where_there_is_one() -> None:
    assert "time-beyond-queue" in sbatch("--time=0", limits=LAX)
    assert "time-beyond-queue" in sbatch("--time=UNLIMITED", limits=LAX)


def test_more_nodes_than_the_partition_has_wait_for_ever_if_not_enforced() -> None:
    assert "nodes-beyond-queue" in sbatch("-N 4", limits=LAX)


@pytest.mark.parametrize(
    ("gres", "cure"),
    [("gpu=1", "gpu:1"), ("gpu:1:v100", "gpu:v100:1"), ("v100:1", "gpu:v100:1")],
)
def test_a_malformed_gres_is_refused_and_turned_right(gres: str, cure: str) -> None:
    found = sbatch(f"--gres={gres}")["gpus"]
    assert (found.accepted, found.cure) == (False, cure)


def test_an_unknown_gpu_type_is_named_with_the_near_one() -> None:
    found = sbatch("--gres=gpu:v10:1", limits=SLURM)["gpus-beyond-node"]
    assert found.cure == "did you mean v100?"


def test_a_gpu_type_of_another_partition_names_that_partition() -> None:
    found = sbatch("-p long --gres=gpu:v100:1", limits=SLURM)["gpus-beyond-node"]
    assert found.cure == "queue gpu, short has"


def test_more_gpus_than_a_node_has_are_refused() -> None:
    found = sbatch("--gres=gpu:v100:5", limits=SLURM)["gpus-beyond-node"]
    assert "has 4" in found.effect


@pytest.mark.parametrize(
    ("flag", "code"),
    [
        ("--account=nosuch", "unknown-account"),
        ("--qos=nosuch", "unknown-qos"),
        ("--constraint=nosuch", "unknown-constraint"),
        ("--nodelist=nosuch", "unknown-node"),
    ],
)
def test_a_name_that_the_cluster_does_not_know_is_refused(flag: str, code: str) -> None:
    assert not sbatch(flag, limits=SLURM)[code].accepted


def test_a_node_of_the_cluster_may_be_named() -> None:
    assert SLURM.node_names is not None
    found = sbatch(f"--nodelist={min(SLURM.node_names)}", limits=SLURM)
    assert "unknown-node" not in found


def test_a_resource_that_is_no_gpu_is_left_to_the_site() -> None:
    assert "gres" not in sbatch("--gres=tmpdisk:100")


def test_an_account_is_no_problem_where_accounts_are_not_enforced() -> None:
    limits = msgspec.structs.replace(SLURM, accounts=None)
    assert "unknown-account" not in sbatch("--account=any", limits=limits)


@pytest.mark.parametrize("time", ["abc", "1h", "1d", "24h"])
def test_a_time_that_does_not_parse_is_refused(time: str) -> None:
    assert not sbatch(f"--time={time}")["time"].accepted


@pytest.mark.parametrize(
    ("size", "cure"),
    [("1.5G", "whole numbers only: 1536M"), ("4GiB", "write 4G"), ("4 G", "")],
)
def test_a_size_that_does_not_parse_is_refused(size: str, cure: str) -> None:
    found = sbatch(f"--mem={size}")
    assert not found.get("memory", found.get("stray-word")).accepted  # type: ignore[union-attr]
    assert not cure or found["memory"].cure == cure


def test_a_bare_size_is_mebibytes() -> None:
    found = sbatch("--mem=4")["memory-in-mib"]
    assert (found.effect, found.cure) == ("is 4.00 MiB", "4 GiB are 4G")
    assert "memory-in-mib" not in sbatch("--mem=8000")


def test_two_fields_of_time_are_minutes() -> None:
    found = sbatch("--time=24:00")["time-in-minutes"]
    assert found.effect == "is 24 minutes"
    assert found.cure == "a day is 24:00:00 or 1-0"
    assert found.accepted


def test_a_day_and_hours_are_no_minutes() -> None:
    assert "time-in-minutes" not in sbatch("--time=0-24:00")
    assert "time-in-minutes" in sbatch("--time=24")
    assert "time-in-minutes" not in sbatch("--time=90")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--patition=short", "--partition"),
        ("--cpu-per-task=2", "--cpus-per-task"),
        ("--mem_per_cpu=1G", "--mem-per-cpu"),
        ("--workdir=/tmp", "--chdir"),
    ],
)
def test_an_unknown_option_is_refused_and_the_near_one_named(
    written: str, meant: str
) -> None:
    found = sbatch(written)["unknown-option"]
    assert (found.accepted, found.cure) == (False, f"did you mean {meant}?")


def test_an_ambiguous_option_is_refused() -> None:
    assert not sbatch("--gpu=1")["unknown-option"].accepted


def test_the_beginning_of_an_option_stands_for_it() -> None:
    assert "literal-dollar" in sbatch("--outpu=$HOME/x.out")


def test_a_bad_signal_or_mail_type_is_refused() -> None:
    assert not sbatch("--signal=FOO@60")["option-value"].accepted
    assert not sbatch("--mail-type=DONE")["option-value"].accepted


def test_a_mail_address_alone_sends_no_mail() -> None:
    assert sbatch("--mail-user=me@uni.ac")["mail-without-type"].accepted


def test_an_array_beyond_the_largest_index_is_refused() -> None:
    found = sbatch("--array=1-1001", limits=SLURM)["array-size"]
    assert not found.accepted
    assert "1,000" in found.effect
    assert "array-size" not in sbatch("--array=1-1000", limits=SLURM)


def test_an_array_of_more_jobs_than_one_may_have_is_refused() -> None:
    limits = msgspec.structs.replace(SLURM, most_submitted=100)
    assert "array-size" in sbatch("--array=1-101", limits=limits)


@pytest.mark.parametrize("indices", ["5-1", "a-b", "1..10"])
def test_a_malformed_array_is_refused(indices: str) -> None:
    assert not sbatch(f"--array={indices}")["array"].accepted


def test_an_empty_array_is_one_plain_job() -> None:
    assert sbatch("--array=")["array"].accepted


def test_memory_given_twice_is_refused() -> None:
    assert not sbatch("--mem=8G", "--mem-per-gpu=4G")["memory"].accepted


def test_a_script_without_shebang_is_refused() -> None:
    assert not of_slurm("#SBATCH --mem=1G\nhostname\n")["no-shebang"].accepted


def test_windows_line_ends_are_refused() -> None:
    found = of_slurm("#!/bin/bash\r\n#SBATCH --mem=1G\r\nhostname\r\n")
    assert not found["carriage-returns"].accepted


def test_a_byte_order_mark_is_refused() -> None:
    assert not of_slurm("\ufeff#!/bin/bash\nhostname\n")["bom"].accepted


def test_a_malformed_dependency_is_refused() -> None:
    assert not sbatch("--dependency=after_ok:1")["dependency"].accepted


def test_a_dependency_on_an_unknown_job_is_caught() -> None:
    found = sbatch("--dependency=afterok:99", jobs={"99": None})["dependency"]
    assert "run at once" in found.effect


def test_a_dependency_on_a_failed_job_would_wait_for_ever() -> None:
    found = sbatch(
        "--dependency=afterok:12:13", jobs={"12": "COMPLETED", "13": "FAILED"}
    )
    assert "job 13 ended FAILED" in found["dependency"].effect


def test_a_dependency_on_a_running_job_or_one_not_looked_up_is_no_problem() -> None:
    assert "dependency" not in sbatch("--dependency=afterok:1", jobs={"1": "RUNNING"})
    assert not {"dependency"} & set(sbatch("--dependency=afterok:1"))


def test_a_directive_after_the_first_command_is_ignored() -> None:
    found = sbatch(body="set -e\n#SBATCH --mem=8G\n")["directive-after-command"]
    assert (found.line, found.accepted) == (3, True)
    assert "(line 2)" in found.effect


@pytest.mark.parametrize("text", ["#SBTACH", "#SBACTH", "#SABTCH", "#SBATC", "#sbatch"])
def test_a_misspelled_directive_is_ignored(text: str) -> None:
    found = of_slurm(f"#!/bin/bash\n{text} --mem=8G\nhostname\n")
    assert found["ignored-directive"].accepted


def test_a_space_or_an_indentation_hides_a_directive() -> None:
    spaced = of_slurm("#!/bin/bash\n# SBATCH --mem=8G\nhostname\n")
    indented = of_slurm("#!/bin/bash\n  #SBATCH --mem=8G\nhostname\n")
    assert "a space after '#'" in spaced["ignored-directive"].effect
    assert "ignored-directive" in indented


def test_a_directive_without_a_space_is_read_all_the_same() -> None:
    found = of_slurm("#!/bin/bash\n#SBATCH--time=24:00\nhostname\n")
    assert "time-in-minutes" in found


@pytest.mark.parametrize(
    "comment",
    ["# sbatch --array=1-9 job.sh", "# Slurm - the basics", "# BATCH size", "# SBATCH"],
)
def test_prose_is_no_directive(comment: str) -> None:
    found = of_slurm(f"#!/bin/bash\n{comment}\nhostname\n")
    assert {one.severity for one in found.values()} <= {"note"}


def test_a_script_that_writes_a_script_is_no_mistake() -> None:
    body = "cat <<EOF > job.sh\n#!/bin/bash\n#SBATCH --mem=8G\nEOF\nsbatch job.sh\n"
    assert "directive-after-command" not in sbatch(body=body)


def test_a_missing_log_directory_ends_the_job_without_a_log() -> None:
    found = sbatch("-o logs/%j.out", paths={f"{CWD}/logs": "missing"})["log-directory"]
    assert found.accepted
    assert found.cure == "mkdir -p logs"
    there = sbatch("-o logs/%j.out", paths={f"{CWD}/logs": "directory"})
    assert "log-directory" not in there


def test_a_log_is_looked_for_from_the_chdir_on() -> None:
    paths = {f"{HOME}/run/logs": "missing", f"{HOME}/run": "directory"}
    assert "log-directory" in sbatch(f"-D {HOME}/run", "-o logs/x", paths=paths)


def test_a_log_directory_named_by_the_job_is_never_there() -> None:
    assert "log-directory" in sbatch("-o logs/%j/out.txt")


@pytest.mark.parametrize("path", ["$HOME/x.out", "~/x.out", "/home/$USER/x.out"])
def test_shell_variables_in_a_log_path_stay_as_they_are(path: str) -> None:
    assert sbatch(f"--output={path}")["literal-dollar"].accepted


def test_one_log_for_all_elements_is_overwritten() -> None:
    assert "log-shared" in sbatch("--array=1-3", "-o out.txt")
    assert "log-shared" not in sbatch("--array=1-3", "-o %A_%a.txt")


def test_a_missing_chdir_runs_in_tmp() -> None:
    found = sbatch("--chdir=nosuch", paths={f"{CWD}/nosuch": "missing"})["chdir"]
    assert "/tmp" in found.effect


def test_a_missing_interpreter_fails_the_job() -> None:
    text = "#!/usr/bin/bsah\nhostname\n"
    found = of_slurm(text, paths={"/usr/bin/bsah": "missing"})["interpreter"]
    assert found.accepted


def test_an_interpreter_behind_env_is_looked_for_on_the_path() -> None:
    text = "#!/usr/bin/env pyhton\nprint(1)\n"
    found = of_slurm(text, commands={"pyhton": CommandPlace()})
    assert "pyhton" in found["interpreter"].effect


def test_env_takes_one_word_only() -> None:
    found = of_slurm("#!/usr/bin/env python3 -u\nprint(1)\n")["interpreter"]
    assert found.cure == "write #!/usr/bin/env -S python3 -u"


def test_the_defaults_of_the_queue_are_reported() -> None:
    found = sbatch("-p long", limits=SLURM)
    assert found["default-time"].effect.endswith("the default of long is 1 h 00 m")
    assert found["default-memory"].effect.endswith("the default of long is 1.00 GiB")
    assert {one.severity for one in found.values()} == {"note"}


def test_a_queue_of_gpus_without_a_gpu_is_pointed_out() -> None:
    found = sbatch("-p gpu", limits=SLURM)["default-gpu"]
    assert found.severity == "note"


def test_a_short_option_takes_its_equals_sign_along() -> None:
    assert "short-equals" in sbatch("-J=train")
    assert "short-equals" in sbatch("-o=train.out")


def test_variables_in_other_directives_stay_as_they_are() -> None:
    assert "literal-dollar" in sbatch("--job-name=$USER-x")


def test_tasks_without_srun_are_one_task() -> None:
    assert "no-srun" in sbatch("--ntasks=4", body="python train.py\n")
    assert "no-srun" not in sbatch("--ntasks=4", body="srun python train.py\n")


def test_a_directive_that_goes_on_in_the_next_line_ends_them_all() -> None:
    text = "#!/bin/bash\n#SBATCH --mem=8G \\\n--time=5\n#SBATCH -c 4\nhostname\n"
    found = of_slurm(text)
    assert {"ignored-directive", "directive-after-command"} <= set(found)


def test_a_big_array_without_a_throttle_is_noted() -> None:
    assert sbatch("--array=0-999")["no-throttle"].severity == "note"
    assert "no-throttle" not in sbatch("--array=0-999%10")
    assert "no-throttle" not in sbatch("--array=0-9")


def test_an_alias_of_an_option_is_that_option() -> None:
    found = sbatch("-N 1 --tasks-per-node=9", limits=SLURM)
    assert "cpus-beyond-node" in found


def test_a_gpu_without_a_type_at_the_scheduler_is_not_judged() -> None:
    node = NodeType(gpus={UNTYPED: 4}, queues=("short",))
    limits = msgspec.structs.replace(SLURM, nodes=(node,))
    assert "gpus-beyond-node" not in sbatch("--gres=gpu:v100:2", limits=limits)


def test_an_account_that_the_partition_does_not_take_waits_for_ever() -> None:
    queue = QueueLimits(name="short", default=True, accounts=("other",))
    limits = msgspec.structs.replace(LAX, queues=(queue,))
    found = sbatch("-A lab", limits=limits)["unknown-account"]
    assert found.cure == "it accepts other"


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
        *("--exclusive=yes", "--hint=foo", "--open-mode=x", "--begin=foo"),
        *("--mem-per-gpu=1G", "--ntasks-per-gpu=1", "--time-min=9 --time=5"),
        *("--cpus-per-gpu=2 --gpus=1 -c 2", "--ntasks-per-core=a", "--profile=foo"),
        *("--kill-on-invalid-dep=maybe", "--switches=a", "--mail-type=FOO"),
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
    ("body", "found"),
    [
        ("trap 'rm -r $T' TERM\nsrun python a.py\n", False),
        ("trap 'rm -r $T' TERM\npython a.py\n", True),
    ],
)
def test_a_step_gets_the_signal_of_the_end_itself(*, body: str, found: bool) -> None:
    assert ("deferred-trap" in sbatch("--time=1", body=body)) == found


def test_a_chain_of_elements_may_be_alike() -> None:
    assert "elements-alike" in sbatch("--array=0-19%2", body="python a.py\n")
    assert "elements-alike" not in sbatch("--array=0-19%1", body="python a.py\n")


@pytest.mark.parametrize(
    "body",
    ["for i in `srun hostname`; do echo $i >>n; done\n./a n\n", "./a --hostfile n\n"],
)
def test_a_program_that_is_given_its_nodes_uses_them(body: str) -> None:
    assert "no-srun" in sbatch("--nodes=2", body="./a n\n")
    assert "no-srun" not in sbatch("--nodes=2", body=body)


def test_a_template_of_a_program_is_one_problem() -> None:
    text = "#!/bin/bash\n{% if a %}\n#SBATCH -c 2\n{% endif %}\n#SBATCH -n 1\n"
    found = of_slurm(text)

    assert "placeholder" in found
    assert "directive-after-command" not in found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("conda activate x\n", True),
        ("source venv/bin/activate\nconda activate x\n", True),
        (". ~/start_anaconda.sh\nconda activate x\n", False),
        ("source ~/anaconda3/bin/activate\nconda activate x\n", False),
    ],
)
def test_any_file_that_is_sourced_may_define_conda(*, body: str, found: bool) -> None:
    assert ("conda" in sbatch("--time=1", body=body)) == found
