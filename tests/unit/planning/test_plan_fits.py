"""Needs of sizes that nobody measured: by curves through those that were."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from weigh.model.gpu import GpuUsage
from weigh.model.plan import NeedPrediction, TaskKind
from weigh.model.record import PeakMemory, Record, Usage
from weigh.planning.needs import StatedUsage, TaskNeeds, needs_of_tasks
from weigh.planning.record_match import RecordLibrary, record_candidates, sizes_in
from weigh.store.index import head_of
from weigh.units import GIB, MIB

CARD = 16 * GIB


def run(
    command: str,
    memory: int = GIB,
    *,
    gpu: int = 0,
    time: float = 60.0,
    state: str = "COMPLETED",
    **parameters: float | str,
) -> Record:
    """Make a record of *command*, known by its own words."""
    peak = PeakMemory(memory, memory, memory, None, None, None, "test")
    cards = (GpuUsage("GPU-1", "Tesla T4", CARD, peak_memory=gpu),) if gpu else ()
    return Record(
        id=f"{command} {sorted(parameters.items())}".encode().hex(),
        command=tuple(command.split()),
        parameters=parameters,
        started="2026-11-21T10:00:00Z",
        state=state,
        exit_code=0,
        usage=Usage(wall_time=time, peak_memory=peak, gpus=cards),
    )


def needs(
    records: Sequence[Record],
    *lines: str,
    said: StatedUsage | None = None,
    table: Sequence[dict[str, float]] = (),
) -> TaskNeeds:
    by_id = {record.id: record for record in records}
    library = RecordLibrary(record_candidates(map(head_of, records)), by_id.__getitem__)
    parameters = (lambda number, _: table[number - 1]) if table else None
    return needs_of_tasks(lines, said or StatedUsage(), 0.2, library, parameters)


def kind_of(records: Sequence[Record], line: str) -> TaskKind:
    (kind,) = needs(records, line).kinds
    return kind


def prediction_of(kind: TaskKind, quantity: str) -> NeedPrediction:
    return next(one for one in kind.predictions if one.quantity == quantity)


def line_of(batch: float) -> int:
    """Give what a task of the programs here holds: 1 GiB, and 10 MiB an item."""
    return round(GIB + batch * 10 * MIB)


BATCHES = [run(f"python tag.py --batch {n}", line_of(n)) for n in (50, 100, 300)]


def test_a_size_between_is_predicted_from_the_others() -> None:
    kind = kind_of(BATCHES, "python tag.py --batch 200")

    memory = prediction_of(kind, "memory")
    assert memory.expected == pytest.approx(line_of(200), rel=0.01)
    assert (memory.by, memory.size, memory.ratio) == ("--batch", 200, 1)
    assert (memory.sizes, memory.runs) == ((50, 100, 300), 3)
    assert kind.item.memory >= 1.2 * memory.expected


def test_a_size_beyond_states_how_far_beyond_and_holds_the_truth() -> None:
    kind = kind_of(BATCHES, "python tag.py --batch 900")

    assert prediction_of(kind, "memory").ratio == 3
    assert kind.item.memory >= line_of(900)


def test_each_size_is_a_kind_of_its_own() -> None:
    lines = [f"python tag.py --batch {n}" for n in (150, 200, 150)]

    found = needs(BATCHES, *lines)

    assert found.places == (0, 1, 0)
    assert found.kinds[0].item.memory < found.kinds[1].item.memory


@pytest.mark.parametrize(
    ("measured", "task"),
    [
        ("python tag.py --batch={}", "python tag.py --batch=200"),
        ("python tag.py batch={}", "python tag.py batch=200 > out.txt"),
        ("python tag.py in.txt {}", "python tag.py in.txt 200"),
        ("python tag.py --batch {} -v", "CUDA_LAUNCH=1 python tag.py --batch 200 -v"),
        ("python tag.py -b {}", "python tag.py -b 200 --out 'a b'"),
    ],
)
def test_a_size_is_found_however_it_is_written(measured: str, task: str) -> None:
    records = [run(measured.format(n), line_of(n)) for n in (50, 100, 300)]

    assert prediction_of(kind_of(records, task), "memory").size == 200


def test_sizes_that_are_in_no_word_are_known_from_the_sweeps_table() -> None:
    records = [
        run(f"python go.py conf_{n}.yaml", line_of(n), batch=n) for n in (50, 100, 300)
    ]

    found = needs(records, "python go.py conf_200.yaml", table=[{"batch": 200}])

    assert prediction_of(found.kinds[0], "memory").by == "batch"


def test_seeds_ports_and_devices_are_no_sizes() -> None:
    words = "python rl.py --seed 3 --port 8000 --device 1 --random-state 4 --lr 0.1"

    assert sizes_in(words.split(), {"seed": 3}) == {"--lr": 0.1}


def test_what_does_not_grow_with_a_size_is_taken_from_all_runs() -> None:
    records = [run(f"python tag.py --lr {lr}") for lr in (0.1, 0.2, 0.4)]

    kind = kind_of(records, "python tag.py --lr 100")

    assert kind.predictions == ()
    assert kind.runs == 3


def test_a_size_that_all_runs_share_and_tasks_do_not_is_named() -> None:
    records = [run("python t.py --hidden 512 --seed 1", id=1)]

    found = needs(records, *(f"python t.py --hidden {n} --seed 2" for n in (512, 900)))

    assert found.unlike == {"--hidden": 512}
    assert needs(records, "python t.py --hidden 512 --seed 3").unlike == {}


def test_a_task_without_the_size_counts_as_the_runs_without_it() -> None:
    default = run("python tag.py --epochs 1", line_of(60))

    kind = kind_of([*BATCHES, default], "python tag.py --lr 1e-2 --seed 1")

    assert kind.used.memory == line_of(60)


def test_the_largest_run_counts_where_all_have_a_size_that_tasks_lack() -> None:
    found = needs(BATCHES, "python tag.py --seed 1", "python tag.py --seed 2")

    assert [kind.used.memory for kind in found.kinds] == [line_of(300)]
    assert found.unnamed == {"--batch": 2}


def test_a_number_of_another_option_makes_no_run_more_alike() -> None:
    records = [
        run("python t.py --epochs 1", GIB),
        run("python t.py --layers 9", 3 * GIB),
    ]

    kind = kind_of(records, "python t.py --seed 1")

    assert kind.used.memory == 3 * GIB


BY_TWO = [
    run(f"python t.py --batch {b} --epochs {e}", line_of(b), time=100.0 * e)
    for b in (50, 100, 300)
    for e in (1, 2, 4)
]
PRODUCTS = [
    run(f"python t.py --batch {b} --length {n}", GIB + b * n * MIB)
    for b in (2, 4, 8)
    for n in (16, 32, 64)
]
ALGORITHMS = [
    run(f"python rl.py --algo {algo} --envs {n}", GIB + n * each * MIB)
    for algo, each in (("ppo", 10), ("dqn", 50))
    for n in (10, 20, 40)
]


@pytest.mark.parametrize(
    ("records", "line", "quantity", "by", "expected"),
    [
        (BY_TWO, "t.py --batch 200 --epochs 10", "memory", "--batch", line_of(200)),
        (BY_TWO, "t.py --batch 200 --epochs 10", "time", "--epochs", 1000),
        (
            PRODUCTS,
            "t.py --batch 16 --length 128",
            "memory",
            "--batch*--length",
            GIB + 16 * 128 * MIB,
        ),
        (
            ALGORITHMS,
            "rl.py --algo dqn --envs 80",
            "memory",
            "--envs",
            GIB + 4000 * MIB,
        ),
    ],
)
def test_each_quantity_is_predicted_by_the_sizes_it_grows_with(
    records: list[Record], line: str, quantity: str, by: str, expected: float
) -> None:
    found = prediction_of(kind_of(records, f"python {line}"), quantity)

    assert found.by == by
    assert found.expected == pytest.approx(expected, rel=0.01)


def test_gpu_memory_is_predicted_as_well() -> None:
    records = [run(f"python t.py -b {n}", gpu=line_of(n)) for n in (50, 100, 300)]

    kind = kind_of(records, "python t.py -b 600")

    assert kind.used.gpu_memory == pytest.approx(line_of(600), rel=0.01)
    assert kind.item.gpu_memory >= 1.2 * kind.used.gpu_memory


def test_what_is_reported_is_not_predicted() -> None:
    found = needs(
        BATCHES, "python tag.py --batch 200", said=StatedUsage(memory=GIB, time=60.0)
    )

    assert found.kinds[0].predictions == ()


def test_a_size_that_ran_out_of_memory_needs_more_than_there_was() -> None:
    burst = run("python t.py -b 400", gpu=CARD, state="OUT_OF_MEMORY")
    records = [run(f"python t.py -b {n}", gpu=line_of(n)) for n in (50, 100, 300)]

    kind = kind_of([*records, burst], "python t.py -b 450")

    assert kind.item.gpu_memory > CARD


@given(
    base=st.integers(100, 4000),
    slope=st.integers(2, 500),
    sizes=st.sets(st.integers(10, 200), min_size=3, max_size=6),
    size=st.integers(1, 800),
)
def test_along_a_line_that_is_known_no_need_is_below_the_truth(
    base: int, slope: int, sizes: set[int], size: int
) -> None:
    def truth(x: int) -> int:
        return (base + slope * x) * MIB

    growth = truth(max(sizes)) - truth(min(sizes))
    assume(growth > 0.05 * truth(max(sizes)))
    records = [run(f"python t.py -b {n}", truth(n)) for n in sizes]

    assert kind_of(records, f"python t.py -b {size}").item.memory >= truth(size)


@pytest.mark.parametrize("name", ["batch", "b"])
def test_a_scan_under_a_name_of_its_own_counts_next_to_a_plain_run(name: str) -> None:
    scanned = [
        run(f"python tag.py --batch {n}", line_of(n), **{name: n})  # type: ignore[arg-type]
        for n in (50, 200, 300)
    ]
    plain = run("python tag.py --batch 100", line_of(100))

    kind = kind_of([plain, *scanned], "python tag.py --batch 200 --lr 0.1")

    assert kind.records == (scanned[1].id,)


@pytest.mark.parametrize(("smallest", "is_growth"), [(90, True), (10, False)])
def test_four_per_cent_are_growth_only_between_sizes_that_are_close(
    smallest: int, *, is_growth: bool
) -> None:
    records = [
        run(f"python tag.py --batch {batch}", memory)
        for batch, memory in ((smallest, GIB), (100, round(1.04 * GIB)))
    ]

    kind = kind_of(records, "python tag.py --batch 95")

    assert any(one.quantity == "memory" for one in kind.predictions) is is_growth
