"""``weigh request --from sacct``, on a command that prints what a real one did."""

import json
import os
import pwd
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from called_weigh import called_here, work_alone_in

from weigh.units import GIB, MIB

Weigh = Callable[..., tuple[int, str, str]]
CAPTURED = Path(__file__).parents[1] / "schedulers" / "captured"
COLUMNS = "JobID|JobName|User|State|ElapsedRaw|TimelimitRaw|ReqMem|AllocCPUS|MaxRSS"


@pytest.fixture
def accounting(tmp_path: Path) -> Callable[..., None]:
    """Write a command that prints *text*, notes its options, and exits with *code*."""

    def write(text: str, name: str = "sacct", code: int = 0) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (tmp_path / "printed").write_text(text)
        (folder / name).write_text(
            f"#!/bin/sh\necho $* >{tmp_path}/asked\n/bin/cat {tmp_path}/printed\n"
            f'[ {code} = 0 ] || echo "no database" >&2\nexit {code}\n'
        )
        (folder / name).chmod(0o755)

    return write


@pytest.fixture
def weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Weigh:
    work_alone_in(tmp_path, monkeypatch)
    monkeypatch.setenv("USER", "someone")

    def call(*argv: str, accounts: str = "sacct") -> tuple[int, str, str]:
        code, out, err = called_here(capsys, "request", "--from", accounts)(*argv)
        return code, out, err.replace("\n#   ", " ")

    return call


def rows(*jobs: tuple[str, str, int, str, str], cpus: int = 2) -> str:
    """Write jobs of (name, state, seconds, request, memory)."""
    lines = [COLUMNS]
    for number, (name, state, seconds, asked, memory) in enumerate(jobs):
        lines += [
            f"{number}|{name}|u|{state}|{seconds}|60|{asked}|{cpus}|",
            f"{number}.batch|batch||{state}|{seconds}|||{cpus}|{memory}",
        ]
    return "\n".join((*lines, ""))


def test_one_kind_of_job_gets_its_request(
    weigh: Weigh, accounting: Callable[..., None], tmp_path: Path
) -> None:
    sizes = (1000, 1010, 990, 1005, 1000)
    jobs = [
        (f"align_{n}", "COMPLETED", 1200, "8G", f"{m}M") for n, m in enumerate(sizes)
    ]
    accounting(rows(*jobs, ("align_9", "FAILED", 3, "8G", "1M")))

    code, out, err = weigh("--name", "align_*")

    assert code == 0
    lines = out.splitlines()
    assert "#SBATCH --time=00:25:00" in lines
    assert "#SBATCH --cpus-per-task=2" in lines
    (memory,) = (line for line in lines if "--mem=" in line)
    assert 1010 < int(memory.rpartition("=")[2].rstrip("M")) < 1300
    assert "from 5 runs of align" in err
    assert "1 FAILED" in err
    assert "-u someone -S now-30days" in (tmp_path / "asked").read_text()
    assert not (tmp_path / ".weigh").exists()  # nothing is kept


