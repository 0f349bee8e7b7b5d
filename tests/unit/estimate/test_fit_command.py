"""``weigh scan --from``: from the records of a store to a screen, and from Python."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from called_weigh import CalledWeigh as Weigh
from called_weigh import called_here
from sized_runs import guide_runs, on_a_line, sized_run, sized_runs
from transcript import check_transcript, with_compact_documents

import weigh as api
from weigh.errors import RecordNotFoundError
from weigh.model.record import Record
from weigh.store import identity, shards
from weigh.units import GIB, MIB

Keep = Callable[[Sequence[Record], str], None]


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Keep records under a label, in the order given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIGH_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / ".weigh").mkdir()
    count = 0

    def keep_them(records: Sequence[Record], label: str) -> None:
        nonlocal count
        for record in records:
            count += 1
            named = msgspec.structs.replace(record, id=f"{count:012x}", label=label)
            shards.append_record(
                str(tmp_path / ".weigh"), named, identity.this_machine()
            )

    return keep_them


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str]) -> Weigh:
    return called_here(capsys, "scan")


def on_the_gpu(*sizes: int) -> list[Record]:
    return [sized_run(x, GIB, gpu=GIB + x * 100 * MIB, time=3 + 40 / x) for x in sizes]


def test_fits_of_records_print_what_was_reviewed(
    keep: Keep, fit: Weigh, tmp_path: Path
) -> None:
    def given(situation: str) -> None:
        shutil.rmtree(tmp_path / ".weigh")
        (tmp_path / ".weigh").mkdir()
        settings = '[gpus]\nV100-32GB = "31GiB"\n' if "site" in situation else ""
        (tmp_path / "weigh.toml").write_text(settings)
        records = {
            "the guide": {"guide": guide_runs()},
            "a line": {"tag": on_a_line(8, 16, 32)},
            "a square": {
                "pairs": sized_runs(
                    (8, 16, 32, 64), [GIB + MIB * x * x for x in (8, 16, 32, 64)]
                )
            },
            "two sizes": {"one": on_a_line(8, 16), "other": on_a_line(32)},
            "another command": {
                "tag": [
                    *on_a_line(8, 16, 32),
                    *[sized_run(64, GIB, command=("train.py", "64"))] * 2,
                ]
            },
        }
        known = records.get(situation, {"tag": on_the_gpu(8, 16, 32)})
        for label, runs in known.items():
            keep(runs, label)

    path = Path(__file__).with_name("fit.transcript")
    weigh = with_compact_documents(lambda _verb, *words: fit(*words))
    check_transcript(path, weigh, given=given)


def test_every_gpu_of_the_catalogue_can_be_requested(keep: Keep, fit: Weigh) -> None:
    keep(on_the_gpu(8, 16, 32), "tag")

    _, out, _ = fit("--from", "tag", "--gpu", "all", "--target", "300")

    lines = out.splitlines()
    assert any(line.startswith("  MI250X") for line in lines)
    assert max(map(len, lines)) <= 80
    assert sum("times the largest size measured" in line for line in lines) == 1


def test_records_can_be_named_from_python(keep: Keep) -> None:
    keep(on_a_line(8, 16, 32), "tag")

    assert api.fit("tag").predict(64) == GIB + 640 * MIB
    with pytest.raises(RecordNotFoundError):
        api.fit("tga")
