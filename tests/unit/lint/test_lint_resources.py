"""What commands use against what the job gets, and false alarms that are gone."""

import msgspec
import pytest
from some_limits import GRIDENGINE, SLURM
from some_scripts import CWD, facts, of_gridengine, of_slurm, qsub, sbatch

from weigh.model.cluster import ClusterLimits, QueueLimits
from weigh.model.lint import CommandPlace
from weigh.schedulers.gridengine import lint as gridengine_lint


@pytest.mark.parametrize(
    ("flags", "body", "severity"),
    [
        ("-c 4", "export OMP_NUM_THREADS=16\n./a\n", "problem"),
        ("-n 2 -N 1", "OMP_NUM_THREADS=3 ./a\n", "problem"),
        ("--ntasks-per-node=2", "export MKL_NUM_THREADS=8\n./a\n", "problem"),
        ("--mem=1G", "export JULIA_NUM_THREADS=2\n./a\n", "note"),
    ],
)
def test_threads_beyond_the_cpus_are_found(
    flags: str, body: str, severity: str
) -> None:
    assert sbatch(flags, body=body)["threads-beyond-cpus"].severity == severity


@pytest.mark.parametrize(
    "flags", ["-c 16", "-c 4 --exclusive", "-n 4 -N 1 -c 4", "--gres=gpu:1", "-n 16"]
)
def test_threads_that_fit_or_cannot_be_counted_are_left_alone(flags: str) -> None:
    found = sbatch(flags, body="export OMP_NUM_THREADS=16\n./a\n")
    assert "threads-beyond-cpus" not in found


def test_threads_of_a_variable_are_left_alone() -> None:
    body = "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n./a\n"
    assert "threads-beyond-cpus" not in sbatch("-c 4", body=body)


def test_threads_beyond_the_slots_of_grid_engine_are_found() -> None:
    body = "export OMP_NUM_THREADS=16\n./a\n"
    assert "threads-beyond-cpus" in qsub("-pe smp 4", body=body)
    assert "threads-beyond-cpus" not in qsub("-pe smp 16", body=body)
    assert "threads-beyond-cpus" not in qsub("-pe smp 4-16", body=body)
    assert "threads-beyond-cpus" not in qsub("-l ncpus=16", body=body)


# srun's own answers on 22.05.8: "More processors requested than permitted"
@pytest.mark.parametrize(
    ("flags", "step", "is_found"),
    [
        ("-n 4 -N 1", "srun -n 8 ./a", True),
        ("-n 4 -N 1", "srun --ntasks=8 ./a", True),
        ("-n 4 -N 1", "timeout -k 5 1h srun -n 8 ./a", True),
        ("-n 4 -N 1", "nice -n 5 srun -n 8 ./a", True),
        ("-n 4 -N 1", "env A=1 srun -n 8 ./a", True),
        ("-n 4 -N 1", "timeout 1h ./a -n 8", False),
        ("-n 1 -c 4", "srun -c 16 ./a", True),
        ("-N 1 -n 4", "srun -N 2 -n 4 ./a", True),
        ("-n 4 -N 1", "mpirun -np 16 ./a", True),
        ("-n 4 -N 1", "srun -n 4 ./a -n 99", False),
        ("-n 4 -N 1", "srun -O -n 8 ./a", False),
        ("-n 4 -N 1 --exclusive", "srun -n 8 ./a", False),
        ("-N 4 --ntasks-per-node=4", "srun -n 16 ./a", False),
        ("-n 4", "mpirun ./a", False),
    ],
)
def test_a_step_larger_than_the_job_is_found(
    flags: str, step: str, *, is_found: bool
) -> None:
    assert ("step-beyond-job" in sbatch(flags, body=f"{step}\n")) == is_found


@pytest.mark.parametrize(
    ("flags", "step", "is_found"),
    [
        ("-n 1 -c 8", "srun -n 8 ./a", True),
        ("-n 2 -c 4 -N 1", "srun -n 4 ./a", True),
        ("-n 1 -c 8", "srun -c 1 -n 8 ./a", False),
        ("-n 2 -c 4 -N 1", "srun -n 2 ./a", False),
        ("-n 8 -N 1", "srun -n 8 ./a", False),
        ("-n 1 -c 8", "mpirun -np 8 ./a", False),
    ],
)
def test_a_step_whose_tasks_take_the_job_s_cpus_each_is_noted(
    flags: str, step: str, *, is_found: bool
) -> None:
    assert ("step-beyond-job" in sbatch(flags, body=f"{step}\n")) == is_found


