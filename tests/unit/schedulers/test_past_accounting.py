"""What accounting shows of jobs whose needs are known: recorded, and varied."""

import io
import random

import pytest
from captured_text import captured

from weigh.model.report import AccountedElement, PastJob
from weigh.review.figures import request_with_accounting
from weigh.review.runs import ElementRequest
from weigh.schedulers.gridengine import accounting as gridengine
from weigh.schedulers.slurm import accounting as slurm
from weigh.units import GIB, KIB, MIB

USED = captured("slurm-22.05-sacct.txt")
PAST = captured("slurm-22.05-sacct-past.txt")
POLLED = captured("slurm-22.05-sacct-polled.txt")
COLUMNS = "JobID|State|ElapsedRaw|ReqMem|AllocCPUS|NNodes|NTasks|MaxRSS|AveRSS"
COLUMNS += "|TRESUsageInTot|Start|End|JobName"


def jobs(text: str) -> list[PastJob]:
    return [*slurm.ACCOUNTING.read_past(io.StringIO(text, newline="\n"))]


def named(text: str, name: str) -> list[AccountedElement]:
    return [job.accounted for job in jobs(text) if job.name == name]


def of_rows(*rows: str) -> list[PastJob]:
    return jobs("\n".join((COLUMNS, *rows, "")))


def one_of(*rows: str) -> AccountedElement:
    (job,) = of_rows(*rows)
    return job.accounted


def near(size: int | None, mebibytes: float) -> bool:
    return size is not None and mebibytes <= size / MIB <= mebibytes + 20


def job_of(text: str, job: str) -> AccountedElement:
    lines = [
        line for line in text.splitlines() if line.startswith((f"{job}|", f"{job}."))
    ]
    return slurm.ACCOUNTING.parse("\n".join((text.partition("\n")[0], *lines)))[0]


def test_a_step_out_of_memory_is_the_jobs() -> None:
    job = one_of(
        "9|COMPLETED|9|3000M|4|2|||||||train",
        "9.batch|COMPLETED|9||2|1|1|4M|||||batch",
        "9.0|OUT_OF_MEMORY|2||4|2|2||||||python",
        "9.1|COMPLETED|7||4|2|2|9M|||||weigh",
        "9.2|COMPLETED|7||4|2|4|100M|||||prog",
    )
    assert job.state == "OUT_OF_MEMORY"


# ---- memory of steps: what the programs of the recording held is known


@pytest.mark.parametrize(
    ("job", "mebibytes"),
    [("1", 400), ("2", 300), ("3", 200)],  # the largest task of job 1 had 103 MiB
    ids=["four tasks", "steps side by side", "steps one after the other"],
)
def test_a_job_holds_what_its_steps_hold_at_once(job: str, mebibytes: int) -> None:
    assert near(job_of(USED, job).max_rss, mebibytes)


@pytest.mark.parametrize(
    ("tasks", "figures", "mebibytes"),
    [
        (4, "104857600|100M|cpu=00:00:06,mem=409600K,pages=0", 400),
        (3, "100M|104857600|", 300),  # no sum: the mean of the tasks
        (5, "100M||cpu=00:00:01,energy=0", 500),  # no mean: at most the largest each
        (4, "102400K||vmem=9G,gres/gpumem=5G", 400),  # of other memory only
    ],
)
def test_a_steps_memory_is_read_from_the_best_column(
    tasks: int, figures: str, mebibytes: int
) -> None:
    found = one_of(
        "1|COMPLETED|60|2G|4|1|||||0|60|x",
        f"1.0|COMPLETED|60||4|1|{tasks}|{figures}|0|60|x",
    )

    assert found.max_rss == mebibytes * MIB


def overlapping(*spans: tuple[int, int, int]) -> int | None:
    rows = [
        f"1.{n}|COMPLETED|9||1|1|1|{size}M|{size}M||{start}|{end}|x"
        for n, (start, end, size) in enumerate(spans)
    ]
    return one_of("1|COMPLETED|60|2G|4|1|||||0|60|x", *rows).max_rss


