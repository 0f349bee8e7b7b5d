"""``weigh submit --first N``: the rest begins only if the first kept to the request."""

import json
from pathlib import Path

import pytest
from following import Weigh, until
from rigs import mainly

from weigh.flow.submit.first_check import Measured, judge

MIB = 1 << 20
# more than was asked for and still rising, where nothing kills it for that
RISES = (
    "exec python3 -c 'import time; "
    "x = [time.sleep(0.1) or bytearray(8 << 20) for _ in range(24)]'"
)


def submit(weigh: Weigh, plan: str, *words: str) -> tuple[str, str]:
    """Return the first elements' job, and that of the rest."""
    code, out, err = weigh("submit", "--json", "--on", weigh.scheduler, plan, *words)
    assert code == 0, err
    document = json.loads(out)
    return document["job"]["id"], document["more"][0]["id"]


@mainly("slurm")
def test_the_rest_is_done_once_the_first_kept_to_the_request(weigh: Weigh) -> None:
    weigh.needs_waiting()
    plan = weigh.plan("sleep 1; echo 1 >>order", *["echo rest >>order"] * 3)

    job, _ = submit(weigh, plan, "--first", "1")

    assert weigh.finish(job) == {"COMPLETED": 4}
    assert (weigh.folder / "order").read_text().split()[0] == "1"
    log = next((weigh.folder / "plan/p/log").glob(f"{job}*.out")).read_text()
    assert "the rest may start: " in log


@mainly("gridengine")
def test_the_rest_is_held_where_the_first_did_not_keep_to_it(weigh: Weigh) -> None:
    weigh.needs_waiting()
    plan = weigh.plan("exit 3", "touch two", "touch three")

    job, rest = submit(weigh, plan, "--first", "1")

    until(lambda: "FAILED" in weigh.status(job)["tasks"])
    states = weigh.status(rest)["tasks"]
    assert states["FAILED"] >= 1
    assert "COMPLETED" not in states
    assert not (weigh.folder / "two").exists()
    weigh("cancel", rest)
    weigh("cancel", job)
    assert not (weigh.folder / "two").exists()


def test_the_elements_of_the_rest_are_those_that_were_not_first(here: Weigh) -> None:
    plan = here.plan(*[f"touch t{n}" for n in range(1, 6)])

    job, _ = submit(here, plan, "--first", "2")

    assert here.finish(job) == {"COMPLETED": 5}
    assert {path.name for path in here.folder.glob("t?")} == {
        f"t{n}" for n in range(1, 6)
    }


def test_memory_that_still_rises_holds_the_rest_back(here: Weigh) -> None:
    job, rest = submit(here, here.plan(RISES, "touch two"), "--first", "1")

    here.wait_for(rest, lambda one: "FAILED" in one["tasks"])

    log = (here.folder / f"plan/p/log/{job}_0.out").read_text()
    assert "the rest is held" in log
    assert not Path("two").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--first", "2"), "none would wait"),
        (("--first", "1", "--runner", "parallel"), "needs weigh exec"),
        (("--first", "0"), "--first"),
    ],
)
def test_a_first_that_cannot_be_is_refused(
    here: Weigh, words: tuple[str, ...], why: str
) -> None:
    code, _, err = here("submit", here.plan("true", "true"), "--on", "local", *words)

    assert code == 2
    assert why in err


def test_as_many_as_run_together_share_the_memory() -> None:
    shown = Measured(peaks=(90 * MIB, 30 * MIB, 80 * MIB))

    assert judge(shown, memory=170 * MIB, together=2).holds
    assert not judge(shown, memory=170 * MIB, together=3).holds


@pytest.mark.parametrize(
    "shown",
    [
        Measured(peaks=()),
        Measured(peaks=(1,), failed=(1,)),
        Measured(peaks=(1,), growing=(1,)),
        Measured(peaks=(3,)),
    ],
)
def test_what_is_not_known_to_hold_does_not(shown: Measured) -> None:
    assert not judge(shown, memory=2, together=1).holds
