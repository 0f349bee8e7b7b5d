import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weigh.config import ConfigSetting, ConfigValues, load_config, unknown_tables
from weigh.errors import FormatError


class Layers:
    """A machine with a site file, a user and a project two folders deep."""

    def __init__(self, root: Path) -> None:
        self.site = root / "etc" / "config.toml"
        self.user = root / "home" / ".config" / "weigh" / "config.toml"
        self.project = root / "project" / "weigh.toml"
        self.pyproject = root / "project" / "pyproject.toml"
        self.cwd = root / "project" / "deep" / "down"
        self.cwd.mkdir(parents=True)
        self.env = {"HOME": str(root / "home")}

    def load(self, **env: str) -> ConfigValues:
        return load_config(str(self.cwd), self.env | env, site_file=str(self.site))


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    return Layers(tmp_path)


@pytest.fixture
def write() -> Callable[[Path, str], None]:
    def write_it(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write_it


Write = Callable[[Path, str], None]


def test_with_no_file_and_no_variable_nothing_is_set(layers: Layers) -> None:
    assert layers.load() == ConfigValues()


def test_the_nearer_layer_wins_key_by_key(layers: Layers, write: Write) -> None:
    write(layers.site, 'headroom = "10%"\nquiet = true\ninterval = 1')
    write(layers.user, 'headroom = "30%"\ninterval = 0.5')
    write(layers.project, 'headroom = "40%"')

    found = layers.load(WEIGH_HEADROOM="50%").settings

    assert found == {
        "headroom": ConfigSetting("50%", "WEIGH_HEADROOM"),
        "interval": ConfigSetting(0.5, str(layers.user)),
        "quiet": ConfigSetting(value=True, origin=str(layers.site)),
    }
    assert layers.load().settings["headroom"] == ConfigSetting(
        "40%", str(layers.project)
    )


def test_xdg_config_home_moves_the_users_file(layers: Layers, write: Write) -> None:
    elsewhere = layers.user.parents[3] / "xdg"
    write(elsewhere / "weigh" / "config.toml", "interval = 2")

    assert layers.load(XDG_CONFIG_HOME=str(elsewhere)).value("interval") == 2


def test_pyproject_speaks_under_tool_weigh(layers: Layers, write: Write) -> None:
    write(layers.pyproject, '[tool.weigh]\nheadroom = "15%"')

    assert layers.load().settings["headroom"] == ConfigSetting(
        "15%", str(layers.pyproject)
    )


def test_a_pyproject_without_weigh_is_passed_by(layers: Layers, write: Write) -> None:
    write(layers.cwd / "pyproject.toml", "[tool.other]\nquiet = true")
    write(layers.project, "interval = 3")

    assert layers.load().settings == {"interval": ConfigSetting(3, str(layers.project))}


def test_another_tools_broken_pyproject_is_no_concern(
    layers: Layers, write: Write
) -> None:
    write(layers.pyproject, "[tool.other\n")

    assert layers.load() == ConfigValues()


def test_the_nearest_project_file_hides_those_above(
    layers: Layers, write: Write
) -> None:
    write(layers.project, "interval = 3\nquiet = true")
    write(layers.cwd / "weigh.toml", "interval = 4")

    assert set(layers.load().settings) == {"interval"}


def test_a_dash_in_a_key_is_an_underscore(layers: Layers, write: Write) -> None:
    write(layers.project, "wait-orphans = false")

    assert layers.load().value("wait_orphans") is False


def test_an_unknown_key_is_one_warning_with_the_nearest_name(
    layers: Layers, write: Write
) -> None:
    write(layers.project, "headrom = 1")

    loaded = layers.load()

    assert loaded.settings == {}
    assert loaded.warnings == (
        f"{layers.project}: unknown key 'headrom' (did you mean headroom?); ignored",
    )


def test_a_file_that_is_not_toml_is_named_with_its_line(
    layers: Layers, write: Write
) -> None:
    write(layers.project, "quiet = true\nheadroom = = 2\n")

    with pytest.raises(FormatError, match=r"weigh\.toml: not TOML: .*line 2"):
        layers.load()


def test_a_file_that_is_not_text_is_named_with_its_line(layers: Layers) -> None:
    layers.project.write_bytes(b"# fine\n# \xff\n")

    with pytest.raises(FormatError, match=r"weigh\.toml: not UTF-8 \(at line 2\)"):
        layers.load()


@pytest.mark.parametrize(
    "text",
    [
        "headroom = [1]",
        "headroom = true",
        "interval = {}",
        "interval = true",
        "interval = 0",
        "interval = nan",
        "quiet = 3",
    ],
)
def test_a_value_of_the_wrong_kind_names_file_and_key(
    layers: Layers, write: Write, text: str
) -> None:
    write(layers.project, text)

    key = text.split(maxsplit=1)[0]

    with pytest.raises(FormatError, match=rf"weigh\.toml: {key} must be"):
        layers.load()


@pytest.mark.parametrize(
    ("word", "value"), [("1", True), ("yes", True), ("OFF", False), ("0", False)]
)
def test_a_variable_states_yes_or_no_in_many_words(
    layers: Layers, word: str, *, value: bool
) -> None:
    assert layers.load(WEIGH_QUIET=word).value("quiet") is value


def test_a_variable_that_is_neither_yes_nor_no_is_named(layers: Layers) -> None:
    with pytest.raises(FormatError, match="WEIGH_QUIET must be true or false"):
        layers.load(WEIGH_QUIET="maybe")


def test_an_interval_is_a_number_whatever_it_was_written_as(layers: Layers) -> None:
    assert layers.load(WEIGH_INTERVAL="0.5").value("interval") == 0.5


def test_an_interval_takes_a_unit_as_the_options_do(layers: Layers) -> None:
    assert layers.load(WEIGH_STALLED_AFTER="10m").value("stalled_after") == 600


def test_an_interval_that_is_no_number_names_its_variable(layers: Layers) -> None:
    with pytest.raises(FormatError, match="WEIGH_INTERVAL must be a time above 0"):
        layers.load(WEIGH_INTERVAL="often")


def test_an_empty_variable_sets_nothing(layers: Layers) -> None:
    assert layers.load(WEIGH_HEADROOM="", WEIGH_QUIET=" ") == ConfigValues()


def test_variables_of_other_readers_are_let_be(layers: Layers) -> None:
    assert layers.load(WEIGH_DIR="/somewhere", WEIGH_CHANNEL="7") == ConfigValues()


def test_a_tool_weigh_that_is_no_table_is_refused(layers: Layers, write: Write) -> None:
    write(layers.pyproject, "[tool]\nweigh = 3")

    with pytest.raises(FormatError, match="must be a table"):
        layers.load()


def test_a_folder_named_like_the_file_is_not_the_file(layers: Layers) -> None:
    layers.project.mkdir()

    assert layers.load() == ConfigValues()


def test_without_home_or_file_nothing_breaks(tmp_path: Path) -> None:
    assert (
        load_config(str(tmp_path), {}, site_file=str(tmp_path / "no")) == ConfigValues()
    )


def test_where_no_file_exists_no_parser_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys; from weigh.config import load_config; "
        f"load_config({str(tmp_path)!r}, {{}}, site_file='/nonexistent'); "
        "sys.exit(bool({'tomllib', 'difflib'} & set(sys.modules)))"
    )

    bare = subprocess.run(
        [sys.executable, "-S", "-c", program],
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )

    assert bare.returncode == 0


