"""``weigh run`` around srun on a real Slurm: every node and rank in one record."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from called_weigh import called_apart
from rigs import WAIT_FOR_AGENTS, sbatch_and_wait
from run_captured import CapturedRun

pytestmark = pytest.mark.slurm

MIB = 1 << 20
# each rank holds a different size, and says nothing
HOLD = f"""{WAIT_FOR_AGENTS}
import os, sys, time
first, more, seconds = (float(word) for word in sys.argv[1:4])
names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
rank = int(next((os.environ[name] for name in names if name in os.environ), 0))
held = bytearray(int((first + more * rank) * (1 << 20)))
for at in range(0, len(held), 4096):
    held[at] = 1
if sys.argv[4:]:
    wait_for_agents()
    open(f"seen.{{rank}}", "w").close()
time.sleep(seconds)
"""
# what torchrun and accelerate do on each node: two processes with torch's variables
TORCHRUN = """
import os, subprocess, sys
node, nodes = int(os.environ["SLURM_NODEID"]), int(os.environ["SLURM_NNODES"])
started = []
for local in range(2):
    own = {"RANK": 2 * node + local, "LOCAL_RANK": local, "WORLD_SIZE": 2 * nodes}
    own |= {"TORCHELASTIC_RUN_ID": "none"}
    env = {**os.environ, **{name: str(value) for name, value in own.items()}}
    started.append(subprocess.Popen([sys.executable, *sys.argv[1:]], env=env))
sys.exit(max(process.wait() for process in started))
"""
Json = dict[str, Any]
Job = Callable[..., CapturedRun]


@pytest.fixture
def env(slurm: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """Return a user's environment, with the program that each rank runs at hand."""
    (tmp_path / "hold.py").write_text(HOLD)
    ours = ("SLURM_", "WEIGH_")
    plain = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    store = str(tmp_path / "store")
    return {**plain, **slurm, "WEIGH_DIR": store, "PYTHON": sys.executable}


@pytest.fixture
def job(env: dict[str, str], tmp_path: Path) -> Job:
    """Return the function that runs a bash script as a job, to its end."""

    def run(script: str, *options: str) -> CapturedRun:
        path = tmp_path / "job.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        flags = ("--output=out", "--error=err", *options)
        return sbatch_and_wait(*flags, path, cwd=tmp_path, env=env)

    return run


TWO_BY_TWO = ("--nodes=2", "--ntasks-per-node=2", "--mem=1500M")
WEIGH = "$PYTHON -m weigh run -o record.json --"


def record(folder: Path) -> Json:
    found: Json = json.loads((folder / "record.json").read_text())
    return found


def check_ranks(found: Json) -> None:
    """Check that there are four ranks, each with what it held and Python itself."""
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    for number, rank in enumerate(found["ranks"]):
        held = (60 + 40 * number) * MIB
        assert held < rank["peak_memory"] < held + 14 * MIB


def check_nodes(found: Json, besides: int) -> None:
    """Check that both nodes hold their ranks and at most so many MiB *besides*."""
    assert [node["ranks"] for node in found["nodes"]] == [2, 2]
    peaks = [node["peak_memory"]["value"] for node in found["nodes"]]
    for peak, held in zip(peaks, (160, 320), strict=True):
        assert held * MIB < peak < (held + besides) * MIB
    usage = found["usage"]
    assert usage["peak_memory"]["value"] == max(peaks)
    assert usage["total_memory"] == sum(peaks)
    assert found["missing"] == []


def with_mpi(launcher: str) -> Any:
    """Return a command of an MPI's own launcher, skipped where that is missing."""
    lacks = shutil.which(launcher) is None
    return pytest.param(
        f"{launcher} -n 4 $PYTHON hold.py 60 40 1.5 watched",
        id=launcher,
        marks=pytest.mark.skipif(lacks, reason=f"needs {launcher}"),
    )