def test_a_request_keeps_the_nodes_and_has_the_cpus_of_one(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    head, done = f"{COLUMNS}|NNodes", "COMPLETED|1200"
    lines = [head]
    for number in range(5):
        lines += [
            f"{number}|md|u|{done}|60|200G|32||2",
            f"{number}.0|md||{done}|||32|90000000K|2",
        ]
    accounting("\n".join((*lines, "")))

    _, out, _ = weigh("--name", "md", "--for", "slurm")

    assert {"#SBATCH --nodes=2", "#SBATCH --cpus-per-task=16"} <= {*out.splitlines()}


def test_several_kinds_are_listed_by_what_they_would_free(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    few = [("few", "COMPLETED", 1200, "8G", "1G")] * 4
    many = [(f"many_{n}", "COMPLETED", 1200, "8G", "1G") for n in range(40)]
    accounting(rows(*few, *many))

    code, out, err = weigh()

    assert code == 0
    title, first, second = out.splitlines()
    assert title.split() == (
        [
            "name",
            "jobs",
            "CPUs",
            "requested",
            "most",
            "used",
            "killed",
            "request",
            "time",
        ]
    )
    assert (first.split()[0], first.split()[1]) == ("many", "40")
    assert second.split()[0] == "few"
    assert "--name" in err


def test_a_request_that_was_enough_is_the_most(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    accounting(rows(*[("tight", "COMPLETED", 3540, "1030M", "1020M")] * 5))

    out = weigh("--for", "json")[1]

    assert json.loads(out)["memory"] == 1030 * MIB
    assert json.loads(out)["time_limit"] == 3600  # the limit was enough, too


def test_jobs_too_short_to_be_sampled_keep_their_request(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    accounting(rows(*[("short", "COMPLETED", 12, "3G", "2M")] * 30))

    out = weigh("--for", "json")[1]

    assert json.loads(out)["memory"] == 3 * GIB
    assert "0 of them sampled" in weigh()[2]


@pytest.mark.parametrize(
    ("end", "asked", "least"),
    [("OUT_OF_MEMORY", "4G", 8 * GIB), ("OUT_OF_MEMORY", "512M", GIB)],
)
def test_a_kill_doubles_its_request_if_nothing_larger_completed(
    weigh: Weigh, accounting: Callable[..., None], end: str, asked: str, least: int
) -> None:
    good = [("x", "COMPLETED", 1200, "3G", "1G")] * 4
    accounting(rows(*good, ("x", end, 100, asked, "400M")))

    memory = json.loads(weigh("--for", "json")[1])["memory"]

    assert least <= memory <= max(least, 3 * GIB)


def test_a_job_that_its_limit_stopped_doubles_the_time(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    good = [("x", "COMPLETED", 1200, "3G", "1G")] * 4
    accounting(rows(*good, ("x", "TIMEOUT", 3600, "3G", "1G")))

    assert json.loads(weigh("--for", "json")[1])["time_limit"] == 7200


def test_no_advice_is_above_what_completed_whatever_the_jobs(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    chance = random.Random(11)
    for _ in range(15):
        asked = chance.randint(200, 5000)
        jobs = [
            ("x", "COMPLETED", chance.randint(5, 4000), f"{asked}M", f"{used}M")
            for used in (chance.randint(1, asked) for _ in range(chance.randint(1, 12)))
        ]
        accounting(rows(*jobs))
        memory = json.loads(weigh("--for", "json")[1])["memory"]
        assert memory <= asked * MIB


def test_real_qacct_is_requested_the_address_space_that_its_limit_counts(
    weigh: Weigh, accounting: Callable[..., None], tmp_path: Path
) -> None:
    text = (CAPTURED / "gridengine-8.1.9-qacct.txt").read_text()
    accounting(text.replace("ru_wallclock ", "ru_wallclock 9"), name="qacct")

    code, out, _ = weigh("--name", "arr", accounts="qacct")

    assert code == 0
    assert "-o someone -d 30 -j" in (tmp_path / "asked").read_text()
    (memory,) = (line for line in out.splitlines() if "h_vmem=" in line)
    assert 69 <= int(memory.rpartition("=")[2].rstrip("M")) <= 100


def test_real_sacct_of_several_names_is_a_list(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    accounting((CAPTURED / "slurm-22.05-sacct-past.txt").read_text())

    code, out, _ = weigh()

    assert code == 0
    assert {"four", "side", "nodes", "a|b", "arr"} <= {
        line.split()[0] for line in out.splitlines()
    }


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--name", "nobody"), "lists no jobs called 'nobody' in 30 days"),
        (("--name", "nobody"), "there are 'x'"),
        (("--risk", "low"), "add --from history"),
        (("--headroom", "20%"), "remove --from sacct"),
        (("some",), "uses no records"),
    ],
)
def test_what_has_no_effect_is_refused(
    weigh: Weigh,
    accounting: Callable[..., None],
    argv: tuple[str, ...],
    words: str,
) -> None:
    accounting(rows(("x", "COMPLETED", 1200, "3G", "1G")))

    code, out, err = weigh(*argv)

    assert code != 0
    assert out == ""
    assert words in err


def test_accounting_that_is_missing_or_fails_is_named(
    weigh: Weigh, accounting: Callable[..., None]
) -> None:
    assert "sacct is not on this machine" in weigh()[2]
    accounting("", code=1)
    code, out, err = weigh()
    assert (code != 0, out) == (True, "")
    assert "sacct: no database" in err


def test_a_site_that_samples_often_is_believed_for_short_jobs(
    weigh: Weigh, accounting: Callable[..., None], tmp_path: Path
) -> None:
    accounting(rows(*[("short", "COMPLETED", 12, "3G", "1G")] * 30))
    before = json.loads(weigh("--for", "json")[1])["memory"]
    settings = tmp_path / "bin" / "scontrol"
    settings.write_text("#!/bin/sh\necho JobAcctGatherFrequency = task=1\n")
    settings.chmod(0o755)

    assert before == 3 * GIB
    assert GIB < json.loads(weigh("--for", "json")[1])["memory"] < 1.5 * GIB
    assert "sampled every 1 s" in weigh()[2]


def test_without_the_variable_the_user_is_known_by_the_uid(tmp_path: Path) -> None:
    fake = tmp_path / "sacct"
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit 1\n')
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "weigh", "request", "--from", "sacct"],
        env={k: v for k, v in os.environ.items() if k not in {"USER", "LOGNAME"}} | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 125
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert f"-u {user} " in (tmp_path / "asked").read_text()