def test_more_processes_than_slots_are_found() -> None:
    assert "step-beyond-job" in qsub("-pe smp 4", body="mpirun -np 8 ./a\n")
    assert "step-beyond-job" not in qsub("-pe smp 8", body="mpirun -np 8 ./a\n")


@pytest.mark.parametrize(
    ("flags", "body", "severity"),
    [
        ("--gres=gpu:1", "export CUDA_VISIBLE_DEVICES=0,1\n./a\n", "problem"),
        ("--gpus=2", "CUDA_VISIBLE_DEVICES=2 ./a\n", "problem"),
        ("--gres=gpu:2", "export CUDA_VISIBLE_DEVICES=0\n./a\n", "note"),
    ],
)
def test_devices_chosen_by_hand_are_found(flags: str, body: str, severity: str) -> None:
    assert sbatch(flags, body=body)["devices-overridden"].severity == severity


@pytest.mark.parametrize(
    "body",
    [
        "export CUDA_VISIBLE_DEVICES=\n./a\n",
        "export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\n./a\n",
        "CUDA_VISIBLE_DEVICES=0 ./a &\nCUDA_VISIBLE_DEVICES=1 ./b &\nwait\n",
    ],
)
def test_devices_shared_out_by_the_script_are_left_alone(body: str) -> None:
    assert "devices-overridden" not in sbatch("--gres=gpu:2", body=body)


@pytest.mark.parametrize(
    "body",
    [
        "module load cuda/12\n./a\n",
        "nvidia-smi\n./a\n",
        "apptainer exec --nv image.sif ./a\n",
        "./a --gpus 0\n",
        "echo --device cuda\n",
        "source ~/cuda/bin/activate\n",
    ],
)
def test_a_cpu_job_that_mentions_a_gpu_is_left_alone(body: str) -> None:
    assert "no-gpu" not in sbatch("--mem=1G", body=body)


@pytest.mark.parametrize("flag", ["-p gpu", "--exclusive", "-C v100", "--gres=shard:1"])
def test_a_gpu_may_come_from_elsewhere(flag: str) -> None:
    assert "no-gpu" not in sbatch(flag, body="python a.py --device cuda\n")


def test_more_processes_than_gpus_are_found() -> None:
    body = "torchrun --nproc_per_node=4 a.py\n"
    assert "processes-beyond-gpus" in sbatch("--gres=gpu:2", body=body)
    assert "processes-beyond-gpus" not in sbatch("--gres=gpu:4", body=body)


@pytest.mark.parametrize(
    ("flag", "body"),
    [
        ("--ntasks=16", "parallel -j 16 ./a {} ::: 1 2 3\n"),
        ("--ntasks=8", "g16 water.com\n"),
        ("--ntasks=8", "abaqus job=beam cpus=8 interactive\n"),
        ("--nodes=2", "spark-start\nspark-submit a.py\n"),
        ("--nodes=2", "python -m torch.distributed.launch a.py\n"),
        ("--nodes=2", "for n in $(scontrol show hostnames); do ssh $n ./a & done\n"),
        ("--ntasks=4 --nodes=1", "python a.py\n"),
        ("--ntasks=4", "./a $SLURM_NTASKS\n"),
        ("--ntasks=2", "python a.py &\npython b.py &\nwait\n"),
    ],
)
def test_programs_that_start_their_tasks_themselves_are_left_alone(
    flag: str, body: str
) -> None:
    assert "no-srun" not in sbatch(flag, body=body)


def test_nodes_that_stay_idle_are_found() -> None:
    assert sbatch("--nodes=2", body="python a.py\n")["no-srun"].severity == "problem"
    echoed = "echo $SLURM_JOB_NODELIST\npython a.py\n"
    assert "no-srun" in sbatch("--nodes=2", body=echoed)
    assert sbatch("--nodes=2", body="bash a.sh\n")["no-srun"].severity == "note"
    assert sbatch("--ntasks=4", body="python a.py\n")["no-srun"].severity == "note"


@pytest.mark.parametrize("flag", ["-o x-%J.out", "-o x-%j.out", "-o %A_%a.out"])
def test_a_log_of_each_element_is_not_shared(flag: str) -> None:
    assert "log-shared" not in sbatch("--array=0-3", flag)


@pytest.mark.parametrize("flag", ["-o x.out", "-o x-%A.out", "-o %x.out", "-o %N.out"])
def test_a_log_of_all_elements_is(flag: str) -> None:
    assert "log-shared" in sbatch("--array=0-3", flag)


