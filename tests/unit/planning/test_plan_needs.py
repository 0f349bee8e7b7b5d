import msgspec
import pytest

from weigh.errors import UsageError
from weigh.model.gpu import GpuUsage
from weigh.model.record import PeakMemory, Record, Usage
from weigh.planning.needs import StatedUsage, TaskNeeds, needs_of_tasks
from weigh.planning.record_match import RecordLibrary, failed_runs, record_candidates
from weigh.store.index import head_of
from weigh.units import GIB, MIB


def measured(  # noqa: PLR0913 - a record in a line
    name: str,
    command: str,
    *,
    memory: int = GIB,
    gpu: int | None = None,
    label: str | None = None,
    state: str = "COMPLETED",
) -> Record:
    peak = PeakMemory(memory, memory, memory, None, None, None, "test")
    gpus = () if gpu is None else (GpuUsage("GPU-1", "Tesla T4", peak_memory=gpu),)
    return Record(
        id=name,
        label=label,
        command=tuple(command.split()),
        started="2026-11-21T10:00:00Z",
        state=state,
        exit_code=0,
        usage=Usage(wall_time=60.0, cpus_used=1.9, peak_memory=peak, gpus=gpus),
    )


def needs(
    lines: list[str],
    records: list[Record],
    given: StatedUsage | None = None,
    *,
    headroom: float = 0.0,
    named: bool = False,
) -> TaskNeeds:
    by_id = {record.id: record for record in records}
    heads = [head_of(record) for record in records]
    library = RecordLibrary(
        record_candidates(heads),
        by_id.__getitem__,
        named=named,
        failed=failed_runs(heads),
    )
    return needs_of_tasks(lines, given or StatedUsage(), headroom, library)


def records_of(line: str, records: list[Record]) -> tuple[str, ...]:
    return needs([line], records).kinds[0].records


PPO = measured("aaaa1", "python rl.py --algo ppo --seed 1", gpu=2 * GIB)
DQN = measured("bbbb2", "python rl.py --algo dqn --seed 2", gpu=9 * GIB)


def test_each_algorithm_is_reckoned_with_its_own_record() -> None:
    lines = [f"python rl.py --algo {algo} --seed 7" for algo in ("ppo", "dqn", "ppo")]

    found = needs(lines, [PPO, DQN])

    assert found.places == (0, 1, 0)
    assert [kind.records for kind in found.kinds] == [("aaaa1",), ("bbbb2",)]
    assert [kind.item.gpu_memory for kind in found.kinds] == [2 * GIB, 9 * GIB]
    assert [kind.tasks for kind in found.kinds] == [2, 1]


@pytest.mark.parametrize(
    ("given", "virtual"),
    [(StatedUsage(), 6 * GIB), (StatedUsage(memory=3 * GIB), 8 * GIB)],
)
def test_a_plan_has_the_address_space_that_was_measured(
    given: StatedUsage, virtual: int
) -> None:
    """Of torch, Java and others it is many times the memory."""
    usage = PPO.usage
    assert usage is not None
    usage = msgspec.structs.replace(usage, virtual_memory=6 * GIB)
    record = msgspec.structs.replace(PPO, usage=usage)

    (kind,) = needs([" ".join(PPO.command)], [record], given).kinds

    assert kind.virtual_memory == virtual


TAGS = [
    measured(f"cccc{n}", f"python tag.py --batch {n}", label=label)
    for n, label in ((50, "big"), (300, "small"))
]
SHELL = msgspec.structs.replace(PPO, command=("bash", "-c", " ".join(PPO.command)))