def test_the_most_that_overlaps_at_any_time_counts() -> None:
    assert overlapping((10, 20, 5), (20, 30, 7), (30, 40, 6)) == 7 * MIB
    assert overlapping((10, 40, 5), (20, 30, 7), (30, 40, 6)) == 12 * MIB
    assert overlapping((30, 40, 6), (10, 40, 5), (15, 35, 7)) == 18 * MIB


def test_the_sweep_agrees_with_looking_at_each_second() -> None:
    chance = random.Random(5)
    for _ in range(300):
        spans = []
        for _ in range(chance.randint(1, 9)):
            start = chance.randint(10, 30)
            length = chance.randint(1, 12)
            spans.append((start, start + length, chance.randint(1, 99)))
        looked = max(
            sum(size for start, end, size in spans if start <= second < end)
            for second in range(10, 50)
        )
        assert overlapping(*spans) == looked * MIB


def test_the_batch_script_counts_and_what_is_no_step_does_not() -> None:
    found = one_of(
        "1|COMPLETED|60|2G|4|1|||||0|60|x",
        "1.batch|COMPLETED|60||4|1|1|8M|8M||0|60|batch",
        "1.extern|COMPLETED|60||4|1|1|90M|90M||0|60|extern",
        "1.0|COMPLETED|60||4|1|1|100M|100M||0|60|x",
    )

    assert found.max_rss == 108 * MIB


# ---- several nodes, heterogeneous jobs


def test_a_job_of_two_nodes_requested_half_of_its_memory_on_each() -> None:
    found = job_of(USED, "6")  # sbatch -N2 --mem=1000; one node was not sampled

    assert (found.nodes, found.memory_asked) == (2, 1000 * MIB)
    assert near(found.max_rss, 100)


@pytest.mark.parametrize(
    ("text", "nodes", "size"),
    [
        ("4G", 2, 2 * GIB),
        ("4Gn", 2, 4 * GIB),
        ("4Gc", 2, 16 * GIB),  # of 8 CPUs, 4 a node
        ("3000M", 3, 1000 * MIB),
    ],
)
def test_a_request_is_of_one_node_in_each_version(
    text: str, nodes: int, size: int
) -> None:
    found = one_of(f"1|COMPLETED|60|{text}|8|{nodes}|||||0|60|x")

    assert found.memory_asked == size
    assert request_with_accounting(ElementRequest(), [found]).memory == size


def test_the_parts_of_a_heterogeneous_job_are_its_elements() -> None:
    parts = named(PAST, "het")

    assert [one.element for one in parts] == [0, 1]
    assert [one.memory_asked for one in parts] == [400 * MIB, 500 * MIB]
    assert near(parts[0].max_rss, 50)


# ---- memory that ran out without saying so


@pytest.mark.parametrize("name", ["over", "overstep"])
@pytest.mark.parametrize("text", [PAST, POLLED], ids=["cgroup", "polled"])
def test_a_kill_for_memory_is_one_whoever_killed(text: str, name: str) -> None:
    (found,) = named(text, name)

    assert found.state == "OUT_OF_MEMORY"


@pytest.mark.parametrize(
    ("job", "step", "state"),
    [
        ("FAILED", "CANCELLED by 0", "OUT_OF_MEMORY"),
        ("CANCELLED by 0", "CANCELLED by 0", "OUT_OF_MEMORY"),
        ("CANCELLED by 1001", "CANCELLED by 1001", "CANCELLED"),
        ("TIMEOUT", "CANCELLED", "TIMEOUT"),
    ],
)
def test_only_root_ends_a_step_for_memory(job: str, step: str, state: str) -> None:
    found = one_of(
        f"1|{job}|60|150M|1|1|||||0|60|x",
        f"1.0|{step}|60||1|1|1|196578K|196578K||0|60|x",
    )

    assert found.state == state


def test_a_step_that_root_cancelled_below_its_request_lacked_no_memory() -> None:
    found = one_of(
        "1|CANCELLED by 0|60|1G|1|1|||||0|60|x",
        "1.0|CANCELLED by 0|60||1|1|1|196578K|196578K||0|60|x",
    )

    assert found.state == "CANCELLED"


