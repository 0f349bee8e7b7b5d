"""``weigh scan`` from end to end: real commands, measured, kept and fitted."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from called_weigh import CalledWeigh
from run_captured import run_captured
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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, weigh: CalledWeigh) -> Path:
    del weigh
    (tmp_path / ".weigh").mkdir()
    (tmp_path / "hold.py").write_text(HOLD)
    return tmp_path


@pytest.fixture
def scan(weigh: CalledWeigh) -> CalledWeigh:
    """``weigh scan``, of hold.py unless the words have a command."""

    def call(*words: str) -> tuple[int, str, str]:
        command = () if "--" in words else ("--", *hold("{mib}"))
        return weigh("scan", *words, *command)

    return call


def hold(*words: str) -> tuple[str, ...]:
    return (sys.executable, "hold.py", *words)


def ran() -> list[list[str]]:
    """Give the words of each run of hold.py."""
    return [json.loads(line) for line in Path("ran").read_text().splitlines()]


def kept() -> list[Record]:
    """Give the records in the store, the oldest first."""
    return [read_record(entry) for entry in read_index(".weigh").entries][::-1]


def states() -> dict[Any, str]:
    return {record.parameters.get("mib"): record.state for record in kept()}


of_one_scan = pytest.mark.together("scanned")
ODD = ("two words", "$HOME", "it's", 'say "so"', "*", "", "{}", "é\n")


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder in which a scan has run, and what it printed as JSON."""
    path = tmp_path_factory.mktemp("scanned")
    (path / "hold.py").write_text(HOLD)
    # a module of the user's folder stands in for none of weigh's
    (path / "msgspec.py").write_text("raise RuntimeError('not this one')")
    words = ("mib=40,20,80", "--repeat", "2", "--label", "first", "--target", "mib=160")
    command = ("--memory", "4GiB", "--", *hold(*ODD, "{mib}"))
    done = run_captured(
        [sys.executable, "-m", "weigh", "scan", *words, "--json", *command],
        cwd=path,
        env={**os.environ, "WEIGH_DIR": str(path / ".weigh")},
    )
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout)


@of_one_scan
def test_small_sizes_run_first_with_all_words_and_a_file_for_each_run(
    scanned: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scanned[0])

    assert ran() == [[*ODD, size] for size in ("20", "20", "40", "40", "80", "80")]
    assert {(r.label, r.parameters["mib"]) for r in kept()} == {
        ("first", size) for size in (20, 40, 80)
    }
    assert {
        path.name: path.read_text() for path in Path(".weigh/output/first").iterdir()
    } == {
        f"mib-{size}.{turn}.log": f"held {size}\n"
        for size in (20, 40, 80)
        for turn in (1, 2)
    }


@of_one_scan
def test_the_full_job_is_predicted_from_the_sizes_that_were_measured(
    scanned: tuple[Path, dict[str, Any]],
) -> None:
    foretold = scanned[1]["target"]

    assert foretold["memory"] == pytest.approx(168 * MIB, rel=0.05)
    assert foretold["memory_upper"] >= 168 * MIB


def _requested(text: str) -> str:
    """Return the value of the one --mem= in a text, a page or a document."""
    (value,) = set(re.findall(r"--mem=([0-9]+[MG])", text))
    return str(value)


