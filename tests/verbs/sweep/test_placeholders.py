"""``{memory}`` and ``{cpus}``: what an attempt may use, read by the shell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_captured import run_captured

from weigh.errors import FormatError, UsageError
from weigh.sweep.grid import make_grid
from weigh.sweep.tasks import make_entry, match_fields
from weigh.sweep.values import parse_axis
from weigh.sweep.variables import with_expanded_placeholders

GRANTED = {"WEIGH_MEMORY_MB": "400", "WEIGH_CPUS": "4"}


def line(*argv: str, axis: str = "a=1") -> str:
    grid = make_grid((parse_axis(axis),))
    match_fields(argv, grid.names)
    return make_entry(grid, 0, argv, task_number=1).task.line


def echoed(text: str, env: dict[str, str] | None = None) -> list[str]:
    """Let a shell print the words of a line."""
    done = run_captured(
        ["bash", "-c", f"printf '%s\\n' {text}"],
        env=GRANTED if env is None else env,
        check=True,
    )
    return done.stdout.splitlines()


FORMS = [
    ("-Xmx{memory:80%}", "-Xmx320M"),
    ("-S{memory}", "-S400M"),
    ("--max-old-space-size={memory:m}", "--max-old-space-size=400"),
    ("GOMEMLIMIT={memory:90%,MiB}", "GOMEMLIMIT=360MiB"),
    ("{memory:80%/cpus}", "80M"),
    ("{memory:/cpus,m}", "100"),
    ("-@{cpus}", "-@4"),
    ("it's {memory} {a}", "it's 400M 1"),
]


def test_the_shell_puts_in_what_was_granted() -> None:
    text = line("x", *(word for word, _ in FORMS), "{a}")
    assert echoed(text.partition(" ")[2]) == [word for _, word in FORMS] + ["1"]


def test_a_line_of_a_task_file_is_read_as_by_the_shell() -> None:
    text = b"{memory} \"-Xmx{memory:50%}\" '{memory}' ${memory} \\{cpus} {cpus}"
    assert echoed(with_expanded_placeholders(text).decode()) == (
        ["400M", "-Xmx200M", "{memory}", "{cpus}", "4"]
    )


@given(st.binary(max_size=40))
def test_other_lines_stay_as_they_are(text: bytes) -> None:
    if b"{memory" not in text and b"{cpus" not in text:
        assert with_expanded_placeholders(text) is text


def test_a_line_with_an_unknown_form_stays_as_it_is() -> None:
    assert with_expanded_placeholders(b"x {memory:lots}") == b"x {memory:lots}"


def test_a_parameter_of_the_users_own_wins() -> None:
    assert line("x", "{memory}", axis="memory=7") == "x 7"


def test_doubled_braces_stay() -> None:
    assert line("x", "{{memory}}", "{a}") == "x '{{memory}}' 1"


def test_without_weigh_the_line_fails_and_names_the_variable() -> None:
    done = run_captured(["bash", "-c", line("echo", "{memory}", "{a}")], env={})
    assert done.returncode == 127
    assert "WEIGH_MEMORY_MB: parameter null or not set" in done.stderr


@pytest.mark.parametrize("word", ["-Xmx{memory}", "-Xmx{memory:100%}"])
def test_a_heap_as_large_as_the_memory_is_refused(word: str) -> None:
    with pytest.raises(FormatError, match="80%"):
        line("java", word, "{a}")


@pytest.mark.parametrize("word", ["{memory:12}", "{memory:0%}", "{cpus:2}"])
def test_an_unknown_form_is_refused(word: str) -> None:
    with pytest.raises(FormatError, match="form"):
        line("x", word, "{a}")


def test_other_fields_still_need_values() -> None:
    with pytest.raises(UsageError, match="memry"):
        line("x", "{memry}", "{a}")