# ---- Grid Engine


def read(name: str) -> list[PastJob]:
    return [*gridengine.ACCOUNTING.read_past(captured(name).splitlines(keepends=True))]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("107.750KB", 110336 * KIB),
        ("4.840KB", round(4.84 * 1024) * KIB),
        ("1.500MB", 1536 * 1024 * KIB),
        ("2.000GB", 2 * 1024 * 1024 * 1024 * KIB),
        ("110336", 110336 * KIB),
    ],
)
def test_each_unit_of_qacct_is_1024_of_the_smaller(text: str, size: int) -> None:
    block = captured("gridengine-8.1.9-qacct.txt").replace("107.988KB", text)

    found = {
        job.name: job for job in gridengine.ACCOUNTING.read_past(block.splitlines())
    }

    assert found["one"].accounted.max_rss == pytest.approx(size, abs=KIB)


def test_a_job_that_its_limit_refused_memory_only_failed() -> None:
    """exit 1, failed 0: nothing shows that memory was refused, so nothing says so."""
    (refused,) = (
        job for job in read("gridengine-8.1.9-qacct.txt") if job.name == "refused"
    )

    assert refused.accounted.state == "FAILED"
    assert refused.accounted.memory_asked == 100 * MIB


@pytest.mark.parametrize(
    ("memory", "wall", "state"),
    [
        ("2.1GB", "12s", "OUT_OF_MEMORY"),
        ("2.1GB", "600s", "TIMEOUT"),
        ("1.9GB", "12s", "TIMEOUT"),
    ],
)
def test_one_state_for_two_limits_is_distinguished_by_the_figures(
    memory: str, wall: str, state: str
) -> None:
    text = (
        "jobnumber 42\ntaskid undefined\nslots 2\nexit_status 137\n"
        "failed 37 : qmaster enforced h_rt, h_cpu, or h_vmem limit\n"
        f"ru_wallclock {wall}\nmaxvmem {memory}\ncategory -l h_rt=600,h_vmem=1G\n"
    )

    assert gridengine.ACCOUNTING.parse(text)[0].state == state


@pytest.mark.parametrize(("start", "time"), [("-/-", None), ("07/01/2026 2:00:00", 0)])
def test_a_job_that_took_no_time_has_run_and_one_without_a_start_has_not(
    start: str, time: float | None
) -> None:
    text = (
        f"jobnumber 7\nstart_time {start}\nfailed 0\nexit_status 0\nru_wallclock 0s\n"
    )
    node = "None assigned" if time is None else "n1"
    (row,) = jobs(f"JobID|State|ElapsedRaw|NodeList|JobName\n7|FAILED|0|{node}|x\n")

    assert gridengine.ACCOUNTING.parse(text)[0].wall_time == time
    assert row.accounted.wall_time == time


# ---- the list of all jobs: delimiters and line ends come as they are


def test_a_requeued_job_is_one_for_each_attempt() -> None:
    attempts = [job for job in jobs(PAST) if job.name == "again"]

    assert [one.accounted.wall_time for one in attempts] == [7.0, 13.0]
    assert [one.id for one in attempts] == ["11", "11"]
    assert all(near(one.accounted.max_rss, 60) for one in attempts)


def test_names_of_delimiters_and_newlines_cost_no_other_row() -> None:
    chance = random.Random(5)
    names = ["".join(chance.choices("ab|\n\t ", k=12)) for _ in range(60)]
    rows = [f"{n}|COMPLETED|{n}|2G|1|1|||||0|60|{name}" for n, name in enumerate(names)]

    found = of_rows(*rows)

    assert [job.id for job in found] == [str(n) for n in range(60)]
    assert [job.name for job in found] == [name.partition("\n")[0] for name in names]
    assert [job.accounted.wall_time for job in found] == [float(n) for n in range(60)]


