"""``weigh report --all-users``: a group's hours, against a plain sum over its jobs."""

import csv
import io
import json
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from weigh.cli.main import run_cli

COLUMNS = (
    *("JobID", "JobName", "User", "Account", "Partition", "State", "Submit"),
    *("Eligible", "Start", "End", "ElapsedRaw", "ReqMem", "AllocCPUS", "NNodes"),
    *("NTasks", "MaxRSS", "TRESUsageInMax", "TotalCPU", "AllocTRES"),
)
NOW = datetime(2026, 11, 20, 12)  # noqa: DTZ001 - as sacct prints it
Weigh = Callable[..., tuple[int, str, str]]


@pytest.fixture
def weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Weigh:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))

    def call(*words: str) -> tuple[int, str, str]:
        code = run_cli(("report", *words), [])
        out, err = capsys.readouterr()
        return code, out, err

    return call


class Site:
    """Made-up jobs, as sacct lists them, and as plain numbers."""

    def __init__(self) -> None:
        self.rows = ["|".join(COLUMNS)]
        self.jobs: list[dict[str, object]] = []

    def add(  # noqa: PLR0913 - keyword-only
        self,
        *,
        user: str = "ann",
        account: str = "lab",
        queue: str = "cpu",
        name: str = "align",
        state: str = "COMPLETED",
        hours: float = 1.0,
        cpus: int = 4,
        busy: float = 2.0,
        asked: int = 16,
        used: float | None = 4.0,
        gpus: int = 0,
        gpu_busy: int | None = None,
        waited: int = 60,
        ago: float = 24.0,
    ) -> None:
        """Add a job; GiB, CPUs that were busy, per cent of its GPUs."""
        self.jobs.append(dict(locals()))
        job, took = str(len(self.jobs)), round(hours * 3600)
        end = NOW - timedelta(hours=ago)
        start = end - timedelta(seconds=took)
        moments = [start - timedelta(seconds=waited)] * 2 + [start, end]
        times = [one.isoformat(timespec="seconds") for one in moments]
        cpu = f"{round(busy * took) // 60}:{round(busy * took) % 60:02d}"
        tres = f"cpu={cpus},mem={asked}G" + (f",gres/gpu={gpus}" if gpus else "")
        head = [job, name, user, account, queue, state, *times, str(took), f"{asked}G"]
        self.rows.append("|".join([*head, str(cpus), "1", "", "", "", cpu, tres]))
        size = "" if used is None else f"{round(used * 1024 * 1024)}K"
        use = "" if gpu_busy is None else f"gres/gpumem=1G,gres/gpuutil={gpu_busy}"
        step = [f"{job}.batch", "batch", "", account, "", state, *times, str(took), ""]
        self.rows.append("|".join([*step, str(cpus), "1", "1", size, use, cpu, tres]))

    def write(self, folder: Path) -> None:
        """Write what ``sacct -P`` prints."""
        (folder / "sacct.txt").write_text("\n".join((*self.rows, "")))


def random_site(draw: random.Random) -> Site:
    site = Site()
    for _ in range(60):
        site.add(
            user=draw.choice(("ann", "bob", "eve")),
            account=draw.choice(("lab", "bio")),
            queue=draw.choice(("cpu", "gpu")),
            name=draw.choice(("align_1", "align_2", "train")),
            state=draw.choice(
                ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED by 7")
            ),
            hours=draw.randint(1, 40) / 4,
            cpus=draw.choice((1, 8)),
            busy=draw.randint(0, 8) / 8,
            asked=draw.choice((2, 64)),
            gpus=draw.choice((0, 2)),
        )
    return site


@pytest.mark.parametrize("by", ["user", "account", "queue", "name"])
def test_hours_are_those_of_a_plain_sum(weigh: Weigh, tmp_path: Path, by: str) -> None:
    site = random_site(random.Random(by))
    site.write(tmp_path)
    wanted: dict[str, list[float]] = defaultdict(lambda: [0.0] * 6)
    for one in site.jobs:
        key = str(one[by]).removesuffix("_1").removesuffix("_2")
        hours = float(str(one["hours"]))
        state = str(one["state"])
        is_lost = state in {"FAILED", "TIMEOUT", "OUT_OF_MEMORY"}
        for place, value in enumerate(
            (
                1,
                hours * int(str(one["cpus"])),
                hours * float(str(one["busy"])),
                hours * int(str(one["asked"])),
                hours * int(str(one["gpus"])),
                hours * int(str(one["cpus"])) * is_lost,
            )
        ):
            wanted[key][place] += value

    code, out, _ = weigh("--all-users", "--from", "sacct.txt", "--csv")

    assert code == 0
    found = {
        row["name"]: [
            float(row["jobs"]),
            float(row["cpu_hours_held"]),
            float(row["cpu_hours_used"]),
            float(row["memory_hours_held"]),
            float(row["gpu_hours_held"]),
            float(row["cpu_hours_lost"]),
        ]
        for row in csv.DictReader(io.StringIO(out))
        if row["by"] == by
    }
    assert found.keys() == wanted.keys()
    for name, figures in wanted.items():
        assert found[name] == pytest.approx(figures, abs=0.01)


def advice(weigh: Weigh) -> list[dict[str, object]]:
    code, out, err = weigh("--all-users", "--from", "sacct.txt", "--json")
    assert code == 0, err
    found: list[dict[str, object]] = json.loads(out)["better"]
    return found