def test_a_log_of_all_tasks_of_grid_engine_is_found() -> None:
    directory = {f"{CWD}/logs": "directory"}
    found = qsub("-cwd", "-t 1-4", "-o run.log")["log-shared"]
    assert found.severity == "problem"
    for value in ("run.$TASK_ID.log", "logs/", "/dev/null"):
        assert "log-shared" not in qsub("-cwd", "-t 1-4", f"-o {value}")
    assert "log-shared" not in qsub("-cwd", "-t 1-4", "-o logs", paths=directory)
    assert "log-shared" not in qsub("-cwd", "-o run.log")


@pytest.mark.parametrize(
    ("flag", "rule", "severity"),
    [
        ("--time=30:00", "time-in-minutes", "note"),
        ("-t 5", "time-in-minutes", "note"),
        ("--time=24:00", "time-in-minutes", "problem"),
        ("--time=72:00", "time-in-minutes", "problem"),
        ("--mem 100", "memory-in-mib", "note"),
        ("--mem=4", "memory-in-mib", "problem"),
    ],
)
def test_units_are_notes_where_the_value_makes_sense(
    flag: str, rule: str, severity: str
) -> None:
    assert sbatch(flag)[rule].severity == severity


@pytest.mark.parametrize(
    "word", ["#_SBATCH", "#xSBATCH", "#NOSBATCH", "#offSBATCH", "## SBATCH"]
)
def test_a_directive_switched_off_is_a_note_at_most(word: str) -> None:
    found = of_slurm(f"#!/bin/bash\n{word} --mem=1G\nhostname\n")
    assert {one.severity for one in found.values()} <= {"note"}


@pytest.mark.parametrize(
    "body",
    [
        "sbatch <<EOF\n#!/bin/bash\n#SBATCH --mem=1G\nEOF\n",
        "job=$(sbatch --parsable <<EOF\n#!/bin/bash\n#SBATCH --mem=1G\nEOF\n)\n",
        "echo '#!/bin/bash\n#SBATCH --mem=1G\n' >job.sh\n",
        'printf "#!/bin/bash\n#SBATCH --mem=1G\n" >job.sh\n',
    ],
)
def test_a_script_inside_a_script_is_left_alone(body: str) -> None:
    assert "directive-after-command" not in sbatch("--time=1:00:00", body=body)


@pytest.mark.parametrize(
    "option", ["--image=a/b", "--module=gpu", "--container-image=x"]
)
def test_an_option_of_a_site_s_plugin_is_not_judged(option: str) -> None:
    assert {one.severity for one in sbatch(option).values()} == {"note"}


def test_module_is_a_function_that_only_dash_does_not_get() -> None:
    text = "#!/bin/sh\n#SBATCH --mem=1G\nmodule load gcc\n"
    assert of_slurm(text)["module"].severity == "note"
    assert of_slurm(text, plain_shell="dash")["module"].severity == "problem"
    assert "module" in of_slurm(text, plain_shell="dash")


def test_the_fix_is_in_the_schedulers_own_words() -> None:
    place = CommandPlace(path="/home/me/bin/train")
    known = {"train": place}
    slurm = sbatch("--export=NONE", body="train\n", commands=known)["bare-path"]
    assert "#$" not in slurm.cure
    assert "#$ -V" in qsub(body="train\n", commands=known)["bare-path"].cure


@pytest.mark.parametrize("name", ["julia", "python3.11", "parallel", "paraview"])
def test_a_program_is_no_misspelling_of_itself(name: str) -> None:
    found = sbatch(body=f"{name} x\n", commands={name: CommandPlace()})
    assert found["command-not-found"].cure == ""


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ("0-50:10", "-t 1-51:10, and subtract 1"),
        ("0-9", "-t 1-10, and subtract 1"),
        ("0-8:2", "-t 1-9:2, and subtract 1"),
    ],
)
def test_an_array_from_zero_keeps_its_step(value: str, cure: str) -> None:
    assert qsub(f"-t {value}")["array"].cure == cure


@pytest.mark.parametrize("flag", ["-M $EMAIL", "-N $USER-x", "-v A=$HOME", "-P $LAB"])
def test_a_variable_that_qsub_does_not_expand_is_found(flag: str) -> None:
    assert qsub(flag)["literal-dollar"].severity == "problem"


@pytest.mark.parametrize("flag", ["-o $HOME/x.$JOB_ID", "-e $HOME/", "-wd $HOME"])
def test_a_variable_that_qsub_expands_is_left_alone(flag: str) -> None:
    assert "literal-dollar" not in qsub(flag)