@pytest.mark.parametrize(
    ("line", "records", "expected"),
    [
        # a word weighs more than a number; then a number that is the same, or a label
        ("python rl.py --algo dqn --seed 1", [PPO, DQN], "bbbb2"),
        ("python tag.py --batch 300 --seed 9", TAGS, "cccc300"),
        ("python tag.py big c", TAGS, "cccc50"),
        # however it is written
        (
            "CUDA_LAUNCH=1 python rl.py --algo ppo --seed 3",
            [PPO, DQN],
            "aaaa1",
        ),
        ("/usr/bin/python rl.py --algo=ppo --seed=3", [PPO, DQN], "aaaa1"),
        ("python rl.py --algo 'ppo' --seed 3 > out.txt", [PPO, DQN], "aaaa1"),
        ("python ./rl.py --algo ppo --seed 3", [PPO, DQN], "aaaa1"),
        ("python rl.py --algo ppo --seed 3", [SHELL], "aaaa1"),
    ],
)
def test_the_record_of_the_command_that_is_most_alike_counts(
    line: str, records: list[Record], expected: str
) -> None:
    assert records_of(line, records) == (expected,)


def test_where_all_are_as_like_the_biggest_use_counts() -> None:
    small = measured("cccc3", "python tag.py --seed 1", memory=GIB)
    large = measured("dddd4", "python tag.py --seed 2", memory=3 * GIB)

    found = needs(["python tag.py --seed 3"], [small, large])

    assert found.kinds[0].item.memory == 3 * GIB


def with_gpu(record: Record, **figures: float | None) -> Record:
    gpu = msgspec.convert({"uuid": "GPU-1", "name": "Tesla T4", **figures}, GpuUsage)
    assert record.usage is not None
    return msgspec.structs.replace(
        record, usage=msgspec.structs.replace(record.usage, gpus=(gpu,))
    )


def test_a_gpu_that_one_record_lacks_is_that_of_like_runs() -> None:
    known = measured("cccc3", "python tag.py --lr 0.1 --seed 1", gpu=2 * GIB)
    lacks = measured("dddd4", "python tag.py --lr 0.2 --seed 1")
    busy = with_gpu(lacks, peak_memory=0, other_memory=GIB, utilization_max=9.0)
    lines = [f"python tag.py --lr {rate} --seed 1" for rate in (0.1, 0.2)]

    for record in (lacks, busy):
        found = needs(lines, [known, record])
        assert [kind.records for kind in found.kinds] == [("cccc3",), ("dddd4",)]
        assert [kind.item.gpu_memory for kind in found.kinds] == [2 * GIB, 2 * GIB]
        alone = needs(lines[1:], [known, record])
        assert alone.gpu is not None


def test_a_gpu_that_a_run_left_unused_is_not_that_of_like_runs() -> None:
    known = measured("cccc3", "python tag.py --gpus 1", gpu=2 * GIB)
    idle = with_gpu(measured("dddd4", "python tag.py --gpus 0"), process_peak_memory=0)

    (kind,) = needs(["python tag.py --gpus 0"], [known, idle]).kinds

    assert kind.item.gpu_memory == 0


def test_a_curve_through_like_runs_knows_the_gpu_that_one_record_lacks() -> None:
    runs = [
        measured(f"cccc{n}", f"python tag.py --batch {n}", gpu=n * GIB)
        for n in (2, 4, 8)
    ]
    lacks = measured("dddd4", "python tag.py --batch 3")

    (kind,) = needs(["python tag.py --batch 3"], [*runs, lacks]).kinds

    assert kind.used.gpu_memory == pytest.approx(3 * GIB, rel=0.01)


def test_a_parameter_of_the_runs_is_the_argument_of_the_task_that_agrees() -> None:
    runs = [
        msgspec.structs.replace(
            measured(f"cccc{n}", f"python tag.py {n}", memory=n * GIB),
            parameters={"rows": n},
        )
        for n in (2, 4, 8)
    ]

    found = needs(["python tag.py 4", "python tag.py 5"], runs)

    assert [kind.used.memory for kind in found.kinds] == [
        4 * GIB,
        pytest.approx(5 * GIB, rel=0.01),
    ]
    assert found.unnamed == {}


