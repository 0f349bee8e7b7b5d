"""`weigh run --log-to`: figures in MLflow and W&B, and never a failed job for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import WEIGH

PROGRAM = "b = bytearray(b'x') * (60 << 20); import time; time.sleep(0.3); exit({})"


def run(
    folder: Path, tool: str, code: int = 0, *more: str, **env: str
) -> "subprocess.CompletedProcess[str]":
    options = [*more, "--log-to", tool, "--label", "train", "--param", "lr=0.1"]
    command = [sys.executable, "-c", PROGRAM.format(code)]
    return subprocess.run(
        [*WEIGH, "run", *options, "-o", "record.json", "--", *command],
        cwd=folder,
        env={**os.environ, "WEIGH_DIR": str(folder / ".weigh"), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def package(folder: Path, name: str, text: str) -> dict[str, str]:
    """Return the environment in which Python finds such a package."""
    (folder / "packages").mkdir()
    (folder / "packages" / f"{name}.py").write_text(text)
    return {"PYTHONPATH": str(folder / "packages")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ImportError", "no Python here has it (pip install mlflow)"),
        ("raise ValueError('broken\\n installation')", "installation"),
        ("import os; os._exit(7)", "it failed"),
    ],
)
def test_a_tool_that_fails_is_one_line_and_no_failed_job(
    tmp_path: Path, text: str, words: str
) -> None:
    done = run(tmp_path, "mlflow", 5, **package(tmp_path, "mlflow", text))
    (line,) = [one for one in done.stderr.splitlines() if "--log-to mlflow" in one]
    assert words in line
    assert done.returncode == 5
    assert (tmp_path / "record.json").exists()
    quiet = run(tmp_path, "mlflow", 5, "-q", PYTHONPATH=str(tmp_path / "packages"))
    assert quiet.stderr == f"{line}\n"


def test_quiet_hides_what_worked_and_not_what_failed(tmp_path: Path) -> None:
    broken = package(tmp_path, "mlflow", "raise ValueError('broken')")
    words = ("run", "-q", "--log-to=mlflow", "--", "true")
    done = subprocess.run(
        [*WEIGH, *words],
        cwd=tmp_path,
        env={**os.environ, "WEIGH_DIR": "/proc/here", **broken},
        capture_output=True,
        text=True,
        check=False,
    )
    kept, logged = done.stderr.splitlines()
    assert kept.startswith("weigh: the record was not kept: cannot make /proc/here")
    assert logged == "weigh: --log-to mlflow: ValueError: broken"
    assert done.returncode == 0


@pytest.mark.integrations
def test_mlflow_has_the_figures_and_the_curve(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    done = run(tmp_path, "mlflow", 3, MLFLOW_TRACKING_URI=uri)
    assert "weigh: logged to mlflow: run " in done.stderr
    assert done.returncode == 3
    record = json.loads((tmp_path / "record.json").read_text())
    mlflow.set_tracking_uri(uri)
    (found,) = mlflow.search_runs(output_format="list")
    metrics = found.data.metrics
    assert metrics["weigh/peak_memory"] == record["usage"]["peak_memory"]["value"]
    assert found.data.params == {"lr": "0.1"}
    assert found.info.run_name == "train"
    assert found.info.status == "FAILED"
    curve = mlflow.MlflowClient().get_metric_history(found.info.run_id, "weigh/memory")
    assert max(one.value for one in curve) > 60 << 20


@pytest.mark.integrations
def test_a_run_of_mlflow_keeps_its_parameters_and_gets_the_others(
    tmp_path: Path,
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    for own, expected in (("lr", "7"), ("seed", "0.1")):
        with mlflow.start_run() as known:
            mlflow.log_param(own, 7)
        names = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_RUN_ID": known.info.run_id}
        done = run(tmp_path, "mlflow", **names)
        assert f"logged to mlflow: run {known.info.run_id}" in done.stderr
        found = mlflow.get_run(known.info.run_id)
        assert found.data.params == {own: "7", "lr": expected}
        assert found.data.metrics["weigh/exit_code"] == 0


@pytest.mark.integrations
def test_wandb_has_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    done = run(tmp_path, "wandb", WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    assert "weigh: logged to wandb: run " in done.stderr
    assert done.returncode == 0
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    data = log.read_bytes()
    assert b"weigh/peak_memory" in data
    assert b"weigh.command" in data
