"""``hydra/launcher=weigh`` with the real Hydra: a multirun becomes a plan and a job."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from processes import until

pytest.importorskip("hydra", reason="hydra-core is not installed")
pytestmark = pytest.mark.integrations

APP = """
import hydra
from hydra.core.hydra_config import HydraConfig

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    hydra = HydraConfig.get()
    with open(hydra.runtime.output_dir + "/result", "w") as result:
        print(cfg.lr, cfg.model.name, cfg.text, hydra.job.num, file=result)

if __name__ == "__main__":
    main()
"""
FILES = {
    "app.py": APP,
    "conf/config.yaml": "defaults: [model: small, _self_]\nlr: 0.1\ntext: none\n",
    "conf/other.yaml": "defaults: [model: small, _self_]\nlr: 7\ntext: other\n",
    "conf/model/small.yaml": "name: small\n",
    "conf/model/large.yaml": "name: large\n",
}
NEEDS = ("memory=200M", "cpus=1", "time=5m")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def multirun(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    launcher = [f"hydra.launcher.{need}" for need in NEEDS]
    flags = [word for word in words if word.startswith("--")]
    words = tuple(word for word in words if word not in flags)
    return subprocess.run(
        [
            *(sys.executable, "app.py", "-m", *flags),
            *("hydra/launcher=weigh", *launcher, *words),
        ],
        cwd=folder,
        env={**os.environ, "WEIGH_DIR": str(folder / ".weigh")},
        capture_output=True,
        text=True,
        check=False,
    )


def plan_of(folder: Path) -> dict[str, list[dict[str, object]]]:
    (path,) = folder.glob("plan/*/plan.json")
    found: dict[str, list[dict[str, object]]] = json.loads(path.read_text())
    return found


def test_each_job_has_its_configuration_and_folder(folder: Path) -> None:
    done = multirun(
        folder,
        "hydra.launcher.on=local",
        "hydra.launcher.submit=['--jobs=2']",
        "hydra.sweep.dir=sweeps/1",
        "hydra.sweep.subdir=lr-${lr}-${model.name}",
        "lr=0.5,0.25",
        "model=small,large",
        "text='a b $HOME'",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {
        f"lr-{lr}-{model}": f"{lr} {model} a b $HOME {number}\n"
        for number, (lr, model) in enumerate(
            (lr, model) for lr in ("0.5", "0.25") for model in ("small", "large")
        )
    }
    until(lambda: results_in(folder / "sweeps/1") == expected)


def results_in(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in folder.glob("*/result")}


def test_several_jobs_share_a_gpu(folder: Path) -> None:
    gpu = ("hydra.launcher.gpu=V100-32GB", "hydra.launcher.gpu_memory=6GiB")
    dry = ("hydra.launcher.dry_run=true", "hydra.launcher.on=slurm")
    done = multirun(folder, *gpu, *dry, "lr=1,2,3,4,5,6,7,8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [len(one["tasks"]) for one in plan_of(folder)["elements"]] == [4, 4]  # type: ignore[arg-type]
    assert "#SBATCH --array=0-1" in done.stdout
    assert not [*folder.glob("plan/*/sent")]


def test_the_applications_own_flags_stay(folder: Path) -> None:
    done = multirun(
        folder,
        *("--config-name=other", "hydra.launcher.dry_run=true"),
        *("+hydra.job.env_set.A=b", "lr=1,2"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (tasks,) = folder.glob("multirun/*/*/*.txt")
    first = tasks.read_text().splitlines()[0]
    assert "--config-name=other +hydra.job.env_set.A=b lr=1 " in first
    assert "launcher" not in first


@pytest.mark.parametrize(
    "subdir",
    ["${hydra.job.override_dirname}", "it's-${lr}", '"run ${lr} (x)"', "a:b,${lr}"],
)
def test_a_folder_is_called_as_by_hydras_own_launcher(
    folder: Path, subdir: str
) -> None:
    config = folder / "conf/config.yaml"
    of_hydra = f"hydra: {{sweep: {{subdir: {json.dumps(subdir)}}}}}\n"
    config.write_text(config.read_text() + of_hydra)
    words = ("lr=1,2", "text=a b")
    own = [sys.executable, "app.py", "-m", "hydra.sweep.dir=own", *words]
    subprocess.run(own, cwd=folder, check=True, capture_output=True)
    done = multirun(folder, "hydra.sweep.dir=ours", "hydra.launcher.on=local", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (folder / "ours/app.txt").read_text().splitlines():
        subprocess.run(shlex.split(line), cwd=folder, check=True)
    named = [
        sorted(path.parent.name for path in folder.glob(f"{where}/*/result"))
        for where in ("own", "ours")
    ]
    assert named[0] == named[1]
    assert len(named[0]) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("memory=300", "hydra.launcher.memory: 300 has no unit"),
        ("gpu=V100-32GB", "? hydra.launcher.gpu_memory=2GiB, or measure"),
        ("gpu_memory=2GiB", "which GPU? hydra.launcher.gpu=NAME"),
        ("on=slurm", "or with hydra.launcher.on=local here"),
        ("gpu=nonsense", "no such GPU: 'nonsense'"),
    ],
)
def test_an_error_of_weigh_names_the_keys_of_the_launcher_once(
    folder: Path, words: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = multirun(folder, f"hydra.launcher.{words}", "lr=1,2")
    assert done.returncode != 0
    assert (done.stdout + done.stderr).count(expected) == 1, done.stderr
    assert "Traceback" not in done.stderr
