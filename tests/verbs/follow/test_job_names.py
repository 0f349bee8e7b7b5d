"""The names by which a job is found."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from weigh.flow.follow import named
from weigh.schedulers.kind import KnownJob

Weigh = Callable[..., tuple[int, str, str]]


VERBS = ("status", "logs", "report", "resume", "cancel")


def test_a_plan_submitted_under_another_name_keeps_its_own(
    weigh: Weigh, submitted: Callable[..., None]
) -> None:
    submitted("true\n", "--name", "renamed")
    for verb, name in product(VERBS, ("pp", "plan/pp", "renamed", "last")):
        code, out, err = weigh(verb, name)
        assert (code, err) == (0, ""), (verb, name)
        assert "renamed" in out or verb in {"logs", "cancel"}, (verb, name)


@pytest.mark.parametrize("is_accounted", [True, False])
def test_the_script_of_a_foreign_job_keeps_its_spaces(
    tmp_path: Path, *, is_accounted: bool
) -> None:
    """Slurm's controller and its accounting quote neither a path nor arguments."""
    script = tmp_path / "my job.sh"
    script.write_text("#!/bin/bash\n")
    words = (*str(script).split(" "), "a.yaml")
    known_job = KnownJob(
        id="7",
        user="me",
        name="my job.sh",
        script=words[0],
        arguments=words[1:],
        line=("--parsable", *words) if is_accounted else (),
    )

    found = named.script_and_flags_of(known_job, str(tmp_path), "slurm")

    flags = ("--parsable",) if is_accounted else ()
    assert found == (str(script), flags, ("a.yaml",))
