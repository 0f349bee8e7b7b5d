"""Each verb imports what it needs, where no other verb has imported it before."""

import sys
from pathlib import Path

from doc_walk import environment
from run_captured import run_captured

from weigh.cli.main import VERBS

# each line in a fork of a process that has imported what all verbs need, and no more
EACH_LINE = """
import os, sys, traceback
from weigh.cli.main import run_cli
for line in sys.argv[1:]:
    if not (child := os.fork()):
        try:
            os._exit(run_cli(line.split(), []))
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"{line} => {code}", flush=True)
"""
ROAD = """
run -q --label a -- true
run -q --label b -- true
report a
request a
compare a b
records
profile true
scan n=1,2 -- echo {n}
sweep x=1,2 -- echo {x}
check tasks.txt
exec tasks.txt
plan tasks.txt --memory 50M --time 1m
submit plan/tasks --on local
status last --wait
logs last
resume last
cancel last
top --gpus
cluster
doctor
mcp
""".strip().splitlines()
REFUSED = {"profile true": 2, "cluster": 125}  # no program of Python, no scheduler


def test_each_verb_does_its_work_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert {line.split()[0] for line in ROAD} == {*VERBS}
    (tmp_path / "here").mkdir()
    done = run_captured(
        [sys.executable, "-c", EACH_LINE, *ROAD],
        env=environment(tmp_path),
        cwd=tmp_path / "here",
    )
    rows = (line.rpartition(" => ") for line in done.stdout.splitlines())
    ends = {line: int(code) for line, arrow, code in rows if arrow and line in ROAD}
    # whether the doctor finds a problem depends on the machine
    assert ends.pop("doctor", None) in {0, 1}, done.stderr
    assert ends == {line: REFUSED.get(line, 0) for line in ROAD if line != "doctor"}