def test_a_gpu_type_that_no_node_has_is_found() -> None:
    there = qsub("-l ngpus=1,gpu_type=v100", limits=GRIDENGINE)
    assert "gpus-beyond-node" not in there
    found = qsub("-l ngpus=1,gpu_type=h100", limits=GRIDENGINE)["gpus-beyond-node"]
    assert "h100 does not exist" in found.effect


def test_options_of_sge_request_count_before_the_scripts() -> None:
    home = ("sge_request", "# site\n-cwd -l h_rt=1:00:00\n")
    paths = {f"{CWD}/a.py": "file", "/home/me/a.py": "missing"}
    body = "python a.py\n"
    assert "missing-path" in qsub(body=body, paths=paths)
    found = qsub(body=body, paths=paths, defaults=(home,))
    assert not {"missing-path", "starts-at-home", "default-time"} & found.keys()
    cleared = qsub("-clear", body=body, paths=paths, defaults=(home,))
    assert "missing-path" in cleared
    below = qsub("-wd /home/me", body=body, paths=paths, defaults=(home,))
    assert "missing-path" in below


def test_a_finding_on_a_default_names_its_file_and_no_line() -> None:
    text = "#!/bin/bash\nhostname\n"
    known = facts(defaults=(("~/.sge_request", "-t 0-4\n"),), limits=GRIDENGINE)
    found = {one.rule: one for one in gridengine_lint.LINT.lint(text, known)}
    assert found["array"].line is None
    assert "(~/.sge_request)" in found["array"].text


def test_a_node_outside_of_the_queue_is_found() -> None:
    queues = {"node1": ("short", "gpu"), "node2": ("long",), "node3": ("long",)}
    limits = msgspec.structs.replace(SLURM, queues_of_node=queues)
    assert "unknown-node" in sbatch("-p gpu -w node3", limits=limits)
    assert "unknown-node" in sbatch("-p gpu -w node[1-3]", limits=limits)
    assert "unknown-node" not in sbatch("-p long -w node[2-3]", limits=limits)
    assert "unknown-node" in sbatch("-p long -w node[2-4]", limits=limits)


@pytest.mark.parametrize("flag", ["--gres=gpu:4", "--gres=gpu:2\n#SBATCH --exclusive"])
def test_who_has_all_gpus_of_a_node_may_number_them(flag: str) -> None:
    body = "export CUDA_VISIBLE_DEVICES=0,1\npython x.py\n"

    assert "devices-overridden" not in sbatch(flag, body=body, limits=SLURM)
    assert "devices-overridden" in sbatch("--gres=gpu:2", body=body, limits=SLURM)


@pytest.mark.parametrize(
    ("queue", "body", "noted"),
    [
        ("gpu.q", "hostname\n", True),
        ("short.q", "hostname\n", False),
        ("short.q", "python train.py --cuda\n", True),
    ],
)
def test_no_gpu_is_noted_where_one_seems_to_be_meant(
    *, queue: str, body: str, noted: bool
) -> None:
    found = qsub("-cwd", f"-q {queue}", body=body, limits=GRIDENGINE)

    assert ("default-gpu" in found) == noted


@pytest.mark.parametrize(
    ("name", "sure"),
    [("smp", True), ("openmp", True), ("mpi", False), ("ompi", False), ("x16", False)],
)
def test_slots_are_compared_with_one_node_where_the_name_means_one(
    *, name: str, sure: bool
) -> None:
    limits = msgspec.structs.replace(GRIDENGINE, parallel=(name,))
    found = qsub("-cwd", f"-pe {name} 36", "-l h_vmem=9G", limits=limits)

    assert ("cpus-beyond-node" in found) == sure
    assert ("memory-beyond-node" in found) == sure


def test_the_shell_is_no_question_where_the_queue_starts_the_script() -> None:
    queue = QueueLimits(name="a.q", start_mode="unix_behavior")

    assert "no-shell" not in qsub("-cwd", limits=ClusterLimits(queues=(queue,)))
    assert "no-shell" in qsub("-cwd")
    assert "interpreter" not in qsub("-S bash", limits=ClusterLimits(queues=(queue,)))
    assert qsub("-S bash")["interpreter"].severity == "note"


def test_a_script_that_writes_job_scripts_is_not_one() -> None:
    body = 'n=4\necho "\n#$ -t 1-$n\n#$ -l h_rt=$n:0\nhostname" > job.sh\n'

    assert of_gridengine(f"#!/bin/bash\n{body}") == {}
