from pathlib import Path

import pytest

from weigh.config import ConfigValues, load_config
from weigh.errors import FormatError
from weigh.units import GIB, MIB


def loaded(folder: Path, text: str, site: str = "") -> ConfigValues:
    (folder / "weigh.toml").write_text(text)
    (folder / "site.toml").write_text(site)
    return load_config(str(folder), {}, site_file=str(folder / "site.toml"))


def test_a_project_names_its_gpus_and_their_memory(tmp_path: Path) -> None:
    found = loaded(tmp_path, '[gpus]\nV100 = "32510MiB"\n"big card" = "96GiB"')

    assert found.gpus == {"V100": 32510 * MIB, "big card": 96 * GIB}
    assert found.warnings == ()


def test_a_nearer_file_wins_name_by_name(tmp_path: Path) -> None:
    found = loaded(tmp_path, '[gpus]\nA = "1GiB"', '[gpus]\nA = "2GiB"\nB = "3GiB"')

    assert found.gpus == {"A": GIB, "B": 3 * GIB}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpus = 3", r"gpus must be a table"),
        ('[gpus]\nA = "much"', r"gpus\.A: not a size"),
        ("[gpus]\nA = 12", r"gpus\.A must be like '32510MiB', not 12"),
        ('[gpus]\nA = "12"', r"gpus\.A: 12 has no unit"),
        ("[gpus.A]\nmemory = 1", r"gpus\.A must be like"),
    ],
)
def test_a_table_that_is_off_names_the_file_and_the_gpu(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        loaded(tmp_path, text)

    assert str(caught.value).startswith(str(tmp_path / "weigh.toml"))


def test_what_a_file_states_of_the_cluster_is_kept_and_known(tmp_path: Path) -> None:
    found = loaded(tmp_path, '[cluster]\naccount = "physics"')

    assert found.cluster == {"account": "physics"}
    assert found.warnings == ()


def test_a_cluster_that_is_no_table_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cluster must be a table"):
        loaded(tmp_path, "cluster = 3")
