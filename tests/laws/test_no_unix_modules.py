"""What works where Python has no Unix modules, as on Windows: reading a store."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_captured import run_captured

# as on Windows: https://docs.python.org/3/library/unix.html
WINDOWS = """if True:
    import os, sys

    class Missing:
        names = {
            *("fcntl", "grp", "pty", "pwd", "resource"),
            *("spwd", "syslog", "termios", "tty"),
        }

        def find_spec(self, name, path=None, target=None):
            if name in self.names:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in Missing.names:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())
    for name in ("geteuid", "getuid", "getgid", "fork", "getgroups", "O_CLOEXEC"):
        if hasattr(os, name):
            delattr(os, name)
"""
VERBS = f"""{WINDOWS}
    import importlib, shlex, weigh
    from weigh.cli.main import run_cli
    for line in sys.argv[1:]:
        assert run_cli(shlex.split(line), []) == 0, line
"""
READING = (
    *("report tag", "report last --as paper", "report last -o page.html"),
    *("records", "records export -o runs.csv", "request tag", "scan --help"),
    "sweep lr=1,2 -- echo {lr}",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("windows")
    words = ("run", "--label", "tag", "--", sys.executable, "-c", "print(1)")
    subprocess.run(
        [sys.executable, "-m", "weigh", *words],
        env={**os.environ, "WEIGH_DIR": str(tmp_path / "store")},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    return tmp_path / "store"


def on_windows(program: str, *words: str, store: Path) -> str:
    done = run_captured(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "WEIGH_DIR": str(store)},
        cwd=store.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_store_is_read_without_unix_modules(store: Path) -> None:
    on_windows(VERBS, *READING, store=store)


def test_the_records_are_the_same_without_unix_modules(store: Path) -> None:
    document = json.loads(on_windows(VERBS, "records --json", store=store))
    assert [record["label"] for record in document["records"]] == ["tag"]


def test_weigh_is_imported_without_unix_modules(store: Path) -> None:
    on_windows(f"{WINDOWS}\n    import weigh\n    weigh.report", store=store)
