"""``weigh scan --from``: from the records of a store to a screen, and from Python."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from called_weigh import CalledWeigh as Weigh
from called_weigh import called_here
from sized_runs import BY, guide_runs, on_a_line, sized_run

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


def test_the_guide_s_screen_has_its_range_its_warning_and_its_best_batch(
    keep: Keep, fit: Weigh
) -> None:
    keep(guide_runs(), "guide")

    code, out, _ = fit("--from", "guide", "--gpu", f"v100={30 * 10**9}B")

    assert code == 0
    assert "1137 to 1425" in out
    assert "memory grows faster than the size" in out
    assert "recommended  batch_size=567: the smallest with 95 % of the best" in out
    assert "2270" not in out


def test_nearness_to_the_best_speed_is_the_user_s_to_choose(
    keep: Keep, fit: Weigh
) -> None:
    keep(guide_runs(), "guide")

    _, out, _ = fit("--from", "guide", "--near", "90%", "--json")

    assert json.loads(out)["recommended"]["size"] == 269


def test_the_gpu_measured_on_is_the_one_fitted_where_none_is_named(
    keep: Keep, fit: Weigh
) -> None:
    keep(on_the_gpu(8, 16, 32), "tag")

    _, out, _ = fit("--from", "tag", "--json")

    limits = [card["limit"]["name"] for card in json.loads(out)["cards"]]
    assert limits == ["V100-32GB"]


def test_every_gpu_of_the_catalogue_can_be_requested(keep: Keep, fit: Weigh) -> None:
    keep(on_the_gpu(8, 16, 32), "tag")

    _, out, _ = fit("--from", "tag", "--gpu", "all", "--target", "300")

    lines = out.splitlines()
    assert any(line.startswith("  MI250X") for line in lines)
    assert max(map(len, lines)) <= 80
    assert sum("times the largest size measured" in line for line in lines) == 1


def test_a_name_of_two_sizes_gives_a_row_for_each(keep: Keep, fit: Weigh) -> None:
    keep(on_the_gpu(8, 16, 32), "tag")

    _, out, _ = fit("--from", "tag", "--gpu", "p100", "--json")

    limits = [card["limit"]["name"] for card in json.loads(out)["cards"]]
    assert limits == ["P100-12GB", "P100-16GB"]


def test_a_site_s_own_gpu_goes_before_the_catalogue_s(
    keep: Keep, fit: Weigh, tmp_path: Path
) -> None:
    keep(on_the_gpu(8, 16, 32), "tag")
    (tmp_path / "weigh.toml").write_text('[gpus]\nV100-32GB = "31GiB"\n')

    _, out, _ = fit("--from", "tag", "--gpu", "V100-32GB", "--json")

    assert json.loads(out)["cards"][0]["limit"]["memory"] == 31 * GIB


def test_a_split_batch_is_reported_to_be_the_user_s_choice(
    keep: Keep, fit: Weigh
) -> None:
    keep(on_the_gpu(8, 16, 32), "tag")

    _, out, _ = fit("--from", "tag", "--gpu", "P4", "--target", "batch_size=100")

    assert "2 steps of 50" in out
    assert "A different batch size would change the training." in out


def test_the_request_for_the_target_requests_its_bound(keep: Keep, fit: Weigh) -> None:
    keep(on_a_line(8, 16, 32), "tag")

    _, out, _ = fit("--from", "tag", "--target", "64", "--json")

    document = json.loads(out)
    assert document["request"]["memory"] >= document["target"]["memory_upper"]
    assert document["request"]["memory"] <= 1.1 * document["target"]["memory_upper"]


def test_nothing_is_requested_for_a_target_too_far_beyond(
    keep: Keep, fit: Weigh
) -> None:
    keep(on_a_line(8, 16, 32), "tag")

    _, out, _ = fit("--from", "tag", "--target", "1000")

    assert "request      none yet: the target is too far beyond the runs" in out
    assert "#SBATCH" not in out


def test_what_would_narrow_a_range_is_a_command_to_paste(
    keep: Keep, fit: Weigh
) -> None:
    keep(on_a_line(8, 16), "tag")

    _, out, _ = fit("--from", "tag")

    assert "  narrow it    weigh run --param batch_size=32 -- python tag.py 32\n" in out


def test_without_a_name_all_records_that_have_the_parameter_count(
    keep: Keep, fit: Weigh
) -> None:
    keep(on_a_line(8, 16), "one")
    keep(on_a_line(32), "other")

    _, out, _ = fit(BY, "--from", "all")

    assert "3 sizes, 3 runs of python tag.py {batch_size}" in out


def test_of_mixed_records_the_screen_states_which_are_left_out(
    keep: Keep, fit: Weigh
) -> None:
    keep(on_a_line(8, 16, 32), "tag")
    keep([sized_run(64, GIB, command=("train.py", "64"))] * 2, "tag")

    code, _, err = fit("--from", "tag")

    assert code == 0
    assert "2 records left out: another command, train.py {batch_size}" in err


def test_json_is_one_document_with_a_schema(keep: Keep, fit: Weigh) -> None:
    keep(on_a_line(8, 16, 32), "tag")

    _, out, err = fit("--from", "tag", "--target", "64", "--memory", "4GiB", "--json")

    assert json.loads(out)["schema"] == "weigh.estimate/1"
    assert err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "tags"), "did you mean tag?"),
        (("length", "--from", "tag"), "they have batch_size"),
        (
            ("--from", "tag", "--target", "length=3"),
            "left out: the sizes are of batch_size",
        ),
        ((BY, "--from", "tag", "--target", "length=3"), "the sizes are of batch_size"),
        (("--from", "tag", "--target", "-3"), "no size above 0"),
        (("--from", "tag", "--gpu", "V1000"), "no such GPU"),
        (("--from", "tag", "--gpu", "=3GiB"), "not a GPU: '=3GiB'"),
        (("--from", "tag", "--level", "1"), "not a share"),
        ((" , ", "--from", "all"), "names no parameter"),
    ],
)
def test_what_cannot_be_is_reported_in_one_line(
    keep: Keep, fit: Weigh, words: Sequence[str], message: str
) -> None:
    keep(on_a_line(8, 16, 32), "tag")

    _, _, err = fit(*words)

    assert message in err
    assert err.count("\n") == 1


def test_records_can_be_named_from_python(keep: Keep) -> None:
    keep(on_a_line(8, 16, 32), "tag")

    assert api.fit("tag").predict(64) == GIB + 640 * MIB
    with pytest.raises(RecordNotFoundError):
        api.fit("tga")
