import json
import sys
from contextlib import suppress
from pathlib import Path

from called_weigh import called_apart
from processes import PATIENCE, Weigh, children_of, is_running, job_of, until

# Holds 30 MiB, and writes a file when it is told to go on.
HOLDER = """
import os, sys, time
held = b"x" * (30 << 20)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
with open(sys.argv[2], "w") as file:
    file.write("finished")
"""


def _peaks(weigh: Weigh) -> int:
    """Return the highest peak in the checkpoints; 0 if there is none."""
    found = [0]
    for path in weigh.store.glob("running/*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            usage = json.loads(path.read_text())["record"]["usage"]
            found.append(usage["peak_memory"]["value"])
    return max(found)


def _kill_after_a_checkpoint(weigh: Weigh, *options: str) -> tuple[int, Path, Path]:
    """Kill weigh -9; give the job's id, the file to let it go on and what it makes."""
    go, made = weigh.folder / "go", weigh.folder / "made"
    job = (sys.executable, "-c", HOLDER, str(go), str(made))
    process, _ = weigh.start_ready("--label", "killed", *options, "--", *job)
    until(lambda: _peaks(weigh) > 30 << 20, "a checkpoint of all the job holds")
    leader = min(children_of(process.pid))
    process.kill()
    process.wait(PATIENCE)
    return leader, go, made


def test_only_the_job_outlives_weigh_and_the_next_one_shows_what_was_seen(
    weigh: Weigh,
) -> None:
    leader, go, made = _kill_after_a_checkpoint(weigh, "--repeat", "4")
    until(lambda: weigh.left() == [leader], "witness and launchers to end")
    assert "INTERRUPTED" in called_apart(weigh.folder, "records").stdout
    shown = called_apart(weigh.folder, "records", "show", "killed", "--json")
    record = json.loads(shown.stdout)
    assert record["state"] == "INTERRUPTED"
    assert str(leader) in record["outcome"]["reason"]
    assert record["exit_code"] is None
    assert record["usage"]["peak_memory"]["value"] > 30 << 20
    go.touch()
    until(lambda: not is_running(leader))
    assert made.read_text() == "finished"


def test_a_run_that_ended_leaves_no_checkpoint(weigh: Weigh) -> None:
    process = weigh.start("run", "-q", "--", "sleep", "60")
    job_of(process.pid, "sleep")
    until(lambda: list(weigh.store.glob("running/*.json")), "a checkpoint")
    process.terminate()
    process.wait(PATIENCE)
    assert list(weigh.store.glob("running/*")) == []
    assert weigh.record()["state"] == "CANCELLED"
