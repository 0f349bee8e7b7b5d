"""``weigh run --worst-batch``: the memory and the time of a loop from a few batches."""

import sys

import pytest
from processes import Weigh

MIB = 1 << 20
# what a batch holds follows from the length of its text; the longest is the 150th
LOOP = """
import weigh
texts = ["x" * (20 + 7 * number % 50) for number in range(300)]
texts[150] = "x" * 160
for batch in weigh.batches([[text] for text in texts], size=1):
    held = None
    held = bytearray(b"1") * (len(batch[0]) << 20)
"""


def test_the_longest_batch_gives_the_peak_of_all_and_a_few_the_time(
    weigh: Weigh,
) -> None:
    done = weigh.run("--worst-batch", "--", sys.executable, "-c", LOOP)
    assert done.returncode == 0
    record = weigh.record()
    assert 160 * MIB < record["usage"]["peak_memory"]["value"] < 200 * MIB
    loop = record["batches"]
    assert loop["count"] == 8
    forecast = loop["forecast"]
    assert (forecast["batches"], forecast["longest"]) == (300, 160)
    assert "with the longest batch of 300, of length 160\n" in done.stderr.decode()
    assert "all    300 batches about " in done.stderr.decode()


def test_the_time_to_request_is_that_of_all_batches(weigh: Weigh) -> None:
    slow = LOOP.replace("held = None", "import time; time.sleep(len(batch[0]) / 100)")
    slow = slow.replace("<< 20", "<< 10").replace("range(300)", "range(3000)")
    done = weigh.run("--worst-batch", "--", sys.executable, "-c", slow)
    # 3000 batches of 0.44 s on average are 22 minutes
    assert "--time=00:30:00" in done.stderr.decode()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("pass", "nothing is predicted: no loop over"),
        (
            "import weigh\nfor _ in weigh.batches([1, 2]): pass",
            "all batches run: its batches have no lengths",
        ),
    ],
)
def test_a_program_that_cannot_be_asked_runs_as_ever(
    weigh: Weigh, program: str, why: str
) -> None:
    done = weigh.run("--worst-batch", "--", sys.executable, "-c", program)
    assert done.returncode == 0
    assert f"weigh: --worst-batch: {why}" in done.stderr.decode()
    assert done.stderr.count(why.encode()) == 1


def test_a_process_that_runs_already_is_refused(weigh: Weigh) -> None:
    done = weigh.run("--worst-batch", "--attach", "1")
    assert done.returncode == 125
    assert "--attach changes no loop: leave out --worst-batch" in done.stderr.decode()
