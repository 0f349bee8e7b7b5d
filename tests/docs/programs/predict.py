"""Stand in for what comes after a training; leaves out.txt."""

from pathlib import Path

held = bytearray(b"x") * 30_000_000
Path("out.txt").write_text("tags\n", encoding="utf-8")
