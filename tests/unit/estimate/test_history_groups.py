import math

import pytest

from weigh.estimate.history import choose_sizes, template


@pytest.mark.parametrize(
    ("command", "general"),
    [
        ("/usr/bin/python tag.py a.txt 50", "python tag.py {file} {batch_size}"),
        ("python src/tag.py --out=x/y.tsv", "python tag.py --out={file}"),
        ("python run.py lr=1e-3 model=bert", "python run.py lr={number} model=bert"),
        ("tag --seed 7 --model bert-base", "tag --seed {number} --model bert-base"),
        ("./tag -v --batch=50", "tag -v --batch={batch_size}"),
        ("sort /data/a /data/b", "sort {file} {file}"),
        ("python -m pkg.train a.txt", "python -m pkg.train {file}"),
        ("echo -1.5 ...", "echo {number} ..."),
        ("", ""),
    ],
)
def test_a_template_keeps_the_program_and_leaves_the_data_out(
    command: str, general: str
) -> None:
    words = tuple(command.split())

    assert " ".join(template(words, {"batch_size": 50})) == general


def test_another_script_is_another_command() -> None:
    assert template(["python", "a.py"], {}) != template(["python", "b.py"], {})


def test_overrides_with_dots_in_their_names_differ_in_value_only() -> None:
    small, large, other = (
        template(["python", "a.py", word], {})
        for word in ("model.lr=0.1", "model.lr=3", "model.depth=3")
    )
    assert small == large != other


def test_sizes_are_numbers_that_vary_and_half_of_the_runs_have() -> None:
    runs: list[dict[str, int | float | str]] = [
        {"batch": 50, "epochs": 3, "model": "a", "rare": 1, "odd": math.nan},
        {"batch": 100, "epochs": 3, "model": "b", "rare": 2},
        {"batch": 200.5, "epochs": 3, "half": 1},
        {"batch": 50, "epochs": 3, "half": 2},
        {"batch": 50},
    ]

    assert choose_sizes(runs[:4]) == ["batch", "half", "rare"]
    assert choose_sizes(runs) == ["batch"]
