"""Secrets on a command line: run as they are, kept nowhere, and known again."""

import json
from pathlib import Path

from called_weigh import called_apart as weigh

SECRET = "hunter2"


def kept(cwd: Path) -> str:
    """Return all that weigh wrote but what is to be run."""
    found = [
        path.read_bytes()
        for path in cwd.rglob("*")
        if path.is_file() and path.name not in {"tasks.txt", "tasks_0.txt"}
        if not path.name.startswith("seen")
    ]
    return b"\n".join(found).decode(errors="replace")


def write_task(cwd: Path) -> None:
    (cwd / "tasks.txt").write_text(f"echo --password={SECRET} >> seen; true\n")


def test_what_is_run_has_its_secret_and_what_is_kept_has_not(tmp_path: Path) -> None:
    write_task(tmp_path)
    done = weigh(tmp_path, "exec", "tasks.txt")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen").read_text() == f"--password={SECRET}\n"
    assert SECRET not in kept(tmp_path)
    assert SECRET not in weigh(tmp_path, "records", "--json").stdout
    listed = weigh(tmp_path, "exec", "--dry-run", "--no-resume", "tasks.txt").stdout
    assert SECRET not in listed
    assert "--password=********" in listed


def test_a_run_keeps_no_secret_of_its_command(tmp_path: Path) -> None:
    words = ("--token", SECRET, f"API_KEY={SECRET}", f"https://me:{SECRET}@host/")
    options = ("-o", "r.json", "--param", f"api_key={SECRET}")
    done = weigh(tmp_path, "run", *options, "--", "echo", *words)
    assert done.stdout.count(SECRET) == 3
    assert SECRET not in kept(tmp_path)
    assert SECRET not in done.stderr
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["command"][:3] == ["echo", "--token", "********"]


def test_a_plan_lists_no_secret_and_its_task_file_has_it(tmp_path: Path) -> None:
    write_task(tmp_path)
    done = weigh(tmp_path, "plan", "tasks.txt", "--memory", "100MiB", "--time", "1m")
    assert done.returncode == 0, done.stderr
    assert SECRET in (tmp_path / "plan" / "tasks" / "tasks_0.txt").read_text()
    assert SECRET not in done.stdout + kept(tmp_path)


def test_no_listing_of_tasks_shows_a_secret(tmp_path: Path) -> None:
    write_task(tmp_path)
    sweep = ("sweep", "n=1,2", "--", "echo", "--token", SECRET, "{n}")
    for words in (("check", "tasks.txt"), sweep):
        done = weigh(tmp_path, *words)
        assert SECRET not in done.stdout + done.stderr


def test_a_submitted_command_is_kept_only_where_it_is_run(tmp_path: Path) -> None:
    words = ("submit", "--on", "local", "--", "echo", "--token", SECRET)
    done = weigh(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    for path in (tmp_path / "plan").rglob("*.json"):
        assert SECRET not in path.read_text()
    for path in (tmp_path / "store").rglob("*.jsonl"):
        assert SECRET not in path.read_text()


def test_a_secret_in_the_last_line_of_a_task_is_not_quoted(tmp_path: Path) -> None:
    line = f'echo "Error: --password={SECRET} was refused"; exit 3\n'
    (tmp_path / "tasks.txt").write_text(line)
    weigh(tmp_path, "exec", "tasks.txt")
    page = tmp_path / "report.html"
    done = weigh(tmp_path, "report", "last", "-o", str(page))
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, weigh(tmp_path, "report", "last").stdout):
        assert SECRET not in text
    assert SECRET not in page.read_text()
    assert page.stat().st_mode & 0o077 == 0
