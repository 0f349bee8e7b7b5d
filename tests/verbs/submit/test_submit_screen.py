"""What ``weigh submit`` shows: at most 80 columns, one idea a line."""

import subprocess
import sys
from pathlib import Path

from run_captured import run_captured
from sessions import check_session


def test_worked_examples_of_screens() -> None:
    check_session(Path(__file__).with_name("submit_screen.session"), {})


def test_a_small_plan_imports_few_of_our_modules(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").write_text("true\ntrue\n")
    words = ("plan", "tasks.txt", "--cpus", "1", "--memory", "1GiB", "--time", "5m")
    subprocess.run([sys.executable, "-m", "weigh", *words], cwd=tmp_path, check=True)
    program = (
        "import sys\n"
        "from weigh.cli.main import weigh\n"
        "weigh(['submit', 'plan/tasks', '--on', 'slurm', '--dry-run'],"
        " standalone_mode=False)\n"
        "print(sum(name.partition('.')[0] == 'weigh' for name in sys.modules))\n"
    )

    done = run_captured([sys.executable, "-c", program], cwd=tmp_path, check=True)

    assert int(done.stdout.split()[-1]) <= 80
