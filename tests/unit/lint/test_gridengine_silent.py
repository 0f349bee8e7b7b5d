"""The rows of the table of qsub's mistakes: each is caught before submission."""

import pytest
from some_limits import GRIDENGINE
from some_scripts import CWD, HOME, of_gridengine, qsub

from weigh.model.lint import CommandPlace


def test_an_unknown_queue_resource_or_environment_is_refused() -> None:
    lines = ("-q nosuch.q", "-l nosuch=1", "-pe mpi 4", "-P nosuch")
    found = qsub(*lines, limits=GRIDENGINE)
    codes = {"unknown-queue", "unknown-resource", "unknown-parallel", "unknown-project"}
    assert codes <= set(found)
    assert not any(found[code].accepted for code in codes)


def test_a_space_after_a_comma_is_one_mistake() -> None:
    found = qsub("-cwd -l h_vmem=2G, h_rt=00:10:00", limits=GRIDENGINE)
    assert not found["stray-word"].accepted
    assert "unknown-resource" not in found


def test_a_queue_with_its_host_is_known() -> None:
    assert "unknown-queue" not in qsub("-q short.q@vm", limits=GRIDENGINE)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("-pe smp 9",), "cpus-beyond-node"),
        (("-l h_vmem=40G",), "memory-beyond-node"),
        (("-pe smp 8", "-l h_vmem=5G"), "memory-beyond-node"),
        (("-l ngpus=5",), "gpus-beyond-node"),
        (("-q short.q", "-l h_rt=01:00:00"), "time-beyond-queue"),
    ],
)
def test_what_is_too_much_would_wait_for_ever(
    lines: tuple[str, ...], code: str
) -> None:
    found = qsub(*lines, limits=GRIDENGINE)[code]
    assert found.accepted
    assert "never starts" in found.effect


@pytest.mark.parametrize(
    ("asked", "code", "cure"),
    [
        ("h_vmem=4GB", "memory", "write 4G"),
        ("h_rt=1h", "time", "write 1:00:00"),
        ("h_rt=24:00", "time", "three fields: 24:00:00"),
    ],
)
def test_a_value_that_does_not_parse_is_refused(
    asked: str, code: str, cure: str
) -> None:
    found = qsub(f"-l {asked}")[code]
    assert (found.accepted, found.cure) == (False, cure)


def test_a_bare_size_is_bytes() -> None:
    assert qsub("-l h_vmem=4")["memory-in-bytes"].effect == "is 4 B"


def test_a_bare_time_is_seconds() -> None:
    assert qsub("-l h_rt=24")["time-in-seconds"].effect == "is 24 seconds"
    assert "time-in-seconds" not in qsub("-l h_rt=3600")


def test_no_time_at_all_is_killed_at_once() -> None:
    assert "time-in-seconds" in qsub("-l h_rt=0")


def test_an_unknown_option_is_refused() -> None:
    assert not qsub("-nosuch 1")["unknown-option"].accepted


def test_options_of_slurm_are_refused_and_translated() -> None:
    found = qsub("--mem=4G")["unknown-option"]
    assert found.cure == "a Slurm option; here -l h_vmem="


def test_an_array_from_zero_is_refused() -> None:
    found = qsub("-t 0-5")["array"]
    assert (found.accepted, found.cure) == (False, "-t 1-6, and subtract 1")


def test_too_many_elements_are_refused() -> None:
    assert "array-size" in qsub("-t 1-80000", limits=GRIDENGINE)


def test_a_throttle_without_an_array_is_refused() -> None:
    assert not qsub("-tc 5")["array"].accepted


def test_the_throttle_of_slurm_is_refused() -> None:
    assert qsub("-t 1-5%2")["array"].cure == "-t 1-5 -tc 2"


def test_a_list_or_a_backward_range_is_another_array() -> None:
    assert qsub("-t 1,5,9")["array"].accepted
    assert qsub("-t 5-1")["array"].effect == "is read as 1-5"
    assert qsub("-t 20")["array"].cure == "-t 1-20"


