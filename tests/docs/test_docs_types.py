"""The pages' pieces of Python are valid under ``mypy --strict``."""

import sys
from pathlib import Path

import pytest
from doc_pages import ROOT
from run_captured import run_captured
from test_docs_run import BLOCKS

pytest.importorskip("mypy", reason="mypy is not installed: pip install '.[dev]'")
# of frameworks that need not be here
_LOOSE = """\
[mypy]
strict = True
[mypy-transformers.*,lightning.*,torch.*,hydra.*,optuna.*,mlflow.*,IPython.*]
ignore_missing_imports = True
"""


@pytest.mark.integrations
def test_python_on_the_pages_passes_mypy_strict(tmp_path: Path) -> None:
    files = []
    for number, block in enumerate(one for one in BLOCKS if one.language == "python"):
        given = block.words.get("given", "").split()
        names = "".join(f"{name}: Any\n" for name in given)
        head = f"from typing import Any\n{names}" if given else ""
        file = tmp_path / f"{block.page.stem}_{block.line}_{number}.py"
        file.write_text(head + block.text)
        files.append(file)
    (tmp_path / "mypy.ini").write_text(_LOOSE)
    checked = run_captured(
        [
            *(
                sys.executable,
                "-m",
                "mypy",
                "--config-file",
                str(tmp_path / "mypy.ini"),
            ),
            *("--cache-dir", str(ROOT / ".mypy_cache/pages")),
            *map(str, files),
        ],
        cwd=tmp_path,
    )

    assert files
    assert checked.returncode == 0, checked.stdout + checked.stderr
