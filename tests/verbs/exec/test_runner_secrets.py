"""Secrets on a command line: run as they are, kept nowhere, and known again."""

import json
from pathlib import Path

from called_weigh import called_apart as weigh

SECRET = "hunter2"
# the last line that it prints is a reason of its failure
TASK = f"""\
echo --password={SECRET} >> seen; echo "Error: --password={SECRET} was refused"; exit 3
"""
FIGURES = ("--memory", "100MiB", "--time", "1m")
TYPED = (
    (0, "plan", "tasks.txt", *FIGURES),
    (1, "exec", "tasks.txt"),
    (0, "exec", "--dry-run", "--no-resume", "tasks.txt"),
    (0, "records", "--json"),
    (0, "report", "last"),
    (0, "report", "last", "-o", "page.html"),
    (1, "check", "tasks.txt"),
    (0, "sweep", "-o", "swept.txt", "n=1,2", "--", "echo", "--token", SECRET, "{n}"),
    (0, "submit", "--on", "local", "--", "echo", "--token", SECRET),
)


def files_with_secret(cwd: Path) -> set[str]:
    """Return the names of the files that have a secret."""
    files = (path for path in cwd.rglob("*") if path.is_file())
    return {path.name for path in files if SECRET.encode() in path.read_bytes()}


def test_what_is_run_has_its_secret_and_what_is_kept_or_printed_has_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "tasks.txt").write_text(TASK)
    for code, *words in TYPED:
        done = weigh(tmp_path, *words)
        assert done.returncode == code, (words, done.stderr)
        assert SECRET not in done.stdout + done.stderr, words
    assert (tmp_path / "seen").read_text().startswith(f"--password={SECRET}\n")
    assert (tmp_path / "page.html").stat().st_mode & 0o077 == 0
    # what is to be run, and what tasks wrote
    expected = {"tasks.txt", "tasks_0.txt", "swept.txt", "swept.tsv", "seen", "1.out"}
    assert files_with_secret(tmp_path) == expected


def test_a_run_keeps_no_secret_of_its_command(tmp_path: Path) -> None:
    words = ("--token", SECRET, f"API_KEY={SECRET}", f"https://me:{SECRET}@host/")
    options = ("-o", "r.json", "--param", f"api_key={SECRET}")
    done = weigh(tmp_path, "run", *options, "--", "echo", *words)
    assert done.stdout.count(SECRET) == 3
    assert SECRET not in done.stderr
    assert files_with_secret(tmp_path) == set()
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["command"][:3] == ["echo", "--token", "********"]
