"""``weigh scan`` from end to end: real commands, measured, kept and fitted."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from called_weigh import called_here
from transcript import check_transcript

from weigh.model.record import Record
from weigh.store.index import read_index, read_record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PATIENCE = 60.0
MIB = 1 << 20

# Holds as many MiB as its last word says, and notes all its words; more than 300 MiB
# it may not have.
HOLD = """
import json, resource, sys
with open("ran", "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
held = bytearray(int(float(sys.argv[-1])) << 20)
held[::4096] = b"x" * len(held[::4096])
print("held", sys.argv[-1])
"""

Weigh = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WEIGH_DIR", "WEIGH_CHANNEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / ".weigh").mkdir()
    (tmp_path / "hold.py").write_text(HOLD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def weigh(capsys: pytest.CaptureFixture[str]) -> Weigh:
    return called_here(capsys)


@pytest.fixture
def scan(weigh: Weigh) -> Weigh:
    """``weigh scan``, of hold.py unless the words have a command."""

    def call(*words: str) -> tuple[int, str, str]:
        command = () if "--" in words else ("--", *hold("{mib}"))
        return weigh("scan", *words, *command)

    return call


def hold(*words: str) -> tuple[str, ...]:
    return (sys.executable, "hold.py", *words)


def ran() -> list[list[str]]:
    """Give the words of each run of hold.py."""
    path = Path("ran")
    return (
        [json.loads(line) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


def kept() -> list[Record]:
    """Give the records in the store, the oldest first."""
    return [read_record(entry) for entry in read_index(".weigh").entries][::-1]


def states() -> dict[Any, str]:
    return {record.parameters.get("mib"): record.state for record in kept()}


def test_a_scan_measures_each_size_and_predicts_the_full_job(
    scan: Weigh, folder: Path
) -> None:
    # a module of the user's folder stands in for none of weigh's
    (folder / "msgspec.py").write_text("raise RuntimeError('not this one')")
    words = ("--target", "mib=160", "--label", "first", "--json")
    code, out, _ = scan("mib=20..80:log3", *words)

    foretold = json.loads(out)["target"]
    assert code == 0
    assert [(r.label, r.parameters) for r in kept()] == [
        ("first", {"mib": size}) for size in (20, 40, 80)
    ]
    assert foretold["memory"] == pytest.approx(168 * MIB, rel=0.05)
    assert foretold["memory_upper"] >= 168 * MIB


def test_small_sizes_run_first_and_each_run_has_a_file_of_its_own(scan: Weigh) -> None:
    words = ("--label", "first", "--repeat", "2", "--target", "160")
    _, out, _ = scan("mib=40,20", *words, "--memory", "4GiB")

    assert ran() == [["20"], ["20"], ["40"], ["40"]]
    assert max(map(len, out.splitlines())) <= 80
    logs = {
        path.name: path.read_text() for path in Path(".weigh/output/first").iterdir()
    }
    assert logs == {
        "mib-20.1.log": "held 20\n",
        "mib-20.2.log": "held 20\n",
        "mib-40.1.log": "held 40\n",
        "mib-40.2.log": "held 40\n",
    }


def test_a_size_that_runs_out_of_memory_ends_the_scan_and_is_a_bound(
    scan: Weigh, weigh: Weigh
) -> None:
    code, out, err = scan("mib=20,40,400,500", "--memory", "4GiB", "--json")

    holding = json.loads(out)["cards"][0]["holding"]
    assert code == 0
    assert ran() == [["20"], ["40"], ["400"]]
    assert states() == {20: "COMPLETED", 40: "COMPLETED", 400: "OUT_OF_MEMORY"}
    assert holding["at_most"] < 400
    assert "the scan stops" in err
    outcome = kept()[-1].outcome
    assert outcome is not None
    assert outcome.evidence == ("its output says 'MemoryError'",)
    assert "400 ran out of memory" in weigh("scan", "mib", "--from", "all")[1]


def test_one_size_before_it_ran_out_is_no_curve_and_is_reported(scan: Weigh) -> None:
    code, out, err = scan("mib=20,400")

    assert (code, out) == (1, "")
    assert "no curve: mib: one distinct size (20)" in err


def test_a_size_that_fails_ends_the_scan_with_its_code_and_last_words(
    scan: Weigh,
) -> None:
    script = "import sys; int(sys.argv[1]) > 30 and sys.exit('no file ' + sys.argv[1])"

    code, out, err = scan(
        "mib=10,20,40,80", "--json", "--", sys.executable, "-c", script, "{mib}"
    )

    assert code == 1
    assert [row["size"] for row in json.loads(out)["rows"]] == [10, 20]
    assert states() == {10: "COMPLETED", 20: "COMPLETED", 40: "FAILED"}
    assert "it printed: no file 40" in err


def test_resume_runs_only_what_is_new_and_where_the_scan_did(
    scan: Weigh, weigh: Weigh, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan("mib=20,40")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")

    code, out, _ = weigh("scan", "--resume", "mib=2e1,80.0", "--json")
    again, _, _ = weigh("scan", "--resume", "mib=60")  # a single size

    monkeypatch.chdir(folder)
    assert (code, again) == (0, 0)
    assert len(json.loads(out)["rows"]) == 3
    assert ran() == [["20"], ["40"], ["80.0"], ["60"]]


def test_resume_runs_what_failed_again(scan: Weigh, weigh: Weigh) -> None:
    Path("broken").touch()
    script = (
        "import os, sys; sys.exit(os.path.exists('broken') and int(sys.argv[1]) > 30)"
    )
    scan("mib=10,20,40", "--", sys.executable, "-c", script, "{mib}")
    Path("broken").unlink()

    code, _, _ = weigh("scan", "--resume", "mib=10,20,40")

    assert code == 0
    assert len(kept()) == 4


def test_resume_with_more_repeats_runs_the_rest_of_them(
    scan: Weigh, weigh: Weigh
) -> None:
    scan("mib=20,40")

    weigh("scan", "--resume", "mib=20,40", "--repeat", "2")

    assert sorted(ran()) == [["20"], ["20"], ["40"], ["40"]]


def test_resume_without_a_scan_requests_the_command(weigh: Weigh) -> None:
    code, _, err = weigh("scan", "--resume", "mib=20")

    assert code == 2
    assert "give its command after --" in err


def test_mistakes_and_dry_runs_print_what_was_reviewed(
    weigh: Weigh, folder: Path
) -> None:
    check_transcript(Path(__file__).with_name("scan.transcript"), weigh)

    assert list((folder / ".weigh").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == [".weigh", "hold.py"]


def test_odd_words_reach_the_command_as_they_are(scan: Weigh) -> None:
    odd = ("two words", "$HOME", "it's", 'say "so"', "*", "", "{}", "é\n")

    scan("mib=20,40", "--", *hold(*odd, "{mib}"))

    assert ran() == [[*odd, "20"], [*odd, "40"]]


def test_words_that_are_no_sizes_may_vary_too(scan: Weigh) -> None:
    _, out, err = scan(
        "mib=20,40", "mode=a/b,'c d'", "--json", "--", *hold("{mode}", "{mib}")
    )

    assert len(ran()) == 4
    assert json.loads(out)["estimate"]["records"] == 2
    assert "2 records left out: another command" in err


def test_a_gpu_without_gpu_figures_is_passed_over_and_reported(scan: Weigh) -> None:
    code, out, err = scan("mib=20,40", "--gpu", "V100-32GB", "--json")

    assert code == 0
    assert json.loads(out)["cards"] == []
    assert "GPUs left out: GPU memory can only be measured on a GPU" in err


def test_a_command_that_is_not_there_is_named(scan: Weigh) -> None:
    code, _, err = scan("mib=20,40", "--", "pyhton", "{mib}")

    assert code == 127
    assert "command not found: pyhton" in err


# Stopped


@pytest.fixture
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a scan whose third size says that it began, and does not end by itself."""
    script = (
        "import sys, time\n"
        "if sys.argv[1] == '3': open('began', 'w').close(); time.sleep(999)"
    )
    argv = (sys.executable, "-m", "weigh", "scan", "n=1,2,3,4", "--")
    process = subprocess.Popen(
        (*argv, sys.executable, "-c", script, "{n}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        process_group=0,
    )
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)


def wait_for_the_third(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (folder / "began").exists():
        assert time.monotonic() < deadline, "the third size never began"
        time.sleep(0.01)


def test_ctrl_c_ends_the_scan_and_keeps_what_ran(
    running: subprocess.Popen[str], folder: Path
) -> None:
    wait_for_the_third(folder)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does

    out, err = running.communicate(timeout=PATIENCE)

    assert running.returncode == 128 + signal.SIGINT
    assert "stopped by SIGINT; the records are kept" in err
    assert [record.parameters["n"] for record in kept()][:2] == [1, 2]
    assert "2 sizes, 2 runs" in out


def test_a_scheduler_s_term_ends_the_command_and_keeps_what_ran(
    running: subprocess.Popen[str], folder: Path
) -> None:
    wait_for_the_third(folder)
    running.terminate()

    out, err = running.communicate(timeout=PATIENCE)

    assert running.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM; the records are kept" in err
    assert "2 sizes, 2 runs" in out
    third = [record for record in kept() if record.parameters["n"] == 3]
    assert [record.state for record in third] == ["CANCELLED"]


def test_a_scan_written_by_a_newer_weigh_is_passed_over(
    scan: Weigh, weigh: Weigh
) -> None:
    scan("mib=20,40")
    newer = {"schema": "weigh.scan/9", "label": "x", "command": ["false"], "cwd": "/"}
    with Path(".weigh/scans.jsonl").open("ab") as file:
        file.write(b"\n" + msgspec.json.encode(newer) + b"\n{torn")

    code, _, _ = weigh("scan", "--resume", "mib=80")

    assert code == 0
    assert ran()[-1] == ["80"]


def _requested(text: str) -> str:
    """Return the value of the one --mem= in a text, a page or a document."""
    (value,) = set(re.findall(r"--mem=([0-9]+[MG])", text))
    return str(value)


def test_a_target_has_one_request_in_text_json_and_html(
    scan: Weigh, weigh: Weigh, folder: Path
) -> None:
    _, text, _ = scan("mib=20,40,60", "--target", "150", "--label", "s")
    asked = _requested(text)

    _, as_json, _ = weigh("scan", "--from", "s", "--target", "150", "--json")
    weigh("report", "s", "-o", "report.html")
    _, report, _ = weigh("report", "s")
    _, document, _ = weigh("report", "s", "--json")
    _, resumed, _ = scan("--resume", "mib=60", "--label", "s")

    memory = json.loads(as_json)["request"]["memory"]
    assert f"{memory // MIB}M" == asked
    assert _requested((folder / "report.html").read_text()) == asked
    assert _requested(report) == _requested(document) == _requested(resumed) == asked
    assert "for mib=150" in report


def test_a_target_too_far_away_has_no_request_anywhere(
    scan: Weigh, weigh: Weigh, folder: Path
) -> None:
    _, text, _ = scan("mib=20,30", "--target", "9000", "--label", "s")
    weigh("report", "s", "-o", "report.html")
    _, report, _ = weigh("report", "s")

    for shown in (text, report, (folder / "report.html").read_text()):
        assert "--mem=" not in shown
        assert "none yet" in shown


LENGTHS = """
import sys, weigh
size = int(sys.argv[1])
texts = ["x" * ({length}) for n in range(120)]
cut = [texts[at : at + size] for at in range(0, len(texts), size)]
for batch in weigh.batches(cut, size=size):
    held = bytearray(b"1") * (size * max(map(len, batch)) << 13)
"""


@pytest.mark.parametrize(
    ("length", "named"), [("37 * n % 200 + 1", True), ("150", False)]
)
def test_lengths_that_vary_at_one_batch_size_are_named(
    weigh: Weigh, folder: Path, length: str, *, named: bool
) -> None:
    (folder / "tag.py").write_text(LENGTHS.replace("{length}", length))
    sizes = "batch_size=4,8,16"
    code, _, err = weigh("scan", sizes, "--", sys.executable, "tag.py", "{batch_size}")
    assert code == 0
    assert ("memory rose with it: a longer one may exceed the bound" in err) is named
