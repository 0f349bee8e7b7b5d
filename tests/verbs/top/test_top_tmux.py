"""``weigh top`` as a person sees it: in tmux, 80 columns by 24 lines."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from run_captured import run_captured

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="no tmux here (apt-get install tmux)"
)

WEIGH = f"{sys.executable} -m weigh"
PROMPT = "PROMPT>"
HOLD = "held = bytearray(b'x') * (100 << 20); print('ready', flush=True); input()"


class Tmux:
    """A tmux server of its own with one window of 80 x 24, and bash in it."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")
        known = ("PATH", "HOME", "PYTHONPATH")
        env = {name: os.environ[name] for name in known if name in os.environ}
        env |= {"WEIGH_DIR": str(folder / "records")}
        env |= {"LC_ALL": "C.UTF-8", "TERM": "xterm"}
        self._env = env
        shell = ("env", f"PS1={PROMPT} ", "bash", "--norc", "-i")
        self.do("-f/dev/null", "new-session", "-d", "-x80", "-y24", *shell)

    def do(self, *words: str) -> str:
        argv = ["tmux", "-S", self._socket, *words]
        return run_captured(argv, env=self._env, check=True).stdout

    def type(self, *keys: str) -> None:
        self.do("send-keys", *keys)

    def screen(self, *options: str) -> list[str]:
        return self.do("capture-pane", "-p", *options).splitlines()

    def until(self, pattern: str) -> list[str]:
        return self.until_true(lambda lines: any(re.search(pattern, x) for x in lines))

    def until_true(self, is_there: Callable[[list[str]], bool]) -> list[str]:
        deadline = time.monotonic() + 15
        while not is_there(lines := self.screen()):
            assert time.monotonic() < deadline, "\n".join(lines)
            time.sleep(0.05)
        return lines

    def close(self) -> None:
        self.do("kill-server")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    tmux = Tmux(tmp_path)
    try:
        tmux.until(PROMPT)
        yield tmux
    finally:
        tmux.close()


@pytest.fixture
def run(tmux: Tmux, tmp_path: Path) -> Iterator[None]:
    """Watch a run labelled alice that holds 100 MiB."""
    argv = [*WEIGH.split(), "run", "-q", "--label", "alice", "--"]
    argv += [sys.executable, "-c", HOLD]
    env = {**os.environ, "WEIGH_DIR": str(tmp_path / "records")}
    with subprocess.Popen(argv, stdin=-1, stdout=-1, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while not list(tmp_path.glob("records/running/*.json")):
            time.sleep(0.01)
        tmux.type(f"clear; {WEIGH} top", "Enter")
        yield
        process.communicate(b"\n")


ALICE = r"^  [0-9a-f]{6}  alice  +1[01]\d MiB"


@pytest.mark.usefixtures("run")
def test_the_screen_shows_the_run_and_wraps_no_line_at_any_size(tmux: Tmux) -> None:
    tmux.until(ALICE)
    joined = tmux.screen("-J")  # what was wrapped comes as one line
    assert joined[0].endswith("Ctrl-C quits")
    assert max(len(line.rstrip()) for line in joined) <= 80
    tmux.do("resize-window", "-x36", "-y8")
    tmux.until(r"^  [0-9a-f]{6}  alice +1[01]\d MiB +1[01]\d MiB$")
    tmux.do("resize-window", "-x80", "-y24")
    tmux.until(ALICE)


@pytest.mark.usefixtures("run")
def test_ctrl_c_and_ctrl_z_leave_the_terminal_to_the_shell(tmux: Tmux) -> None:
    tmux.until(ALICE)
    tmux.type("C-z")
    tmux.until("Stopped")
    tmux.type("clear; fg", "Enter")
    tmux.until(ALICE)
    tmux.type("C-c")
    tmux.until(rf"^{PROMPT}")
    tmux.type("echo code=$?; stty -a | grep -ow -e -icanon -e icanon", "Enter")
    assert {"code=130", "icanon"} <= set(tmux.until("^-?icanon"))


def test_a_dumb_terminal_gets_one_plain_screen(tmux: Tmux) -> None:
    tmux.type(f"clear; TERM=dumb {WEIGH} top; echo code=$?", "Enter")
    lines = tmux.until("^code=0")
    assert any("runs in progress" in line for line in lines)
