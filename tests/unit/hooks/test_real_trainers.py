"""What the real trainers call of our callbacks: measured as with the stand-ins."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

EPOCHS: list[object] = [["epoch", 0], ["epoch", 1]]
# the package of each, and the phases, batches and events that its program reports
TRAINERS: dict[str, tuple[str, list[object]]] = {
    "huggingface": (
        "transformers",
        [
            [["train", 0, 1], ["evaluate", 1, 2], ["evaluate", 0, 1]],
            [4, 10, 10],
            EPOCHS,
        ],
    ),
    "lightning": (
        "lightning",
        [
            [
                *(["sanity check", 0, 1], ["train", 0, 1], ["validate", 1, 2]),
                ["test", 0, 1],
            ],
            [6, 8, 8, 40],
            EPOCHS,
        ],
    ),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_the_real_trainer_reports_the_same(name: str, tmp_path: Path) -> None:
    package, reported = TRAINERS[name]
    for needed in (package, "torch"):
        if not importlib.util.find_spec(needed):
            pytest.skip(f"{needed} is not installed")
    program = Path(__file__).with_name(f"real_trainer.{name}.txt").read_text()
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=300,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == reported
