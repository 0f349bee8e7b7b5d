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


@pytest.mark.parametrize(
    ("file", "text", "setting"),
    [
        ("pyproject", '[tool.weigh]\nheadroom = "15%"', ("headroom", "15%")),
        ("project", "wait-orphans = false", ("wait_orphans", False)),
    ],
    ids=["pyproject speaks under tool.weigh", "a dash is an underscore"],
)
def test_a_setting_is_read_with_its_file(
    layers: Layers, write: Write, file: str, text: str, setting: tuple[str, str | bool]
) -> None:
    name, value = setting
    path = getattr(layers, file)
    write(path, text)

    assert layers.load().settings == {name: ConfigSetting(value, str(path))}


def test_a_pyproject_without_weigh_is_passed_by(layers: Layers, write: Write) -> None:
    write(layers.cwd / "pyproject.toml", "[tool.other]\nquiet = true")
    write(layers.project, "interval = 3")

    assert layers.load().settings == {"interval": ConfigSetting(3, str(layers.project))}


def test_the_nearest_project_file_hides_those_above(
    layers: Layers, write: Write
) -> None:
    write(layers.project, "interval = 3\nquiet = true")
    write(layers.cwd / "weigh.toml", "interval = 4")

    assert set(layers.load().settings) == {"interval"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("quiet = true\nheadroom = = 2\n", r"not TOML: .*line 2"),
        (b"# fine\n# \xff\n", r"not UTF-8 \(at line 2\)"),
        ("#" * (2 << 20), "larger than 1 MiB"),
        ("headroom = [1]", "headroom must be"),
        ("headroom = true", "headroom must be"),
        ("interval = {}", "interval must be"),
        ("interval = true", "interval must be"),
        ("interval = 0", "interval must be"),
        ("interval = nan", "interval must be"),
        ("quiet = 3", "quiet must be"),
        ('[check]\nignore = "no-wait"', r"check\.ignore must be a list of names"),
        ("[check]\nignore = 3", r"check\.ignore must be a list of names"),
        ("[check]\nignore = [1]", r"check\.ignore must be a list of names"),
    ],
    ids=lambda one: repr(one)[:30],
)
def test_a_file_that_cannot_be_is_named_with_what_is_wrong(
    layers: Layers, text: str | bytes, line: str
) -> None:
    layers.project.write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(FormatError, match=rf"weigh\.toml: {line}"):
        layers.load()


def test_a_tool_weigh_that_is_no_table_is_refused(layers: Layers, write: Write) -> None:
    write(layers.pyproject, "[tool]\nweigh = 3")

    with pytest.raises(FormatError, match="must be a table"):
        layers.load()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("quiet", "1", True),
        ("quiet", "yes", True),
        ("quiet", "OFF", False),
        ("quiet", "0", False),
        ("interval", "0.5", 0.5),
        ("stalled_after", "10m", 600),  # a unit as the options take one
    ],
)
def test_a_variable_is_read_as_its_setting_is(
    layers: Layers, name: str, text: str, value: object
) -> None:
    assert layers.load(**{f"WEIGH_{name.upper()}": text}).value(name) == value


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("WEIGH_QUIET", "maybe", "must be true or false"),
        ("WEIGH_INTERVAL", "often", "must be a time above 0"),
    ],
)
def test_a_variable_that_cannot_be_is_named(
    layers: Layers, name: str, text: str, line: str
) -> None:
    with pytest.raises(FormatError, match=f"{name} {line}"):
        layers.load(**{name: text})


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WEIGH_HEADROOM": "", "WEIGH_QUIET": " "},
        {"WEIGH_DIR": "/somewhere", "WEIGH_CHANNEL": "7"},
    ],
    ids=["none", "empty ones", "those of other readers"],
)
def test_variables_that_set_nothing(layers: Layers, variables: dict[str, str]) -> None:
    assert layers.load(**variables) == ConfigValues()


@pytest.mark.parametrize(
    ("file", "make"),
    [
        ("project", Path.mkdir),
        ("project", os.mkfifo),
        ("pyproject", lambda path: path.write_text("[tool.other\n")),
    ],
    ids=["a folder", "a fifo", "another tool's broken pyproject"],
)
def test_what_is_no_file_of_settings_is_passed_by(
    layers: Layers, file: str, make: Callable[[Path], object]
) -> None:
    make(getattr(layers, file))

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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("headrom = 1", "'headrom' (did you mean headroom?)"),
        ('[cluster]\nacount = "p"', "cluster.acount (did you mean account?)"),
        ('[cluster]\nrequires = ["time"]', "cluster.requires (did you mean require?)"),
        ("[cluster]\nzzz = 1", "cluster.zzz"),
    ],
)
def test_an_unknown_key_is_one_warning_with_the_nearest_name(
    text: str, key: str, layers: Layers, write: Write
) -> None:
    write(layers.project, text)
    found = layers.load()
    assert found.settings == {}
    assert found.warnings == (f"{layers.project}: unknown key {key}; ignored",)


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
