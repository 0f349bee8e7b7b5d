import subprocess
import sys
from pathlib import Path

import pytest
from called_weigh import called_apart
from hypothesis import given
from hypothesis import strategies as st

from weigh.estimate.scaling import SqueezeResult, SqueezeRun, next_limit, outcome_of
from weigh.units import MIB

MOST_RUNS = 4


def squeezed(
    peak: int, least: int, *, first: float = 0.5
) -> tuple[SqueezeResult, list[int]]:
    """Search a program that takes *peak* MiB, and works with *least* at half speed."""
    plain = SqueezeRun(0, peak * MIB, 1.0, 1.0, works=True)
    probes: list[SqueezeRun] = []
    limit: int | None = max(1, round(peak * first))
    while limit is not None and len(probes) < MOST_RUNS:
        time = 1.0 + (peak - limit) / max(1, peak - least)
        works = limit >= least
        probes.append(
            SqueezeRun(
                limit, min(peak, limit) * MIB, time if works else 9.0, 9.0, works
            )
        )
        limit = next_limit(plain, probes)
    found = outcome_of(plain, probes)
    return found, [one.limit for one in probes]


@given(peak=st.integers(60, 4000), share=st.floats(0.15, 0.85))
def test_the_least_of_an_elastic_program_is_near_in_four_runs(
    peak: int, share: float
) -> None:
    least = max(2, round(peak * share))
    found, limits = squeezed(peak, least)
    assert len(limits) <= MOST_RUNS
    # two runs halve the limit, and the fourth the factor of 2 that is left
    near = max(least * MIB * 2**0.5 + MIB, 50 * MIB)  # no request is below 50 MiB
    assert least * MIB <= found.least.memory <= near
    assert found.kind == (
        "elastic" if found.least.memory < 0.9 * peak * MIB else "rigid"
    )


def test_the_knee_is_the_least_that_is_as_fast_as_the_best() -> None:
    plain = SqueezeRun(0, 400 * MIB, 2.0, 2.0, works=True)
    fast = SqueezeRun(200, 200 * MIB, 1.0, 1.0, works=True)
    slow = SqueezeRun(100, 100 * MIB, 1.7, 1.7, works=True)
    found = outcome_of(plain, [fast, slow])
    assert (found.least, found.knee) == (slow, fast)


def test_limits_get_no_closer_than_a_tenth() -> None:
    plain = SqueezeRun(0, 100 * MIB, 1.0, 1.0, works=True)
    near = [
        SqueezeRun(50, 50 * MIB, 1.0, 1.0, works=True),
        SqueezeRun(47, 47 * MIB, 9.0, 9.0, works=False),
    ]
    assert next_limit(plain, near) is None


def test_a_field_of_the_command_is_its_limit(tmp_path: Path) -> None:
    """It takes what it is given, and fails below 40 MiB."""
    code = "import sys; n = int(sys.argv[1]); n < 40 and sys.exit(1); bytes(n << 18)"
    done = scan(tmp_path, sys.executable, "-S", "-c", code, "{memory:m}")
    assert done.returncode == 0
    assert "plain" in done.stderr
    assert done.stderr.count("weigh: ") <= 1 + MOST_RUNS
    assert "with {memory}=" in done.stdout or "rigid" in done.stdout
    assert not list(tmp_path.rglob("*.jsonl"))  # nothing to learn from


def scan(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return called_apart(folder, "scan", "memory=auto", "--", *words, **env)


def test_what_a_command_printed_before_it_failed_is_shown(tmp_path: Path) -> None:
    done = scan(tmp_path, "sh", "-c", "echo no such size: 12MM; exit 2")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("exit code 2: no such size: 12MM")


@pytest.mark.parametrize("words", [(), ("--", "false")])
def test_what_cannot_be_squeezed_is_one_line(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = called_apart(tmp_path, "scan", "memory=auto", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("weigh: ")


def test_no_run_looks_for_less_than_is_ever_requested() -> None:
    plain = SqueezeRun(0, 400 * MIB, 1.0, 1.0, works=True)
    small = SqueezeRun(20, 45 * MIB, 1.0, 1.0, works=True)
    assert next_limit(plain, [small]) is None


def test_two_runs_of_one_time_leave_a_limit_between_them() -> None:
    plain = SqueezeRun(0, 1000 * MIB, 1.0, 1.0, works=True)
    works = SqueezeRun(800, 800 * MIB, 3.0, 3.0, works=True)
    too_slow = SqueezeRun(200, 200 * MIB, 3.0, 3.0, works=False)

    limit = next_limit(plain, [works, too_slow])

    assert limit is None or 200 < limit < 800
