"""Write what the stub NVML plays: see nvml_stub.c for the keys."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from run_captured import CapturedRun

GIB = 1 << 30
MIB = 1 << 20


class Script:
    """The cards that the stub plays; each change is seen by the next call."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        self.library = library
        self.lines: dict[str, str] = {}

    def set(self, key: str, value: object) -> None:
        """Write one line anew; the file is replaced as a whole."""
        self.lines[key] = str(value)
        self._write()

    def drop(self, *keys: str) -> None:
        """Let these keys be unsupported from now on."""
        for key in keys:
            self.lines.pop(key, None)
        self._write()

    def gpus(self, count: int, **values: object) -> None:
        """Play so many idle cards of 32 GiB, alike, with *values* set on each."""
        self.lines["count"] = str(count)
        for index in range(count):
            known = {
                "uuid": uuid(index),
                "name": "Tesla V100-SXM2-32GB",
                "bus": f"00000000:{index + 1:02X}:00.0",
                "total": 32 * GIB,
                "used": 0,
                "procs": "",
                "util": 0,
            }
            for name, value in (known | values).items():
                self.lines[f"{index}.{name}"] = str(value)
        self._write()

    def environment(self) -> dict[str, str]:
        """Give what a process needs to meet this stub instead of a driver."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        folder = str(self.library.parent)
        own = {"LD_LIBRARY_PATH": folder, "NVML_STUB_SCRIPT": str(self.path)}
        # a job may change what is played: `from nvml_script import play`
        return {**kept, **own, "PYTHONPATH": os.path.dirname(__file__)}

    def weigh(self, folder: Path, *words: object, **environment: str) -> "CapturedRun":
        """Run weigh beside these cards, with its store in the folder."""
        from run_captured import run_captured  # noqa: PLC0415 - not in a job that plays

        own = {"WEIGH_DIR": str(folder / "store")} | environment
        return run_captured(
            [sys.executable, "-m", "weigh", *map(str, words)],
            cwd=folder,
            env=self.environment() | own,
        )

    def _write(self) -> None:
        text = "".join(f"{key}={value}\n" for key, value in self.lines.items())
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)


def play(card: int = 0, **values: object) -> None:
    """Change what a card plays from within a job, which may have several processes."""
    import fcntl  # noqa: PLC0415 - not on Windows

    path = os.environ["NVML_STUB_SCRIPT"]
    with open(f"{path}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(path, encoding="utf-8") as file:
            lines = dict(line.rstrip().split("=", 1) for line in file)
        lines |= {f"{card}.{key}": str(value) for key, value in values.items()}
        with open(f"{path}.new", "w", encoding="utf-8") as new:
            new.write("".join(f"{key}={value}\n" for key, value in lines.items()))
        os.replace(f"{path}.new", path)


def looks_at(card: int) -> dict[int, int]:
    """Return how often each other process that lives has read the memory of a card."""
    script = Path(os.environ["NVML_STUB_SCRIPT"])
    files = list(script.parent.glob(f"{script.name}.looks.{card}.*"))
    sizes = {int(file.suffix[1:]): file.stat().st_size for file in files}
    return {
        process: size
        for process, size in sizes.items()
        if process != os.getpid() and Path(f"/proc/{process}").exists()
    }


def wait_until_read(card: int = 0, watchers: int = 1) -> None:
    """Wait until all that watch a card, and so many, have read what is played now.

    The next look may be half done, and the third one shows that the second has ended.
    """
    before, end = looks_at(card), time.monotonic() + 60
    while True:
        now = looks_at(card)
        grown = [size - before.get(process, 0) for process, size in now.items()]
        if len(grown) >= watchers and min(grown) > 2:
            return
        assert time.monotonic() < end, "nobody reads the card"
        time.sleep(0.01)


def uuid(index: int) -> str:
    """Give the UUID of a card that the script plays."""
    return f"GPU-{index:08x}-0000-4000-8000-000000000000"
