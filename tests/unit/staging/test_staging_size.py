"""How much --stage-in copies is known, and bounded, before a job is submitted."""

import os
from pathlib import Path

import pytest

from weigh.errors import UsageError
from weigh.flow.submit.staging import measure_source, refuse_large
from weigh.model.staging import StagedInput, StagingPlan
from weigh.units import MIB


def file_of(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)  # a hole: no disk is needed
    return path


def staging_of(*paths: Path) -> StagingPlan:
    return StagingPlan(
        sources=tuple(StagedInput(str(path), path.name) for path in paths)
    )


def test_a_small_input_needs_no_word_nor_a_link_inside_or_to_nothing(
    tmp_path: Path,
) -> None:
    file_of(tmp_path / "data" / "a", MIB)
    (tmp_path / "data" / "same").symlink_to("a")
    extent = measure_source(str(tmp_path / "data"))
    assert (extent.size, extent.links) == (MIB, 0)
    assert not list(refuse_large(staging_of(tmp_path / "data"), None))
    (tmp_path / "data" / "gone").symlink_to("/no/such/file")
    assert measure_source(str(tmp_path / "data")).size == MIB


def test_a_large_input_is_refused_with_its_size_and_the_option(tmp_path: Path) -> None:
    one = file_of(tmp_path / "one", 6 << 30)
    two = file_of(tmp_path / "data" / "deep" / "two", 6 << 30)
    staging = staging_of(one, two.parent)
    with pytest.raises(UsageError, match=r"12(\.0)? GiB .*WEIGH_STAGE_MAX=12GiB"):
        list(refuse_large(staging, None))
    assert not list(refuse_large(staging, "12GiB"))


def test_what_a_link_out_of_the_source_names_is_counted_and_shown(
    tmp_path: Path,
) -> None:
    file_of(tmp_path / "elsewhere" / "big", 22 << 30)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")
    staging = staging_of(tmp_path / "data")
    with pytest.raises(UsageError, match=r"22(\.0)? GiB"):
        list(refuse_large(staging, None))
    (note,) = refuse_large(staging, "22GiB")
    assert "1 link leads out of" in note


@pytest.mark.parametrize(
    "links", [{"a": ".."}, {"a": "/"}, {"a": "HERE/b", "b": "HERE/a"}]
)
def test_folders_that_lead_to_themselves_are_refused(
    tmp_path: Path, links: dict[str, str]
) -> None:
    for folder, to in links.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "link").symlink_to(to.replace("HERE", str(tmp_path)))
    with pytest.raises(UsageError, match="never end"):
        measure_source(str(tmp_path / "a"))