@pytest.mark.parametrize("torn", ["1|COMPL", "1.ba", "1|COMPLETED|60|2G|1|1|||||0|6"])
def test_a_torn_row_is_dropped_and_takes_nothing_from_the_next(torn: str) -> None:
    found = of_rows(torn, "2|COMPLETED|60|2G|1|1|||||0|60|x", "3|FAI")

    assert [job.id for job in found] == ["2"]


def test_elements_of_an_array_are_read_and_waiting_ones_are_not() -> None:
    rows = (
        COLUMNS,
        "12_[5-9%2]|PENDING|0|2G|1|1|||||Unknown|Unknown|x",
        "12_3|COMPLETED|60|2G|1|1|||||0|60|x",
        "12_4|FAILED|60|2G|1|1|||||0|60|x",
    )

    found = list(slurm.ACCOUNTING.read_past(rows))

    assert [(job.id, job.accounted.element) for job in found] == [
        ("12_3", 3),
        ("12_4", 4),
    ]


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("billing=4,gres/gpu:v100=2,gres/gpu=2", 2),
        ("cpu=4,gres/gpu:v100=2", 2),
        ("cpu=4,gres/gpu:a100=1,gres/gpu:v100=2", 3),
        ("cpu=4,gres/gpumem=2G", None),
    ],
)
def test_gpus_count_once(tres: str, gpus: int | None) -> None:
    text = f"JobID|State|AllocTRES\n1|COMPLETED|{tres}\n"

    assert jobs(text)[0].accounted.gpus == gpus


HEAD = "JobID|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|TotalCPU|MaxRSS"
HEAD += "|NNodes|NTasks|Start|End|JobName"
SPAN = "2026-11-01T10:01:00|2026-11-01T11:01:00"
DONE = "COMPLETED|3600"
JOB = f"9|{DONE}|120|234G|32|15:36:00||{{nodes}}||{SPAN}|md"
BATCH = f"9.batch|{DONE}|||16|15:36:00|23000000K|1|1|{SPAN}|batch"
EXTERN = f"9.extern|{DONE}|||32|00:00:00|0|{{nodes}}|{{nodes}}|{SPAN}|extern"
STEP = f"9.0|{DONE}|||16|15:36:00|23000000K|{{on}}|{{on}}|{SPAN}|{{name}}"


def text_of(*steps: str, nodes: int = 2) -> str:
    return "\n".join((HEAD, JOB, *steps, "")).format(nodes=nodes, on=nodes, name="md")


def accounted(text: str) -> AccountedElement:
    (job,) = slurm.ACCOUNTING.read_past(io.StringIO(text))
    assert job is not None
    return job.accounted


@pytest.mark.parametrize(
    ("steps", "nodes", "seen"),
    [
        ((BATCH,), 2, 1),
        ((BATCH, EXTERN), 5, 1),
        ((BATCH, EXTERN, STEP.replace("{on}", "2")), 4, 3),
        ((STEP.replace("{on}", "1"),), 2, 1),
    ],
    ids=["script only", "beside extern", "a step on some", "one step on one"],
)
def test_figures_of_a_part_of_the_nodes_are_named_and_not_kept(
    steps: tuple[str, ...], nodes: int, seen: int
) -> None:
    found = accounted(text_of(*steps, nodes=nodes))

    assert (found.max_rss, found.cpu_time, found.nodes) == (None, None, nodes)
    (doubt,) = found.doubts
    assert doubt.startswith(f"accounting saw {seen} of {nodes} nodes")


@pytest.mark.parametrize(
    ("steps", "nodes"),
    [
        ((BATCH, EXTERN, STEP), 2),
        ((BATCH, STEP.replace("{on}", "3").replace("{name}", "orted")), 4),
        ((BATCH,), 1),
        ((), 2),
    ],
    ids=["srun", "mpirun", "one node", "no steps listed"],
)
def test_figures_of_all_nodes_are_kept(steps: tuple[str, ...], nodes: int) -> None:
    found = accounted(text_of(*steps, nodes=nodes))

    assert (found.cpu_time, found.doubts) == (56160.0, ())
