import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_captured import run_captured
from transcript import named_rows, named_texts

from weigh.model.record import (
    MeasuringCost,
    RunMeasurement,
    RunOutcome,
    SampleSeries,
    Usage,
)
from weigh.why_run_ended import (
    counted_no_kill,
    error_at_end,
    failure_line,
    failure_lines,
    judge_run_end,
    out_of_memory,
    ran_out_on_gpu,
    signal_name,
)


def measured(
    code: int | None = 0,
    number: int | None = None,
    *,
    oom_kills: int | None = 0,
    end_signal: int | None = None,
) -> RunMeasurement:
    return RunMeasurement(
        started=0.0,
        ended=1.0,
        exit_code=code,
        signal=number,
        usage=Usage(wall_time=1.0),
        series=SampleSeries(),
        monitor=MeasuringCost(),
        oom_kills=oom_kills,
        end_signal=end_signal,
    )


TERM, KILL = signal.SIGTERM, signal.SIGKILL
# exit code, signal, kills that the kernel counted, signal that weigh passed on: the
# state, and words of its reason; a count falls where the process was moved to another
# control group meanwhile
RUN_ENDS = named_rows(Path(__file__).with_name("run_ends.texts"))["ends"]


@pytest.mark.parametrize(("end", "state", "words"), RUN_ENDS)
def test_a_run_ended_as_its_code_its_signal_and_the_kernels_count_show(
    end: str, state: str, words: str
) -> None:
    code, number, kills, passed_on = end.split()
    found, outcome = judge_run_end(
        measured(
            None if code == "-" else int(code),
            None if number == "-" else signal.Signals[f"SIG{number}"],
            oom_kills=None if kills == "-" else int(kills),
            end_signal=None if passed_on == "-" else signal.Signals[f"SIG{passed_on}"],
        )
    )
    assert outcome is not None
    assert found == state
    assert words in "; ".join((outcome.reason, *outcome.evidence))


@pytest.mark.parametrize(
    ("run", "is_uncounted"),
    [
        (measured(None, KILL), True),
        (measured(128 + KILL), True),
        (measured(None, KILL, oom_kills=1), False),
        (measured(None, KILL, oom_kills=None), False),
        (measured(None, TERM), False),
        (measured(1), False),
    ],
)
def test_a_kill_that_the_kernel_did_not_count_is_somebody_elses(
    run: RunMeasurement,
    is_uncounted: bool,  # noqa: FBT001 - a table
) -> None:
    assert counted_no_kill(run) is is_uncounted


@pytest.mark.parametrize("number", [TERM, signal.SIGSEGV])
def test_a_signal_that_is_no_kill_needs_no_evidence(number: int) -> None:
    _, outcome = judge_run_end(measured(None, number, oom_kills=None))
    assert outcome == RunOutcome(f"ended by {signal.Signals(number).name}")


@pytest.mark.parametrize("end_signal", [None, TERM])
def test_exit_code_0_needs_no_explanation(end_signal: int | None) -> None:
    assert judge_run_end(measured(0, end_signal=end_signal)) == ("COMPLETED", None)


ENDS = st.tuples(st.just(0) | st.integers(0, 255), st.none()) | st.tuples(
    st.none(), st.integers(1, 64)
)


@given(ENDS, st.none() | st.integers(-5, 5), st.none() | st.integers(1, 64))
def test_exit_code_0_alone_is_completed_and_all_else_has_a_reason(
    end: tuple[int | None, int | None], oom_kills: int | None, told: int | None
) -> None:
    state, outcome = judge_run_end(measured(*end, oom_kills=oom_kills, end_signal=told))
    assert (state == "COMPLETED") == (end == (0, None) and (oom_kills or 0) <= 0)
    assert state == "COMPLETED" or outcome is not None


@pytest.mark.parametrize("number", list(signal.Signals))
def test_signals_are_named_as_the_system_names_them(number: signal.Signals) -> None:
    assert signal_name(number) in {number.name, f"signal {int(number)}"}


