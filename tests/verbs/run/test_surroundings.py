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


def test_ten_thousand_arguments_arrive(weigh: Weigh) -> None:
    words = [f"argument-{n}" for n in range(10_000)]
    script = "import sys; print(len(sys.argv), sys.argv[-1]); sys.exit(7)"
    done = weigh.run("-q", "--", sys.executable, "-c", script, *words)
    assert (done.returncode, done.stdout) == (7, b"10001 argument-9999\n")
    assert weigh.record()["command"][-1] == "argument-9999"


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


def test_a_locale_of_ascii_will_do(weigh: Weigh) -> None:
    env = weigh.env(LC_ALL="C")
    done = weigh.run("--", "sh", "-c", 'echo "$1"; exit 7', "sh", "größe", env=env)
    assert (done.returncode, done.stdout) == (7, "größe\n".encode())


def test_an_empty_environment_will_do(weigh: Weigh) -> None:
    env = {"WEIGH_DIR": str(weigh.store)}
    done = weigh.run("--", "sh", "-c", "exit 7", env=env)
    assert done.returncode == 7


@pytest.mark.parametrize(
    "setting", ["PYTHONWARNINGS=error", "PYTHONDEVMODE=1", "PYTHONOPTIMIZE=2"]
)
def test_settings_for_the_jobs_python_are_no_trouble(
    weigh: Weigh, setting: str
) -> None:
    name, _, value = setting.partition("=")
    done = weigh.run("--", "sh", "-c", "exit 7", env=weigh.env(**{name: value}))
    assert done.returncode == 7
    assert b"Traceback" not in done.stderr
    assert b"Warning" not in done.stderr
