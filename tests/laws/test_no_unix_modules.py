"""What works where Python has no Unix modules, as on Windows: reading a store."""

import json
import os
import sys
from pathlib import Path

from called_weigh import called_apart
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
    weigh.report
    from weigh.cli.main import run_cli
    for line in sys.argv[1:]:
        assert run_cli(shlex.split(line), []) == 0, line
"""
READING = (
    *("report tag", "report last --as paper", "report last -o page.html"),
    *("records", "records export -o runs.csv", "request tag", "scan --help"),
    "sweep lr=1,2 -- echo {lr}",
)


def test_weigh_is_imported_and_a_store_read_without_unix_modules(
    tmp_path: Path,
) -> None:
    words = ("run", "-q", "--label", "tag", "--", sys.executable, "-c", "print(1)")
    assert called_apart(tmp_path, *words).returncode == 0
    done = run_captured(
        [sys.executable, "-c", VERBS, *READING, "records --json"],
        env={**os.environ, "WEIGH_DIR": str(tmp_path / "store")},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert [record["label"] for record in document["records"]] == ["tag"]
