import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_requests import REQUESTS, a_request

from weigh.errors import UsageError
from weigh.model.record import Request
from weigh.render.request_lines import (
    FORMS,
    packed_lines,
    request_form_lines,
    request_note_lines,
)


def test_grid_engine_lines_are_one_directive_each() -> None:
    assert request_form_lines(a_request(cpus=2), "gridengine") == (
        "#$ -l h_vmem=600M",
        "#$ -pe smp 2",
        "#$ -l h_rt=00:05:00",
    )


def test_the_summary_has_each_scheduler_on_one_line() -> None:
    assert packed_lines(a_request(), "slurm", 80) == (
        "#SBATCH --mem=500M --cpus-per-task=1 --time=00:05:00",
    )
    assert packed_lines(a_request(), "gridengine", 80) == (
        "#$ -l h_vmem=1200M -l h_rt=00:05:00",
    )


def test_directives_beyond_the_width_go_on_a_line_of_their_own() -> None:
    assert packed_lines(a_request(cpus=2), "gridengine", 30) == (
        "#$ -l h_vmem=600M -pe smp 2",
        "#$ -l h_rt=00:05:00",
    )


@given(REQUESTS, st.sampled_from(FORMS))
def test_every_form_writes_every_request(request: Request, form: str) -> None:
    lines = request_form_lines(request, form)

    assert lines or request.time_limit is None
    assert all("\n" not in line for line in lines)


@given(st.lists(st.text(alphabet="abc déf", max_size=200), max_size=3))
def test_notes_fold_at_80_columns_and_lose_no_word(notes: list[str]) -> None:
    lines = request_note_lines(notes, indent="   ")

    words = " ".join(notes).split()
    assert " ".join(lines).split() == words
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)


def test_an_unknown_form_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=rf"pbs.*{', '.join(FORMS)}"):
        request_form_lines(a_request(), "pbs")
