"""Arrays that heal: a job that follows resumes what memory or time ended."""

from pathlib import Path

from following import Weigh, until
from rigs import mainly

ONCE = "[ -e {0} ] || {{ touch {0}; exit 9; }}"
BUG = "python3 -c 'print(1 / 0)'"


def logs() -> list[str]:
    """Return what each healer printed."""
    return [path.read_text() for path in Path("plan/p/sent").glob("*/log/*.out")]


def healed() -> str:
    """Wait for the last healer; return what it printed."""
    until(lambda: any("stopped" in text for text in logs()))
    return next(text for text in logs() if "stopped" in text)


@mainly("slurm", "gridengine", "local")
def test_only_the_bug_is_left(weigh: Weigh) -> None:
    weigh.needs_waiting()
    job = weigh.submit(weigh.plan("true", ONCE.format("x"), BUG), "--heal")

    last = healed()

    assert "task 3: a bug: ZeroDivisionError" in last
    assert weigh.finish(job) == {"COMPLETED": 2, "FAILED": 1}
    assert len(weigh.status(job)["jobs"]) == 2
    assert len(logs()) == 2


def test_a_limit_needs_heal(here: Weigh) -> None:
    code, _, err = here("submit", here.plan("true"), "--max-rounds", "2")

    assert code == 2
    assert "--max-rounds" in err
    assert "--heal" in err


def test_a_limit_below_the_request_is_refused(here: Weigh) -> None:
    folder = here.plan("true")
    code, _, err = here("submit", folder, "--heal", "--max-memory", "50M")

    assert code == 2
    assert "--max-memory 50.0 MiB is less than the request" in err


def test_the_number_of_rounds_is_limited(here: Weigh) -> None:
    job = here.submit(here.plan(ONCE.format("x")), "--heal", "--max-rounds", "1")

    assert "--max-rounds" in healed()
    assert here.finish(job) == {"FAILED": 1}
