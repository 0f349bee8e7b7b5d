import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import WEIGH, Weigh

RUN = " ".join([*WEIGH, "run", "-q", "--"])


def test_every_place_in_a_pipeline_works(weigh: Weigh) -> None:
    line = f"{RUN} echo hello | {RUN} tr a-z A-Z | {RUN} sh -c 'cat; exit 7'"
    words = ["bash", "-c", f'{line}; echo "${{PIPESTATUS[@]}}"']
    assert subprocess.check_output(words, env=weigh.env()) == b"HELLO\n0 0 7\n"


def test_bytes_that_are_no_text_arrive_and_are_recorded(
    weigh: Weigh, tmp_path: Path
) -> None:
    name = b"caf\xe9\xff"
    (tmp_path / os.fsdecode(name)).write_text('#!/bin/sh\nprintf %s "$1"; exit 7\n')
    (tmp_path / os.fsdecode(name)).chmod(0o755)
    options = ("-o", b"record\xfe.json", "--label", b"lab\xfe")
    done = weigh.run(*options, "--", b"./" + name, b"a\xfe\nb")
    assert (done.returncode, done.stdout) == (7, b"a\xfe\nb")
    record = json.loads((tmp_path / os.fsdecode(b"record\xfe.json")).read_bytes())
    assert record["command"][0].startswith("./caf")
    assert weigh.record()["exit_code"] == 7


def test_a_command_not_found_may_have_any_name(weigh: Weigh) -> None:
    done = weigh.run("--", b"no\xff\ncommand")
    assert done.returncode == 127
    assert b"command not found" in done.stderr


MANY = [f"argument-{n}" for n in range(10_000)]
COUNTED = "import sys; print(len(sys.argv), sys.argv[-1]); sys.exit(7)"
ENDS = ("sh", "-c", 'printf %s "$1"; exit 7', "sh")


@pytest.mark.parametrize(
    ("job", "env", "out"),
    [
        ((sys.executable, "-c", COUNTED, *MANY), {}, "10001 argument-9999\n"),
        ((*ENDS, "größe"), {"LC_ALL": "C"}, "größe"),
        ((*ENDS, "a"), None, "a"),  # an environment of nothing
        # settings for the job's Python
        ((*ENDS, "a"), {"PYTHONWARNINGS": "error"}, "a"),
        ((*ENDS, "a"), {"PYTHONDEVMODE": "1"}, "a"),
        ((*ENDS, "a"), {"PYTHONOPTIMIZE": "2"}, "a"),
    ],
    ids=["many", "ascii", "empty", "warnings", "devmode", "optimize"],
)
def test_odd_surroundings_are_no_trouble(
    weigh: Weigh, job: tuple[str, ...], env: dict[str, str] | None, out: str
) -> None:
    whole = {"WEIGH_DIR": str(weigh.store)} if env is None else weigh.env(**env)
    done = weigh.run("-q", "--", *job, env=whole)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (7, out, b"")
    assert weigh.record()["command"][-1] == job[-1]
