"""``report --metric``, ``status --metric``: a loss as the tasks wrote it."""

import json
import os
import sys
from pathlib import Path

import pytest
from called_weigh import called_apart
from some_jobs import BEGAN, JOB, Say, SomeJob, Task, write_job
from transcript import check_transcript

from weigh.model.report import JobReport, MetricSummary, ReportRow
from weigh.render.metric_lines import metric_report_lines

HERE = Path(__file__).parent
LEARNS = Task(
    prints="".join(f"loss: {0.5**n}\n" for n in range(9)),
    parameters={"lr": 0.1, "seed": 1},
)
AGAIN = Task(
    prints="".join(f"loss: {0.6**n}\n" for n in range(9)),
    parameters={"lr": 0.1, "seed": 2},
)
LOST = Task(prints="loss: 2.0\nloss: nan\n", parameters={"lr": 9.0, "seed": 1})
STANDS = Task(prints="loss: 1.0\n" * 9, parameters={"lr": 1e-6, "seed": 1})
SILENT = Task(prints="hello\n", parameters={"lr": 1e-6, "seed": 2})


@pytest.fixture
def job(root: str, tmp_path: Path) -> str:
    tasks = (STANDS, LEARNS, LOST, SILENT, AGAIN)
    write_job(root, str(tmp_path / "plan" / "p"), SomeJob(tasks=tasks))
    return JOB


def test_the_screens_of_a_metric_are_as_they_were_reviewed(job: str, say: Say) -> None:
    del job
    check_transcript(HERE / "metric.transcript", say)


def test_each_row_of_the_json_has_its_metric(job: str, say: Say) -> None:
    rows = json.loads(say("report", job, "--metric", "loss", "--json")[1])["rows"]
    found = {row["task"]: row["metric"] for row in rows}
    assert found[2] == {
        "values": 9,
        "last": 0.5**8,
        "best": 0.5**8,
        "best_at": 9,
        "trend": "improving",
    }
    assert found[3]["last"] is None  # NaN is no JSON
    assert found[3]["best"] == 2.0
    assert found[4] is None


def test_a_page_plots_each_parameter_that_differs(
    job: str, say: Say, tmp_path: Path
) -> None:
    assert say("report", job, "--metric", "loss", "-o", "r.html")[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert "4 tasks, lr from 1e-06 to 9, best from 0.003906 to 2" in page
    assert page.count("<circle") == 8


def test_the_best_values_are_those_that_the_tasks_wrote_themselves(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(
        "import random, sys\n"
        "numbers = [random.random() for _ in range(20)]\n"
        "print(*(f'step {n}: loss={v}' for n, v in enumerate(numbers)), sep='\\n')\n"
        "open(sys.argv[1], 'w').write('n,f1\\n' + ''.join(\n"
        "    f'{n},{v / 2}\\n' for n, v in enumerate(numbers)))\n"
        "open(sys.argv[1] + '.best', 'w').write(f'{min(numbers)} {max(numbers) / 2}')\n"
    )
    lines = [f"{sys.executable} train.py {n}.csv\n" for n in range(3)]
    (tmp_path / "t.txt").write_text("".join(lines))
    assert called_apart(tmp_path, "exec", "t.txt").returncode == 0
    for metric, column in (("loss", 0), ("f1", 1)):
        done = called_apart(tmp_path, "report", "t.txt", "--metric", metric, "--json")
        best = [row["metric"]["best"] for row in json.loads(done.stdout)["rows"]]
        assert best == [
            float((tmp_path / f"{n}.csv.best").read_text().split()[column])
            for n in range(3)
        ]


@pytest.mark.parametrize(
    ("name", "written", "code"),
    [
        ("m.csv", BEGAN, 0),
        ("m.csv", BEGAN - 1, 2),
        ("m.py", BEGAN + 1, 2),
        # whose path the task prints
        ("runs/lr_0.1/history.csv", BEGAN, 0),
    ],
)
def test_a_table_in_the_folder_of_the_job_counts_if_the_task_wrote_it(
    root: str, say: Say, name: str, written: float, code: int
) -> None:
    is_printed = "/" in name
    task = Task(
        prints=f"saved {name!r}\n" * is_printed,
        parameters={} if is_printed else {"out": name},
    )
    folder = Path(root).with_name("plan")
    write_job(root, str(folder / "p"), SomeJob(tasks=(task,)))
    table = folder / name
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("n,loss\n1,4\n2,3\n")
    os.utime(table, (written, written))
    found, out, _ = say("report", JOB, "--metric", "loss", "--json")
    assert found == code
    if not code:
        metric = json.loads(out)["rows"][0]["metric"]
        assert (metric["best"], metric["best_at"]) == (3, 2)


@pytest.mark.parametrize(("count", "more"), [(30, 0), (33, 3)])
def test_thirty_tasks_are_shown_the_best_first_with_the_hours_of_their_gpus(
    count: int, more: int
) -> None:
    tasks = range(1, count + 1)
    rows = tuple(
        ReportRow(
            task=n,
            gpus=2 if n % 3 else None,
            memory=21 << 20 if n == 1 else None,
            memory_is_bound=n == 1,  # too short to be measured
            wall_time=n * 1800.0 if n % 3 != 1 else None,
            metric=MetricSummary(values=1, last=n, best=n, best_at=1, trend=None),
        )
        for n in tasks
    )
    report = JobReport(title="t", metric="acc", lower_is_better=False, rows=rows)
    lines = list(metric_report_lines(report))
    assert ("up to 21.0 MiB" in "".join(lines)) == (not more)
    shown = [(line.split()[0], line.split()[-1]) for line in lines[3:33]]
    assert shown == [
        (str(n), f"{n}.00" if n % 3 == 2 else "-") for n in tasks[::-1][:30]
    ]
    assert lines[33:] == ([f"  and {more} more (--json has them all)"] if more else [])


def test_values_whose_sum_overflows_are_in_no_mean(
    root: str, say: Say, tmp_path: Path
) -> None:
    tasks = tuple(
        Task(prints="score: 1.7e308\n", parameters={"lr": 10**n, "seed": n})
        for n in (1, 400)
    )
    write_job(root, str(tmp_path / "plan" / "p"), SomeJob(tasks=tasks))
    code, out, _ = say("report", JOB, "--metric", "score")
    assert (code, "without the seed" in out) == (0, False)
    assert say("report", JOB, "--metric", "score", "-o", "r.html")[0] == 0


def test_of_a_task_file_written_by_hand_the_words_that_differ_are_shown() -> None:
    start = "python3 train.py --epochs 5 --dataset a-data-set-with-a-long-name"
    rows = tuple(
        ReportRow(task=seed, command=f"{start} --seed {seed} lr=0.{seed} out{seed}")
        for seed in (1, 2)
    )
    lines = list(metric_report_lines(JobReport(title="h.txt", rows=rows)))
    shown = [line.split()[:4] for line in lines[-2:]]
    assert shown == [[f"{n}", f"seed={n}", f"lr=0.{n}", f"out{n}"] for n in (1, 2)]
    # of a single one the end
    *_, line = metric_report_lines(JobReport(title="h.txt", rows=rows[:1]))
    assert "-name --seed 1 lr=0.1 out1" in line