@of_one_scan
def test_a_target_has_one_request_in_text_json_and_html(
    scanned: tuple[Path, dict[str, Any]],
    weigh: CalledWeigh,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(scanned[0])
    _, text, _ = weigh("scan", "--from", "first", "--target", "160")
    weigh("report", "first", "-o", "report.html")
    _, report, _ = weigh("report", "first")
    _, document, _ = weigh("report", "first", "--json")

    asked = f"{scanned[1]['request']['memory'] // MIB}M"
    assert _requested(text) == _requested(Path("report.html").read_text()) == asked
    assert _requested(report) == _requested(document) == asked
    assert "for mib=160" in report
    assert max(map(len, text.splitlines())) <= 80


@of_one_scan
def test_a_gpu_without_gpu_figures_is_passed_over_and_reported(
    scanned: tuple[Path, dict[str, Any]],
    weigh: CalledWeigh,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(scanned[0])
    code, out, err = weigh("scan", "--from", "first", "--gpu", "V100-32GB", "--json")

    assert code == 0
    assert json.loads(out)["cards"] == []
    assert "GPUs left out: GPU memory can only be measured on a GPU" in err


def test_a_size_that_runs_out_of_memory_ends_the_scan_and_is_a_bound(
    scan: CalledWeigh, weigh: CalledWeigh
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


def test_one_size_before_it_ran_out_is_no_curve_and_is_reported(
    scan: CalledWeigh,
) -> None:
    code, out, err = scan("mib=20,400")

    assert (code, out) == (1, "")
    assert "no curve: mib: one distinct size (20)" in err


def test_a_size_that_fails_ends_the_scan_with_its_last_words_and_is_resumed(
    scan: CalledWeigh, weigh: CalledWeigh
) -> None:
    Path("broken").touch()
    script = (
        "import os, sys\nif os.path.exists('broken') and int(sys.argv[1]) > 30: "
        "sys.exit('no file ' + sys.argv[1])"
    )
    command = ("--", sys.executable, "-S", "-c", script, "{mib}")

    code, out, err = scan("mib=10,20,40,80", "--json", *command)

    assert code == 1
    assert [row["size"] for row in json.loads(out)["rows"]] == [10, 20]
    assert states() == {10: "COMPLETED", 20: "COMPLETED", 40: "FAILED"}
    assert "it printed: no file 40" in err
    Path("broken").unlink()

    assert weigh("scan", "--resume", "mib=10,20,40")[0] == 0
    assert len(kept()) == 4


def test_resume_runs_only_what_is_new_and_where_the_scan_did(
    scan: CalledWeigh, weigh: CalledWeigh, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan("mib=20,40")
    # a scan that a newer weigh wrote, and half of one, are passed over
    newer = {"schema": "weigh.scan/9", "label": "x", "command": ["false"], "cwd": "/"}
    with Path(".weigh/scans.jsonl").open("ab") as file:
        file.write(b"\n" + msgspec.json.encode(newer) + b"\n{torn")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")

    code, out, _ = weigh("scan", "--resume", "mib=2e1,80.0", "--json")
    again, _, _ = weigh("scan", "--resume", "mib=60")  # a single size
    weigh("scan", "--resume", "mib=20", "--repeat", "2")  # what is left of them

    monkeypatch.chdir(folder)
    assert (code, again) == (0, 0)
    assert len(json.loads(out)["rows"]) == 3
    assert ran() == [["20"], ["40"], ["80.0"], ["60"], ["20"]]


def test_mistakes_and_dry_runs_print_what_was_reviewed(
    weigh: CalledWeigh, folder: Path
) -> None:
    check_transcript(Path(__file__).with_name("scan.transcript"), weigh)

    assert list((folder / ".weigh").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == [".weigh", "hold.py"]


def test_words_that_are_no_sizes_may_vary_too(scan: CalledWeigh) -> None:
    _, out, err = scan(
        "mib=20,40", "mode=a/b,'c d'", "--json", "--", *hold("{mode}", "{mib}")
    )

    assert len(ran()) == 4
    assert json.loads(out)["estimate"]["records"] == 2
    assert "2 records left out: another command" in err


def test_a_command_that_is_not_there_is_named(scan: CalledWeigh) -> None:
    code, _, err = scan("mib=20,40", "--", "pyhton", "{mib}")

    assert code == 127
    assert "command not found: pyhton" in err


# Stopped


@pytest.fixture
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a scan whose third size says that it began, and does not end by itself."""
    # with a handler, Python sleeps on where a signal comes just before it sleeps
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_scan_and_keeps_what_ran(
    running: subprocess.Popen[str], folder: Path, number: signal.Signals
) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (folder / "began").exists():
        assert time.monotonic() < deadline, "the third size never began"
        time.sleep(0.01)
    # a terminal signals all of the group, a scheduler weigh
    (os.killpg if number == signal.SIGINT else os.kill)(running.pid, number)

    out, err = running.communicate(timeout=PATIENCE)

    assert running.returncode == 128 + number
    assert f"stopped by {number.name}; the records are kept" in err
    assert "2 sizes, 2 runs" in out
    records = [(record.parameters["n"], record.state) for record in kept()]
    assert records[:2] == [(1, "COMPLETED"), (2, "COMPLETED")]
    if number == signal.SIGTERM:
        assert records[2:] == [(3, "CANCELLED")]


def test_a_target_too_far_away_has_no_request_anywhere(
    scan: CalledWeigh, weigh: CalledWeigh, folder: Path
) -> None:
    _, text, _ = scan("mib=20,30", "--target", "9000", "--label", "s")
    weigh("report", "s", "-o", "report.html")
    _, report, _ = weigh("report", "s")

    for shown in (text, report, (folder / "report.html").read_text()):
        assert "--mem=" not in shown
        assert "none yet" in shown