def test_rules_to_ignore_add_up_over_the_files(layers: Layers, write: Write) -> None:
    write(layers.user, '[check]\nignore = ["no-wait"]')
    write(layers.project, '[check]\nignore = ["module"]\nignores = []')

    found = layers.load()

    assert found.ignore == ("no-wait", "module")
    assert "check.ignores (did you mean ignore?)" in found.warnings[0]


@pytest.mark.parametrize("value", ['"no-wait"', "3", "[1]"])
def test_rules_to_ignore_are_a_list_of_names(
    layers: Layers, write: Write, value: str
) -> None:
    write(layers.project, f"[check]\nignore = {value}")
    with pytest.raises(FormatError, match=r"check\.ignore must be a list of names"):
        layers.load()


def test_a_project_shows_no_secret(layers: Layers, write: Write) -> None:
    text = "[records]\nmask = false"
    write(layers.project, text)
    found = layers.load()
    where = f"{layers.project}: records.mask = false belongs into your own settings"
    assert found.warnings == (f"{where} or the site's; ignored",)
    assert not found.mask.off
    write(layers.user, text)
    assert layers.load().mask.off


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change an owner")
@pytest.mark.parametrize("name", ["project", "pyproject"])
def test_the_settings_of_another_user_are_not_read(
    layers: Layers, write: Write, name: str
) -> None:
    path = getattr(layers, name)
    write(path, "[tool.weigh]\nquiet = true" if name == "pyproject" else "quiet = true")
    os.chown(path, 1234, 1234)
    found = layers.load()
    assert found.value("quiet") is None
    if name == "project":
        assert found.warnings == (f"{path}: not read: it belongs to another user",)


def test_settings_that_others_may_write_are_not_read(
    layers: Layers, write: Write
) -> None:
    write(layers.project, "quiet = true")
    layers.project.chmod(0o666)
    found = layers.load()
    assert found.value("quiet") is None
    (warning,) = found.warnings
    assert warning.endswith(f"others may write it (chmod go-w {layers.project})")


def test_a_file_of_settings_above_a_repository_is_not_the_projects(
    layers: Layers, write: Write
) -> None:
    write(layers.project, "quiet = true")
    (layers.cwd / ".git").mkdir()
    assert layers.load().value("quiet") is None


def test_a_huge_file_of_settings_is_named(layers: Layers, write: Write) -> None:
    write(layers.project, "#" * (2 << 20))
    with pytest.raises(FormatError, match="larger than 1 MiB"):
        layers.load()


def test_a_fifo_is_no_file_of_settings(layers: Layers) -> None:
    os.mkfifo(layers.project)
    assert layers.load() == ConfigValues()


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ('[cluster]\nacount = "p"', "cluster.acount (did you mean account?)"),
        ('[cluster]\nrequires = ["time"]', "cluster.requires (did you mean require?)"),
        ("[cluster]\nzzz = 1", "cluster.zzz"),
    ],
)
def test_an_unknown_key_of_the_cluster_is_named(
    text: str, warning: str, layers: Layers, write: Write
) -> None:
    write(layers.project, text)
    (found,) = layers.load().warnings
    assert found.startswith(f"{layers.project}: unknown key {warning}")
    assert found.endswith("; ignored")


def test_a_table_that_no_scheduler_has_is_named(layers: Layers, write: Write) -> None:
    write(
        layers.project,
        '[cluster.gridengin]\ngpus = "gpu"\n[cluster.gridengine]\ngpus = "gpu"\n',
    )
    found = layers.load()
    assert found.warnings == ()
    assert list(unknown_tables(found, ("slurm", "gridengine"))) == [
        "settings: unknown key cluster.gridengin (did you mean gridengine?); ignored"
    ]
