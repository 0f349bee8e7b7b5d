"""``weigh scan --from``: from the records of a store to a screen, and from Python."""

import shutil
from itertools import count
from pathlib import Path

import pytest
from called_weigh import CalledWeigh
from msgspec.structs import replace
from sized_runs import guide_runs, on_a_line, sized_run, sized_runs
from some_runs import keep_runs
from transcript import check_transcript, with_compact_documents

import weigh as api
from weigh.errors import RecordNotFoundError
from weigh.gpu_models import MODELS
from weigh.model.record import Record
from weigh.units import GIB, MIB

NUMBERS = count()


def keep(label: str, *records: Record) -> None:
    """Keep records under a label, in the order given."""
    for one in records:
        keep_runs(Path(), replace(one, id=f"{next(NUMBERS):012x}", label=label))


def on_the_gpu(*sizes: int) -> list[Record]:
    return [sized_run(x, GIB, gpu=GIB + x * 100 * MIB, time=3 + 40 / x) for x in sizes]


def test_fits_of_records_print_what_was_reviewed(weigh: CalledWeigh) -> None:
    situations = {
        "the guide": {"guide": guide_runs()},
        "a line": {"tag": on_a_line(8, 16, 32)},
        "a square": {
            "pairs": sized_runs(
                (8, 16, 32, 64), [GIB + MIB * x * x for x in (8, 16, 32, 64)]
            )
        },
        "two sizes": {"one": on_a_line(8, 16)},
        "another command": {
            "tag": [
                *on_a_line(8, 16, 32),
                *[sized_run(64, GIB, command=("train.py", "64"))] * 2,
            ]
        },
    }

    def given(situation: str) -> None:
        shutil.rmtree(".weigh", ignore_errors=True)
        known = situations.get(situation, {"tag": on_the_gpu(8, 16, 32)})
        for label, runs in known.items():
            keep(label, *runs)

    path = Path(__file__).with_name("fit.transcript")
    called = with_compact_documents(lambda _verb, *words: weigh("scan", *words))
    check_transcript(path, called, given=given)


def test_all_gpus_are_of_the_catalogue_or_the_site(weigh: CalledWeigh) -> None:
    keep("tag", *on_the_gpu(8, 16, 32))
    Path("weigh.toml").write_text('[gpus]\nV100-32GB = "31GiB"\n')

    listed = weigh("scan", "--from", "tag", "--gpu", "all")[1]

    assert {model.name for model in MODELS}.issubset(listed.split())
    assert "V100-32GB     31.0 GiB" in listed


@pytest.mark.usefixtures("weigh")
def test_records_can_be_named_from_python() -> None:
    keep("tag", *on_a_line(8, 16, 32))

    assert api.fit("tag").predict(64) == GIB + 640 * MIB
    with pytest.raises(RecordNotFoundError):
        api.fit("tga")
