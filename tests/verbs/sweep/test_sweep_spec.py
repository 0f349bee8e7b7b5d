import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.sweep.spec import Spec, parse_spec
from weigh.sweep.values import Axis

WHOLE = """
command = ["python", "run.py", "{lr}", "{seed}", "{model}", "{batch}"]
where = "lr < 1e-2 or seed == 1"

[grid]
lr = [1e-2, 1.0e-3, "auto"]
seed = "1..3"

[zip]
model = ["a,b", "1..5"]
batch = [64, 1_6]

[random]
tasks = 20
seed = 1
"""


def test_a_file_states_all_that_the_command_line_can() -> None:
    assert parse_spec(WHOLE) == Spec(
        command=("python", "run.py", "{lr}", "{seed}", "{model}", "{batch}"),
        axes=(
            Axis("lr", values=(0.01, 0.001, "auto"), texts=("1e-2", "1.0e-3", "auto")),
            Axis("seed", values=(1, 2, 3), texts=("1", "2", "3")),
            Axis("model", values=("a,b", "1..5"), texts=("a,b", "1..5")),
            Axis("batch", values=(64, 16), texts=("64", "16")),
        ),
        zips=(("model", "batch"),),
        where=("lr < 1e-2 or seed == 1",),
        random=20,
        seed=1,
    )


def axes_of(text: str) -> tuple[Axis, ...]:
    return parse_spec(text).axes


def test_several_groups_are_zipped_apart() -> None:
    spec = parse_spec("[[zip]]\na=[1]\nb=[2]\n[[zip]]\nc=[1]\nd=[2]")

    assert spec.zips == (("a", "b"), ("c", "d"))


def test_tables_inside_the_grid_are_names_with_dots() -> None:
    assert axes_of("[grid.opt]\nlr = 1\n[grid.opt.b]\nx = 2") == (
        Axis("opt.lr", values=(1,), texts=("1",)),
        Axis("opt.b.x", values=(2,), texts=("2",)),
    )


def test_a_single_value_needs_no_list() -> None:
    assert axes_of("[grid]\nx = 1.50") == (Axis("x", values=(1.5,), texts=("1.50",)),)


def test_true_and_false_are_written_as_in_the_file() -> None:
    assert axes_of("[grid]\nx = [true, false]")[0].texts == ("true", "false")


def test_a_command_may_be_one_text_cut_as_a_shell_would() -> None:
    spec = parse_spec("""command = "python run.py '{a} b'" """)

    assert spec.command == ("python", "run.py", "{a} b")


def test_a_number_to_draw_needs_no_table() -> None:
    assert (parse_spec("random = 5").random, parse_spec("random = 5").seed) == (5, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grid", "not TOML"),
        ("gird = 1", "no such key: gird (there are: command, grid"),
        ("grid = 1", "[grid]"),
        ("zip = ['a,b']", "[zip]"),
        ("[grid]\nx = []", "x has no value"),
        ("[grid]\nx = [[1]]", "grid.x: numbers and text only"),
        ("[grid]\nx = 2026-11-21", "dates go in quotes"),
        ("[grid]\nx = '1..'", "not a range"),
        ('[grid]\nx = ["\\u0000"]', "NUL"),
        ("[grid]\n'a b' = 1", "not a parameter's name"),
        ("where = 1", "where: text"),
        ("where = [1.5]", "where: text"),
        ("command = 1", "command: a list of words"),
        ("command = ['a', 1.5]", "command: a list of words"),
        ('command = "a \'b"', "command: no closing quotation"),
        ("random = 'many'", "random: a number"),
        ("random = 1.5", "random: a number"),
        ("random = true", "random: a number"),
        ("[random]\nseed = 1", "random: a number"),
        ("[random]\ntask = 1", "random: a number"),
    ],
)
def test_what_is_off_is_named(text: str, words: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_spec(text)

    assert words in str(refused.value)


@given(st.text())
def test_every_text_is_a_sweep_or_a_format_error(text: str) -> None:
    for document in (text, f"[grid]\nx = {text}", f"random = {text}"):
        try:
            spec = parse_spec(document)
        except FormatError:
            continue
        assert isinstance(spec, Spec)