def test_another_program_is_no_measure() -> None:
    found = needs(["python other.py --algo ppo"], [PPO, DQN])

    assert found.kinds[0].records == ()
    assert found.kinds[0].item.gpu_memory == 0


def test_a_run_that_failed_is_no_measure_where_another_completed() -> None:
    failed = measured("cccc3", "python tag.py", state="FAILED", memory=9 * GIB)
    good = measured("dddd4", "python tag.py", memory=GIB)

    assert records_of("python tag.py", [failed, good]) == ("dddd4",)
    assert "did not complete" in needs(["python tag.py"], [failed]).kinds[0].notes[0]


def failed(record_id: str, line: str, wall_time: float) -> Record:
    run = measured(record_id, line)
    assert run.usage is not None
    usage = msgspec.structs.replace(run.usage, wall_time=wall_time)
    return msgspec.structs.replace(run, state="FAILED", exit_code=1, usage=usage)


def test_a_run_that_failed_at_once_is_named_where_there_is_no_other() -> None:
    runs = [failed("fa11ed000001", "python rl.py --seed 1", 0.1)]
    (kind,) = needs(["python rl.py --seed 2", "python rl.py --seed 3"], runs).kinds
    (note,) = kind.notes
    assert note.startswith("the measured run fa11ed failed within its first second")
    assert note.endswith("weigh records show fa11ed")
    for lines, given, known in (
        (["python rl.py --seed 2"], None, [*runs, PPO]),
        (["python other.py"], None, runs),
        (["python rl.py 2"], StatedUsage(memory=GIB, time=60.0), runs),
    ):
        found = needs(lines, known, given).kinds[0].notes
        assert not any("failed within" in note for note in found)


def test_only_what_failed_within_a_second_failed_at_once() -> None:
    quick, slow = (
        failed(name, f"python {name}.py", time)
        for name, time in (("quick", 0.9), ("slow", 60.0))
    )
    unmeasured = msgspec.structs.replace(quick, id="unmeasured", usage=None)
    heads = map(head_of, [unmeasured, PPO, quick, slow])
    assert [*failed_runs(heads).values()] == ["quick"]


def test_what_is_reported_goes_before_what_was_measured() -> None:
    given = StatedUsage(gpu_memory=GIB, memory=2 * GIB, cpus=3, time=100)

    kind = needs(["python rl.py --algo ppo"], [PPO], given, headroom=0.5).kinds[0]

    assert kind.item == msgspec.structs.replace(
        kind.item, gpu_memory=1536 * MIB, memory=3 * GIB, cpus=3, time=150
    )


def test_headroom_is_on_top_of_the_bytes_measured() -> None:
    kind = needs(["python rl.py --algo ppo"], [PPO], headroom=0.2).kinds[0]

    assert kind.item.gpu_memory == pytest.approx(2.4 * GIB, abs=1)
    assert kind.used.gpu_memory == 2 * GIB
    assert kind.item.cpus == 2


def test_a_task_unlike_every_record_named_is_refused() -> None:
    with pytest.raises(UsageError, match=r"other\.py"):
        needs(["python other.py"], [PPO, DQN], named=True)


def test_the_one_command_named_counts_for_every_task() -> None:
    assert needs(["anything else"], [PPO], named=True).kinds[0].records == ("aaaa1",)


def test_a_job_that_held_two_gpus_needs_two_and_what_the_fuller_held() -> None:
    gpus = tuple(
        GpuUsage(f"GPU-{n}", "Tesla T4", peak_memory=n * GIB) for n in range(3)
    )
    assert PPO.usage is not None
    both = msgspec.structs.replace(
        PPO, usage=msgspec.structs.replace(PPO.usage, gpus=gpus)
    )

    item = needs(["python rl.py --algo ppo"], [both]).kinds[0].item

    assert (item.gpus, item.gpu_memory) == (2, 2 * GIB)