def test_a_hold_on_an_unknown_job_is_dropped() -> None:
    found = qsub("-hold_jid 99", jobs={"99": None})["dependency"]
    assert "dropped" in found.effect


def test_a_missing_log_directory_is_eqw() -> None:
    paths = {f"{CWD}/logs": "missing"}
    found = qsub("-cwd -o logs/", paths=paths)["log-directory"]
    assert "Eqw" in found.effect


def test_the_home_may_stand_in_a_log_path() -> None:
    paths = {f"{HOME}/logs": "directory"}
    assert "log-directory" not in qsub("-o $HOME/logs/x", paths=paths)
    assert "log-directory" in qsub("-o ~/logs/x", paths={f"{HOME}/logs": "missing"})


def test_patterns_of_slurm_name_a_file() -> None:
    assert "log-pattern" in qsub("-o %j.log")


def test_windows_line_ends_are_eqw_if_the_interpreter_has_one() -> None:
    whole = of_gridengine("#!/bin/bash\r\n#$ -cwd\r\nhostname\r\n")
    body = of_gridengine("#!/bin/bash\n#$ -cwd\nhostname\r\n")
    assert "Eqw" in whole["carriage-returns"].effect
    assert "Eqw" not in body["carriage-returns"].effect


def test_a_missing_interpreter_is_eqw() -> None:
    text = "#!/bin/bsah\nhostname\n"
    found = of_gridengine(text, paths={"/bin/bsah": "missing"})
    assert "Eqw" in found["interpreter"].effect


def test_a_byte_order_mark_hides_the_interpreter() -> None:
    assert of_gridengine("\ufeff#!/bin/bash\nhostname\n")["bom"].accepted


def test_no_shebang_runs_another_shell() -> None:
    assert "no-shebang" in of_gridengine("#$ -cwd\nhostname\n")
    assert "no-shebang" not in of_gridengine("#$ -cwd -S /bin/bash\nhostname\n")


def test_a_directive_behind_a_command_is_honoured() -> None:
    found = of_gridengine("#!/bin/bash\nhostname\n#$ -l h_vmem=4\n")
    assert "memory-in-bytes" in found
    assert "directive-after-command" not in found


def test_a_space_or_an_indentation_hides_a_directive() -> None:
    assert "ignored-directive" in of_gridengine("#!/bin/bash\n# $ -cwd\nhostname\n")
    assert "ignored-directive" in of_gridengine("#!/bin/bash\n #$ -cwd\nhostname\n")
    assert "ignored-directive" not in qsub("-cwd")


def test_a_comment_that_begins_with_a_variable_is_refused() -> None:
    found = qsub(body="#$PYTHON train.py\nhostname\n")["stray-word"]
    assert not found.accepted


@pytest.mark.parametrize("line", ["-pe smp", "-pe smp=4", "-pe smp -l h_rt=60"])
def test_a_parallel_environment_needs_its_slots(line: str) -> None:
    found = qsub(line)["option-value"]
    assert (found.accepted, found.cure) == (False, "-pe smp 4")


def test_memory_is_for_each_slot() -> None:
    found = qsub("-pe smp 4", "-l h_vmem=8G")["memory-per-slot"]
    assert "32.0 GiB in total" in found.effect
    assert found.cure.startswith("h_vmem=2G")


def test_virtual_size_and_cuda_do_not_go_together() -> None:
    assert "virtual-with-cuda" in qsub("-l h_vmem=8G", "-l ngpus=1")
    assert "virtual-with-cuda" not in qsub("-l h_vmem=8G")


def test_a_trap_waits_in_vain_for_a_warning_that_h_rt_does_not_send() -> None:
    body = "trap 'cp x y' USR1\npython train.py &\nwait\n"
    assert "no-soft-limit" in qsub("-l h_rt=02:00:00", body=body)
    assert "no-soft-limit" not in qsub("-l h_rt=02:00:00,s_rt=01:50:00", body=body)
    assert "no-soft-limit" not in qsub("-l h_rt=02:00:00", "-notify", body=body)
    assert "no-soft-limit" not in qsub("-l h_rt=02:00:00")


