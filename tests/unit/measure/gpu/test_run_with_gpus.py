"""``weigh run`` beside the stub's cards: what the record and the summary say."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
from nvml_script import GIB, MIB, Script
from run_captured import CapturedRun

from weigh.model.record import Record
from weigh.render.record_lines import render_record
from weigh.request import from_usages

# the job itself plays what it does to the card, through the stub's script
USES_THE_CARD = """
import os, sys
from nvml_script import play, wait_until_read
wait_until_read()
play(used=5 << 30, procs=f"{os.getpid()}:{4 << 30}", util=80)
wait_until_read()
play(used=1 << 30, procs="", util=0)
wait_until_read()
sys.exit(3)
"""


def weigh_run(
    script: Script, folder: Path, *command: str, **environment: str
) -> tuple[CapturedRun, dict[str, Any]]:
    path = folder / "record.json"
    done = script.weigh(folder, "run", "-o", path, "--", *command, **environment)
    record: dict[str, Any] = json.loads(path.read_text())
    return done, record


def test_the_jobs_own_peak_on_a_gpu_is_distinguished_from_its_neighbours(
    script: Script, tmp_path: Path
) -> None:
    script.gpus(1, used=GIB)
    done, record = weigh_run(script, tmp_path, sys.executable, "-c", USES_THE_CARD)
    (gpu,) = record["usage"]["gpus"]
    assert (done.returncode, gpu["memory_before"]) == (3, GIB)
    assert gpu["peak_memory"] == gpu["process_peak_memory"] == 4 * GIB
    assert max(record["series"]["gpu_memory"][0]) == 4 * GIB
    assert "4.00 GiB of 32.0 GiB" in done.stderr


# a guide's tagger in four stages on the second card: the model, then a batch whose
# peak is over before the program itself looks at the card again
IN_STAGES = """
import os, weigh
from nvml_script import play, wait_until_read
OTHERS = {1327: 4000, 1991: 9000}
def hold(mib):
    others = OTHERS.get(mib, 0)
    held = f"{os.getpid()}:{mib << 20},1:{others << 20}"
    play(card=1, used=(100 + mib + others) << 20, procs=held)
@weigh.measured(name="load model", show_gpus=True)
def load():
    hold(1327)
load()
with weigh.phase("steady"):
    wait_until_read(card=1)
for mib in weigh.batches([1400, 1991, 1400]):
    hold(mib)
    wait_until_read(card=1)
"""


def test_the_account_has_four_stages_with_the_peak_that_was_sampled(
    script: Script, tmp_path: Path
) -> None:
    script.gpus(2, used=100 * MIB)
    given = {"CUDA_VISIBLE_DEVICES": "1"}
    done, record = weigh_run(script, tmp_path, sys.executable, "-c", IN_STAGES, **given)
    found = dict(re.findall(r"^ {11}(\S.*?) {2,}(\S.*)$", done.stderr, re.MULTILINE))
    assert "  gpu 1    Tesla V100-SXM2-32GB, 32.0 GiB" in done.stderr
    assert "weigh  after load model\n  gpu 1  " in done.stderr
    assert found["in use before"] == "100 MiB"
    # what a stranger holds meanwhile is in no stage
    assert found["taken until the batches: model"] == "1.30 GiB"
    assert found["peak of the batches beyond that"] == "664 MiB"
    assert found["peak beyond what was in use"] == "1.94 GiB"
    assert found["peak of the whole GPU"] == "10.8 GiB"
    load, steady = record["phases"][:2]
    assert load["gpus"][0]["peak"] <= 1427 * MIB
    memory = steady["gpus"][0]
    assert (memory["peak"], memory["after"]) == (1427 * MIB, 1427 * MIB)


def test_a_service_that_may_have_done_the_work_removes_no_request(
    script: Script, tmp_path: Path
) -> None:
    script.gpus(1, used=GIB, util=90, procs=f"{os.getpid()}:{GIB}")
    given = {"CUDA_VISIBLE_DEVICES": "0"}
    done, record = weigh_run(script, tmp_path, "sleep", "0.6", **given)
    assert "another process of yours holds 1.00 GiB of it" in done.stderr
    assert "never used" not in done.stderr
    found = msgspec.convert(record, Record)
    assert from_usages([found]).gpus == 1


def test_a_driver_that_hangs_holds_up_neither_job_nor_weigh(
    script: Script, tmp_path: Path
) -> None:
    script.gpus(1)
    script.set("hang.nvmlInitWithFlags", 600)
    done, record = weigh_run(script, tmp_path, "sh", "-c", "echo done; exit 4")
    assert (done.returncode, done.stdout, record["exit_code"]) == (4, "done\n", 4)


def test_a_record_shows_the_rows_of_a_schedulers_gpu_table(
    script: Script, tmp_path: Path
) -> None:
    every = {
        "util": 39,
        "memutil": 7,
        "power": 56_378,
        "smclock": 1380,
        "memclock": 877,
        "energy": 1000,
        "ecc": 0,
        "ecc1": 2,
        "rx": 100,
        "tx": 100,
        "replays": 0,
        "xid": 0,
        "reasons": 4,
        "retired0": 0,
        "retired1": 0,
        "pending": 0,
    }
    script.gpus(1, **every)
    _, record = weigh_run(script, tmp_path, "sleep", "2")
    shown = render_record(msgspec.convert(record, Record))
    means = [line[13:] for line in shown.splitlines() if "mean" in line]
    assert [line for line in means if not line.startswith("PCIe")] == [
        "power               mean 56.38, max 56.38, min 56.38 W",
        "SM clock            mean 1380, max 1380, min 1380 MHz",
        "memory clock        mean 877, max 877, min 877 MHz",
        "busy                mean 39, max 39, min 39 %",
        "memory busy         mean 7, max 7, min 7 %",
    ]
    assert "ECC errors          single-bit 0, double-bit 0" in shown
    assert "PCIe replays, XIDs  replays 0, XIDs 0" in shown
    assert "slowed down by      power in 100 % of readings" in shown
    assert "health              healthy" in shown
    assert max(map(len, shown.splitlines())) <= 80