def test_the_line_to_write_frees_what_was_not_used(
    weigh: Weigh, tmp_path: Path
) -> None:
    site = Site()
    for number in range(5):
        site.add(name=f"align_{number}", asked=64, used=4.0, cpus=16, busy=2.0)
    site.write(tmp_path)

    (one,) = advice(weigh)

    assert one["name"] == "align"
    cpus, memory = str(one["line"]).split()
    assert cpus == "--cpus-per-task=2"
    assert 4 * 1024 < int(memory.removeprefix("--mem=").rstrip("M")) < 6 * 1024
    assert one["frees"]["cpu"] == 5 * 14.0  # type: ignore[index]


def test_a_site_with_memory_per_cpu_gets_its_line_so(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "weigh.toml").write_text('[cluster]\nmemory = "per-cpu"\n')
    site = Site()
    for _ in range(5):
        site.add(asked=64, used=64.0, cpus=16, busy=2.0)
    site.write(tmp_path)

    (one,) = advice(weigh)

    # fewer CPUs: the memory of each has to grow, so that all of it stays
    assert one["line"] == "--cpus-per-task=2 --mem-per-cpu=32G"


@pytest.mark.parametrize(
    "jobs",
    [
        [{}] * 2,  # too few
        [{"used": 15.9, "busy": 4.0}] * 5,  # all of it is used
        [{}] * 5 + [{"state": "OUT_OF_MEMORY", "busy": 4.0}],
        [{"used": 0.1 * 8**n, "asked": 64} for n in range(4)],  # no two alike
        [{"used": None}] * 5,  # nobody looked
        [{"used": 0.1 * 3**n, "name": "wrap"} for n in range(4)],  # not one kind
    ],
)
def test_no_line_where_none_is_safe(
    weigh: Weigh, tmp_path: Path, jobs: list[dict[str, object]]
) -> None:
    site = Site()
    for one in jobs:
        site.add(**{"busy": 4.0, **one})  # type: ignore[arg-type]
    site.write(tmp_path)

    assert advice(weigh) == []


def test_idle_gpus_come_first_and_without_a_line(weigh: Weigh, tmp_path: Path) -> None:
    site = Site()
    for _ in range(3):
        site.add(gpus=2, gpu_busy=3, used=15.0, busy=4.0, hours=10)
    site.add(user="bob", gpus=2, gpu_busy=90)
    site.write(tmp_path)

    _, out, _ = weigh("--all-users", "--from", "sacct.txt")

    assert "2 GPUs 3 % busy: 58.2 GPU h" in out
    assert "look at the job first" in out


def test_what_accounting_cannot_show_is_reported(weigh: Weigh, tmp_path: Path) -> None:
    site = Site()
    site.add(gpus=1, used=None)
    site.add(state="RUNNING")
    site.rows.append("torn|row")
    site.write(tmp_path)

    _, out, _ = weigh("--all-users", "--from", "sacct.txt")
    text = " ".join(out.split())

    assert "does not show whether GPUs were busy" in text
    assert "shows no use of memory" in text
    assert "1 job waits or runs" in text
    assert "1 row could not be read" in text
    assert "only jobs of ann are listed" in text


def test_the_screen_fits_a_terminal(weigh: Weigh, tmp_path: Path) -> None:
    site = random_site(random.Random(8))
    for _ in range(4):
        site.add(user="u" * 40, name="n" * 200 + "\x1b[31m", asked=999, used=1.0)
    site.write(tmp_path)

    _, out, _ = weigh("--all-users", "--from", "sacct.txt")

    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_names_are_masked_everywhere(weigh: Weigh, tmp_path: Path) -> None:
    site = Site()
    for user in ("annabel", "bobby"):
        for _ in range(4):
            site.add(user=user, account="secretlab", asked=64, used=1.0)
    site.write(tmp_path)

    forms = ((), ("--json",), ("--csv",), ("--html", "-"), ("--account", "secretlab"))
    for form in forms:
        _, out, _ = weigh("--all-users", "--from", "sacct.txt", "--mask", *form)

        assert not [name for name in ("annabel", "bobby", "secretlab") if name in out]
        assert "user 1" in out


def test_the_page_shows_names_as_text_only(weigh: Weigh, tmp_path: Path) -> None:
    site = Site()
    for _ in range(4):
        site.add(name="<b>x</b>", user="<i>eve", asked=64, used=1.0)
    site.write(tmp_path)

    _, out, _ = weigh("--all-users", "--from", "sacct.txt", "--html", "-")

    assert "&lt;b&gt;x" in out
    assert "<b>x" not in out
    assert "<i>eve" not in out
    assert "<script" not in out


def test_only_the_chosen_user_and_account_count(weigh: Weigh, tmp_path: Path) -> None:
    site = random_site(random.Random(3))
    site.write(tmp_path)

    _, out, _ = weigh("--user", "bob", "--from", "sacct.txt", "--json")
    of_bob = json.loads(out)["total"]["jobs"]
    _, out, _ = weigh("--account", "bio", "--from", "sacct.txt", "--json")
    of_bio = json.loads(out)["total"]["jobs"]

    assert of_bob == sum(one["user"] == "bob" for one in site.jobs)
    assert of_bio == sum(one["account"] == "bio" for one in site.jobs)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("481516", "--all-users"), "leave out 481516"),
        (("--all-users", "--user", "ann"), "choose one"),
        (("--all-users", "--markdown"), "only --json, --csv or --html"),
        (("--mask",), "--mask requires"),
        (("--all-users", "--since", "1s"), "from a minute to 20 years"),
        (("--from", "nowhere.txt"), "cannot read nowhere.txt"),
        (("--from", "notes.txt"), "neither accounting"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    weigh: Weigh, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n")

    code, out, err = weigh(*words)

    assert code != 0
    assert out == ""
    assert reason in " ".join(err.split())
    assert "Traceback" not in err