# as root, where only the loopback device can be used, and without the plugins that look
# for GPUs (of OpenCL, 70 MiB) where these are installed
OPEN_MPI = """
export HWLOC_COMPONENTS=-opencl,-cuda,-nvml,-rsmi,-levelzero,-gl
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_rmaps_base_oversubscribe=1
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("srun -n4 $PYTHON hold.py 60 40 1.5 watched", id="srun"),
        pytest.param(
            "bash -c 'srun $PYTHON hold.py 60 40 1.5 watched'", id="in a script"
        ),
        with_mpi("mpirun.openmpi"),
        with_mpi("mpirun.mpich"),
    ],
)
def test_one_record_has_all_nodes_and_ranks(
    command: str, job: Job, tmp_path: Path
) -> None:
    done = job(f"{OPEN_MPI}{WEIGH} {command}", *TWO_BY_TWO)
    said = (tmp_path / "err").read_text()
    assert done.returncode == 0, said
    found = record(tmp_path)
    # the daemons of an MPI, which srun starts, are none
    check_ranks(found)
    steps = {rank["step"] for rank in found["ranks"]}
    assert len(steps) == 1
    if "mpirun" not in command:  # the first step stays the user's
        assert steps == {"0"}
    assert all(node["final"] for node in found["nodes"])
    check_nodes(found, besides=60)  # daemons and srun
    assert "--nodes=2 --ntasks-per-node=2 --mem=" in said
    assert "--ntasks=4 --mem-per-cpu=" in said


def test_ranks_under_a_weigh_each_are_one_record(job: Job, tmp_path: Path) -> None:
    each = "srun -n4 $PYTHON -m weigh run --label all -- $PYTHON hold.py 60 40 4"
    # as long as all ranks hold theirs together, however late one of them begins
    done = job(each, *TWO_BY_TWO)
    said = (tmp_path / "err").read_text()
    assert done.returncode == 0, said
    # RUNNING where the others have not written their lines yet
    assert len(re.findall("^weigh  (?:COMPLETED|RUNNING)", said, re.MULTILINE)) == 1
    found = stored(tmp_path)
    check_ranks(found)
    check_nodes(found, besides=40)


def test_the_watch_of_a_node_goes_on_when_its_first_rank_leaves(
    job: Job, tmp_path: Path
) -> None:
    # the second rank of the node takes its memory when the first has long left
    program = "sleep $((1 + 2 * SLURM_PROCID)); exec $PYTHON hold.py 0 80 1"
    script = f"if [ $SLURM_PROCID = 0 ]; then exec sleep 0.5; fi; {program}"
    (tmp_path / "late.sh").write_text(script)
    done = job(
        "srun -n2 $PYTHON -m weigh run -- bash late.sh",
        *("--nodes=1", "--ntasks=2", "--mem=500M"),
    )
    assert done.returncode == 0, (tmp_path / "err").read_text()
    found = stored(tmp_path)
    (node,) = found["nodes"]
    assert 80 * MIB < node["peak_memory"]["value"] < 100 * MIB
    assert node["peak_memory"]["time"] > 3


def stored(folder: Path) -> Json:
    """Return the one record of the store, as it is exported."""
    (line,) = weigh_in_store(folder, "records", "export").splitlines()
    found: Json = json.loads(line)
    return found


def weigh_in_store(folder: Path, *words: str) -> str:
    """Return what weigh prints of the store of the job."""
    return called_apart(folder, *words).stdout


def test_an_agent_that_cannot_start_is_one_warning(job: Job, tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "srun"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        'case "$*" in *node_agent*) echo no agents here >&2; exit 2;; esac\n'
        'exec /usr/bin/srun "$@"\n'
    )
    fake.chmod(0o755)
    script = f"PATH={fake.parent}:$PATH {WEIGH} srun -n4 $PYTHON hold.py 60 0 1"
    done = job(script, *TWO_BY_TWO)
    said = (tmp_path / "err").read_text()
    assert done.returncode == 0, said
    assert said.count("no agents here") == 1
    assert "none: srun started a job that did the work" in said
    assert record(tmp_path)["missing"] == ["what srun started was not measured"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("option", "end"),
    [("", "exit 5"), ("", "kill -KILL $$"), ("", "kill -SEGV $$"), ("-K", "exit 3")],
)
def test_a_rank_that_fails_has_the_exit_code_of_plain_srun(
    option: str, end: str, job: Job, tmp_path: Path
) -> None:
    # the other rank lives longer, so that -K always finds it
    (tmp_path / "fail.sh").write_text(
        f"[ $SLURM_PROCID != 1 ] || {{ sleep 0.5; {end}; }}\nsleep 2\n"
    )
    step = f"srun {option} -n2 bash fail.sh"
    script = f"""
{step}; echo $? >plain
$PYTHON -m weigh run -q -- {step}; echo $? >around
srun {option} -n2 $PYTHON -m weigh run -- bash fail.sh; echo $? >each
"""
    job(script, "--nodes=2", "--ntasks=2", "--mem=300M")
    plain, around, each = (
        (tmp_path / name).read_text() for name in ("plain", "around", "each")
    )
    assert plain.strip() != "0"
    assert around == plain
    assert each == plain
    if end == "exit 5" and not option:  # rank 0 itself ended well
        said = (tmp_path / "err").read_text()
        assert re.search("^weigh  FAILED in .*, exit code 5 ", said, re.MULTILINE)


def test_a_killed_weigh_leaves_what_its_nodes_had_reported(
    job: Job, tmp_path: Path
) -> None:
    script = f"""
{WEIGH} srun -n4 $PYTHON hold.py 60 40 60 watched &
until [ "$(ls seen.* 2>/dev/null | wc -l)" = 4 ]; do sleep 0.2; done
touch now; until [ -n "$(find store/running -newer now)" ]; do sleep 0.2; done
kill -KILL $!; wait; $PYTHON -m weigh records >/dev/null
"""
    job(script, *TWO_BY_TWO)
    found = stored(tmp_path)
    assert found["state"] == "INTERRUPTED"
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    assert [node["final"] for node in found["nodes"]] == [False, False]
    assert found["usage"]["peak_memory"]["value"] > 320 * MIB


# an interpreter with torch and accelerate, where they are not in that of the tests
TORCH = os.environ.get("TORCH_PYTHON", sys.executable)


def with_torch(name: str, module: str, options: str) -> Any:
    """Return the start of a real launcher of torch; skipped where that is missing."""
    has = [TORCH, "-c", f"import {module.partition('.')[0]}, torch"]
    lacks = subprocess.run(has, capture_output=True, check=False).returncode != 0
    return pytest.param(
        f"{TORCH} -m {module} {options}",
        id=name,
        marks=[
            pytest.mark.integrations,
            pytest.mark.skipif(lacks, reason=f"needs {name}"),
        ],
    )


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param("$PYTHON torchrun.py", id="as torchrun does"),
        with_torch(
            "torchrun",
            "torch.distributed.run",
            "--nnodes=2 --nproc_per_node=2 --node_rank=$SLURM_NODEID "
            "--master_addr=127.0.0.1 --master_port=29561",
        ),
        with_torch(
            "accelerate",
            "accelerate.commands.launch",
            "--multi_gpu --num_machines=2 --num_processes=4 --mixed_precision=no "
            "--machine_rank=$SLURM_NODEID --main_process_ip=127.0.0.1 "
            "--main_process_port=29562 --num_cpu_threads_per_process=1 "
            "--dynamo_backend=no",
        ),
    ],
)
@pytest.mark.parametrize("door", ["weigh run -- srun", "srun weigh run --"])
def test_the_ranks_of_one_launcher_per_node_are_one_record(
    launcher: str, door: str, job: Job, tmp_path: Path
) -> None:
    (tmp_path / "torchrun.py").write_text(TORCHRUN)
    watched = (
        "watched" if door.startswith("weigh") else ""
    )  # by agents, which come late
    (tmp_path / "node.sh").write_text(f"exec {launcher} hold.py 60 40 2.5 {watched}\n")
    each = door.replace("srun", "srun --ntasks-per-node=1")
    command = each.replace("weigh", "$PYTHON -m weigh")
    done = job(f"{command} bash node.sh", "--nodes=2", "--ntasks=2", "--mem=2500M")
    said = (tmp_path / "err").read_text()
    assert done.returncode == 0, said
    found = stored(tmp_path)
    check_ranks(found)
    assert {rank["launcher"] for rank in found["ranks"]} == {"torch"}
    assert [node["ranks"] for node in found["nodes"]] == [2, 2]
    assert found["missing"] == []
    # one process per node starts its ranks: they are no tasks of the scheduler
    options = ["--nodes=2", "--ntasks-per-node=1", "--mem="]
    asked = weigh_in_store(tmp_path, "request", "--for", "slurm")
    assert "\n".join(f"#SBATCH {option}" for option in options) in asked
    # a rank's weigh that ends before the others have written prints no request
    assert " ".join(options) in said or not watched


def test_a_run_on_a_login_node_finds_its_job_and_all_ranks(
    env: dict[str, str], tmp_path: Path
) -> None:
    weigh = (sys.executable, "-m", "weigh", "run", "-o", "record.json", "--")
    step = ("srun", "-N2", "--ntasks-per-node=2", "--mem=600M")
    done = subprocess.run(
        [*weigh, *step, sys.executable, "hold.py", "60", "40", "6"],
        cwd=tmp_path,
        env={**env, "SQUEUE_STATES": "PENDING"},  # a default of the user's
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        start_new_session=True,  # as in a shell of its own: its job is found by that
    )
    assert done.returncode == 0, done.stderr
    found = record(tmp_path)
    check_ranks(found)
    assert sorted(node["ranks"] for node in found["nodes"]) == [2, 2]
    assert found["missing"] == []


@pytest.mark.integrations
def test_the_settings_of_the_users_steps_are_not_those_of_the_agents(
    job: Job, tmp_path: Path
) -> None:
    settings = "EXACT=1 CPU_BIND=none MEM_PER_NODE=600 WAIT=1 DISTRIBUTION=plane=2"
    more = "IMMEDIATE=5 KILL_BAD_EXIT=1 LABELIO=1 THREADS_PER_CORE=1 EXPORT_ENV=ALL"
    names = " ".join(f"SLURM_{word}" for word in f"{settings} {more}".split())
    job(
        f"export {names}\n{WEIGH} srun -n4 $PYTHON hold.py 60 40 1.5 watched",
        *TWO_BY_TWO,
    )
    found = record(tmp_path)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    assert found["missing"] == []


@pytest.mark.integrations
@pytest.mark.parametrize("door", ["weigh run -- srun", "srun weigh run --"])
def test_a_signal_to_the_job_reaches_each_rank_and_ends_no_watch(
    door: str, job: Job, tmp_path: Path
) -> None:
    (tmp_path / "wait.sh").write_text(
        "trap 'echo $SLURM_PROCID >>got; exec $PYTHON hold.py 60 40 1.5' USR1\n"
        "touch ready.$SLURM_PROCID; while :; do sleep 0.1; done\n"
    )
    command = door.replace("weigh", "$PYTHON -m weigh")
    script = f"""
{command} bash wait.sh &
until [ $(ls ready.* 2>/dev/null | wc -l) = 4 ]; do sleep 0.2; done; sleep 1
scancel -s USR1 $SLURM_JOB_ID; wait $!; sleep 2.5
"""
    job(script, *TWO_BY_TWO)
    assert sorted((tmp_path / "got").read_text().split()) == ["0", "1", "2", "3"]
    found = stored(tmp_path)
    assert (found["state"], len(found["ranks"])) == ("COMPLETED", 4)
    assert found["usage"]["peak_memory"]["value"] > 320 * MIB
