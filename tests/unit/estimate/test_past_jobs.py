"""``weigh request --from sacct``, on a command that prints what a real one did."""

import json
import os
import pwd
import random
from pathlib import Path

import pytest
from called_weigh import CalledWeigh
from transcript import check_transcript
from written_programs import write_program

from weigh.request import round_time
from weigh.units import GIB

CAPTURED = Path(__file__).parents[1] / "schedulers" / "captured"
COLUMNS = "JobID|JobName|User|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|MaxRSS"


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "someone")


def accounting(text: str, name: str = "sacct", code: int = 0) -> None:
    """Write a command that prints *text*, notes its options, and exits with *code*."""
    Path("printed").write_text(text)
    end = f'echo "no database" >&2; exit {code}' if code else ""
    write_program(Path("bin", name), f"echo $* >asked; /bin/cat printed; {end}")


def was_asked() -> str:
    return Path("asked").read_text()


def rows(*jobs: tuple[str, str, int, str, str], cpus: int = 2) -> str:
    """Write jobs of (name, state, seconds, request, memory)."""
    lines = [COLUMNS]
    for number, (name, state, seconds, asked, memory) in enumerate(jobs):
        lines += [
            f"{number}|{name}|u|{state}|{seconds}|60|{asked}|{cpus}|",
            f"{number}.batch|batch||{state}|{seconds}|||{cpus}|{memory}",
        ]
    return "\n".join((*lines, ""))


SHARES = (1, 4), (4, 64), (0, 8)  # of nodes, CPUs and GPUs of a job
GOOD = [("x", "COMPLETED", 1200, "3G", "1G")] * 4
ALIGNED = [
    *(
        (f"align_{n}", "COMPLETED", 1200, "8G", f"{size}M")
        for n, size in enumerate((1000, 1010, 990, 1005, 1000))
    ),
    ("align_9", "FAILED", 3, "8G", "1M"),
]
JOBS = {
    "alike": rows(*ALIGNED),
    "of several names": rows(
        *[("few", "COMPLETED", 1200, "8G", "1G")] * 4,
        *((f"many_{n}", "COMPLETED", 1200, "8G", "1G") for n in range(40)),
    ),
    "whose request was just enough": rows(
        *[("tight", "COMPLETED", 3540, "1030M", "1020M")] * 5
    ),
    "too short to be sampled": rows(*[("short", "COMPLETED", 12, "3G", "2M")] * 30),
    "shorter than the clock": rows(*[("true", "COMPLETED", 0, "3G", "")] * 3),
    "one of which ran out of 4 GiB": rows(
        *GOOD, ("x", "OUT_OF_MEMORY", 100, "4G", "400M")
    ),
    "one of which ran out of 512 MiB": rows(
        *GOOD, ("x", "OUT_OF_MEMORY", 100, "512M", "400M")
    ),
    "whose request is not known": rows(*[("true", "COMPLETED", 12, "", "")] * 3),
    "of nobody": "",
    "one": rows(("x", "COMPLETED", 1200, "3G", "1G")),
    "of a real sacct": (CAPTURED / "slurm-22.05-sacct-past.txt").read_text(),
}


def test_requests_from_accounting_are_as_they_were_reviewed(
    weigh: CalledWeigh,
) -> None:
    def given(jobs: str) -> None:
        accounting(JOBS.get(jobs, ""), code=int(jobs not in JOBS))

    path = Path(__file__).with_name("past_jobs.transcript")
    check_transcript(path, weigh, given=given)

    assert not Path(".weigh").exists()  # nothing is kept


def test_accounting_is_read_for_the_user_and_the_days_that_were_typed(
    weigh: CalledWeigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounting(rows(*GOOD))
    assert weigh("request", "--from", "sacct:x")[0] == 0
    assert "-u someone -S now-30days" in was_asked()
    # without the variable the user is known by the uid
    for name in ("USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    assert weigh("request", "--from", "sacct:x,7d")[0] == 0
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert f"-u {user} -S now-7days" in was_asked()


def test_real_qacct_is_requested_the_address_space_that_its_limit_counts(
    weigh: CalledWeigh,
) -> None:
    text = (CAPTURED / "gridengine-8.1.9-qacct.txt").read_text()
    text = text.replace("ru_wallclock ", "ru_wallclock 9")
    tasks = (text.replace("taskid       1 ", f"taskid       {n} ") for n in (1, 2, 3))
    accounting("".join(tasks), name="qacct")

    code, out, _ = weigh("request", "--from", "qacct:arr")

    assert code == 0
    assert "-o someone -d 30 -j" in was_asked()
    (memory,) = (line for line in out.splitlines() if "h_vmem=" in line)
    assert 69 <= int(memory.rpartition("=")[2].rstrip("M")) <= 100


def test_a_site_that_samples_often_is_believed_for_short_jobs(
    weigh: CalledWeigh,
) -> None:
    accounting(rows(*[("short", "COMPLETED", 12, "3G", "1G")] * 30))
    asked = ("request", "--from", "sacct", "--json")
    before = json.loads(weigh(*asked)[1])["memory"]
    write_program(Path("bin/scontrol"), "echo JobAcctGatherFrequency = task=1")
    after = json.loads(weigh(*asked)[1])

    assert before == 3 * GIB
    assert GIB < after["memory"] < 1.5 * GIB
    assert "sampled every 1 s" in " ".join(after["notes"])


def test_a_request_is_of_a_node_s_share_and_of_the_longest_job(
    weigh: CalledWeigh,
) -> None:
    chance = random.Random(6)
    for _ in range(20):
        nodes, cpus, gpus = (chance.randint(low, high) for low, high in SHARES)
        limit = chance.randint(20, 200)
        times = [chance.randint(60, 60 * limit) for _ in range(6)]
        ends = [*["COMPLETED"] * 4, *chance.choices(("TIMEOUT", "FAILED"), k=2)]
        table = [f"{COLUMNS}|NNodes|AllocTRES"]
        for n, (state, time) in enumerate(zip(ends, times, strict=True)):
            job = f"{n}|x|u|{state}|{time}|{limit}|3G|{cpus}||{nodes}|gres/gpu={gpus}"
            table += [job, f"{n}.0|x||{state}|{time}|||{cpus}|1G|{nodes}|"]
        accounting("\n".join((*table, "")))

        asked = json.loads(weigh("request", "--from", "sacct", "--json")[1])

        assert asked["cpus"] == -(-cpus // nodes)
        assert asked["gpus"] == -(-gpus // nodes)
        assert GIB <= asked["memory"] <= 1.5 * GIB  # that a node held
        assert asked["nodes"] == asked["ntasks"] == (nodes if nodes > 1 else None)
        assert asked["ntasks_per_node"] == (1 if nodes > 1 else None)
        longest = max(times[:4])
        stopped = [t for t, end in zip(times, ends, strict=True) if end == "TIMEOUT"]
        # a limit within which all completed is enough, if it is less
        value = min(1.1 * longest, 60 * limit)
        value = 2 * max(stopped) if max(stopped, default=0) > longest else value
        expected = value if value == 60 * limit else round_time(value)
        assert asked["time_limit"] == expected, (ends, times)
