import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weigh.hooks.ipython import render_cell
from weigh.measure.region.account import Account, Node
from weigh.measure.region.gpu_meter import GpuMark, GpuSpan
from weigh.units import GIB, MIB


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("IPython", reason="IPython is not installed")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415
    from traitlets.config import Config  # noqa: PLC0415

    config = Config()
    config.HistoryManager.enabled = False
    shell: Any = InteractiveShell.instance(config=config)
    shell.run_cell("%load_ext weigh").raise_error()
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.usefixtures("regions")
def test_a_cell_says_time_and_memory_on_two_lines(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("%%weigh\nheld = bytearray(50_000_000)").raise_error()
    time, memory = capsys.readouterr().out.splitlines()
    assert time.startswith("weigh  ")
    assert "of CPU" in time
    assert "memory" in memory
    assert memory.endswith("after")


@pytest.mark.usefixtures("regions")
def test_a_cells_names_and_its_value_are_the_notebooks(shell: Any) -> None:
    shell.run_cell("half = 21").raise_error()
    done = shell.run_cell("%%weigh\nwhole = 2 * half\nwhole")
    assert done.result == shell.user_ns["whole"] == 42


@pytest.mark.usefixtures("regions")
@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("%weigh f'{half} $half'", "21 $half"),
        ("%%weigh\nhalf;", None),
        ("%%weigh\n%env WEIGH_TEST=5\n!true\nhalf", 21),
    ],
    ids=["line", "semicolon", "magics"],
)
def test_code_means_what_it_means_in_a_cell(
    shell: Any, code: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_TEST", "")
    shell.run_cell("half = 21").raise_error()
    done = shell.run_cell(code)
    assert done.success
    assert done.result == value


@pytest.mark.usefixtures("regions")
def test_a_failing_cell_fails_and_is_measured_all_the_same(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    done = shell.run_cell("%%weigh\n1 / 0")
    assert isinstance(done.error_in_exec, ZeroDivisionError)
    assert "weigh  " in capsys.readouterr().out


@pytest.mark.usefixtures("regions")
def test_a_cell_may_be_given_a_name(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("%%weigh load model\npass").raise_error()
    assert capsys.readouterr().out.startswith("weigh  load model  ")


@pytest.mark.usefixtures("regions")
def test_a_name_that_is_too_long_is_shortened(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell(f"%%weigh {'x' * 10_000}\npass").raise_error()
    assert len(capsys.readouterr().out) < 400


def an_account(*, exact: bool) -> Account:
    account = Account(None, Node(("cell",), 0.0), None)
    account.wall, account.cpu = 2.0, 1.0
    span = account.span
    span.before, span.peak, span.after = 100 * MIB, 2 * GIB, 150 * MIB
    span.exact = exact
    return account


def test_each_gpu_has_a_line() -> None:
    account = an_account(exact=True)
    account.span.gpus = GpuSpan([GpuMark("GPU-0", GIB), GpuMark("GPU-1", None)])
    account.span.gpus.fold([GpuMark("GPU-0", 3 * GIB)])
    *_, first, second = render_cell(account).splitlines()
    figures = "3.00 GiB at the peak, 1.00 GiB before, 3.00 GiB after"
    assert first.strip() == f"gpu 0 {figures}"
    assert second.strip() == "gpu 1 not measured"


def test_a_bound_is_called_one() -> None:
    assert "memory at most 2.00 GiB" in render_cell(an_account(exact=False))
    assert "memory 2.00 GiB" in render_cell(an_account(exact=True))


def test_a_share_of_a_core_is_said_where_the_clock_is_fine_enough() -> None:
    account = an_account(exact=True)
    assert "0.50 of a core" in render_cell(account)
    account.wall = 0.000_02
    assert "of a core" not in render_cell(account)


def test_weigh_imports_no_ipython() -> None:
    code = (
        "import sys, weigh; weigh.load_ipython_extension; "
        "print('IPython' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