def test_module_is_not_found_before_the_profile_is_read() -> None:
    assert "module" in qsub(body="module add anaconda3\n")
    assert "module" not in qsub(body="source /etc/profile\nmodule add anaconda3\n")
    assert "module" not in qsub("-V", body="module add anaconda3\n")


def test_a_command_of_the_login_shells_path_is_not_found() -> None:
    conda = CommandPlace(path="/home/me/miniconda3/bin/accelerate")
    found = qsub(body="accelerate launch x\n", commands={"accelerate": conda})
    assert "accelerate is not found" in found["bare-path"].effect
    kept = qsub("-V", body="accelerate launch x\n", commands={"accelerate": conda})
    assert "bare-path" not in kept


def test_another_program_of_the_same_name_is_pointed_out() -> None:
    place = CommandPlace(path="/home/me/venv/bin/python3", bare_path="/usr/bin/python3")
    found = qsub(body="python3 x\n", commands={"python3": place})["bare-path"]
    assert (found.severity, found.cure) == (
        "note",
        "yours is /home/me/venv/bin/python3",
    )


def test_a_job_that_starts_at_home_does_not_find_the_script() -> None:
    paths = {f"{HOME}/train.py": "missing", f"{CWD}/train.py": "file"}
    found = qsub(body="python train.py\n", paths=paths)["missing-path"]
    assert found.cure == "#$ -cwd: start where it is submitted"
    assert "missing-path" not in qsub("-cwd", body="python train.py\n", paths=paths)


@pytest.mark.parametrize("name", ["1name", "a/b", "a:b"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    assert not qsub(f"-N {name}")["option-value"].accepted


def test_a_mail_address_alone_sends_no_mail() -> None:
    assert "mail-without-type" in qsub("-M me@uni.ac")


def test_a_gpu_resource_needs_a_number() -> None:
    assert "gpus" in qsub("-l ngpus")


def test_a_missing_working_directory_is_eqw() -> None:
    assert "chdir" in qsub("-wd nosuch", paths={f"{CWD}/nosuch": "missing"})


def test_lines_of_slurm_are_ignored() -> None:
    found = of_gridengine("#!/bin/bash\n#SBATCH --mem=4G\nhostname\n")
    assert "ignored-directive" in found


@pytest.mark.parametrize(
    "line",
    [
        *("-l h_vmem=.5G", "-l h_vmem=5.G", "-l h_vmem=+4G", "-l h_rt=inf", "-t 1:200"),
        *("-t 1-", "-t 01-10", "-u me", "-C x", "-j yes", "-R n", "-p -5", "-m beas"),
        *("-pe smp 1-4", "-pe smp 4-", "-pe smp -4", "-a 202612312359", "-w e"),
    ],
)
def test_what_qsub_accepts_is_not_called_refused(line: str) -> None:
    assert all(one.accepted for one in qsub("-cwd", line).values())


@pytest.mark.parametrize(
    "line",
    [
        *("-j oe", "-j true", "-b x", "-r 1", "-w x", "-R x", "-m e,a", "-p 2000"),
        *(
            '-pe smp ""',
            '-pe "" 4',
            "-pe smp n",
            "-pe smp 0",
            "-pe 4 smp",
            "-a now",
            "-dl 1",
            "-t 1-10:0",
        ),
        *("-nostdin", "-sync 1", "-shell 1", "-p high"),
    ],
)
def test_what_qsub_refuses_is_called_refused(line: str) -> None:
    assert not all(one.accepted for one in qsub("-cwd", line).values())


@pytest.mark.parametrize(
    ("lines", "noted"),
    [(("-l ngpus",), True), (("-l gpu", "-l cuda=1"), False), (("-l gpu",), False)],
)
def test_a_gpu_without_a_number_is_noted_where_it_is_counted(
    *, lines: tuple[str, ...], noted: bool
) -> None:
    found = qsub("-cwd", *lines, limits=GRIDENGINE)

    assert ("gpus" in found) == noted
