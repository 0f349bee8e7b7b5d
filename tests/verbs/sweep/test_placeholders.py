"""``{memory}`` and ``{cpus}``: what an attempt may use, read by the shell."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from run_captured import run_captured
from sessions import check_session

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


def test_worked_examples_of_placeholders() -> None:
    check_session(Path(__file__).with_name("placeholders.session"), {"line": line})


def test_without_weigh_the_line_fails_and_names_the_variable() -> None:
    done = run_captured(["bash", "-c", line("echo", "{memory}", "{a}")], env={})
    assert done.returncode == 127
    assert "WEIGH_MEMORY_MB: parameter null or not set" in done.stderr