# the words for memory that ran out, as programs print them: of a GPU, of the host, for
# a process that was killed, and words that only mention it
MEMORY_TEXTS = named_texts(Path(__file__).with_name("out_of_memory.texts"))
# what programs printed (Python 3.11, R 4.2, OpenJDK 17, node 20, g++ 12, rustc 1.91,
# Perl 5.36, Open MPI 4.1, GNU make 4.3), and Go, Julia, gfortran by their pages;
# above "--" stands the line that states why
FAILED, STATED = dict[str, str](), dict[str, str]()
for program, both in named_texts(Path(__file__).with_name("failures.texts")).items():
    stated, _, FAILED[program] = both.partition("\n--\n")
    STATED[program] = stated
TRACEBACK = FAILED["Python"]
GPU_TEXTS = [one for one in MEMORY_TEXTS if one.startswith("gpu: ")]


@pytest.mark.parametrize("name", MEMORY_TEXTS)
def test_memory_that_ran_out_is_known_by_each_programs_words(name: str) -> None:
    words, kind = MEMORY_TEXTS[name], name.partition(": ")[0]

    found = out_of_memory(f"step 1\n{words}")

    assert (found is None) == (kind == "only mentioned")
    assert found is None or found.on_gpu == (kind == "gpu")
    # that a process was killed shows it only where nobody counted its kills
    if kind == "killed":
        assert out_of_memory(words, by_kill=False) is None


def test_an_error_that_follows_from_memory_does_not_hide_it() -> None:
    words = MEMORY_TEXTS["gpu: torch"]
    chain = "During handling of the above exception, another occurred:"

    assert out_of_memory(f"{words}\n{chain}\n\n{TRACEBACK}") is not None
    assert out_of_memory(f"{words}\n{TRACEBACK}") is None


@pytest.mark.parametrize("name", GPU_TEXTS)
def test_a_records_evidence_states_that_it_was_the_gpu(name: str) -> None:
    found = out_of_memory(MEMORY_TEXTS[name])
    assert found is not None
    assert ran_out_on_gpu(RunOutcome("", (f"its output says {found.words!r}",)))


def test_without_evidence_it_is_not_known_whose_memory_it_was() -> None:
    assert ran_out_on_gpu(None) is None
    assert ran_out_on_gpu(RunOutcome("killed for memory")) is None
    assert ran_out_on_gpu(RunOutcome("", ("its output says 'MemoryError'",))) is False


@given(st.text())
def test_any_text_can_be_searched_for_words_of_memory(text: str) -> None:
    found = out_of_memory(text)
    assert found is None or found.words in text


def test_a_real_memory_error_is_known() -> None:
    limited = "import resource as r; r.setrlimit(r.RLIMIT_AS, (1 << 30, 1 << 30)); "
    done = run_captured([sys.executable, "-c", limited + "bytearray(8 << 30)"])
    found = out_of_memory(done.stderr)
    assert found is not None
    assert found.words == "MemoryError"


@pytest.mark.parametrize("program", FAILED)
def test_the_line_that_states_why_a_program_failed_is_found(program: str) -> None:
    assert failure_line(FAILED[program]) == STATED[program]


@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("Python", "e.py, line 2"),
        ("Python, a cause", "c.py, line 3"),
        ("Python, of a rank", "t.py, line 1"),
        ("a script that went on", "see the log"),
        ("a shell", None),
    ],
)
def test_below_the_cause_stands_what_leads_to_it(
    program: str, more: str | None
) -> None:
    lines = failure_lines(FAILED[program])
    assert lines == (STATED[program], *([] if more is None else [more]))


def test_an_exception_in_a_library_is_placed_in_the_users_own_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.py").write_text("import json\n\ndef f():\n    json.loads('')\nf()")
    ran = run_captured([sys.executable, "job.py"], cwd=tmp_path)
    assert failure_lines(ran.stderr)[1:] == ("job.py, line 4, in f",)


@pytest.mark.parametrize("behind", range(4))
def test_an_error_counts_among_the_last_three_lines(behind: int) -> None:
    after = "".join(f"saved {number}\n" for number in range(behind))
    words = "cat: mesh.dat: No such file or directory"

    assert (error_at_end(TRACEBACK + after) == STATED["Python"]) is (behind < 3)
    assert (failure_line(f"{words}\n{after}") == words) is (behind < 3)


@given(st.text(max_size=400))
def test_any_output_has_one_line_that_was_printed_or_none(text: str) -> None:
    line = failure_line(text)
    assert bool(line) == bool(text.strip())
    assert len(line.splitlines()) <= 1
